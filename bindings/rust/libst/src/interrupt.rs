//! Lets calls be interrupted from elsewhere, where the file may be closed at any moment.

use std::fmt;
use std::process;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::Arc;

use crate::handle::Handle;
use crate::sys;
#[cfg(doc)]
use crate::{File, Snapshot};

/// Interrupts the calls of a [`File`] and of its snapshots from elsewhere, in another thread say; see [`File::interrupt`]. It
/// does nothing after that was dropped which it is of: the file, or the [`Snapshot`] with what was taken from it.
#[derive(Clone)]
pub struct Interrupt(Arc<Interrupted>);

impl Interrupt {
    pub(crate) fn of(handle: &Handle) -> Interrupt {
        Interrupt(Arc::clone(handle.interrupted()))
    }

    /// As [`File::interrupt`].
    pub fn interrupt(&self) {
        self.0.while_open(|file| {
            // SAFETY: an open handle; what closes it waits for this.
            unsafe { sys::st_interrupt(file.as_ptr()) }
        });
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

/// A handle of C, until the thread that drops it closes it. A mutex would not do: a signal's handler may interrupt
/// while its own thread holds the mutex, and in the child of a fork nobody would give it back.
pub(crate) struct Interrupted {
    file: AtomicPtr<sys::st_file>, // NULL once it is closed
    users: AtomicU64,              // the process, and below it how many of its threads use `file`
}

const PROCESS: u32 = 32; // begins at this bit

impl Interrupted {
    pub(crate) fn new(file: NonNull<sys::st_file>) -> Interrupted {
        Interrupted { file: AtomicPtr::new(file.as_ptr()), users: AtomicU64::new(0) }
    }

    fn while_open(&self, run: impl FnOnce(NonNull<sys::st_file>)) {
        let own = u64::from(process::id()) << PROCESS;
        let one_more = |users: u64| Some(own | (own_users(users, own) + 1));
        let _ = self.users.fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_more); // never refused
        if let Some(file) = NonNull::new(self.file.load(Ordering::SeqCst)) {
            run(file);
        }
        self.users.fetch_sub(1, Ordering::SeqCst);
    }

    /// From here on nobody uses the handle.
    pub(crate) fn end(&self) {
        self.file.store(null_mut(), Ordering::SeqCst);
        let own = u64::from(process::id()) << PROCESS;
        while own_users(self.users.load(Ordering::SeqCst), own) > 0 {
            std::thread::yield_now();
        }
    }
}

/// Threads of a process that has forked are not in its child.
fn own_users(users: u64, own: u64) -> u64 {
    if users >> PROCESS == own >> PROCESS {
        users & !(u64::MAX << PROCESS)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::Barrier;

    fn made() -> Interrupted {
        Interrupted::new(NonNull::dangling())
    }

    #[test]
    fn the_end_waits_for_threads_that_use_the_file() {
        let (interrupted, inside, used) = (made(), Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                interrupted.while_open(|_| {
                    inside.wait();
                    std::thread::yield_now();
                    used.store(true, Ordering::SeqCst);
                });
            });
            inside.wait();
            interrupted.end();
            assert!(used.load(Ordering::SeqCst));
        });
        interrupted.while_open(|_| panic!("the file is closed"));
    }

    #[test]
    fn threads_that_stayed_in_the_parent_of_a_fork_are_not_waited_for() {
        let interrupted = made();
        let elsewhere = u64::from(process::id() ^ 1) << PROCESS;
        interrupted.users.store(elsewhere | 3, Ordering::SeqCst);
        let mut used = false;
        interrupted.while_open(|_| used = true);
        assert!(used);
        interrupted.users.store(elsewhere | 3, Ordering::SeqCst);
        interrupted.end();
    }
}
