//! Lets calls be interrupted from elsewhere, where the file may be closed at any moment.

use std::ffi::c_int;
use std::fmt;
use std::process;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU64, Ordering};
use std::sync::Arc;

use crate::handle::Handle;
use crate::sys;
#[cfg(doc)]
use crate::{File, Snapshot, Tensor};

/// Interrupts the calls of a [`File`] and of its snapshots from elsewhere, in another thread say; see
/// [`File::interrupt`].
///
/// The handle of a file does nothing once the file was dropped. The handle of a [`Snapshot`] or a [`Tensor`] works for
/// as long as anything keeps the state that they show. Snapshots do, and what was taken from them. So does a file that
/// was opened for reading, while it shows this state.
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

const PROCESS: u32 = 24; // its count of forks begins at this bit
const PROCESS_ID: u32 = 40;

/// How many forks lie between this process and the first that counted. A process id alone would not do: a container's
/// first process may fork into another container, where the child is the first, too.
static FORKS: AtomicU16 = AtomicU16::new(0);

unsafe extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

type AtFork = Option<unsafe extern "C" fn()>;

extern "C" {
    fn pthread_atfork(before: AtFork, in_parent: AtFork, in_child: AtFork) -> c_int;
}

/// Two threads may both come to it, which does no harm. One that waits for the other would wait for ever in a child.
fn count_forks() {
    static IS_COUNTED: AtomicBool = AtomicBool::new(false);
    if !IS_COUNTED.load(Ordering::SeqCst) {
        // SAFETY: what it calls in a child only counts.
        let failed = unsafe { pthread_atfork(None, None, Some(count_fork)) };
        IS_COUNTED.store(failed == 0, Ordering::SeqCst);
    }
}

/// This process, as `users` has it. The count alone would not do: `_Fork` and clone() call no handlers, and what an
/// earlier handler drops in a child is dropped before the child counts. Such a child with its parent's id is not known.
/// Ids fit: those of Linux have 22 bits.
fn own_process() -> u64 {
    u64::from(process::id()) << PROCESS_ID | u64::from(FORKS.load(Ordering::SeqCst)) << PROCESS
}

impl Interrupted {
    pub(crate) fn new(file: NonNull<sys::st_file>) -> Interrupted {
        count_forks();
        Interrupted { file: AtomicPtr::new(file.as_ptr()), users: AtomicU64::new(0) }
    }

    fn while_open(&self, run: impl FnOnce(NonNull<sys::st_file>)) {
        let own = own_process();
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
        let own = own_process();
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

    #[cfg(target_os = "linux")]
    mod forked {
        use super::*;
        use std::io;
        use std::panic::{catch_unwind, AssertUnwindSafe};

        /// What `run` answers in the child is 0, or this is not. `child` is what fork() answered.
        fn in_child(child: libc::pid_t, run: impl FnOnce() -> c_int) -> c_int {
            if child == 0 {
                end_in_time();
                let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or(1);
                // SAFETY: the destructors of the parent are not for a child.
                unsafe { libc::_exit(answer) }
            }
            c_int::from(status_of(child) != 0)
        }

        /// A handler ends it. By the signal alone the first process of a namespace would not end.
        fn end_in_time() {
            // SAFETY: the handler may run at any moment.
            unsafe {
                libc::signal(libc::SIGALRM, fail as extern "C" fn(c_int) as libc::sighandler_t);
                libc::alarm(20);
            }
        }

        extern "C" fn fail(_: c_int) {
            // SAFETY: ends the process.
            unsafe { libc::_exit(1) }
        }

        fn status_of(child: libc::pid_t) -> c_int {
            let mut status = 0;
            // SAFETY: a place to write to.
            while unsafe { libc::waitpid(child, &mut status, 0) } != child {
                assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::Interrupted);
            }
            status
        }

        fn fork() -> libc::pid_t {
            // SAFETY: every child ends in `in_child`.
            unsafe { libc::fork() }
        }

        /// As `_Fork`, which older systems lack.
        fn fork_without_handlers() -> libc::pid_t {
            let (flags, stack) = (libc::c_long::from(libc::SIGCHLD), 0 as libc::c_long);
            let (first, second) = if cfg!(target_arch = "s390x") { (stack, flags) } else { (flags, stack) };
            // SAFETY: as of `fork`; the child has a copy of the stack.
            let child = unsafe { libc::syscall(libc::SYS_clone, first, second, stack, stack, stack) };
            libc::pid_t::try_from(child).expect("an id")
        }

        /// With a thread amid `while_open` that never comes back.
        fn in_use() -> Arc<Interrupted> {
            let (interrupted, inside) = (Arc::new(made()), Arc::new(Barrier::new(2)));
            let (used, is_inside) = (Arc::clone(&interrupted), Arc::clone(&inside));
            std::thread::spawn(move || {
                used.while_open(|_| {
                    is_inside.wait();
                    loop {
                        std::thread::park();
                    }
                });
            });
            inside.wait();
            interrupted
        }

        fn use_and_end(interrupted: &Interrupted) -> c_int {
            let mut used = false;
            interrupted.while_open(|_| used = true);
            interrupted.end();
            c_int::from(!used)
        }

        /// The next child is the first of a namespace, unless the system refuses it. A report of the tests tells so.
        fn made_first(namespaces: c_int) -> bool {
            // SAFETY: of this process alone.
            let made = unsafe { libc::unshare(namespaces) } == 0;
            if !made {
                let reason = io::Error::last_os_error();
                let line = format!("test a child with the id of its parent ... ignored, unshare: {reason}\n");
                // SAFETY: these bytes. What Rust prints in a child of a test nobody sees.
                unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
            }
            made
        }

        #[test]
        #[cfg_attr(miri, ignore)] // which cannot fork
        fn threads_that_stayed_in_the_parent_are_not_waited_for_by_a_child_with_its_id() {
            let status = in_child(fork(), || {
                let is_first = made_first(libc::CLONE_NEWUSER | libc::CLONE_NEWPID);
                in_child(fork(), || {
                    let interrupted = in_use();
                    let has_this_id = is_first && made_first(libc::CLONE_NEWPID);
                    let own = process::id();
                    in_child(fork(), || {
                        assert_eq!(process::id() == own, has_this_id);
                        use_and_end(&interrupted)
                    })
                })
            });
            assert_eq!(status, 0);
        }

        /// Nor where a handler of another library runs before ours, and drops a file.
        #[test]
        #[cfg_attr(miri, ignore)] // which cannot fork
        fn threads_that_stayed_in_the_parent_are_not_waited_for_by_a_child_that_was_not_counted() {
            let status = in_child(fork(), || {
                let interrupted = in_use();
                let forks = FORKS.load(Ordering::SeqCst);
                in_child(fork_without_handlers(), || {
                    assert_eq!(FORKS.load(Ordering::SeqCst), forks);
                    use_and_end(&interrupted)
                })
            });
            assert_eq!(status, 0);
        }

        #[test]
        #[cfg_attr(miri, ignore)] // which cannot fork
        fn a_child_that_panics_fails() {
            assert_eq!(in_child(fork(), || panic!("in the child")), 1);
        }
    }
}
