//! Several changes that become durable together, or not at all.

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::ptr::{null_mut, NonNull};
use std::time::Duration;

use crate::callback::{self, own_progress, ProgressFn};
use crate::error::check;
use crate::handle::Handle;
use crate::view::with_value;
use crate::{sys, timeout, Error, File, Progress, Result, Status, TensorView, View};

/// Changes staged on a [`File`], all or none. Aborted when dropped.
///
/// What it is given streams to the journal during the call, so it may be larger than memory, and the bytes may go as
/// soon as the call returns.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// let file = libst::OpenOptions::new().write(true).open(&path)?;
/// let mut change = file.begin()?;
/// change.update_bytes("w", &[0; 24])?;
/// change.update_bytes("b", &[1; 2])?;
/// change.commit()?; // durable
///
/// let mut change = file.begin()?;
/// change.update_bytes("b", &[7; 2])?;
/// drop(change); // never happened
/// assert_eq!(file.read("b")?, [1; 2]);
/// # Ok::<(), libst::Error>(())
/// ```
///
/// It belongs to one thread at a time: it may move to another, but two cannot use it at once.
///
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<libst::Transaction<'static>>();
/// ```
///
/// It cannot outlive its file, which would abort it:
///
/// ```compile_fail,E0505
/// # fn f() -> libst::Result<()> {
/// let file = libst::OpenOptions::new().write(true).open("model.safetensors")?;
/// let change = file.begin()?;
/// drop(file);
/// change.commit()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a transaction that is dropped changes nothing"]
pub struct Transaction<'f> {
    raw: *mut sys::st_txn, // NULL: finished
    handle: &'f Handle,
    _progress: Option<OwnProgress<'f>>, // C holds a pointer to it
}

// SAFETY: st.h: "a transaction belongs to one thread at a time"; its progress closure is Send. Not Sync, by `raw`.
unsafe impl Send for Transaction<'_> {}

/// A boxed closure by its raw pointer, as C reaches it by that too.
struct OwnProgress<'f> {
    raw: NonNull<ProgressFn<'f>>,
    owned: PhantomData<ProgressFn<'f>>,
}

impl Drop for OwnProgress<'_> {
    fn drop(&mut self) {
        // SAFETY: made from a box, and C no longer knows it: the transaction has ended before its fields are dropped.
        drop(unsafe { Box::from_raw(self.raw.as_ptr()) });
    }
}

impl<'f> Transaction<'f> {
    /// Stage a tensor's new bytes: same dtype and shape as in the file. A tensor staged twice takes the last value.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::DtypeMismatch`], [`Status::ShapeMismatch`], [`Status::NbytesMismatch`]: the
    /// transaction is as it was. [`Status::NoSpace`], [`Status::Permission`], [`Status::Io`], [`Status::Cancelled`],
    /// [`Status::Interrupted`]: it can only be dropped, and everything else answers [`Status::TransactionFailed`].
    /// [`Status::Forked`]: it belongs to the parent process.
    pub fn update(&mut self, name: &str, value: impl View) -> Result<()> {
        let raw = self.raw;
        let update = |value: &sys::st_tensor| {
            callback::call(|| {
                // SAFETY: a live transaction, a name with its length, and a tensor whose data lives during the call,
                // which is long enough with ST_TXN_COPY.
                check(unsafe { sys::st_txn_update_n(raw, name.as_ptr().cast(), name.len(), value) })
            })
        };
        with_value(value.dtype(), value.shape(), &value.data(), update)?
    }

    /// [`Transaction::update`] with bytes alone: dtype and shape are those in the file.
    pub fn update_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let tensor = self.handle.describe(name)?;
        self.update(name, TensorView::of_parts(tensor.dtype, tensor.shape, bytes))
    }

    /// Make all staged changes durable, or none.
    ///
    /// # Errors
    /// [`Status::Busy`]: a lock was not to be had in time. The error names the tensor, and where it is known the
    /// process that holds it, and [gives the transaction back](CommitError::into_transaction).
    ///
    /// [`Status::NeedsRecovery`]: it failed after, or at, the point of no return, and recovery decides: drop the file
    /// and open it anew.
    ///
    /// [`Status::FileChanged`] (the file was replaced by one in which a staged tensor is missing or has another form),
    /// [`Status::LockUnsupported`], [`Status::NoSpace`], [`Status::Io`], [`Status::Poisoned`], [`Status::Cancelled`],
    /// [`Status::Interrupted`], [`Status::TransactionFailed`], [`Status::Forked`], [`Status::Journal`]: nothing changed.
    pub fn commit(mut self) -> Result<(), CommitError<'f>> {
        let error = callback::call(|| {
            // SAFETY: a live transaction.
            let status = unsafe { sys::st_commit(self.raw) };
            if status != sys::ST_E_BUSY {
                self.raw = null_mut(); // freed, and known to be before a panic of a callback goes on
            }
            check(status).err()
        });
        match error {
            None => Ok(()),
            Some(error) => Err(CommitError { error, transaction: (!self.raw.is_null()).then_some(self) }),
        }
    }

    /// Drop all staged changes, as dropping the transaction does.
    pub fn abort(self) {}
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: a live transaction, or NULL.
        callback::call_in_drop(|| unsafe { sys::st_abort(self.raw) });
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

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
#[derive(Default)]
pub struct TransactionOptions<'f> {
    lock_timeout_ms: Option<i32>,
    progress: Option<ProgressFn<'f>>,
}

