//! Errors: kinds, parts, sources.

mod support;

use std::cell::RefCell;
use std::error::Error as _;
use std::io;

use support::*;

#[test]
fn an_error_of_the_system_has_it_as_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.safetensors");
    for error in [
        File::open(&missing).unwrap_err(),
        verify(&missing).unwrap_err(),
        recover(&missing).unwrap_err(),
        OpenOptions::new().write(true).open(&missing).unwrap_err(),
    ] {
        assert_eq!((error.status(), error.os_errno()), (Status::NoFile, Some(libc::ENOENT)));
        let source: &io::Error = error.source().unwrap().downcast_ref().unwrap();
        assert_eq!(source.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("missing.safetensors"), "{error}");
        assert_eq!(error.message(), error.to_string());
        assert!(format!("{error:?}").contains("ST_E_NO_FILE"), "{error:?}");
    }
    assert_eq!(File::open(folder.path()).unwrap_err().status(), Status::NotRegular);
}

#[test]
fn an_error_may_be_one_of_the_system() {
    fn opened(path: &std::path::Path) -> io::Result<File> {
        Ok(File::open(path)?)
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    assert_eq!(opened(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    std::fs::write(&path, "no model").unwrap();
    let error = opened(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let own: &libst::Error = error.get_ref().unwrap().downcast_ref().unwrap();
    assert_eq!(own.to_string(), error.to_string());
    let tensor = Model::plain().writable().read("none").unwrap_err();
    assert_eq!(io::Error::from(tensor).kind(), io::ErrorKind::Other, "it is no file");
}

#[test]
fn an_error_of_the_format_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    let file = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        std::fs::write(&path, bytes).unwrap();
        (
            File::open(&path).unwrap_err(),
            SafeTensors::deserialize(&std::fs::read(&path).unwrap()).unwrap_err(),
        )
    };
    let cases = [
        (r#"{"a":}"#, Status::HeaderJson),
        (r#"{"a":{"dtype":"f32","shape":[],"data_offsets":[0,4]}}"#, Status::Dtype),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, Status::SizeMismatch),
        (r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#, Status::TrailingData),
        (r#"{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}"#, Status::Truncated),
        (
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}"#,
            Status::DuplicateName,
        ),
    ];
    for (header, status) in cases {
        let (in_file, in_memory) = file(header, 4);
        assert_eq!((in_file.status(), in_memory.status()), (status, status), "{header}");
        assert!(in_file.source().is_none() && in_file.os_errno().is_none());
        let found = std::cell::RefCell::new(Vec::new());
        let told = Verify::new()
            .report(|report| {
                found.borrow_mut().push((report.level, report.status));
                std::ops::ControlFlow::Continue(())
            })
            .run(&path);
        assert_eq!(told.unwrap_err().status(), status);
        assert!(found.borrow().contains(&(Level::Error, Some(status))), "{found:?}");
    }
}

#[test]
fn a_path_with_nul_is_refused() {
    for error in [File::open("a\0b").unwrap_err(), verify("a\0b").unwrap_err(), recover("a\0b").unwrap_err()]
    {
        assert_eq!(error.status(), Status::InvalidArgument);
    }
}

#[test]
fn errors_of_threads_do_not_mix() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    std::thread::scope(|scope| {
        for i in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..500 {
                    let name = format!("missing {i} {round}");
                    let error = file.read(&name).unwrap_err();
                    assert_eq!((error.status(), error.tensor()), (Status::NotFound, Some(name.as_str())));
                }
            });
        }
    });
}

struct Last(RefCell<Option<File>>);

impl Drop for Last {
    fn drop(&mut self) {
        let file = self.0.take().unwrap();
        for _ in 0..2 {
            let name = "a name that does not fit in a string without memory of its own";
            assert!(file.read(name).unwrap_err().message().contains(name));
        }
    }
}

#[test]
fn a_file_may_be_used_when_its_thread_ends() {
    thread_local! {
        static LAST: Last = const { Last(RefCell::new(None)) };
    }
    let model = Model::plain();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            LAST.with(|last| last.0.replace(Some(File::open(&model.path).unwrap())));
            File::open("/no/such/folder/model.safetensors").unwrap_err(); // the library's last error goes before LAST
        });
    });
}

