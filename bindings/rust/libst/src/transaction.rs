//! Several changes that become durable together, or not at all.

use std::fmt;
use std::ptr::{null, null_mut};

use crate::callback::{self, OwnProgress};
use crate::error::check;
use crate::handle::Handle;
use crate::info::{numbered, sentence};
use crate::slice::Ranges;
use crate::view::with_value;
use crate::{sys, Range, Result, TensorView, View};
#[cfg(doc)]
use crate::{File, Status, TransactionOptions};

/// Changes staged on a [`File`], all or none. Aborted when dropped.
///
/// Each call writes its payload out, so a transaction may be larger than memory. The bytes may go as soon as the call
/// returns.
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
/// # In place, or a new file
///
/// Updates alone are patched in place, through a journal. With a put, delete, rename or metadata in it, or with
/// [`TransactionOptions::publish`], the whole of it is published: a new file is made beside the old one and takes its
/// name, so that every reader sees the old file or the new one. Bytes that stay never pass through the process. Names
/// resolve as the calls before in the same transaction left them, but [`Transaction::update_bytes`] takes its form from
/// the file.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// # use libst::{Dtype, TensorView};
/// let file = libst::OpenOptions::new().write(true).open(&path)?;
/// let mut change = file.begin()?;
/// change.put("w", TensorView::new(Dtype::U8, vec![3], &[1, 2, 3])?)?; // another dtype and shape
/// change.rename("b", "bias")?;
/// change.set_metadata("format", "pt")?;
/// println!("{}", change.plan()?.how);
/// change.commit()?;
/// assert_eq!(file.names()?, ["w", "bias"]);
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
    raw: *mut sys::st_txn, // freed by Drop alone
    handle: &'f Handle,
    _progress: Option<OwnProgress<'f>>, // C holds a pointer to it
}

// SAFETY: st.h: "a transaction belongs to one thread at a time"; its progress closure is Send. Not Sync, by `raw`.
unsafe impl Send for Transaction<'_> {}

