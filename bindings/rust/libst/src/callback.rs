//! Let C call closures. A panic must not cross C: it is kept here, the running call is asked to cancel, and the panic
//! goes on when that call has returned. libst calls back on the thread that called it, so a place per thread is enough.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void, CString};
use std::io;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::{null_mut, NonNull};
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::check::Report;
use crate::error::text;
use crate::{sys, Error, Source};

/// How far long work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes done, of this call.
    pub done: u64,
    /// Bytes to do, if known.
    pub total: Option<u64>,
}

/// How grave a message or a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Good to know.
    Info,
    /// Something is not as it should be, and was dealt with.
    Warning,
    /// Something is wrong.
    Error,
}

impl Level {
    fn from_code(code: u32) -> Level {
        match code {
            sys::ST_LOG_INFO => Level::Info,
            sys::ST_LOG_WARNING => Level::Warning,
            _ => Level::Error,
        }
    }
}

type Payload = Box<dyn Any + Send>;

thread_local! {
    static PANIC: RefCell<Option<Payload>> = const { RefCell::new(None) };
}

/// Nobody knows while the thread ends.
fn is_panic_kept() -> Option<bool> {
    PANIC.try_with(|p| p.borrow().is_some()).ok()
}

/// Runs a closure for C: `otherwise` if it panics, or if one has panicked already during this call.
pub(crate) fn guard<R>(otherwise: R, run: impl FnOnce() -> R) -> R {
    if is_panic_kept().unwrap_or(true) {
        return otherwise;
    }
    // What the closure may have left half done is seen by nobody before the panic goes on.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(_) if !is_calling() => otherwise, // a call of libst-sys: nobody here would take it
        Err(payload) => {
            let _ = PANIC.try_with(|p| *p.borrow_mut() = Some(payload)); // fails only while the thread ends
            otherwise
        }
    }
}

/// Makes a call that may call back; a panic of a callback goes on here. What the call answered is dropped then, so `run`
/// must wrap what it is given (a handle) in what frees it.
pub(crate) fn call<R>(run: impl FnOnce() -> R) -> R {
    let counted = Counted::new();
    let result = run();
    drop(counted);
    if let Some(payload) = take() {
        resume_unwind(payload);
    }
    result
}

/// What a source answered, and as which `errno`.
pub(crate) type Failure = (c_int, io::Error);

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    /// That of the innermost call of this thread.
    static FAILURE: Cell<Option<Failure>> = const { Cell::new(None) };
}

/// While there is one, this thread makes a call that may call back. A closure may make another, of another file: what
/// sources answer to the one is no reason of the other.
struct Counted {
    outer: Option<Failure>,
}

impl Counted {
    fn new() -> Counted {
        debug_assert!(
            is_calling() || is_panic_kept() != Some(true),
            "a call that may call back was not made by callback::call"
        );
        CALLS.with(|calls| calls.set(calls.get() + 1));
        Counted { outer: FAILURE.try_with(Cell::take).ok().flatten() } // none while the thread ends
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        CALLS.with(|calls| calls.set(calls.get() - 1));
        let _ = FAILURE.try_with(|failure| failure.replace(self.outer.take()));
    }
}

/// Whether this thread makes such a call; a thread of the library does not.
pub(crate) fn is_calling() -> bool {
    CALLS.try_with(Cell::get).unwrap_or(0) > 0
}

/// For destructors, which must not panic.
pub(crate) fn call_in_drop(run: impl FnOnce()) {
    run();
    drop(take());
}

fn take() -> Option<Payload> {
    PANIC.try_with(|p| p.borrow_mut().take()).ok().flatten()
}

pub(crate) type SharedProgress = Box<dyn Fn(Progress) -> ControlFlow<()> + Send + Sync>;
pub(crate) type SharedLog = Box<dyn Fn(Level, &str) + Send + Sync>;

