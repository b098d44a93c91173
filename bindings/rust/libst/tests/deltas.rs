//! Deltas: made, applied, undone, folded, laid over, refused.

use std::ops::ControlFlow;
use std::path::Path;

use libst::{
    diff, merge, patch, DeltaInfo, Diff, Dtype, File, Layout, OpenOptions, Patch, PlanKind, SaveOptions,
    Status, TensorView, TransactionOptions, Verify,
};

fn write(path: &Path, tensors: &[(&str, &[u8])], value: &str) {
    let views = tensors
        .iter()
        .map(|(name, bytes)| (*name, TensorView::new(Dtype::U8, vec![bytes.len()], bytes).unwrap()));
    SaveOptions::new().metadata([("k", value)]).save(path, views).unwrap();
}

/// Names, bytes and metadata.
fn held(file: &File) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = file
        .tensors()
        .unwrap()
        .iter()
        .map(|tensor| (tensor.name().to_owned(), tensor.read().unwrap()))
        .collect();
    all.extend(
        file.metadata().into_iter().map(|(key, value)| (format!("metadata {key}"), value.into_bytes())),
    );
    all
}

fn opened(path: &Path) -> Vec<(String, Vec<u8>)> {
    held(&File::open(path).unwrap())
}

#[test]
fn a_delta_is_applied_undone_merged_and_laid_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (base, other, delta, back) = (at("base"), at("other"), at("delta"), at("back"));
    write(&base, &[("a", &[1, 2, 3]), ("b", &[4, 5]), ("c", &[6])], "v");
    write(&other, &[("a", &[1, 2, 3]), ("b", &[40, 50]), ("d", &[7])], "w");
    let (before, after) = (opened(&base), opened(&other));

    let mut told = 0;
    Diff::new()
        .alignment(4096)
        .progress(|_| {
            told += 1;
            ControlFlow::Continue(())
        })
        .run(&base, &other, &delta)
        .unwrap();
    assert!(told > 0);
    let info = DeltaInfo::read(&delta).unwrap();
    assert_eq!(
        (info.changed, info.added, info.deleted, info.metadata_set, info.metadata_removed),
        (1, 1, 1, 1, 0)
    );
    assert_eq!((info.data_bytes, info.base.len(), info.result.len()), (3, 32, 32));
    assert_eq!(info.file_size, std::fs::metadata(&delta).unwrap().len());
    Verify::new().deltas([&delta]).run(&base).unwrap();

    let overlay = OpenOptions::new().deltas([&delta]).open(&base).unwrap();
    assert_eq!(held(&overlay), after);
    merge(&base, [&delta], at("merged")).unwrap();
    assert_eq!(opened(&at("merged")), after);
    SaveOptions::new().layout(Layout::Canonical).merge(&base, [&delta], at("merged")).unwrap();

    let plan = Patch::new().reverse(&back).run(&base, &delta).unwrap();
    assert_eq!(plan.kind, PlanKind::Publish);
    assert_eq!(opened(&base), after);
    assert_eq!(patch(&base, &delta).unwrap_err().status(), Status::DeltaBase);
    patch(&base, &back).unwrap();
    assert_eq!(opened(&base), before);

    let file = OpenOptions::new().write(true).open(&base).unwrap();
    Patch::new().run_on(&file, &delta).unwrap();
    assert_eq!(held(&file), after);
    let reader = OpenOptions::new().open(&base).unwrap();
    assert_eq!(Patch::new().run_on(&reader, &back).unwrap_err().status(), Status::ReadOnly);
    Patch::new().journal_only(true).run_on(&file, &back).unwrap();
    assert_eq!(held(&file), before);
    assert_eq!(Patch::new().journal_only(true).run(&base, &delta).unwrap_err().status(), Status::Unsupported);
}

#[test]
fn what_is_committed_to_the_journal_is_seen_at_once_and_synced_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    write(&path, &[("a", &[1, 2, 3])], "v");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for n in [4, 5] {
        let mut change = TransactionOptions::new().journal_only(true).begin(&file).unwrap();
        change.update_bytes("a", &[n; 3]).unwrap();
        change.commit().unwrap();
        assert_eq!(opened(&path)[0].1, [n; 3]);
    }
    file.sync().unwrap();
    drop(file);
    assert_eq!(opened(&path)[0].1, [5; 3]);
}

#[test]
fn a_delta_of_another_base_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (base, other, delta) = (at("base"), at("other"), at("delta"));
    write(&base, &[("a", &[1, 2, 3])], "v");
    write(&other, &[("a", &[1, 2, 4])], "v");
    diff(&base, &other, &delta).unwrap();
    assert_eq!(OpenOptions::new().deltas([&delta]).open(&other).unwrap_err().status(), Status::DeltaBase);
    assert_eq!(Verify::new().deltas([&delta]).run(&other).unwrap_err().status(), Status::DeltaBase);
    assert_eq!(merge(&other, [&delta], at("merged")).unwrap_err().status(), Status::DeltaBase);
    assert_eq!(DeltaInfo::read(&base).unwrap_err().status(), Status::Delta);
    let stopped = Patch::new().progress(|_| ControlFlow::Break(())).run(&base, &delta);
    assert_eq!(stopped.unwrap_err().status(), Status::Cancelled);
    assert_eq!(opened(&base)[0].1, [1, 2, 3]);
    assert_eq!(patch(&base, &delta).unwrap().kind, PlanKind::Patch);
    assert_eq!(opened(&base), opened(&other));
}