impl<'f> Transaction<'f> {
    /// Without a closure of its own C tells the file's.
    pub(crate) fn begin(
        handle: &'f Handle,
        mut c: sys::st_txn_options,
        progress: Option<OwnProgress<'f>>,
    ) -> Result<Transaction<'f>> {
        if let Some(own) = &progress {
            (c.progress, c.progress_user) = own.c();
        }
        let mut transaction = Transaction { raw: null_mut(), handle, _progress: progress };
        // SAFETY: an open handle, set-up options, a place to write to; the transaction keeps the closure, and the file
        // its callbacks.
        callback::call(|| check(unsafe { sys::st_txn_begin(handle.raw(), &c, &mut transaction.raw) }))?;
        Ok(transaction)
    }

    /// Stage a tensor's new bytes: same dtype and shape as it has. A tensor staged twice takes the last value.
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
                check(unsafe { sys::st_txn_update(raw, name.as_ptr().cast(), name.len(), value) })
            })
        };
        with_value(value.dtype(), value.shape(), &value.data(), update)?
    }

    /// [`Transaction::update`] with bytes alone: dtype and shape are those in the file.
    pub fn update_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let pin = self.handle.pin()?;
        let tensor = pin.describe(name)?;
        self.update(name, TensorView::of_parts(tensor.dtype, tensor.shape, bytes))
    }

    /// Stage new bytes for a slice of a tensor: the journal and the locks hold these alone. `value` has the tensor's
    /// dtype and the slice's shape. What is staged later wins, over slices and over whole tensors.
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// use libst::{s, Dtype, TensorView};
    ///
    /// let file = libst::OpenOptions::new().write(true).open(&path)?;
    /// let mut change = file.begin()?;
    /// change.update_slice("w", &s![1..2], TensorView::new(Dtype::F32, vec![1, 2], &[1; 8])?)?; // a row
    /// change.update_rows("w", &[2, 0], &s![..1], TensorView::new(Dtype::F32, vec![2, 1], &[2; 8])?)?;
    /// change.commit()?;
    /// assert_eq!(file.read("w")?[8..16], [1; 8]);
    /// # Ok::<(), libst::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::update`]. These too leave the transaction as it was: [`Status::InvalidArgument`] for a
    /// step of 0, [`Status::OutOfRange`] for more ranges than dimensions, [`Status::Subbyte`] for a cut inside a byte.
    pub fn update_slice(&mut self, name: &str, ranges: &[Range], value: impl View) -> Result<()> {
        self.update_part(name, ranges, None, value)
    }

    /// [`Transaction::update_slice`] of rows: `rows` are of the first dimension, in any order, negative ones from its
    /// end; of one that comes twice the last counts. `ranges` are for the dimensions behind the first.
    ///
    /// # Errors
    /// Those of [`Transaction::update_slice`]; [`Status::OutOfRange`] for a row outside.
    pub fn update_rows(
        &mut self,
        name: &str,
        rows: &[i64],
        ranges: &[Range],
        value: impl View,
    ) -> Result<()> {
        self.update_part(name, ranges, Some(rows), value)
    }

    fn update_part(
        &mut self,
        name: &str,
        ranges: &[Range],
        rows: Option<&[i64]>,
        value: impl View,
    ) -> Result<()> {
        let raw = self.raw;
        let ranges = Ranges::from(ranges);
        let c = ranges.c();
        let (indices, count) = rows.map_or((null(), 0), |rows| (rows.as_ptr(), rows.len()));
        let update = |value: &sys::st_tensor| {
            callback::call(|| {
                // SAFETY: a live transaction; a name, ranges and rows with their lengths; and a tensor whose data lives
                // during the call. The pointer of no rows is not NULL.
                check(unsafe {
                    sys::st_txn_update_slice(
                        raw,
                        name.as_ptr().cast(),
                        name.len(),
                        c.as_ptr(),
                        c.len(),
                        indices,
                        count,
                        value,
                    )
                })
            })
        };
        with_value(value.dtype(), value.shape(), &value.data(), update)?
    }

    /// Add a tensor, or replace one by any dtype and shape. One that is replaced keeps its place in the order of the
    /// file, others come last.
    ///
    /// # Errors
    /// [`Status::Dtype`], [`Status::ShapeOverflow`], [`Status::Subbyte`], [`Status::NbytesMismatch`],
    /// [`Status::InvalidArgument`] (the name `__metadata__`): the transaction is as it was. Else as
    /// [`Transaction::update`].
    pub fn put(&mut self, name: &str, value: impl View) -> Result<()> {
        let raw = self.raw;
        let put = |value: &sys::st_tensor| {
            callback::call(|| {
                // SAFETY: as in `update`.
                check(unsafe { sys::st_txn_put(raw, name.as_ptr().cast(), name.len(), value) })
            })
        };
        with_value(value.dtype(), value.shape(), &value.data(), put)?
    }

    /// Remove a tensor.
    ///
    /// # Errors
    /// [`Status::NotFound`]: the transaction is as it was.
    pub fn delete(&mut self, name: &str) -> Result<()> {
        // SAFETY: a live transaction, and a name with its length.
        callback::call(|| check(unsafe { sys::st_txn_delete(self.raw, name.as_ptr().cast(), name.len()) }))
    }

    /// Give a tensor another name.
    ///
    /// # Errors
    /// [`Status::NotFound`]; [`Status::DuplicateName`] if that name is taken: the transaction is as it was.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        callback::call(|| {
            // SAFETY: a live transaction, and names with their lengths.
            check(unsafe {
                sys::st_txn_rename(self.raw, from.as_ptr().cast(), from.len(), to.as_ptr().cast(), to.len())
            })
        })
    }

    /// Set a key of `__metadata__`.
    pub fn set_metadata(&mut self, key: &str, value: &str) -> Result<()> {
        self.metadata(key, Some(value))
    }

    /// Remove a key of `__metadata__`.
    ///
    /// # Errors
    /// [`Status::NotFound`]: the transaction is as it was.
    pub fn remove_metadata(&mut self, key: &str) -> Result<()> {
        self.metadata(key, None)
    }

    fn metadata(&mut self, key: &str, value: Option<&str>) -> Result<()> {
        let (data, len) = value.map_or((null(), sys::ST_NTS), |value| (value.as_ptr().cast(), value.len()));
        callback::call(|| {
            // SAFETY: a live transaction, a key with its length, and a value with its, or NULL.
            check(unsafe { sys::st_txn_set_metadata(self.raw, key.as_ptr().cast(), key.len(), data, len) })
        })
    }

    /// What [`Transaction::commit`] would do, as far as can be told beforehand. Touches nothing.
    ///
    /// # Errors
    /// [`Status::HeaderTooLarge`] and what else the new header may be; [`Status::InvalidArgument`] (alignment);
    /// [`Status::TransactionFailed`], [`Status::Forked`], [`Status::Poisoned`].
    pub fn plan(&self) -> Result<Plan> {
        let mut c = sys::st_plan::default();
        // SAFETY: a live transaction, and a set-up place to write to.
        callback::call(|| check(unsafe { sys::st_txn_plan(self.raw, &mut c) }))?;
        Ok(Plan::of(&c))
    }

    /// Make all staged changes durable, or none.
    ///
    /// # Errors
    /// [`Status::Busy`]: a lock was not free in time. The error names the tensor, and where it is known the
    /// process that holds it. [`Transaction::try_commit`] may then be called again.
    ///
    /// [`Status::NeedsRecovery`]: it failed after, or at, the point of no return, and recovery decides: drop the file
    /// and open it anew.
    ///
    /// With all others nothing has changed. [`Status::FileChanged`]: the file was replaced by one in which a staged tensor
    /// is missing or has another form. [`Status::HardLinks`]: see [`TransactionOptions::break_links`]. The statuses of a
    /// new header. [`Status::LockUnsupported`], [`Status::NoSpace`], [`Status::Io`], [`Status::Poisoned`],
    /// [`Status::Cancelled`], [`Status::Interrupted`], [`Status::TransactionFailed`], [`Status::Forked`],
    /// [`Status::Journal`].
    pub fn commit(mut self) -> Result<()> {
        self.try_commit()
    }

    /// [`Transaction::commit`] that keeps the transaction, to commit it again after [`Status::Busy`]. After every other
    /// answer it has ended, and everything answers [`Status::TransactionFailed`].
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// # let file = libst::OpenOptions::new().write(true).open(&path)?;
    /// let mut change = file.begin()?;
    /// change.update_bytes("b", &[1; 2])?;
    /// while let Err(error) = change.try_commit() {
    ///     if error.status() != libst::Status::Busy {
    ///         return Err(error);
    ///     }
    ///     eprintln!("{error}"); // another worker holds a lock: try again
    /// }
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn try_commit(&mut self) -> Result<()> {
        // SAFETY: a live transaction.
        callback::call(|| check(unsafe { sys::st_txn_commit(self.raw) }))
    }

    /// Drop all staged changes, as dropping the transaction does.
    pub fn abort(self) {}
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: a live transaction, or NULL if it could not be begun.
        callback::call_in_drop(|| unsafe { sys::st_txn_free(self.raw) });
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

