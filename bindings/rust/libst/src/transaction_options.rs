//! How a transaction is begun.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::callback::{OwnProgress, ProgressFn};
use crate::options::{milliseconds, seconds, set};
#[cfg(doc)]
use crate::Status;
use crate::{sys, File, Layout, Progress, Result, Transaction};

/// How a transaction is begun: [`File::begin`] with choices.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// # let file = libst::OpenOptions::new().write(true).open(&path)?;
/// use libst::TransactionOptions;
/// use std::{ops::ControlFlow, time::Duration};
///
/// let mut bytes = 0;
/// let mut change = TransactionOptions::new()
///     .lock_timeout(Duration::from_millis(100))
///     .publish(true) // no reader sees a mix of old and new
///     .progress(|progress| {
///         bytes = progress.done;
///         ControlFlow::Continue(())
///     })
///     .begin(&file)?;
/// # change.update_bytes("b", &[1; 2])?;
/// # change.commit()?;
/// # Ok::<(), libst::Error>(())
/// ```
#[must_use]
pub struct TransactionOptions<'f> {
    c: sys::st_txn_options,
    progress: Option<ProgressFn<'f>>,
}

// SAFETY: the pointers in `c` are NULL; the closure is Send.
unsafe impl Send for TransactionOptions<'_> {}

impl<'f> TransactionOptions<'f> {
    /// The file's lock timeout and progress; in place where that is possible.
    pub fn new() -> TransactionOptions<'f> {
        // By ST_TXN_COPY the library borrows nothing beyond a call.
        let c = sys::st_txn_options { flags: sys::ST_TXN_COPY, ..Default::default() };
        TransactionOptions { c, progress: None }
    }

    /// How long [`Transaction::commit`] waits for other workers' locks; `None` is for ever.
    pub fn lock_timeout(mut self, timeout: impl Into<Option<Duration>>) -> TransactionOptions<'f> {
        self.c.lock_timeout_ms = milliseconds(timeout.into());
        self
    }

    /// Whether also what could be patched goes into a new file, so that no reader sees a mix.
    pub fn publish(mut self, publish: bool) -> TransactionOptions<'f> {
        set(&mut self.c.flags, sys::ST_TXN_PUBLISH, publish);
        self
    }

    /// Whether a file that has other hard links may be published all the same: they keep the old bytes. Else the commit
    /// answers [`Status::HardLinks`].
    pub fn break_links(mut self, break_links: bool) -> TransactionOptions<'f> {
        set(&mut self.c.flags, sys::ST_TXN_BREAK_LINKS, break_links);
        self
    }

    /// The commit is durable, as ever, but by its journal alone, and takes one sync. The file has the new bytes at once,
    /// and they are durable in it later: see [`File::sync`]. On shards, on storage that is not local, and where the commit
    /// publishes it changes nothing.
    pub fn journal_only(mut self, journal_only: bool) -> TransactionOptions<'f> {
        set(&mut self.c.flags, sys::ST_TXN_JOURNAL_ONLY, journal_only);
        self
    }

    /// Gives shards that are rewritten new names, as in `model-00001-of-00004.g1.safetensors`, and leaves the old ones
    /// for so long: a stock reader of the old index then finds all that it names, and the change takes one copy. A file
    /// of libst that has the old index must be refreshed before it opens another shard ([`Status::FileChanged`]). The
    /// first such commit after that time removes the old shards, or [`recover`](crate::recover()) at any time. Until
    /// then, what takes files by a pattern such as `*.safetensors`, and not by the index, takes old and new ones. `None`
    /// is the default: shards keep their names. On one file it is [`Status::Unsupported`].
    pub fn new_names(mut self, grace: impl Into<Option<Duration>>) -> TransactionOptions<'f> {
        let grace = grace.into();
        set(&mut self.c.flags, sys::ST_TXN_NEW_NAMES, grace.is_some());
        self.c.shard_grace_s = grace.map_or(sys::ST_GRACE_DEFAULT, seconds);
        self
    }

    /// The order of the tensors, [`Layout::Keep`] or [`Layout::Canonical`]. What is not `Keep`, and an alignment or
    /// reserve that is not 0, make a publish of the commit.
    pub fn layout(mut self, layout: Layout) -> TransactionOptions<'f> {
        self.c.layout = layout.code();
        self
    }

    /// The first data byte of a new file lies at a multiple of `bytes`: a multiple of 8, at most 2^20. 0 is what lets most
    /// bytes be shared with the old file, else 64.
    pub fn alignment(mut self, bytes: u32) -> TransactionOptions<'f> {
        self.c.alignment = bytes;
        self
    }

    /// Bytes of spare room in the header of a new file, at least.
    pub fn header_reserve(mut self, bytes: u64) -> TransactionOptions<'f> {
        self.c.header_reserve = bytes;
        self
    }

    /// Told now and then during this transaction's calls, as [`OpenOptions::progress`](crate::OpenOptions::progress).
    pub fn progress<F>(mut self, progress: F) -> TransactionOptions<'f>
    where
        F: FnMut(Progress) -> ControlFlow<()> + Send + 'f,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Begin.
    ///
    /// # Errors
    /// [`Status::ReadOnly`], [`Status::Poisoned`].
    pub fn begin(self, file: &'f File) -> Result<Transaction<'f>> {
        Transaction::begin(file.handle(), self.c, self.progress.map(OwnProgress::new))
    }
}

impl Default for TransactionOptions<'_> {
    fn default() -> Self {
        TransactionOptions::new()
    }
}

impl fmt::Debug for TransactionOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionOptions")
            .field("lock_timeout_ms", &self.c.lock_timeout_ms)
            .field("flags", &self.c.flags)
            .field("layout", &Layout::from_code(self.c.layout))
            .finish_non_exhaustive()
    }
}
