//! What changes the layout: put, delete, rename, metadata, plan, refresh, compact; against what the `safetensors` crate
//! then reads.

mod support;

use std::os::unix::fs::MetadataExt;

use safetensors::Dtype as TheirDtype;
use support::*;

fn inode(model: &Model) -> u64 {
    std::fs::metadata(&model.path).unwrap().ino()
}

#[test]
fn a_put_of_any_dtype_and_shape_is_what_the_crate_then_reads() {
    for seed in 0..4 {
        let model = Model::random(seed);
        let file = model.writable();
        let mut random = Random::new(50 + seed);
        let mut expected = model.samples.clone();
        let mut change = file.begin().unwrap();
        for &dtype in THEIR_DTYPES {
            // A new one, and one that takes the place of one of another dtype.
            let new = Sample::new(dtype, &[random.below(4), 8], &mut random);
            let name = format!("new\0{dtype}");
            change.put(&name, &new).unwrap();
            expected.insert(name, new);
            let other = THEIR_DTYPES[random.below(THEIR_DTYPES.len())];
            let replaced = format!("layer.{other}.{seed}");
            let changed = Sample::new(dtype, &[4, random.below(3)], &mut random);
            change.put(&replaced, &changed).unwrap();
            expected.insert(replaced, changed);
        }
        change.commit().unwrap();
        assert_eq!(model.now(), (expected, model.metadata.clone()));
        drop(file);
        assert!(model.others().is_empty(), "{:?}", model.others());
        verify(&model.path).unwrap();
    }
}