numbered! {
    /// How a commit goes about it.
    PlanKind {
        /// There is nothing to do.
        Nothing = ST_PLAN_NOTHING,
        /// In place, through the journal.
        Patch = ST_PLAN_PATCH,
        /// A new file, which takes the old one's name.
        Publish = ST_PLAN_PUBLISH,
    }
}

/// What a commit would do, as far as can be told beforehand; see [`Transaction::plan`]. Staged bytes that the kernel
/// takes from a journal into a new file count nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// In place, or a new file.
    pub kind: PlanKind,
    /// Bytes of the file after it; of shards: of all that change.
    pub file_size: u64,
    /// Where tensors begin after it; of shards that change: the largest.
    pub data_offset: u64,
    /// Bytes from the process: to files, headers, the index, and what journals still lack.
    pub bytes_written: u64,
    /// Bytes shared with the old files, in blocks of which nothing is copied.
    pub bytes_shared: u64,
    /// Bytes of the old files that the kernel copies.
    pub bytes_copied: u64,
    /// Free bytes that the commit takes at once, and a little for the filesystem's own.
    pub space_needed: u64,
    /// Free bytes now, if known.
    pub space_free: Option<u64>,
    /// One sentence.
    pub how: String,
}

impl Plan {
    pub(crate) fn of(c: &sys::st_plan) -> Plan {
        Plan {
            kind: PlanKind::from_code(c.kind),
            file_size: c.file_size,
            data_offset: c.data_offset,
            bytes_written: c.bytes_written,
            bytes_shared: c.bytes_shared,
            bytes_copied: c.bytes_copied,
            space_needed: c.space_needed,
            space_free: (c.space_free != u64::MAX).then_some(c.space_free),
            how: sentence(&c.how),
        }
    }
}
