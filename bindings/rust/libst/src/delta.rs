//! Deltas: what makes one file of another, made, applied, and described. Folding them is in `save.rs`.

use std::ffi::c_char;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::time::Duration;

use crate::callback::{self, CallProgressFn};
use crate::error::check;
use crate::info::sentence;
use crate::options::{c_path, milliseconds, set};
use crate::{sys, File, Plan, Progress, Result};
#[cfg(doc)]
use crate::{Status, TransactionOptions};

/// Write the delta that makes `to` of `from`: a safetensors file of the tensors that differ, whose metadata says what
/// else there is to do, and to which base. Either may be sharded. [`Diff`] has choices.
///
/// # Errors
/// What opening the two and saving the delta answer; [`Status::FileChanged`] if one of the two is replaced again and
/// again, or changed without a lock. Others that change them wait until they are read.
///
/// ```
/// # let (folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// # let tuned = path.with_extension("tuned");
/// # let (delta, back) = (path.with_extension("delta"), path.with_extension("back"));
/// std::fs::copy(&path, &tuned)?;
/// libst::OpenOptions::new().write(true).open(&tuned)?.update_bytes("b", &[9; 2])?;
///
/// libst::diff(&path, &tuned, &delta)?;
/// let overlay = libst::OpenOptions::new().deltas([&delta]).open(&path)?; // as if it were patched
/// assert_eq!(overlay.read("b")?, [9; 2]);
/// libst::Patch::new().reverse(&back).run(&path, &delta)?;
/// libst::patch(&path, &back)?; // and as it was
/// # drop(folder);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn diff(from: impl AsRef<Path>, to: impl AsRef<Path>, delta: impl AsRef<Path>) -> Result<()> {
    Diff::new().run(from, to, delta)
}

/// Apply a delta to its base, as one transaction, and tell how that was done: in place if only bytes of tensors change,
/// else by a new file. A base of shards is changed in all of them or in none. [`Patch`] has choices.
///
/// # Errors
/// [`Status::DeltaBase`] (made for another base, or applied already; nothing changed), [`Status::Delta`]; what opening
/// and [`Transaction::commit`](crate::Transaction::commit) answer.
pub fn patch(base: impl AsRef<Path>, delta: impl AsRef<Path>) -> Result<Plan> {
    Patch::new().run(base, delta)
}

/// [`diff()`] with choices.
#[must_use]
pub struct Diff<'a> {
    c: sys::st_delta_create_options,
    progress: Option<CallProgressFn<'a>>,
}

impl<'a> Diff<'a> {
    /// Data at 64; waits up to ten seconds for locks where a delta of that name is replaced.
    pub fn new() -> Diff<'a> {
        Diff { c: sys::st_delta_create_options::default(), progress: None }
    }

    /// The delta's first data byte lies at a multiple of `bytes`: a multiple of 8, at most 2^20. 0 is 64.
    pub fn alignment(mut self, bytes: u32) -> Diff<'a> {
        self.c.alignment = bytes;
        self
    }

    /// How long to wait for other workers' locks; `None` is for ever.
    pub fn lock_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Diff<'a> {
        self.c.lock_timeout_ms = milliseconds(timeout.into());
        self
    }

    /// Told now and then how much has been compared; [`ControlFlow::Break`] cancels.
    pub fn progress<F>(mut self, progress: F) -> Diff<'a>
    where
        F: FnMut(Progress) -> ControlFlow<()> + 'a,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Write the delta.
    ///
    /// # Errors
    /// As [`diff()`].
    pub fn run(
        mut self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        delta: impl AsRef<Path>,
    ) -> Result<()> {
        let (from, to, delta) = (c_path(from.as_ref())?, c_path(to.as_ref())?, c_path(delta.as_ref())?);
        let mut c = self.c;
        (c.progress, c.progress_user) = callback::of_call(&mut self.progress);
        callback::call(|| {
            // SAFETY: C strings and set-up options, whose closure lives during the call.
            check(unsafe { sys::st_delta_create(from.as_ptr(), to.as_ptr(), delta.as_ptr(), &c) })
        })
    }
}

impl Default for Diff<'_> {
    fn default() -> Self {
        Diff::new()
    }
}

impl fmt::Debug for Diff<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diff").field("alignment", &self.c.alignment).finish_non_exhaustive()
    }
}

/// [`patch()`] with choices.
#[must_use]
pub struct Patch<'a> {
    c: sys::st_delta_apply_options,
    reverse: Option<PathBuf>,
    progress: Option<CallProgressFn<'a>>,
}

