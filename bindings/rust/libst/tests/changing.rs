//! Updates and transactions: what they change, what they leave, and how they fail.

mod support;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use support::*;

#[test]
fn an_update_of_any_dtype_is_what_the_crate_then_reads() {
    for seed in 0..6 {
        let model = Model::random(seed);
        let file = model.writable();
        let mut random = Random::new(99 + seed);
        let (inode, mut expected) = (std::fs::metadata(&model.path).unwrap().ino(), model.bytes());
        for (name, sample) in &model.samples {
            let data = random.bytes(sample.data.len());
            let tensor = file.tensor(name).unwrap();
            let at = tensor.file_offset() as usize;
            expected[at..at + data.len()].copy_from_slice(&data);
            file.update(name, TensorView::new(tensor.dtype(), tensor.shape(), &data).unwrap()).unwrap();
            assert_eq!(file.read(name).unwrap(), data);
            assert!(model.holds(&[(name, &data)]));
        }
        assert_eq!(model.bytes(), expected, "nothing else changed");
        assert_eq!(std::fs::metadata(&model.path).unwrap().ino(), inode, "the same file");
        drop(file);
        assert!(model.journals().is_empty());
    }
}

#[test]
fn tensors_are_swapped_by_their_views() {
    let mut random = Random::new(8);
    let samples = ["x", "y"]
        .map(|name| (name.to_owned(), Sample::new(safetensors::Dtype::U8, &[300_000], &mut random)));
    let model = Model::new(samples.into(), HashMap::new());
    let file = model.writable();
    let (x, y) = (model.data("x").to_vec(), model.data("y").to_vec());
    // SAFETY: nothing else changes the file, and the views are not used after the commit.
    let (a, b) = unsafe { (file.view("x").unwrap(), file.view("y").unwrap()) };
    let mut swap = file.begin().unwrap();
    swap.update("x", b).unwrap();
    swap.update("y", a).unwrap();
    swap.commit().unwrap();
    assert!(model.holds(&[("x", &y), ("y", &x)]));
}

#[test]
fn parts_of_a_tensor_are_changed_and_the_last_wins() {
    let model = Model::plain(); // w is F32 of 64 rows of 96
    let file = model.writable();
    const ROW: usize = 96 * 4;
    let mut expected = model.data("w").to_vec();
    let value = |shape: &[usize], byte: u8| {
        let bytes = vec![byte; shape.iter().product::<usize>() * 4];
        Owned { shape: shape.to_vec(), bytes }
    };
    let mut change = file.begin().unwrap();
    change.update_slice("w", &s![10..20], value(&[10, 96], 1)).unwrap();
    change.update_slice("w", &s![-1.., ..;-2], value(&[1, 48], 2)).unwrap();
    change.update_rows("w", &[12, -64, 12], &[], value(&[3, 96], 3)).unwrap();
    change.update_rows("w", &[5], &s![90..], value(&[1, 6], 4)).unwrap();
    change.update_rows("w", &[], &[], value(&[0, 96], 5)).unwrap(); // none
    change.commit().unwrap();
    expected[10 * ROW..20 * ROW].fill(1);
    for column in (1..96).step_by(2) {
        expected[63 * ROW + column * 4..][..4].fill(2);
    }
    expected[12 * ROW..13 * ROW].fill(3);
    expected[..ROW].fill(3);
    expected[5 * ROW + 90 * 4..6 * ROW].fill(4);
    assert!(model.holds(&[("w", &expected)]));

    file.update_slice("w", &s![30..31], value(&[1, 96], 6)).unwrap();
    expected[30 * ROW..31 * ROW].fill(6);
    assert!(model.holds(&[("w", &expected)]));

    let mut change = file.begin().unwrap();
    let status = |answer: libst::Result<()>| answer.unwrap_err().status();
    assert_eq!(status(change.update_slice("w", &s![..1], value(&[2, 96], 0))), Status::ShapeMismatch);
    assert_eq!(status(change.update_rows("w", &[64], &[], value(&[1, 96], 0))), Status::OutOfRange);
    assert_eq!(status(change.update_slice("absent", &s![..1], value(&[1, 96], 0))), Status::NotFound);
    change.update_slice("w", &s![..1], value(&[1, 96], 7)).unwrap(); // it goes on
    drop(change);
    assert!(model.holds(&[("w", &expected)]));
}

struct Owned {
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for Owned {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.bytes).into()
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

#[test]
fn a_transaction_changes_all_or_when_dropped_nothing() {
    let model = Model::plain();
    let file = model.writable();
    let before = model.bytes();
    let (w, b) = (vec![1; 64 * 96 * 4], vec![2; 7]);

    let mut dropped = file.begin().unwrap();
    dropped.update_bytes("w", &w).unwrap();
    dropped.update_bytes("b", &b).unwrap();
    assert_eq!(model.bytes(), before);
    drop(dropped);
    let mut aborted = file.begin().unwrap();
    aborted.update_bytes("w", &w).unwrap();
    aborted.abort();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut change = file.begin().unwrap();
        change.update_bytes("w", &w).unwrap();
        panic!("before the commit");
    }));
    assert!(panicked.is_err());
    assert_eq!(model.bytes(), before);
    assert_eq!(model.journals().len(), 1, "kept for the next, not one of each");

    let mut change = file.begin().unwrap();
    change.update_bytes("w", &[9; 64 * 96 * 4]).unwrap();
    change.update_bytes("b", &b).unwrap();
    change.update_bytes("w", &w).unwrap(); // the last value counts
    change.commit().unwrap();
    assert!(model.holds(&[("w", &w), ("b", &b), ("v", model.data("v"))]));
    assert_eq!(file.stats().unwrap().commits, 1);
    file.begin().unwrap().commit().unwrap(); // of nothing
}