#[test]
fn a_mixed_transaction_is_one_new_file() {
    let model = Model::plain();
    let file = model.writable();
    let other = model.writable();
    let was = inode(&model);
    let mut random = Random::new(1);
    let (n, w) = (
        Sample::new(TheirDtype::F16, &[2, 2], &mut random),
        Sample::new(TheirDtype::F32, &[64, 96], &mut random),
    );
    let mut change = file.begin().unwrap();
    change.update_bytes("b", &[9; 7]).unwrap();
    change.put("new", &n).unwrap();
    change.delete("v").unwrap();
    change.rename("w", "weight").unwrap();
    change.update("weight", &w).unwrap(); // by the name that it has now
    change.set_metadata("format", "p\0t").unwrap();
    change.set_metadata("", "").unwrap();
    change.remove_metadata("made by").unwrap();
    assert_eq!(model.now().0, model.samples, "nothing yet");
    change.commit().unwrap();

    let b = Sample { data: vec![9; 7], ..model.samples["b"].clone() };
    let expected: Samples =
        [("b", b), ("new", n), ("weight", w)].map(|(name, sample)| (name.to_owned(), sample)).into();
    let pairs = [("format", "p\0t"), ("", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(model.now(), (expected, pairs.into()));
    assert_ne!(inode(&model), was);
    assert_eq!(
        file.names().unwrap(),
        ["weight", "new", "b"],
        "wide elements come first, so that all are aligned"
    );
    assert_eq!((file.stats().unwrap().commits, file.metadata_get("format").as_deref()), (1, Some("p\0t")));
    assert_eq!(other.read("v").unwrap(), model.data("v"), "a handle that has the old one open keeps it");
}

#[test]
fn names_may_go_round() {
    let model = Model::plain();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    change.rename("w", "t").unwrap();
    change.rename("b", "w").unwrap();
    change.rename("t", "b").unwrap();
    change.commit().unwrap();
    assert!(model.holds(&[("w", model.data("b")), ("b", model.data("w")), ("v", model.data("v"))]));
}

#[test]
fn refusals_leave_the_transaction_as_it_was() {
    let model = Model::plain();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    let refused = |result: Result<()>| result.unwrap_err().status();
    let sample = &model.samples["b"];
    assert_eq!(refused(change.delete("none")), Status::NotFound);
    assert_eq!(refused(change.rename("none", "x")), Status::NotFound);
    assert_eq!(refused(change.rename("w", "b")), Status::DuplicateName);
    assert_eq!(refused(change.remove_metadata("none")), Status::NotFound);
    assert_eq!(refused(change.put("__metadata__", sample)), Status::InvalidArgument);
    let short = Sample { data: vec![0; 3], ..sample.clone() };
    assert_eq!(refused(change.put("x", &short)), Status::NbytesMismatch);
    let half = Sample { dtype: TheirDtype::F4, shape: vec![3], data: vec![0; 1] };
    assert_eq!(refused(change.put("x", &half)), Status::Subbyte);
    let huge = Sample { shape: vec![usize::MAX, 64], ..sample.clone() };
    assert_eq!(refused(change.put("x", &huge)), Status::ShapeOverflow);
    change.delete("w").unwrap();
    assert_eq!(refused(change.update("w", &model.samples["w"])), Status::NotFound);
    change.put("w", sample).unwrap();
    change.commit().unwrap();
    assert!(model.holds(&[("w", &sample.data), ("b", &sample.data), ("v", model.data("v"))]));
}

#[test]
fn a_transaction_that_is_dropped_leaves_the_file_and_the_folder() {
    let model = Model::plain();
    let file = model.writable();
    let (before, was) = (model.bytes(), inode(&model));
    let mut change = file.begin().unwrap();
    change.put("big", &Sample::new(TheirDtype::U8, &[5 << 20], &mut Random::new(2))).unwrap();
    change.delete("w").unwrap();
    drop(change);
    let mut change = file.begin().unwrap();
    change.rename("b", "c").unwrap();
    change.abort();
    assert_eq!((model.bytes(), inode(&model)), (before, was));
    drop(file);
    assert!(model.others().is_empty(), "{:?}", model.others());
}

#[test]
fn a_payload_may_go_as_soon_as_it_was_put() {
    let model = Model::plain();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    let mut sample = Sample::new(TheirDtype::U8, &[3 << 20], &mut Random::new(4));
    let expected = sample.clone();
    change.put("big", &sample).unwrap();
    sample.data.fill(0);
    drop(sample);
    change.commit().unwrap();
    assert_eq!(model.now().0["big"], expected);
}

#[test]
fn a_plan_is_what_the_commit_then_does() {
    let model = Model::plain();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    let size = |model: &Model| std::fs::metadata(&model.path).unwrap().len();
    assert_eq!(change.plan().unwrap().kind, PlanKind::Nothing);
    change.update_bytes("v", &[1; 8000]).unwrap();
    let patch = change.plan().unwrap();
    assert_eq!((patch.kind, patch.file_size), (PlanKind::Patch, size(&model)));
    assert!(patch.bytes_written > 8000, "and the journal: {patch:?}");

    change.put("big", &Sample::new(TheirDtype::U8, &[100_000], &mut Random::new(5))).unwrap();
    let (before, was) = (model.bytes(), inode(&model));
    let publish = change.plan().unwrap();
    assert_eq!((model.bytes(), inode(&model)), (before, was));
    assert_eq!(publish.kind, PlanKind::Publish);
    assert!(publish.bytes_written >= publish.data_offset + 100_000, "{publish:?}");
    assert!(publish.bytes_shared + publish.bytes_copied >= 64 * 96 * 4, "{publish:?}");
    assert!(publish.space_needed >= publish.file_size - publish.bytes_shared, "{publish:?}");
    assert!(publish.space_free.unwrap() > 0 && !publish.how.is_empty());
    change.commit().unwrap();
    assert_eq!(size(&model), publish.file_size);
    assert_eq!(file.info().unwrap().data_offset, publish.data_offset);
}

#[test]
fn options_choose_how_a_file_is_published() {
    let model = Model::plain();
    let file = model.writable();
    let was = inode(&model);
    let mut change = TransactionOptions::new().publish(true).begin(&file).unwrap();
    change.update_bytes("b", &[1; 7]).unwrap();
    change.commit().unwrap();
    assert_ne!(inode(&model), was, "an update alone");
    assert!(model.holds(&[("b", &[1; 7])]));

    let options = TransactionOptions::new().layout(Layout::Canonical).alignment(4096).header_reserve(4000);
    let mut change = options.begin(&file).unwrap();
    change.put("a", &Sample::new(TheirDtype::F64, &[2], &mut Random::new(6))).unwrap();
    change.put("c", &Sample::new(TheirDtype::U8, &[3], &mut Random::new(7))).unwrap();
    change.commit().unwrap();
    let info = file.info().unwrap();
    assert!(info.data_offset % 4096 == 0 && info.header_size > 4000, "{info:?}");
    let order = file.names().unwrap();
    let theirs = model.path.with_extension("theirs");
    safetensors::serialize_to_file(&model.now().0, None, &theirs).unwrap();
    assert_eq!(order, File::open(&theirs).unwrap().names().unwrap());

    let refuse = |options: TransactionOptions<'_>| -> Result<()> {
        let mut change = options.begin(&file)?;
        change.delete("a")?;
        change.commit()
    };
    let refused = |options| refuse(options).unwrap_err().status();
    assert_eq!(refused(TransactionOptions::new().alignment(12)), Status::InvalidArgument);
    assert_eq!(refused(TransactionOptions::new().layout(Layout::Stock)), Status::InvalidArgument);
    assert!(file.contains("a").unwrap());
}

#[test]
fn a_compact_leaves_the_spare_room_that_is_asked_for() {
    let model = Model::plain();
    let file = model.writable();
    let first = file.names().unwrap()[0].to_owned();
    let mut change = file.begin().unwrap();
    change.delete(&first).unwrap();
    change.commit().unwrap();
    Compact::new().header_reserve(1000).run(&model.path).unwrap();
    let mut expected = model.samples.clone();
    expected.remove(&first);
    assert_eq!(model.now(), (expected, model.metadata.clone()));
    assert!(File::open(&model.path).unwrap().info().unwrap().header_size > 1000);
    compact(&model.path).unwrap();
    assert!(File::open(&model.path).unwrap().info().unwrap().header_size < 1000);
    assert_eq!(compact(model.path.with_extension("none")).unwrap_err().status(), Status::NoFile);
}

#[test]
fn hard_links_are_refused_unless_told() {
    let model = Model::plain();
    let link = model.path.with_extension("link");
    std::fs::hard_link(&model.path, &link).unwrap();
    let file = model.writable();
    let delete = |options: TransactionOptions<'_>| {
        let mut change = options.begin(&file).unwrap();
        change.delete("w").unwrap();
        change.commit().map_err(|error| error.status())
    };
    let before = model.bytes();
    assert_eq!(delete(TransactionOptions::new()), Err(Status::HardLinks));
    assert_eq!(compact(&model.path).unwrap_err().status(), Status::HardLinks);
    assert_eq!(model.bytes(), before);
    assert_eq!(delete(TransactionOptions::new().break_links(true)), Ok(()));
    assert!(!file.contains("w").unwrap());
    assert_eq!(read_by_them(&link).0, model.samples);
    std::fs::hard_link(&model.path, model.path.with_extension("second")).unwrap();
    Compact::new().break_links(true).run(&model.path).unwrap();
}