/// Those of a handle, which any thread may come to call.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) progress: Option<SharedProgress>,
    pub(crate) log: Option<SharedLog>,
    pub(crate) source: Option<Box<dyn Source>>,
    pub(crate) source_name: Option<CString>, // C may read both until st_close
    pub(crate) source_identity: Option<CString>,
    /// What the source last answered to a thread of the library, which does not tell for which call it reads. Until a call
    /// ends that failed, or another begins.
    failure: Mutex<Option<Failure>>,
}

impl Shared {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.progress.is_none() && self.log.is_none() && self.source.is_none()
    }

    /// Before a call: what an earlier one left is no reason of it.
    #[inline]
    pub(crate) fn begin(&self) {
        if self.source.is_some() {
            drop(self.take_failure());
        }
    }

    /// An error of the call that this thread makes, with what the source answered if that may be why.
    #[cold]
    pub(crate) fn explain(&self, error: Error) -> Error {
        let is_why = |failure: &Failure| error.os_errno() == Some(failure.0);
        let own = FAILURE.try_with(Cell::take).ok().flatten().filter(is_why);
        match own.or_else(|| self.take_failure().filter(is_why)) {
            Some((_, cause)) => error.caused_by(cause),
            None => error,
        }
    }

    /// What the source has just answered to this thread.
    #[cold]
    pub(crate) fn keep(&self, failure: Failure) {
        let before = match is_calling() {
            true => FAILURE.try_with(|kept| kept.replace(Some(failure))).ok().flatten(),
            false => self.failure.lock().unwrap_or_else(PoisonError::into_inner).replace(failure),
        };
        drop(before); // it is of the user's, and nobody waits for it
    }

    /// Never waits: in a child of a fork its holder may be gone.
    fn take_failure(&self) -> Option<Failure> {
        match self.failure.try_lock() {
            Ok(mut failure) => failure.take(),
            Err(TryLockError::Poisoned(failure)) => failure.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn user(&self) -> *mut c_void {
        (self as *const Shared).cast_mut().cast()
    }

    /// Also where there is a log alone: its panic cancels the call.
    pub(crate) fn c_progress(&self) -> sys::st_progress_fn {
        (self.progress.is_some() || self.log.is_some()).then_some(shared_progress as _)
    }

    pub(crate) fn c_log(&self) -> sys::st_log_fn {
        self.log.as_ref().map(|_| shared_log as _)
    }
}

unsafe extern "C" fn shared_progress(user: *mut c_void, done: u64, total: u64) -> c_int {
    // SAFETY: `user` is a Shared that outlives the handle; only shared references to it are ever made.
    let shared = unsafe { &*user.cast::<Shared>() };
    guard(1, || shared.progress.as_ref().map_or(0, |progress| told(progress(step(done, total)))))
}

unsafe extern "C" fn shared_log(user: *mut c_void, level: u32, message: *const c_char) {
    // SAFETY: as above; the message is a C string.
    let (shared, message) = unsafe { (&*user.cast::<Shared>(), text(message)) };
    guard((), || {
        if let Some(log) = &shared.log {
            log(Level::from_code(level), &message);
        }
    });
}

/// That of a transaction, which may move to another thread.
pub(crate) type ProgressFn<'a> = Box<dyn FnMut(Progress) -> ControlFlow<()> + Send + 'a>;
/// Those of a call, which is over before they go.
pub(crate) type CallProgressFn<'a> = Box<dyn FnMut(Progress) -> ControlFlow<()> + 'a>;
pub(crate) type ReportFn<'a> = Box<dyn FnMut(&Report<'_>) -> ControlFlow<()> + 'a>;

