//! Rewrite a file without what it has to spare.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::callback::{self, CallProgressFn};
use crate::error::check;
use crate::options::{c_path, milliseconds, seconds, set};
use crate::{sys, Progress, Result};

/// Rewrite a file in canonical order, with no spare room; atomically, as any publish. On xfs and btrfs less than a block of
/// it may let blocks be shared. [`Compact`] has choices. Shards are rewritten one after the other: a failure, or a cancel,
/// leaves those that are done.
///
/// # Errors
/// What opening and [`Transaction::commit`](crate::Transaction::commit) answer.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// libst::compact(&path)?;
/// # Ok::<(), libst::Error>(())
/// ```
pub fn compact(path: impl AsRef<Path>) -> Result<()> {
    Compact::new().run(path)
}

/// [`compact()`] with choices.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// libst::Compact::new().alignment(4096).header_reserve(1 << 16).run(&path)?;
/// assert_eq!(libst::File::open(&path)?.info()?.data_offset % 4096, 0);
/// # Ok::<(), libst::Error>(())
/// ```
#[must_use]
pub struct Compact<'a> {
    c: sys::st_txn_options,
    progress: Option<CallProgressFn<'a>>,
}

impl<'a> Compact<'a> {
    /// Data at 64, no room in the header; waits up to ten seconds for locks.
    pub fn new() -> Compact<'a> {
        Compact { c: sys::st_txn_options::default(), progress: None }
    }

    /// How long to wait for other workers' locks; `None` is for ever.
    pub fn lock_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Compact<'a> {
        self.c.lock_timeout_ms = milliseconds(timeout.into());
        self
    }

    /// As [`TransactionOptions::break_links`](crate::TransactionOptions::break_links).
    pub fn break_links(mut self, break_links: bool) -> Compact<'a> {
        set(&mut self.c.flags, sys::ST_TXN_BREAK_LINKS, break_links);
        self
    }

    /// As [`TransactionOptions::new_names`](crate::TransactionOptions::new_names).
    pub fn new_names(mut self, grace: impl Into<Option<Duration>>) -> Compact<'a> {
        let grace = grace.into();
        set(&mut self.c.flags, sys::ST_TXN_NEW_NAMES, grace.is_some());
        self.c.shard_grace_s = grace.map_or(sys::ST_GRACE_DEFAULT, seconds);
        self
    }

    /// The first data byte lies at a multiple of `bytes`: a multiple of 8, at most 2^20. 0 is 64.
    pub fn alignment(mut self, bytes: u32) -> Compact<'a> {
        self.c.alignment = bytes;
        self
    }

    /// Bytes of spare room in the header, for later growth.
    pub fn header_reserve(mut self, bytes: u64) -> Compact<'a> {
        self.c.header_reserve = bytes;
        self
    }

    /// Told now and then how far it has come; [`ControlFlow::Break`] cancels, and nothing has changed.
    pub fn progress<F>(mut self, progress: F) -> Compact<'a>
    where
        F: FnMut(Progress) -> ControlFlow<()> + 'a,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Rewrite the file.
    ///
    /// # Errors
    /// As [`compact()`].
    pub fn run(mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        let mut c = self.c;
        (c.progress, c.progress_user) = callback::of_call(&mut self.progress);
        // SAFETY: a C string and set-up options, whose closure lives during the call.
        callback::call(|| check(unsafe { sys::st_compact(path.as_ptr(), &c) }))
    }
}

impl Default for Compact<'_> {
    fn default() -> Self {
        Compact::new()
    }
}

impl fmt::Debug for Compact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compact")
            .field("flags", &self.c.flags)
            .field("alignment", &self.c.alignment)
            .field("header_reserve", &self.c.header_reserve)
            .finish_non_exhaustive()
    }
}
