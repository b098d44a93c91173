//! Snapshots: one state of a file, whatever becomes of it; and what outlives it.

mod support;

use support::*;

fn replace(file: &File, name: &str, sample: &Sample) {
    let mut change = file.begin().unwrap();
    change.put(name, sample).unwrap();
    change.set_metadata("made by", "another").unwrap();
    change.commit().unwrap();
}

#[test]
fn a_snapshot_shows_one_state() {
    let model = Model::plain();
    let mut file = model.writable();
    let now = file.snapshot().unwrap();
    // SAFETY: the file is replaced as a whole, never written in place.
    let view = unsafe { now.view("w").unwrap() };
    replace(&file, "w", &model.samples["b"]);
    replace(&file, "new", &model.samples["b"]);
    file.refresh().unwrap();
    file.release();
    let check = || {
        assert_eq!((now.len(), now.contains("new").unwrap(), now.names().unwrap().len()), (3, false, 3));
        assert_eq!((now.read("w").unwrap(), view.data()), (model.data("w").to_vec(), model.data("w")));
        let mut w = vec![0; model.data("w").len()];
        now.read_into("w", &mut w).unwrap();
        assert_eq!(w, model.data("w"));
        let (tensors, mut many) = (now.tensors_by_name(&["w"]).unwrap(), vec![0; w.len()]);
        now.read_many([tensors[0].request(&mut many)]).unwrap();
        assert_eq!(now.tensor("w").unwrap().shape(), tensors[0].shape());
        assert_eq!(many, w);
        assert_eq!(now.slice("w", &s![..1]).unwrap().read().unwrap(), model.data("w")[..96 * 4]);
        assert_eq!(
            (now.metadata(), now.metadata_get("made by")),
            (vec![("made by", "a test")], Some("a test"))
        );
        assert_eq!(now.tensors().unwrap().iter().map(Tensor::name).collect::<Vec<_>>(), now.names().unwrap());
        now.prefetch(None).unwrap();
        assert!(
            !now.is_empty()
                && now.shards() == [model.path.canonicalize().unwrap()]
                && now.path() == model.path
        );
        assert_eq!((now.info().unwrap().map, now.stats().unwrap().commits), (Map::Shared, 2));
    };
    check();
    assert_eq!((file.len(), file.metadata_get("made by").unwrap()), (4, "another".to_owned()));
    drop(file);
    check();
    assert_eq!(now.clone().names().unwrap(), now.names().unwrap());
}

#[test]
fn kept_views_outlive_their_file() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    // SAFETY: nobody writes to the file.
    let (view, of_snapshot) =
        unsafe { (file.view_kept("w").unwrap(), file.snapshot().unwrap().view_kept("b").unwrap()) };
    // SAFETY: as above.
    let missing = unsafe { file.view_kept("none") };
    assert_eq!(missing.unwrap_err().status(), Status::NotFound);
    let copy = view.clone();
    drop((file, view));
    std::fs::remove_file(&model.path).unwrap();
    let thread = std::thread::spawn(move || (copy.data().to_vec(), copy.as_view().shape().to_vec()));
    assert_eq!(thread.join().unwrap(), (model.data("w").to_vec(), vec![64, 96]));
    save(&model.path, [("b", &of_snapshot.as_view())]).unwrap();
    save(&model.path, [("b", of_snapshot)]).unwrap();
    let now = File::open(&model.path).unwrap();
    assert_eq!(now.read("b").unwrap(), model.data("b"));
    // SAFETY: as above.
    let refused = |file: &File| unsafe { file.view_kept("b") }.unwrap_err().status();
    now.load(None).unwrap();
    assert_eq!(refused(&now), Status::Unsupported);
    let owned = OpenOptions::new().map(Map::None).open(&model.path).unwrap();
    assert_eq!(refused(&owned), Status::Unsupported);
}

#[test]
fn the_c_interface_takes_what_is_open_here() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    let now = file.snapshot().unwrap();
    for raw in [file.as_raw(), now.as_raw()] {
        // SAFETY: open handles.
        assert_eq!(unsafe { libst_sys::st_count(raw) }, 3);
    }
}