#[test]
fn a_file_that_is_truncated_is_an_error_and_no_signal() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    let handle = std::fs::OpenOptions::new().write(true).open(&model.path).unwrap();
    handle.set_len(file.info().unwrap().data_offset + 100).unwrap();
    let error = file.read("w").unwrap_err();
    assert_eq!((error.status(), error.tensor()), (Status::FileChanged, Some("w")));
    let error = file.slice("w", &s![3..5]).unwrap().read().unwrap_err();
    assert_eq!(error.status(), Status::FileChanged);
}

#[test]
fn a_buffer_that_is_too_small_is_an_error_and_one_that_is_larger_is_not() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    let mut small = [0; 6];
    assert_eq!(file.read_into("b", &mut small).unwrap_err().status(), Status::BufferSize);
    let mut large = [1; 9];
    file.read_into("b", &mut large).unwrap();
    assert_eq!((&large[..7], &large[7..]), (model.data("b"), &[1, 1][..]));
}

#[test]
fn values_that_do_not_add_up_are_refused_at_once() {
    let status =
        |dtype, shape: &[usize], n| TensorView::new(dtype, shape.to_vec(), &vec![0; n]).unwrap_err().status();
    assert_eq!(status(Dtype::F32, &[2, 2], 15), Status::NbytesMismatch);
    assert_eq!(status(Dtype::F4, &[3], 2), Status::Subbyte);
    for shape in [&[usize::MAX, usize::MAX][..], &[usize::MAX / 8 + 1]] {
        assert_eq!(status(Dtype::U8, shape, 1), Status::ShapeOverflow);
    }
    assert_eq!(TensorView::new(Dtype::F6_E2M3, vec![4], &[0; 3]).unwrap().data_len(), 3);
    assert_eq!(TensorView::new(Dtype::F64, vec![], &[0; 8]).unwrap().shape(), [0; 0]);
}

#[test]
fn a_reopened_file_is_refused_when_its_path_names_another() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    assert_eq!(file.reopen().unwrap().read("w").unwrap(), model.data("w"));
    let copy = model.path.with_extension("copy");
    std::fs::copy(&model.path, &copy).unwrap();
    std::fs::rename(&copy, &model.path).unwrap();
    assert_eq!(file.reopen().unwrap_err().status(), Status::FileChanged);
    assert_eq!(file.read("w").unwrap(), model.data("w"), "of the file that was opened");
}

#[test]
fn owned_views_are_for_files_that_nobody_changes_under_them() {
    let model = Model::plain();
    let writable = OpenOptions::new().write(true).map(Map::None).open(&model.path).unwrap();
    assert_eq!(writable.view_owned("w").unwrap_err().status(), Status::Unsupported);
    let copied = OpenOptions::new().map(Map::CopyOnWrite).open(&model.path).unwrap();
    assert_eq!(
        copied.view_owned("w").unwrap_err().status(),
        Status::Unsupported,
        "a truncation would be a signal"
    );
    let owned = OpenOptions::new().map(Map::None).open(&model.path).unwrap();
    let view = owned.view_owned("w").unwrap();
    writable.update_bytes("w", &[1; 64 * 96 * 4]).unwrap();
    assert_eq!(view.data(), model.data("w"), "as they were at the first look");
    assert_eq!(owned.view_owned("w").unwrap().data().as_ptr(), view.data().as_ptr());
    let (info, stats) = (owned.info().unwrap(), owned.stats().unwrap());
    assert_eq!((info.map, stats.bytes_owned, stats.bytes_mapped), (Map::None, 64 * 96 * 4, 0));
    assert!(
        info.storage != Storage::Unknown && !info.filesystem.is_empty() && !info.reason.is_empty(),
        "{info:?}"
    );
    assert_eq!(info.file_size, model.bytes().len() as u64);
}

#[test]
fn a_main_that_answers_an_error_prints_a_sentence() {
    let error = File::open("/none/model.safetensors").unwrap_err();
    let sentence = "cannot open '/none/model.safetensors': No such file or directory";
    assert_eq!(format!("{error}"), sentence);
    assert_eq!(format!("{error:?}"), format!("{sentence} (ST_E_NO_FILE)"));
    let parts = format!("{error:#?}");
    assert!(parts.starts_with("Error {\n    status: NoFile,\n    message: \"cannot open"), "{parts}");
}