/// The closure of a call, if it has one, as C takes it. C must not use it after the call.
pub(crate) fn of_call<'a>(own: &mut Option<CallProgressFn<'a>>) -> (sys::st_progress_fn, *mut c_void) {
    let face = own.as_ref().map(|_| own_progress::<CallProgressFn<'a>> as _);
    (face, user(own))
}

/// What C is to hand back to a closure's C face.
pub(crate) fn user<Closure>(closure: &mut Option<Closure>) -> *mut c_void {
    closure.as_mut().map_or(null_mut(), |closure| (closure as *mut Closure).cast())
}

/// `user` of a call, or of a transaction, that has a closure of its own: a pointer to the closure, which nobody else
/// touches while C may call it.
unsafe extern "C" fn own_progress<F>(user: *mut c_void, done: u64, total: u64) -> c_int
where
    F: FnMut(Progress) -> ControlFlow<()>,
{
    // SAFETY: `user` is an F, and this thread is in the one call that uses it.
    let progress = unsafe { &mut *user.cast::<F>() };
    guard(1, || told(progress(step(done, total))))
}

/// The closure of a transaction or a writer by its raw pointer, as C reaches it by that too.
pub(crate) struct OwnProgress<'a> {
    raw: NonNull<ProgressFn<'a>>,
    owned: PhantomData<ProgressFn<'a>>,
}

impl<'a> OwnProgress<'a> {
    pub(crate) fn new(progress: ProgressFn<'a>) -> OwnProgress<'a> {
        OwnProgress { raw: NonNull::from(Box::leak(Box::new(progress))), owned: PhantomData }
    }

    /// What C is to be given; it must not use it after this is dropped.
    pub(crate) fn c(&self) -> (sys::st_progress_fn, *mut c_void) {
        (Some(own_progress::<ProgressFn<'a>> as _), self.raw.as_ptr().cast())
    }
}

impl Drop for OwnProgress<'_> {
    fn drop(&mut self) {
        // SAFETY: made from a box, and C no longer knows it: what had it has ended before its fields are dropped.
        drop(unsafe { Box::from_raw(self.raw.as_ptr()) });
    }
}

pub(crate) unsafe extern "C" fn own_report(user: *mut c_void, report: *const sys::st_report) -> c_int {
    // SAFETY: as above; the library fills a report for the length of this call.
    let (tell, report, message) = unsafe {
        let report = &*report;
        (&mut *user.cast::<ReportFn<'_>>(), report, text(report.message))
    };
    guard(1, || {
        told(tell(&Report::new(Level::from_code(report.level), report.status, report.offset, &message)))
    })
}

fn step(done: u64, total: u64) -> Progress {
    Progress { done, total: (total != 0).then_some(total) }
}

fn told(answer: ControlFlow<()>) -> c_int {
    c_int::from(answer.is_break())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    fn failed(shared: &Shared, cause: &str) {
        shared.keep((5, io::Error::other(cause.to_owned())));
    }

    fn explained(shared: &Shared) -> Option<String> {
        let errno = io::Error::from_raw_os_error(5);
        let error = shared.explain(Error::new(Status::Io, "it failed").caused_by(errno));
        let cause: &io::Error = std::error::Error::source(&error)?.downcast_ref()?;
        cause.raw_os_error().is_none().then(|| cause.to_string())
    }

    #[test]
    fn what_a_source_answered_is_the_reason_of_that_call_alone() {
        let shared =
            Shared { source: Some(Box::new(std::sync::Mutex::new(io::empty()))), ..Shared::default() };
        let another_call = |cause: &str| {
            shared.begin();
            call(|| {
                failed(&shared, cause);
                assert_eq!(explained(&shared).as_deref(), Some(cause));
                failed(&shared, "nobody asks");
            });
        };
        call(|| {
            failed(&shared, "the first");
            std::thread::scope(|scope| scope.spawn(|| another_call("of another thread")).join().unwrap());
            another_call("of a closure");
            assert_eq!(explained(&shared).as_deref(), Some("the first"));
            assert_eq!(explained(&shared), None);
        });
        failed(&shared, "to a thread of the library");
        call(|| assert_eq!(explained(&shared).as_deref(), Some("to a thread of the library")));
    }
}
