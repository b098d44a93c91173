//! Files written at once and tensor by tensor, against what the `safetensors` crate reads and writes.

mod support;

use std::collections::HashMap;
use std::ops::ControlFlow;

use safetensors::Dtype as TheirDtype;
use support::*;

/// A place for new files.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }
    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("new.safetensors")
    }
    fn names(&self) -> Vec<std::ffi::OsString> {
        std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }
}

#[test]
fn what_is_saved_is_what_the_crate_reads() {
    for seed in 0..4 {
        let (model, place) = (Model::random(seed), Place::new());
        let options = SaveOptions::new().metadata(model.metadata.clone());
        options.save(place.path(), &model.samples).unwrap();
        assert_eq!(read_by_them(&place.path()), (model.samples.clone(), model.metadata.clone()));
        verify(place.path()).unwrap();
        assert_eq!(place.names().len(), 1);
    }
}

#[test]
fn the_stock_layout_is_what_the_crate_writes_byte_for_byte() {
    for seed in 0..4 {
        let (model, place) = (Model::random(seed), Place::new());
        let theirs = safetensors::serialize(&model.samples, None).unwrap();
        SaveOptions::new().layout(Layout::Stock).save(place.path(), &model.samples).unwrap();
        assert_eq!(std::fs::read(place.path()).unwrap(), theirs);
    }
}

#[test]
fn nothing_may_be_saved_and_order_and_room_are_as_asked() {
    let place = Place::new();
    save::<&str, TensorView<'_>>(place.path(), []).unwrap();
    assert_eq!(read_by_them(&place.path()), Default::default());
    let mut random = Random::new(1);
    let small = Sample::new(TheirDtype::U8, &[8], &mut random); // so that what comes after it is aligned
    let large = Sample::new(TheirDtype::F64, &[2], &mut random);
    save(place.path(), [("b", &small), ("a", &large), ("c", &small)]).unwrap();
    assert_eq!(File::open(place.path()).unwrap().names().unwrap(), ["b", "a", "c"]);
    let options = SaveOptions::new().layout(Layout::Canonical).alignment(4096).header_reserve(5000);
    options.save(place.path(), [("b", &small), ("a", &large), ("c", &small)]).unwrap();
    let file = File::open(place.path()).unwrap();
    let info = file.info().unwrap();
    assert_eq!(file.names().unwrap(), ["a", "b", "c"]);
    assert_eq!(info.data_offset % 4096, 0);
    assert!(info.header_size > 5000);
}

#[test]
fn what_no_reader_would_take_is_refused_and_the_old_file_stays() {
    let place = Place::new();
    let good = Sample::new(TheirDtype::U8, &[4], &mut Random::new(1));
    save(place.path(), [("w", &good)]).unwrap();
    let before = std::fs::read(place.path()).unwrap();
    let status = |tensors: &[(&str, &Sample)], options: SaveOptions<'_>| {
        options.save(place.path(), tensors.iter().copied()).unwrap_err().status()
    };
    let new = SaveOptions::new;
    assert_eq!(status(&[("w", &good), ("w", &good)], new()), Status::DuplicateName);
    let short = Sample { shape: vec![5], ..good.clone() };
    assert_eq!(status(&[("w", &short)], new()), Status::SizeMismatch);
    let half = Sample { dtype: TheirDtype::F4, shape: vec![3], data: vec![0] };
    assert_eq!(status(&[("w", &half)], new()), Status::Subbyte);
    let huge = Sample { shape: vec![usize::MAX, 64], ..good.clone() };
    assert_eq!(status(&[("w", &huge)], new()), Status::ShapeOverflow);
    assert_eq!(status(&[("w", &good)], new().alignment(12)), Status::InvalidArgument);
    assert_eq!(status(&[("w", &good)], new().metadata([("k", "1"), ("k", "2")])), Status::Metadata);
    assert_eq!(status(&[("w", &good)], new().progress(|_| ControlFlow::Break(()))), Status::Cancelled);
    assert_eq!(std::fs::read(place.path()).unwrap(), before);
    assert_eq!(place.names().len(), 1);
    let nowhere = save(place.0.path().join("none/x"), [("w", &good)]).unwrap_err();
    assert_eq!(nowhere.status(), Status::NoFile);
    assert_eq!(save(place.0.path(), [("w", &good)]).unwrap_err().status(), Status::NotRegular);
    assert_eq!(save("a\0b", [("w", &good)]).unwrap_err().status(), Status::InvalidArgument);
    let lock = Lock::hold(&place.path());
    assert_eq!(status(&[("w", &good)], new().lock_timeout(std::time::Duration::ZERO)), Status::Busy);
    drop(lock);
}

#[test]
fn a_panic_in_progress_goes_on_and_nothing_is_left() {
    let place = Place::new();
    let sample = Sample::new(TheirDtype::U8, &[8 << 20], &mut Random::new(1));
    let result = std::panic::catch_unwind(|| {
        SaveOptions::new().progress(|_| panic!("from progress")).save(place.path(), [("w", &sample)])
    });
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"from progress"));
    let result = std::panic::catch_unwind(|| {
        let mut writer =
            SaveOptions::new().progress(|_| panic!("from progress")).writer(place.path()).unwrap();
        writer.put("w", &sample).unwrap();
        writer.finish().unwrap();
    });
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"from progress"));
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn a_writer_writes_what_save_writes() {
    let (model, place) = (Model::random(9), Place::new());
    let mut told = 0;
    let options = SaveOptions::new().metadata(model.metadata.clone()).progress(|_| {
        told += 1;
        ControlFlow::Continue(())
    });
    let mut writer = options.writer(place.path()).unwrap();
    for (name, sample) in &model.samples {
        writer.put(name, sample).unwrap();
    }
    assert!(!place.path().exists(), "not before it is finished");
    writer.finish().unwrap();
    assert_eq!(read_by_them(&place.path()), (model.samples.clone(), model.metadata.clone()));
    assert!(told > 0);
    assert_eq!(place.names().len(), 1);
}

