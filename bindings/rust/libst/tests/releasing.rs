//! A file that publishes keeps open only those of its states that somebody may still look at. This is the only test of
//! its process, so that no other blurs the counts.

mod support;

use support::*;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Those of replaced files too.
fn mappings_of(model: &Model) -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().matches(model.path.to_str().unwrap()).count()
}

fn nothing(_: &mut File) {}

fn copies(file: &mut File) {
    for tensor in file.tensors().unwrap() {
        let (name, bytes) = (tensor.name(), tensor.read().unwrap());
        assert_eq!(file.read(name).unwrap(), bytes);
        assert_eq!(file.slice(name, &[]).unwrap().read().unwrap(), bytes);
        let mut again = vec![0; bytes.len()];
        file.read_many([tensor.request(&mut again)]).unwrap();
        file.read_into(name, &mut again).unwrap();
        assert!(file.contains(name).unwrap() && again == bytes);
    }
    assert_eq!((file.names().unwrap().len(), file.metadata().len(), file.shards().len()), (3, 1, 1));
    assert!(file.metadata_get("made by").is_some());
    file.prefetch(None).unwrap();
}

fn views_that_are_released(file: &mut File) {
    // SAFETY: nobody writes meanwhile.
    assert!(!unsafe { file.view("w").unwrap() }.data().is_empty());
    file.release();
}

fn views_of_snapshots(file: &mut File) {
    let now = file.snapshot().unwrap();
    // SAFETY: nobody writes meanwhile.
    assert!(!unsafe { now.view("w").unwrap() }.data().is_empty());
}

fn views_that_are_kept(file: &mut File) {
    // SAFETY: nobody writes meanwhile.
    let view = unsafe { file.view_kept("w").unwrap() };
    assert!(!view.clone().data().is_empty());
}

/// A part of the one test, as others would blur the counts.
fn kept_views_keep_a_mapping_and_no_descriptor() {
    let model = Model::plain();
    let before = descriptors();
    let file = File::open(&model.path).unwrap();
    // SAFETY: nobody writes meanwhile.
    let view = unsafe { file.view_kept("w").unwrap() };
    let copy = view.clone();
    drop((file, view));
    assert_eq!((descriptors(), mappings_of(&model)), (before, 1));
    assert_eq!(copy.data(), model.data("w"));
    drop(copy);
    assert_eq!(mappings_of(&model), 0);
}

#[test]
fn publishes_leave_nothing_open() {
    kept_views_keep_a_mapping_and_no_descriptor();
    for (what, look) in [
        ("nobody looks", nothing as fn(&mut File)),
        ("copies are read", copies),
        ("views are released", views_that_are_released),
        ("snapshots are viewed", views_of_snapshots),
        ("views are kept", views_that_are_kept),
    ] {
        let model = Model::plain();
        let mut file = model.writable();
        let mut round = |n: u8| {
            look(&mut file);
            let mut change = file.begin().unwrap();
            change.put("b", TensorView::new(Dtype::U8, vec![2], &[n, n]).unwrap()).unwrap();
            change.commit().unwrap();
            look(&mut file);
        };
        round(0);
        let before = (descriptors(), mappings_of(&model));
        (0..50).for_each(&mut round);
        assert_eq!((descriptors(), mappings_of(&model)), before, "{what}");
    }
}