#[test]
fn refresh_shows_what_others_have_published() {
    let model = Model::plain();
    let mut reader = File::open(&model.path).unwrap();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    change.delete("w").unwrap();
    change.put("n", &model.samples["b"]).unwrap();
    change.commit().unwrap();
    assert!(reader.contains("w").unwrap() && !reader.contains("n").unwrap());
    assert_eq!(reader.read("w").unwrap(), model.data("w"), "of the file that was opened");
    reader.refresh().unwrap();
    assert!(!reader.contains("w").unwrap());
    assert_eq!(reader.read("n").unwrap(), model.data("b"));
    assert_eq!(reader.view_owned("n").unwrap().data(), model.data("b"));

    std::fs::remove_file(&model.path).unwrap();
    assert_eq!(reader.refresh().unwrap_err().status(), Status::NoFile);
    assert_eq!(reader.read("n").unwrap(), model.data("b"), "as it was");
}

/// Whether this process maps a file that was deleted, or replaced, under that path.
fn is_mapped(path: &std::path::Path) -> bool {
    let deleted = format!("{} (deleted)", path.canonicalize().unwrap().display());
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(&deleted)
}

#[test]
fn a_reader_shows_one_state_until_it_refreshes() {
    let model = Model::plain();
    let mut reader = File::open(&model.path).unwrap();
    let names = reader.names().unwrap();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    change.rename("w", "renamed").unwrap();
    change.put("n", &model.samples["b"]).unwrap();
    change.set_metadata("made by", "another").unwrap();
    change.commit().unwrap();
    assert_eq!(reader.names().unwrap(), names);
    assert_eq!(reader.tensor("w").unwrap().read().unwrap(), model.data("w"));
    assert_eq!(reader.slice("w", &s![..1]).unwrap().read().unwrap(), model.data("w")[..96 * 4]);
    assert_eq!(reader.read("n").unwrap_err().status(), Status::NotFound);
    assert!(is_mapped(&model.path));

    reader.refresh().unwrap();
    assert!(!is_mapped(&model.path), "nothing of the replaced file is kept");
    assert_eq!(reader.names().unwrap().len(), names.len() + 1);
    assert_eq!(reader.tensor("w").unwrap_err().status(), Status::NotFound);
    assert_eq!(reader.read("renamed").unwrap(), model.data("w"));
    assert_eq!(reader.snapshot().unwrap().read("n").unwrap(), model.data("b"));
    assert_eq!(reader.metadata_get("made by").unwrap(), "another");

    let other = vec![7; model.data("b").len()];
    file.update_bytes("n", &other).unwrap(); // in place, which needs no refresh
    assert_eq!(reader.read("n").unwrap(), other);
    let tensor = reader.tensor("n").unwrap();
    drop(reader);
    assert_eq!(tensor.read().unwrap(), other);
}

#[test]
fn what_was_taken_before_a_publish_lives_on() {
    let model = Model::plain();
    let file = model.writable();
    let names = file.names().unwrap();
    let w = file.tensor("w").unwrap();
    // SAFETY: the file is replaced as a whole, never written in place.
    let view = unsafe { file.view("w").unwrap() };
    let mut change = file.begin().unwrap();
    change.delete("w").unwrap();
    change.commit().unwrap();
    assert_eq!((view.data(), names.len(), w.shape()), (model.data("w"), 3, &[64, 96][..]));
    assert_eq!(w.read().unwrap(), model.data("w"));
    assert_eq!(file.read("w").unwrap_err().status(), Status::NotFound);
}

#[test]
fn publishing_from_many_threads_loses_nothing() {
    let model = Model::plain();
    let file = OpenOptions::new().write(true).lock_timeout(None).open(&model.path).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let own = (worker % 2 == 0).then(|| file.reopen().unwrap());
            let (file, sample) = (&file, &model.samples["b"]);
            scope.spawn(move || {
                let file = own.as_ref().unwrap_or(file);
                for round in 0..4 {
                    let mut change = file.begin().unwrap();
                    change.put(&format!("{worker}.{round}"), sample).unwrap();
                    change.commit().unwrap();
                    file.update_bytes("v", &[round; 8000]).unwrap();
                }
            });
        }
    });
    assert_eq!(model.now().0.len(), 3 + 16);
    verify(&model.path).unwrap();
}