#[test]
fn owned_views_outlive_their_file() {
    let model = Model::plain();
    let file = OpenOptions::new().map(Map::None).open(&model.path).unwrap();
    let (view, of_snapshot) =
        (file.view_owned("w").unwrap(), file.snapshot().unwrap().view_owned("w").unwrap());
    let copy = view.clone();
    drop((file, view));
    std::fs::write(&model.path, []).unwrap();
    std::thread::spawn(move || assert_eq!(copy.data(), of_snapshot.data())).join().unwrap();
    let model = Model::plain();
    let view = File::open(&model.path).unwrap().view_owned("w").unwrap();
    assert_eq!((view.dtype(), view.shape(), view.data_len()), (Dtype::F32, &[64, 96][..], 64 * 96 * 4));
    save(model.path.with_extension("copy"), [("w", &view)]).unwrap();
    let other = File::open(&model.path).unwrap().view_owned("b").unwrap();
    let chosen: [(&str, &dyn View); 2] = [("w", &view.as_view()), ("b", &other)];
    save(model.path.with_extension("copy"), chosen).unwrap();
    assert_eq!(File::open(model.path.with_extension("copy")).unwrap().read("b").unwrap(), model.data("b"));
    save(model.path.with_extension("copy"), [("w", view)]).unwrap();
    assert_eq!(File::open(model.path.with_extension("copy")).unwrap().read("w").unwrap(), model.data("w"));
    assert_eq!(
        model.writable().snapshot().unwrap().view_owned("w").unwrap_err().status(),
        Status::Unsupported
    );
}

#[test]
fn no_refresh_changes_the_bytes_under_an_owned_view() {
    let model = Model::plain();
    let mut file = OpenOptions::new().map(Map::None).open(&model.path).unwrap();
    let now = file.snapshot().unwrap();
    let view = now.view_owned("w").unwrap();
    let copy = view.clone();
    model.writable().update_bytes("w", &[1; 64 * 96 * 4]).unwrap();
    for view in [view, copy] {
        assert_eq!(file.refresh().unwrap_err().status(), Status::Unsupported);
        assert_eq!(view.data(), model.data("w"));
    }
    file.refresh().unwrap();
    assert_eq!(file.view_owned("w").unwrap().data(), [1; 64 * 96 * 4]);
}

#[test]
fn many_tensors_of_one_state_are_read_together() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    let requests = |file: &File| file.stats().unwrap().read_requests;
    let (mut together, mut one_by_one) = (vec![vec![0; 7], vec![0; 8000]], vec![vec![0; 7], vec![0; 8000]]);
    let tensors = file.snapshot().unwrap();
    let all = ["b", "v"].map(|name| tensors.tensor(name).unwrap());
    file.read_many(all.iter().zip(&mut together).map(|(tensor, to)| tensor.request(to))).unwrap();
    let of_one = requests(&file);
    let all = ["b", "v"].map(|name| file.tensor(name).unwrap());
    file.read_many(all.iter().zip(&mut one_by_one).map(|(tensor, to)| tensor.request(to))).unwrap();
    assert_eq!((requests(&file) - of_one, one_by_one), (of_one, together), "they lie in one file");
}

#[test]
fn a_missing_shard_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model::plain();
    reshard(&model.path, folder.path(), 8000).unwrap();
    let file = File::open(folder.path()).unwrap();
    let shards = file.shards();
    std::fs::remove_file(&shards[1]).unwrap();
    assert_eq!(file.tensors().unwrap_err().status(), Status::ShardMissing);
    assert_eq!(file.names().unwrap_err().status(), Status::ShardMissing, "rather than to answer less");
    assert_eq!(file.snapshot().unwrap().names().unwrap_err().status(), Status::ShardMissing);
}

#[test]
fn a_file_says_whether_it_may_be_changed() {
    let model = Model::plain();
    let (file, reader) = (model.writable(), File::open(&model.path).unwrap());
    assert!(file.is_writable() && !reader.is_writable());
    assert!(file.reopen().unwrap().is_writable() && !reader.reopen().unwrap().is_writable());
    assert!(!file.reopen_copy_on_write().unwrap().is_writable());
}

#[test]
fn a_snapshot_is_reopened_for_reading() {
    let model = Model::plain();
    let file = model.writable();
    let now = file.snapshot().unwrap();
    let again = now.reopen().unwrap();
    assert_eq!((again.path(), again.read("w").unwrap()), (model.path.as_path(), model.data("w").to_vec()));
    assert_eq!(again.update_bytes("b", &[1; 7]).unwrap_err().status(), Status::ReadOnly);
    assert!(!again.is_writable() && again.view_owned("w").is_ok());
    let mine = now.reopen_copy_on_write().unwrap();
    assert!(!mine.is_writable() && mine.view_raw("w").is_ok());
    replace(&file, "w", &model.samples["b"]);
    assert_eq!(now.reopen().unwrap_err().status(), Status::FileChanged);
    assert_eq!(now.reopen_copy_on_write().unwrap_err().status(), Status::FileChanged);
}
