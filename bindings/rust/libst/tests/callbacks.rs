//! Closures that C calls: told, cancelling, panicking.

mod support;

use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use support::*;

fn message(payload: Box<dyn std::any::Any + Send>) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or(payload.downcast_ref::<String>().cloned())
        .unwrap()
}

fn large() -> Model {
    let sample = Sample::new(safetensors::Dtype::U8, &[24 << 20], &mut Random::new(1));
    Model::new([("big".to_owned(), sample)].into(), Default::default())
}

/// What a file's progress closure is to do.
#[derive(Clone)]
struct Script(Arc<(AtomicBool, AtomicBool, AtomicU64)>); // cancel, panic, most bytes told

impl Script {
    fn open(&self, model: &Model) -> File {
        let script = self.0.clone();
        OpenOptions::new()
            .write(true)
            .progress(move |progress| {
                script.2.fetch_max(progress.done, Ordering::SeqCst);
                assert!(progress.total.at_least(progress.done));
                if script.1.load(Ordering::SeqCst) {
                    panic!("from progress");
                }
                match script.0.load(Ordering::SeqCst) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
            .open(&model.path)
            .unwrap()
    }
}

trait Told {
    fn at_least(self, done: u64) -> bool;
}

impl Told for Option<u64> {
    fn at_least(self, done: u64) -> bool {
        self.map_or(true, |total| done <= total)
    }
}

#[test]
fn progress_is_told_cancels_and_panics() {
    let model = large();
    let script = Script(Arc::default());
    let file = script.open(&model);
    let payload = vec![1; 24 << 20];
    let (cancel, panic, most) = (&script.0 .0, &script.0 .1, &script.0 .2);
    assert_eq!(file.read("big").unwrap(), model.data("big"));
    assert!(most.load(Ordering::SeqCst) > 0);

    cancel.store(true, Ordering::SeqCst);
    assert_eq!(file.read("big").unwrap_err().status(), Status::Cancelled);
    assert_eq!(file.update_bytes("big", &payload).unwrap_err().status(), Status::Cancelled);
    assert_eq!(file.slice("big", &s![..;3]).unwrap().read().unwrap_err().status(), Status::Cancelled);
    cancel.store(false, Ordering::SeqCst);

    panic.store(true, Ordering::SeqCst);
    let read = catch_unwind(AssertUnwindSafe(|| file.read("big")));
    assert_eq!(message(read.unwrap_err()), "from progress");
    let update = catch_unwind(AssertUnwindSafe(|| file.update_bytes("big", &payload)));
    assert_eq!(message(update.unwrap_err()), "from progress");
    let commit = catch_unwind(AssertUnwindSafe(|| {
        let mut change = file.begin().unwrap();
        change.update_bytes("big", &payload).unwrap();
    }));
    assert_eq!(message(commit.unwrap_err()), "from progress");
    panic.store(false, Ordering::SeqCst);
    assert!(model.holds(&[("big", model.data("big"))]), "nothing changed");

    // As good as new.
    file.update_bytes("big", &payload).unwrap();
    assert!(model.holds(&[("big", &payload)]));
}

#[test]
fn a_transactions_own_progress_panics_at_any_step_and_all_or_nothing_holds() {
    let model = large();
    let file = model.writable();
    let (mut panicked, mut done) = (0, false);
    for step in 0.. {
        let before = model.bytes();
        let payload = vec![step as u8; 24 << 20];
        let mut told = 0;
        let result = catch_unwind(AssertUnwindSafe(|| {
            let progress = |_| {
                told += 1;
                assert!(told <= step * 4, "at step {told}");
                ControlFlow::Continue(())
            };
            let mut change = TransactionOptions::new().progress(progress).begin(&file).unwrap();
            change.update_bytes("big", &payload).unwrap();
            change.commit().unwrap();
        }));
        let changed = model.bytes() != before;
        match result {
            Ok(()) => {
                assert!(model.holds(&[("big", &payload)]));
                done = true;
            }
            Err(payload_of_panic) => {
                assert_eq!(message(payload_of_panic), format!("at step {told}"), "not told again");
                assert!(!changed || model.holds(&[("big", &payload)]));
                panicked += 1;
            }
        }
        if done || step > 40 {
            break;
        }
    }
    assert!(done && panicked > 1, "{panicked}");
    drop(file);
    assert!(model.journals().is_empty());
}

#[test]
fn a_transactions_progress_may_borrow_and_change_what_is_around_it() {
    let model = large();
    let file = model.writable();
    let mut told = Vec::new();
    let mut change = TransactionOptions::new()
        .progress(|progress| {
            told.push(progress.done);
            ControlFlow::Continue(())
        })
        .begin(&file)
        .unwrap();
    change.update_bytes("big", &vec![0; 24 << 20]).unwrap();
    change.commit().unwrap();
    assert!(!told.is_empty());
}

#[test]
fn findings_cancel_and_panic() {
    let model = Model::plain();
    let mut bytes = model.bytes();
    bytes.push(0);
    std::fs::write(&model.path, bytes).unwrap();
    let mut findings = 0;
    let stopped = Verify::new()
        .report(|_| {
            findings += 1;
            ControlFlow::Break(())
        })
        .run(&model.path);
    assert_eq!((stopped.unwrap_err().status(), findings), (Status::Cancelled, 1));
    let panicked = catch_unwind(|| Verify::new().report(|report| panic!("about: {report}")).run(&model.path));
    assert!(message(panicked.unwrap_err()).starts_with("about: "));
    let large = large();
    let mut steps = 0;
    let cancelled = Verify::new()
        .progress(|_| {
            steps += 1;
            ControlFlow::Break(())
        })
        .run(&large.path);
    assert_eq!((cancelled.unwrap_err().status(), steps), (Status::Cancelled, 1));
    let panicked = catch_unwind(|| Verify::new().progress(|_| panic!("verifying")).run(&large.path));
    assert_eq!(message(panicked.unwrap_err()), "verifying");
    verify(&large.path).unwrap();
}

/// A writer that died between commit and the end of its changes.
fn crashed(model: &Model) {
    let mut step = 3;
    while model.journals().is_empty() {
        assert!(step < 100);
        let child = Child::fork(|| {
            let file = model.writable();
            let mut told = 0;
            let progress = |_| {
                told += 1;
                if told == step {
                    // SAFETY: ends the process, as a crash does.
                    unsafe { libc::_exit(7) };
                }
                ControlFlow::Continue(())
            };
            let mut change = TransactionOptions::new().progress(progress).begin(&file).unwrap();
            change.update_bytes("big", &vec![0; 24 << 20]).unwrap();
            change.commit().unwrap();
            0
        });
        child.wait();
        step += 1;
    }
}

#[test]
fn the_log_is_told_and_its_panic_goes_on_when_the_call_has_ended() {
    let model = large();
    crashed(&model);
    let messages = Arc::new(Mutex::new(Vec::new()));
    let told = messages.clone();
    let log = move |level, sentence: &str| told.lock().unwrap().push((level, sentence.to_owned()));
    OpenOptions::new().write(true).log(log).open(&model.path).unwrap();
    let messages = messages.lock().unwrap();
    assert!(!messages.is_empty() && messages.iter().all(|(_, sentence)| !sentence.is_empty()));

    crashed(&model);
    let open = || OpenOptions::new().write(true).log(|_, _| panic!("from log")).open(&model.path);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().filter(|e| links_to(e, &model)).count();
    assert_eq!(message(catch_unwind(AssertUnwindSafe(open)).unwrap_err()), "from log");
    assert_eq!(descriptors(), 0, "the file that was opened all the same is closed");
    assert!(model.journals().is_empty(), "and recovered");
}

/// An update finishes first what the journal of a writer that died has, and the log is told.
#[test]
fn a_panic_of_the_log_cancels_the_call() {
    let model = Model::plain();
    let panics = Arc::new(AtomicBool::new(false));
    let told = panics.clone();
    let log = move |_, _: &str| assert!(!told.load(Ordering::SeqCst), "from log");
    let file = OpenOptions::new().write(true).log(log).open(&model.path).unwrap();
    let child = Child::fork(|| {
        let file = model.writable();
        let mut change = TransactionOptions::new().journal_only(true).begin(&file).unwrap();
        change.update_bytes("v", &[2; 8000]).unwrap();
        change.commit().unwrap();
        // SAFETY: ends the process, as a crash does.
        unsafe { libc::_exit(7) }
    });
    assert_eq!(child.wait(), 7);
    panics.store(true, Ordering::SeqCst);
    let update = || file.update_bytes("b", &[1; 7]);
    assert_eq!(message(catch_unwind(AssertUnwindSafe(update)).unwrap_err()), "from log");
    panics.store(false, Ordering::SeqCst);
    assert!(model.holds(&[("b", model.data("b")), ("v", &[2; 8000])]));
    update().unwrap();
    assert!(model.holds(&[("b", &[1; 7])]));
}

fn links_to(entry: &std::io::Result<std::fs::DirEntry>, model: &Model) -> bool {
    entry.as_ref().is_ok_and(|e| std::fs::read_link(e.path()).is_ok_and(|to| to == model.path))
}

#[test]
fn a_closure_that_panicked_is_left_alone_for_the_rest_of_the_call() {
    let model = Model::plain();
    let child = Child::fork(|| {
        let file = model.writable();
        let [mut first, mut second] = [(); 2].map(|()| file.begin().unwrap());
        first.update_bytes("b", &[1; 7]).unwrap();
        second.update_bytes("v", &[2; 8000]).unwrap();
        // SAFETY: ends the process, as a crash does.
        unsafe { libc::_exit(7) }
    });
    assert_eq!((child.wait(), model.journals().len()), (7, 2));
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    let log = move |_, message: &str| {
        count.fetch_add(1, Ordering::SeqCst);
        panic!("about: {message}")
    };
    let open = || OpenOptions::new().write(true).log(log).open(&model.path);
    assert!(message(catch_unwind(AssertUnwindSafe(open)).unwrap_err()).starts_with("about: "));
    assert_eq!((told.load(Ordering::SeqCst), model.journals().len()), (1, 0));
}

#[test]
fn a_reopened_file_has_the_same_callbacks_which_live_as_long_as_it() {
    let model = large();
    let alive = Arc::new(AtomicU64::new(0));
    let told = alive.clone();
    let first = OpenOptions::new()
        .progress(move |_| {
            told.fetch_add(1, Ordering::SeqCst);
            ControlFlow::Continue(())
        })
        .open(&model.path)
        .unwrap();
    let second = first.reopen().unwrap();
    drop(first);
    second.read("big").unwrap();
    assert!(alive.load(Ordering::SeqCst) > 0);
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(second);
    assert_eq!(Arc::strong_count(&alive), 1);
}
