//! A sharded checkpoint: made, opened as one, changed, joined; against what the `safetensors` crate reads.

mod support;

use libst::{File, OpenOptions, SaveOptions, Status};
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