impl<'a> Patch<'a> {
    /// In place where that is possible, without a way back; waits up to ten seconds for locks.
    pub fn new() -> Patch<'a> {
        Patch { c: sys::st_delta_apply_options::default(), reverse: None, progress: None }
    }

    /// Where to write the delta that undoes this one; it is durable before the change is decided. Readers may see new
    /// bytes earlier, where the storage shares blocks between files. A file there is replaced. So give each apply a
    /// reverse name of its own: an earlier one may be the only way back.
    pub fn reverse(mut self, path: impl Into<PathBuf>) -> Patch<'a> {
        self.reverse = Some(path.into());
        self
    }

    /// As [`TransactionOptions::publish`].
    pub fn publish(mut self, publish: bool) -> Patch<'a> {
        set(&mut self.c.flags, sys::ST_TXN_PUBLISH, publish);
        self
    }

    /// As [`TransactionOptions::break_links`].
    pub fn break_links(mut self, break_links: bool) -> Patch<'a> {
        set(&mut self.c.flags, sys::ST_TXN_BREAK_LINKS, break_links);
        self
    }

    /// How long to wait for other workers' locks; `None` is for ever.
    pub fn lock_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Patch<'a> {
        self.c.lock_timeout_ms = milliseconds(timeout.into());
        self
    }

    /// Told now and then how far it has come; [`ControlFlow::Break`] cancels, and nothing has changed.
    pub fn progress<F>(mut self, progress: F) -> Patch<'a>
    where
        F: FnMut(Progress) -> ControlFlow<()> + 'a,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// As [`TransactionOptions::journal_only`]; for [`Patch::run_on`] alone.
    pub fn journal_only(mut self, journal_only: bool) -> Patch<'a> {
        set(&mut self.c.flags, sys::ST_TXN_JOURNAL_ONLY, journal_only);
        self
    }

    /// Apply the delta.
    ///
    /// # Errors
    /// As [`patch()`].
    pub fn run(self, base: impl AsRef<Path>, delta: impl AsRef<Path>) -> Result<Plan> {
        let base = c_path(base.as_ref())?;
        // SAFETY: C strings, set-up options and a place for the plan; what they point at lives during the call.
        self.apply(delta.as_ref(), |delta, c, plan| unsafe {
            sys::st_delta_apply(base.as_ptr(), delta, c, plan)
        })
    }

    /// Apply the delta through a file that is open for writing, which shows the result then.
    ///
    /// # Errors
    /// As [`patch()`]; [`Status::ReadOnly`](crate::Status::ReadOnly).
    pub fn run_on(self, file: &File, delta: impl AsRef<Path>) -> Result<Plan> {
        // SAFETY: as above, and an open handle.
        self.apply(delta.as_ref(), |delta, c, plan| unsafe {
            sys::st_apply_delta(file.handle().raw(), delta, c, plan)
        })
    }

    fn apply(
        mut self,
        delta: &Path,
        call: impl FnOnce(*const c_char, *const sys::st_delta_apply_options, *mut sys::st_plan) -> sys::st_status,
    ) -> Result<Plan> {
        let delta = c_path(delta)?;
        let reverse = self.reverse.as_deref().map(c_path).transpose()?;
        let mut plan = sys::st_plan::default();
        let mut c = self.c;
        c.reverse = reverse.as_ref().map_or(null(), |path| path.as_ptr());
        (c.progress, c.progress_user) = callback::of_call(&mut self.progress);
        callback::call(|| check(call(delta.as_ptr(), &c, &mut plan)))?;
        Ok(Plan::of(&plan))
    }
}

impl Default for Patch<'_> {
    fn default() -> Self {
        Patch::new()
    }
}

impl fmt::Debug for Patch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patch")
            .field("reverse", &self.reverse)
            .field("flags", &self.c.flags)
            .finish_non_exhaustive()
    }
}

/// What a delta says of itself. An identity is a hash of names, dtypes, shapes and metadata, not of bytes: it is equal if
/// only bytes change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeltaInfo {
    /// Tensors replaced.
    pub changed: u64,
    /// Tensors added.
    pub added: u64,
    /// Tensors deleted.
    pub deleted: u64,
    /// Keys of the metadata that are set.
    pub metadata_set: u64,
    /// Keys of the metadata that are removed.
    pub metadata_removed: u64,
    /// Bytes of the tensors in it.
    pub data_bytes: u64,
    /// Identity of its base: 32 hexadecimal digits.
    pub base: String,
    /// Identity of what it makes of that.
    pub result: String,
    /// Bytes of the delta itself, with its header.
    pub file_size: u64,
}

impl DeltaInfo {
    /// Reads the header of a delta.
    ///
    /// # Errors
    /// [`Status::Delta`] if the file is none; what opening answers.
    pub fn read(delta: impl AsRef<Path>) -> Result<DeltaInfo> {
        let path = c_path(delta.as_ref())?;
        let mut c = sys::st_delta_info::default();
        // SAFETY: a C string and a set-up place to write to.
        check(unsafe { sys::st_delta_describe(path.as_ptr(), &mut c) })?;
        Ok(DeltaInfo {
            changed: c.changed,
            added: c.added,
            deleted: c.deleted,
            metadata_set: c.metadata_set,
            metadata_removed: c.metadata_removed,
            data_bytes: c.data_bytes,
            base: sentence(&c.base),
            result: sentence(&c.result),
            file_size: c.file_size,
        })
    }
}