#[test]
fn a_payload_may_go_as_soon_as_it_was_staged() {
    let model = Model::plain();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    let mut payload = vec![5; 8000];
    change.update_bytes("v", &payload).unwrap();
    payload.fill(6);
    drop(payload);
    change.commit().unwrap();
    assert!(model.holds(&[("v", &[5; 8000])]));
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_the_transaction_as_it_was() {
    let model = Model::plain();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    change.update_bytes("b", &[3; 7]).unwrap();
    let data = vec![0; 64 * 96 * 4];
    let value = |dtype, shape: &[usize]| TensorView::new(dtype, shape.to_vec(), &data).unwrap();
    let error = change.update("w", value(Dtype::I32, &[64, 96])).unwrap_err();
    assert_eq!((error.status(), error.tensor()), (Status::DtypeMismatch, Some("w")));
    let error = change.update("w", value(Dtype::F32, &[96, 64])).unwrap_err();
    assert_eq!((error.status(), error.tensor()), (Status::ShapeMismatch, Some("w")));
    let error = change.update("w\0", value(Dtype::F32, &[64, 96])).unwrap_err();
    assert_eq!((error.status(), error.tensor()), (Status::NotFound, Some("w\0")));
    let error = change.update_bytes("w", &data[1..]).unwrap_err();
    assert_eq!((error.status(), error.tensor()), (Status::NbytesMismatch, Some("w")));
    change.commit().unwrap();
    assert!(model.holds(&[("b", &[3; 7]), ("w", model.data("w"))]));
}

#[test]
fn a_file_opened_for_reading_is_not_changed() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    assert_eq!(file.begin().unwrap_err().status(), Status::ReadOnly);
    assert_eq!(file.update_bytes("b", &[0; 7]).unwrap_err().status(), Status::ReadOnly);
}

#[test]
fn a_failed_commit_is_an_error_like_any_other() {
    fn as_a_box(change: Transaction<'_>) -> Result<(), Box<dyn std::error::Error>> {
        Ok(change.commit()?)
    }
    let model = Model::plain();
    let file = model.writable();
    let lock = Lock::hold(&model.path);
    let begin = || {
        let mut change = TransactionOptions::new().lock_timeout(Duration::ZERO).begin(&file).unwrap();
        change.update_bytes("b", &[4; 7]).unwrap();
        change
    };
    assert_eq!(begin().commit().unwrap_err().status(), Status::Busy);
    drop(lock);
    let b = file.tensor("b").unwrap();
    let lock = Lock::hold_part(&model.path, b.file_offset(), b.data_len());
    let error = as_a_box(begin()).unwrap_err().downcast::<Error>().unwrap();
    assert_eq!((error.status(), error.tensor()), (Status::Busy, Some("b")));
    drop(lock);

    // And one that cannot be tried again.
    let replaced = safetensors::serialize([("other", &model.samples["b"])], None).unwrap();
    let mut change = file.begin().unwrap();
    change.update_bytes("b", &[4; 7]).unwrap();
    std::fs::write(model.path.with_extension("new"), replaced).unwrap();
    std::fs::rename(model.path.with_extension("new"), &model.path).unwrap();
    assert_eq!(change.try_commit().unwrap_err().status(), Status::FileChanged);
    assert_eq!(change.try_commit().unwrap_err().status(), Status::TransactionFailed);
    assert_eq!(change.delete("b").unwrap_err().status(), Status::TransactionFailed);
}

#[test]
fn what_is_written_to_a_copy_on_write_view_never_reaches_the_file() {
    let model = Model::plain();
    let plain = File::open(&model.path).unwrap();
    assert_eq!(plain.view_raw("w").unwrap_err().status(), Status::Unsupported);
    let opened = OpenOptions::new().map(Map::CopyOnWrite).open(&model.path).unwrap();
    let of_writable = model.writable().reopen_copy_on_write().unwrap();
    assert_eq!(of_writable.update_bytes("b", &[1; 7]).unwrap_err().status(), Status::ReadOnly);
    for file in [opened.reopen().unwrap(), opened, plain.reopen_copy_on_write().unwrap(), of_writable] {
        assert_eq!(file.info().unwrap().map, Map::CopyOnWrite);
        assert_eq!(file.stats().unwrap().bytes_private_dirty, 0);
        let w = file.view_raw("w").unwrap();
        assert_eq!(w.len(), model.data("w").len());
        // SAFETY: nobody else uses the file.
        unsafe {
            assert_eq!(&*w, model.data("w"));
            (*w).fill(3);
            assert_eq!(file.view("w").unwrap().data(), vec![3; w.len()]);
        }
        assert!(file.stats().unwrap().bytes_private_dirty >= 24576);
        assert_eq!(file.read("w").unwrap(), model.data("w"));
        assert_eq!(file.view_raw("none").unwrap_err().status(), Status::NotFound);
    }
    assert!(model.holds(&[("w", model.data("w")), ("b", model.data("b"))]));
    let model = Model::random(1);
    let file = File::open(&model.path).unwrap().reopen_copy_on_write().unwrap();
    assert_eq!(file.view_raw("nothing").unwrap().len(), 0);
}