impl<'f> TransactionOptions<'f> {
    /// The file's lock timeout and progress.
    pub fn new() -> TransactionOptions<'f> {
        TransactionOptions::default()
    }

    /// How long [`Transaction::commit`] waits for other workers' locks; `None` is for ever.
    pub fn lock_timeout(mut self, timeout: impl Into<Option<Duration>>) -> TransactionOptions<'f> {
        self.lock_timeout_ms = Some(timeout::milliseconds(timeout.into()));
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
        let handle = file.handle();
        let mut c = sys::ST_TXN_OPTIONS_INIT;
        c.flags = sys::ST_TXN_COPY;
        c.lock_timeout_ms = self.lock_timeout_ms.unwrap_or(file.lock_timeout_ms());
        let progress = self.progress.map(|progress| OwnProgress {
            raw: NonNull::from(Box::leak(Box::new(progress))),
            owned: PhantomData,
        });
        match &progress {
            Some(own) => {
                (c.progress, c.progress_user) =
                    (Some(own_progress::<ProgressFn<'f>> as _), own.raw.as_ptr().cast())
            }
            None => {
                (c.progress, c.progress_user) = (handle.callbacks().c_progress(), handle.callbacks().user());
            }
        }
        let mut transaction = Transaction { raw: null_mut(), handle, _progress: progress };
        // SAFETY: an open handle, set-up options, a place to write to; the transaction keeps the closure, and the file
        // its callbacks.
        callback::call(|| check(unsafe { sys::st_begin(handle.raw(), &c, &mut transaction.raw) }))?;
        Ok(transaction)
    }
}

impl fmt::Debug for TransactionOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionOptions")
            .field("lock_timeout_ms", &self.lock_timeout_ms)
            .finish_non_exhaustive()
    }
}

/// A commit that failed: the [`Error`], and after [`Status::Busy`] the transaction, to commit again. `?` makes an
/// [`Error`] of it, which aborts the transaction.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// # let file = libst::OpenOptions::new().write(true).open(&path)?;
/// let mut change = file.begin()?;
/// change.update_bytes("b", &[1; 2])?;
/// while let Err(busy) = change.commit() {
///     eprintln!("{busy}");
///     change = busy.into_transaction()?; // to try again, if it is only that another worker holds a lock
/// }
/// # Ok::<(), libst::Error>(())
/// ```
#[derive(Debug)]
pub struct CommitError<'f> {
    error: Error,
    transaction: Option<Transaction<'f>>,
}

impl<'f> CommitError<'f> {
    /// What kind of failure.
    pub fn status(&self) -> Status {
        self.error.status()
    }

    /// What failed.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// What failed; a transaction that could have been committed again is aborted.
    pub fn into_error(self) -> Error {
        self.error
    }

    /// The transaction, if it may be committed again; else the error.
    pub fn into_transaction(self) -> Result<Transaction<'f>> {
        self.transaction.ok_or(self.error)
    }
}

impl fmt::Display for CommitError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl From<CommitError<'_>> for Error {
    fn from(failed: CommitError<'_>) -> Error {
        failed.error
    }
}

// It borrows the file, so it cannot be a std Error that outlives it; but what it says can.
impl From<CommitError<'_>> for Box<dyn StdError> {
    fn from(failed: CommitError<'_>) -> Self {
        failed.error.into()
    }
}

impl From<CommitError<'_>> for Box<dyn StdError + Send + Sync> {
    fn from(failed: CommitError<'_>) -> Self {
        failed.error.into()
    }
}
