//! A sharded checkpoint: made, opened as one, changed, joined; against what the `safetensors` crate reads.

mod support;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use libst::{Compact, File, OpenOptions, SaveOptions, Status, TransactionOptions};
use support::*;

#[test]
fn a_checkpoint_is_sharded_changed_and_joined() {
    let model = Model::plain();
    let folder = tempfile::tempdir().unwrap();
    let sharded = folder.path().join("sharded");
    libst::reshard(&model.path, &sharded, 1).unwrap(); // a tensor a shard
    let file = OpenOptions::new().write(true).open(&sharded).unwrap();
    assert_eq!(file.shards().len(), model.samples.len());
    assert!(file
        .shards()
        .iter()
        .all(|path| path.is_file() && path.starts_with(sharded.canonicalize().unwrap())));
    for name in model.samples.keys() {
        assert_eq!(file.read(name).unwrap(), model.data(name), "{name}");
    }
    let mut change = file.begin().unwrap();
    change.update_bytes("b", &[9; 7]).unwrap();
    change.delete("v").unwrap();
    change.rename("w", "weight").unwrap();
    change.commit().unwrap();
    libst::verify(&sharded).unwrap();

    let joined = folder.path().join("joined.safetensors");
    SaveOptions::new().join(&sharded, &joined).unwrap();
    let (now, _) = read_by_them(&joined);
    assert_eq!(now["b"].data, [9; 7]);
    assert!(now.contains_key("weight") && !now.contains_key("v") && !now.contains_key("w"));
    assert_eq!(File::open(&joined).unwrap().shards(), [joined.canonicalize().unwrap()]);
    assert_eq!(libst::reshard(&joined, &sharded, 1).unwrap_err().status(), Status::InvalidArgument);
}

#[test]
fn a_shard_that_is_missing_is_named() {
    let model = Model::plain();
    let folder = tempfile::tempdir().unwrap();
    libst::reshard(&model.path, folder.path(), 1).unwrap();
    std::fs::remove_file(&File::open(folder.path()).unwrap().shards()[0]).unwrap();
    assert_eq!(File::open(folder.path()).unwrap_err().status(), Status::ShardMissing);
}

#[test]
fn a_shard_that_is_lost_since_is_no_reason_to_say_that_a_tensor_is_not_there() {
    let model = Model::plain();
    let folder = tempfile::tempdir().unwrap();
    libst::reshard(&model.path, folder.path(), 1).unwrap();
    let file = File::open(folder.path()).unwrap();
    let now = file.snapshot().unwrap();
    for shard in file.shards() {
        std::fs::remove_file(shard).unwrap();
    }
    for name in ["none", ""] {
        assert!(!file.contains(name).unwrap() && !now.contains(name).unwrap());
    }
    assert_eq!(now.contains("w").unwrap_err().status(), Status::ShardMissing);
    assert_eq!(file.contains("w").unwrap_err().status(), Status::ShardMissing);
}

/// What a closure panics with that a look-up comes to call, and what the calls after it answer.
#[test]
fn a_panic_while_a_shard_is_opened_goes_on_in_that_call() {
    let model = Model::plain();
    let folder = tempfile::tempdir().unwrap();
    libst::reshard(&model.path, folder.path(), 1).unwrap(); // a tensor a shard
    let shard_of_b = File::open(folder.path()).unwrap().tensor("b").unwrap().shard() as usize;
    let path = File::open(folder.path()).unwrap().shards()[shard_of_b].clone();
    let died = || {
        let child = Child::fork(|| {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let mut change = file.begin().unwrap();
            change.update_bytes("b", &[1; 7]).unwrap();
            // SAFETY: ends the process, as a crash does.
            unsafe { libc::_exit(7) }
        });
        assert_eq!(child.wait(), 7);
    };
    let calls: [fn(&File); 2] = [|file| drop(file.contains("b")), |file| drop(file.prefetch(Some(&["b"])))];
    for call in calls {
        died();
        let log = |_, message: &str| panic!("about: {message}");
        let file = OpenOptions::new().write(true).log(log).open(folder.path()).unwrap();
        let payload = catch_unwind(AssertUnwindSafe(|| call(&file))).unwrap_err();
        assert!(payload.downcast_ref::<String>().unwrap().starts_with("about: "));
        assert_eq!(file.read("b").unwrap(), model.data("b"), "the panic is over");
    }
}

#[test]
fn under_new_names_old_shards_stay_until_recovery() {
    let model = Model::plain();
    let folder = tempfile::tempdir().unwrap();
    libst::reshard(&model.path, folder.path(), 1).unwrap();
    let file = OpenOptions::new().write(true).open(folder.path()).unwrap();
    let before = file.shards();
    let mut change = TransactionOptions::new().new_names(Duration::from_secs(60)).begin(&file).unwrap();
    change.rename("w", "weight").unwrap();
    assert!(change.plan().unwrap().how.contains("stays 60 s"));
    change.commit().unwrap();
    let after = file.shards();
    let old: Vec<_> = before.iter().filter(|path| !after.contains(path)).collect();
    assert!(old.len() == 1 && old[0].is_file());
    assert!(after.iter().any(|path| path.to_str().unwrap().ends_with(".g1.safetensors")));
    libst::recover(folder.path()).unwrap();
    assert!(!old[0].exists());
    libst::verify(folder.path()).unwrap();

    let file = OpenOptions::new().write(true).open(&model.path).unwrap();
    let refused = TransactionOptions::new().new_names(Duration::ZERO).begin(&file).unwrap_err();
    assert_eq!(refused.status(), Status::Unsupported);
    assert!(TransactionOptions::new().new_names(None).begin(&file).is_ok());
}

#[test]
fn a_compact_under_new_names_leaves_the_old_shards() {
    let model = Model::plain();
    let folder = tempfile::tempdir().unwrap();
    libst::reshard(&model.path, folder.path(), 1).unwrap();
    let mut before = File::open(folder.path()).unwrap().shards();
    let grace = Duration::from_secs(60);
    for compact in [
        Compact::new().new_names(grace).break_links(true),
        Compact::new().break_links(true).new_names(grace).break_links(false),
    ] {
        compact.run(folder.path()).unwrap();
        let file = File::open(folder.path()).unwrap();
        for (name, sample) in &model.samples {
            assert_eq!(file.read(name).unwrap(), sample.data);
        }
        let names = file.shards();
        assert_eq!(names.iter().filter(|path| before.contains(path)).count(), 0);
        assert!(before.iter().all(|path| path.is_file()));
        before.extend(names);
    }
    Compact::new().new_names(grace).new_names(None).run(folder.path()).unwrap();
    libst::verify(folder.path()).unwrap();
    let refused = Compact::new().new_names(Duration::ZERO).run(&model.path).unwrap_err();
    assert_eq!(refused.status(), Status::Unsupported);
}
