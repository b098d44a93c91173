//! Verify and recover: calls on a path that tell what they find.

use std::ffi::c_int;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::callback::{self, own_report, user, CallProgressFn, ReportFn};
use crate::error::check;
use crate::options::{c_path, milliseconds, CPaths};
use crate::{sys, Level, Progress, Result, Status};

/// One finding of [`Verify`] or [`Recover`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Report<'a> {
    /// How grave it is.
    pub level: Level,
    /// What is wrong; None if nothing is.
    pub status: Option<Status>,
    /// Where in the file; None if it is about no place.
    pub offset: Option<u64>,
    /// One sentence.
    pub message: &'a str,
}

impl<'a> Report<'a> {
    pub(crate) fn new(level: Level, status: c_int, offset: u64, message: &'a str) -> Report<'a> {
        Report {
            level,
            status: (status != sys::ST_OK).then(|| Status::from_code(status)),
            offset: (offset != u64::MAX).then_some(offset),
            message,
        }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)
    }
}

/// Check a file against every rule of the format and read all its bytes once; [`Verify`] tells what is found.
///
/// # Errors
/// The status of the first error.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// libst::verify(&path)?;
/// # Ok::<(), libst::Error>(())
/// ```
pub fn verify(path: impl AsRef<Path>) -> Result<()> {
    Verify::new().run(path)
}

/// Finish or drop what crashed writers left beside a file, as opening it does: uncommitted journals are removed,
/// committed ones are applied and removed. Safe at any time, again, and from many processes. [`Recover`] tells what is
/// found.
///
/// # Errors
/// [`Status::NeedsRecovery`] (a journal waits, but the file cannot be written here), [`Status::Journal`] (a journal does
/// not fit the file; it was moved aside), [`Status::Busy`].
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// libst::recover(&path)?;
/// # Ok::<(), libst::Error>(())
/// ```
pub fn recover(path: impl AsRef<Path>) -> Result<()> {
    Recover::new().run(path)
}

/// [`verify`] with findings and progress.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// use libst::{Level, Verify};
/// use std::ops::ControlFlow;
///
/// let mut errors = Vec::new();
/// let sound = Verify::new()
///     .report(|found| {
///         if found.level == Level::Error {
///             errors.push(found.message.to_owned());
///         }
///         ControlFlow::Continue(())
///     })
///     .run(&path);
/// assert!(sound.is_ok() && errors.is_empty());
/// ```
#[must_use]
#[derive(Default)]
pub struct Verify<'a> {
    deltas: Vec<PathBuf>,
    report: Option<ReportFn<'a>>,
    progress: Option<CallProgressFn<'a>>,
}

impl<'a> Verify<'a> {
    /// Without a word.
    pub fn new() -> Verify<'a> {
        Verify::default()
    }

    /// Deltas, the oldest first: they are checked too, and that they fit the file and each other, to the last byte.
    pub fn deltas<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Verify<'a> {
        self.deltas.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Told each finding; [`ControlFlow::Break`] stops.
    pub fn report<F>(mut self, report: F) -> Verify<'a>
    where
        F: FnMut(&Report<'_>) -> ControlFlow<()> + 'a,
    {
        self.report = Some(Box::new(report));
        self
    }

    /// Told now and then how much has been read; [`ControlFlow::Break`] stops.
    pub fn progress<F>(mut self, progress: F) -> Verify<'a>
    where
        F: FnMut(Progress) -> ControlFlow<()> + 'a,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Check the file.
    ///
    /// # Errors
    /// The status of the first error; [`Status::Cancelled`].
    pub fn run(mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        let deltas = CPaths::new(&self.deltas)?;
        let mut c = sys::st_verify_options::default();
        (c.deltas, c.delta_count) = (deltas.as_ptr(), deltas.len());
        c.report = self.report.as_ref().map(|_| own_report as _);
        c.report_user = user(&mut self.report);
        (c.progress, c.progress_user) = callback::of_call(&mut self.progress);
        // SAFETY: a C string and set-up options, whose closures live during the call.
        callback::call(|| check(unsafe { sys::st_verify(path.as_ptr(), &c) }))
    }
}

impl fmt::Debug for Verify<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verify").finish_non_exhaustive()
    }
}

/// [`recover`] with a timeout and findings: one for each journal.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// use std::{ops::ControlFlow, time::Duration};
///
/// let mut found = 0;
/// libst::Recover::new()
///     .lock_timeout(Duration::ZERO)
///     .report(|journal| {
///         println!("{journal}");
///         found += 1;
///         ControlFlow::Continue(())
///     })
///     .run(&path)?;
/// assert_eq!(found, 0);
/// # Ok::<(), libst::Error>(())
/// ```
#[must_use]
pub struct Recover<'a> {
    c: sys::st_recover_options,
    report: Option<ReportFn<'a>>,
    progress: Option<CallProgressFn<'a>>,
}

impl<'a> Recover<'a> {
    /// Waits up to ten seconds for locks.
    pub fn new() -> Recover<'a> {
        Recover { c: sys::st_recover_options::default(), report: None, progress: None }
    }

    /// How long to wait for other workers' locks; `None` is for ever.
    pub fn lock_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Recover<'a> {
        self.c.lock_timeout_ms = milliseconds(timeout.into());
        self
    }

    /// Told of each journal; [`ControlFlow::Break`] stops.
    pub fn report<F>(mut self, report: F) -> Recover<'a>
    where
        F: FnMut(&Report<'_>) -> ControlFlow<()> + 'a,
    {
        self.report = Some(Box::new(report));
        self
    }

    /// Asked now and then while this waits for a lock; [`ControlFlow::Break`] ends the wait.
    pub fn progress<F>(mut self, progress: F) -> Recover<'a>
    where
        F: FnMut(Progress) -> ControlFlow<()> + 'a,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Recover the file.
    ///
    /// # Errors
    /// As [`recover`]; [`Status::Cancelled`].
    pub fn run(mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        let mut c = self.c;
        c.report = self.report.as_ref().map(|_| own_report as _);
        c.report_user = user(&mut self.report);
        (c.progress, c.progress_user) = callback::of_call(&mut self.progress);
        // SAFETY: a C string and set-up options, whose closures live during the call.
        callback::call(|| check(unsafe { sys::st_recover(path.as_ptr(), &c) }))
    }
}

impl Default for Recover<'_> {
    fn default() -> Self {
        Recover::new()
    }
}

impl fmt::Debug for Recover<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recover").field("lock_timeout_ms", &self.c.lock_timeout_ms).finish_non_exhaustive()
    }
}
