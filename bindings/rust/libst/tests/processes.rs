//! Changing a file beside other processes. Apart from the tests that hold locks, which a child would inherit.

mod support;

use std::ops::ControlFlow;
use std::time::Duration;

use support::*;

#[test]
fn busy_names_the_holder_and_keeps_the_transaction() {
    let model = Model::plain();
    let file = OpenOptions::new().write(true).lock_timeout(Duration::ZERO).open(&model.path).unwrap();
    let mut change = file.begin().unwrap();
    change.update_bytes("b", &[4; 7]).unwrap();

    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let holder = Child::fork(|| {
        let _lock = Lock::hold(&model.path);
        // SAFETY: a byte from memory of ours; then to sleep until killed.
        unsafe {
            libc::write(pipe[1], [0u8].as_ptr().cast(), 1);
            loop {
                libc::pause();
            }
        }
    });
    // SAFETY: ours. A holder that fails ends the read so.
    unsafe { libc::close(pipe[1]) };
    // SAFETY: waits for the byte: the lock is held.
    assert_eq!(unsafe { libc::read(pipe[0], [0u8].as_mut_ptr().cast(), 1) }, 1);

    for _ in 0..3 {
        let busy = change.try_commit().unwrap_err();
        assert_eq!((busy.status(), busy.holder_pid()), (Status::Busy, Some(holder.0 as u32)), "{busy}");
    }
    let error = file.update_bytes("b", &[5; 7]).unwrap_err();
    assert_eq!((error.status(), error.holder_pid()), (Status::Busy, Some(holder.0 as u32)));
    assert!(model.holds(&[("b", model.data("b"))]));
    drop(holder);
    change.commit().unwrap();
    assert!(model.holds(&[("b", &[4; 7])]));
    assert!(file.stats().unwrap().lock_waits >= 3);
    // SAFETY: ours.
    unsafe { libc::close(pipe[0]) };
}

#[test]
fn a_child_reads_and_updates_and_leaves_its_parents_transaction_alone() {
    let model = Model::plain();
    let file = model.writable();
    let mut change = file.begin().unwrap();
    change.update_bytes("b", &[1; 7]).unwrap();
    let mut in_child = Some(change);
    let child = Child::fork(|| {
        let mut change = in_child.take().unwrap();
        assert_eq!(change.update_bytes("b", &[9; 7]).unwrap_err().status(), Status::Forked);
        assert_eq!(change.commit().unwrap_err().status(), Status::Forked);
        assert_eq!(file.read("v").unwrap(), model.data("v"));
        file.update_bytes("v", &[3; 8000]).unwrap();
        0
    });
    assert_eq!(child.wait(), 0);
    in_child.unwrap().commit().unwrap();
    assert!(model.holds(&[("b", &[1; 7]), ("v", &[3; 8000])]));
}

#[test]
fn a_writer_that_dies_at_any_step_leaves_the_old_or_the_new() {
    // Large enough that a commit tells of progress between its steps.
    let mut random = Random::new(4);
    let n = 9 << 20;
    let samples =
        ["x", "y"].map(|name| (name.to_owned(), Sample::new(safetensors::Dtype::U8, &[n], &mut random)));
    let model = Model::new(samples.into(), Default::default());
    let (mut old, mut new, mut recovered) = (0, 0, 0);
    for step in 0..12 {
        let before = model.bytes();
        let payload = vec![step as u8; n];
        let child = Child::fork(|| {
            let file = model.writable();
            let mut told = 0;
            let mut change = TransactionOptions::new()
                .progress(|_| {
                    told += 1;
                    if told > step * 2 {
                        // SAFETY: ends the process, as a crash does.
                        unsafe { libc::_exit(7) };
                    }
                    ControlFlow::Continue(())
                })
                .begin(&file)
                .unwrap();
            change.update_bytes("x", &payload).unwrap();
            change.update_bytes("y", &payload).unwrap();
            change.commit().unwrap();
            0
        });
        let status = child.wait();
        assert!(status == 7 || status == 0, "{status}");
        let waiting = model.journals().len();
        let mut found = Vec::new();
        Recover::new()
            .report(|report| {
                found.push((report.level, report.status, report.message.to_owned()));
                ControlFlow::Continue(())
            })
            .run(&model.path)
            .unwrap();
        assert_eq!(found.len(), waiting, "{found:?}");
        assert!(model.journals().is_empty());
        recovered += waiting;
        if model.bytes() == before {
            old += 1;
            assert_eq!(status, 7, "acknowledged, so durable");
        } else {
            new += 1;
            assert!(model.holds(&[("x", &payload), ("y", &payload)]), "step {step}");
        }
    }
    assert!(old > 0 && recovered > 0, "{old} old, {new} new, {recovered} recovered");
    recover(&model.path).unwrap();
}