#[test]
fn interrupting_ends_a_wait_for_a_lock() {
    let model = Model::plain();
    let file = OpenOptions::new().write(true).lock_timeout(None).open(&model.path).unwrap();
    let lock = Lock::hold(&model.path);
    let interrupt = file.interrupt_handle();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Only calls that run are interrupted, so again until it is over.
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                interrupt.interrupt();
                std::thread::yield_now();
            }
        });
        let error = file.update_bytes("b", &[1; 7]).unwrap_err();
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(error.status(), Status::Interrupted);
    });
    drop(lock);
    drop(file);
    interrupt.interrupt(); // does nothing
    assert!(model.holds(&[("b", model.data("b"))]));
}

#[test]
fn many_threads_update_one_file_and_lose_nothing() {
    let mut random = Random::new(3);
    let names: Vec<String> = (0..6).map(|i| format!("t{i}")).collect();
    let sample = |random: &mut Random| Sample::new(safetensors::Dtype::U8, &[3000], random);
    let samples = names.iter().map(|name| (name.clone(), sample(&mut random))).collect();
    let model = Model::new(samples, Default::default());
    let file = OpenOptions::new().write(true).lock_timeout(None).open(&model.path).unwrap();
    std::thread::scope(|scope| {
        for (i, name) in names.iter().enumerate() {
            // Every other one through a handle of its own.
            let own = (i % 2 == 0).then(|| file.reopen().unwrap());
            let file = &file;
            scope.spawn(move || {
                let file = own.as_ref().unwrap_or(file);
                for round in 0..8u8 {
                    file.update_bytes(name, &[round; 3000]).unwrap();
                    assert_eq!(file.read(name).unwrap(), [round; 3000]);
                }
            });
        }
    });
    assert!(names.iter().all(|name| model.holds(&[(name, &[7; 3000])])));
}

#[test]
fn a_transaction_moves_to_another_thread() {
    let model = Model::plain();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    change.update_bytes("b", &[1; 7]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            change.update_bytes("v", &[2; 8000]).unwrap();
            change.commit().unwrap();
        });
    });
    assert!(model.holds(&[("b", &[1; 7]), ("v", &[2; 8000])]));
}

#[test]
fn what_was_described_is_what_is_read() {
    let model = Model::plain();
    let file = model.writable();
    let (w, b) = (file.tensor("w").unwrap(), file.tensor("b").unwrap());
    let rows = file.slice("w", &s![1..]).unwrap();
    let mut samples = model.samples.clone();
    samples.insert("w".to_owned(), Sample::new(safetensors::Dtype::F32, &[2, 3], &mut Random::new(1)));
    samples.insert("a".to_owned(), Sample::new(safetensors::Dtype::F32, &[5], &mut Random::new(2)));
    std::fs::write(model.path.with_extension("new"), safetensors::serialize(&samples, None).unwrap())
        .unwrap();
    std::fs::rename(model.path.with_extension("new"), &model.path).unwrap();

    file.update_bytes("b", &[6; 7]).unwrap(); // finds the file replaced, and follows
    assert_eq!((file.read("w").unwrap(), file.len()), (samples["w"].data.clone(), 4));
    assert_eq!((w.read().unwrap(), w.shape()), (model.data("w").to_vec(), &[64, 96][..]));
    assert_eq!(rows.read().unwrap(), &model.data("w")[4 * 96..]);
    assert_eq!(w.slice(&s![..1]).unwrap().read().unwrap(), &model.data("w")[..4 * 96]);
    assert_eq!((b.read().unwrap(), file.read("b").unwrap()), (model.data("b").to_vec(), vec![6; 7]));
    // Requests of both states, at once.
    let (now, mut old_w, mut old_b) = (file.tensor("w").unwrap(), vec![0; w.data_len()], vec![0; 7]);
    let (mut new_w, mut new_b) = (vec![0; now.data_len()], vec![0; 7]);
    let of_now = file.tensor("b").unwrap();
    let all =
        [w.request(&mut old_w), now.request(&mut new_w), b.request(&mut old_b), of_now.request(&mut new_b)];
    file.read_many(all).unwrap();
    assert_eq!((&old_w[..], &old_b[..]), (model.data("w"), model.data("b")));
    assert_eq!((new_w, new_b), (samples["w"].data.clone(), vec![6; 7]));
    drop(file);
    assert_eq!((w.read().unwrap(), w.name()), (model.data("w").to_vec(), "w"), "longer than the file");
}