#[test]
fn declared_tensors_come_in_any_order_and_in_pieces() {
    let place = Place::new();
    let mut random = Random::new(3);
    let samples: Vec<(String, Sample)> = (0..5)
        .map(|i| (format!("t\0{i}"), Sample::new(TheirDtype::I16, &[100 * i, 3], &mut random)))
        .collect();
    let declared = samples.iter().map(|(name, sample)| (name, Dtype::I16, &sample.shape));
    let mut writer = SaveOptions::new().writer_declaring(place.path(), declared).unwrap();
    for piece in 0..3 {
        for (name, sample) in samples.iter().rev() {
            let third = sample.data.len() / 3;
            writer.write(name, &sample.data[piece * third..][..third]).unwrap();
        }
    }
    assert_eq!(writer.write("none", &[1]).unwrap_err().status(), Status::NotFound);
    assert_eq!(writer.write(&samples[1].0, &[1]).unwrap_err().status(), Status::NbytesMismatch);
    assert_eq!(writer.put(&samples[1].0, &samples[1].1).unwrap_err().status(), Status::DuplicateName);
    let extra = Sample::new(TheirDtype::U8, &[], &mut random);
    writer.put("extra", &extra).unwrap();
    writer.try_finish().unwrap();
    assert_eq!(writer.write("extra", &[1]).unwrap_err().status(), Status::TransactionFailed);
    assert_eq!(writer.try_finish().unwrap_err().status(), Status::TransactionFailed);
    drop(writer);
    let mut expected: Samples = samples.iter().cloned().collect();
    expected.insert("extra".to_owned(), extra);
    assert_eq!(read_by_them(&place.path()), (expected, HashMap::new()));
}

#[test]
fn a_writer_that_is_not_finished_leaves_the_old_file() {
    let place = Place::new();
    let sample = Sample::new(TheirDtype::U8, &[4], &mut Random::new(1));
    save(place.path(), [("old", &sample)]).unwrap();
    let before = std::fs::read(place.path()).unwrap();

    let mut dropped = Writer::create(place.path()).unwrap();
    dropped.put("w", &sample).unwrap();
    drop(dropped);
    Writer::create(place.path()).unwrap().abort();
    let shape: &[usize] = &[4];
    let mut writer = SaveOptions::new().writer_declaring(place.path(), [("w", Dtype::U8, shape)]).unwrap();
    writer.write("w", &sample.data[..3]).unwrap();
    let unfinished = writer.try_finish().unwrap_err();
    assert_eq!((unfinished.status(), unfinished.tensor()), (Status::Incomplete, Some("w")));
    writer.write("w", &sample.data[..1]).unwrap();
    drop(writer);
    let mut writer = SaveOptions::new().writer_declaring(place.path(), [("w", Dtype::U8, shape)]).unwrap();
    let other = Sample::new(TheirDtype::U8, &[2, 2], &mut Random::new(1));
    assert_eq!(writer.put("w", &other).unwrap_err().status(), Status::ShapeMismatch);
    drop(writer);
    let refused = SaveOptions::new().writer_declaring(place.path(), [("w", Dtype::F4, [3])]);
    let refused = refused.unwrap_err();
    assert_eq!((refused.status(), refused.tensor()), (Status::Subbyte, Some("w")));
    assert!(refused.message().contains("\"w\""), "{refused}");
    let refused = SaveOptions::new().writer_declaring(place.path(), [("w", Dtype::U8, [usize::MAX, 8])]);
    assert_eq!(refused.unwrap_err().status(), Status::ShapeOverflow);
    assert_eq!(std::fs::read(place.path()).unwrap(), before);
    assert_eq!(place.names().len(), 1);
}

/// How many files a process may open.
fn most_files(most: u64) -> u64 {
    // SAFETY: zeros are limits, and a place to write to.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, most);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
        before
    }
}

#[test]
fn a_writer_finishes_when_files_can_be_opened_again() {
    let place = Place::new();
    let sample = Sample::new(TheirDtype::U8, &[4], &mut Random::new(1));
    let child = Child::fork(|| {
        let mut writer = Writer::create(place.path()).unwrap();
        writer.put("w", &sample).unwrap();
        let before = most_files(1);
        let refused = writer.try_finish().unwrap_err();
        most_files(before);
        assert_eq!((refused.status(), refused.os_errno()), (Status::Io, Some(libc::EMFILE)));
        writer.finish().unwrap();
        0
    });
    assert_eq!(child.wait(), 0);
    assert_eq!(File::open(place.path()).unwrap().read("w").unwrap(), sample.data);
}

#[test]
fn a_writer_moves_to_another_thread() {
    let place = Place::new();
    let sample = Sample::new(TheirDtype::U8, &[4], &mut Random::new(1));
    let mut writer = Writer::create(place.path()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.put("w", &sample).unwrap();
            writer.finish().unwrap();
        });
    });
    assert_eq!(File::open(place.path()).unwrap().names().unwrap(), ["w"]);
}
