//! What a commit would do.

use crate::error::check;
use crate::info::{numbered, sentence};
use crate::{sys, Result};

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

/// What a commit would do, as far as can be told beforehand; see [`Transaction::plan`](crate::Transaction::plan).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// In place, or a new file.
    pub kind: PlanKind,
    /// Bytes of the file after it.
    pub file_size: u64,
    /// Where tensors begin after it.
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
    /// # Safety
    /// A live transaction.
    pub(crate) unsafe fn of(transaction: *mut sys::st_txn) -> Result<Plan> {
        let mut c = sys::ST_PLAN_INIT;
        // SAFETY: the caller's promise, and a set-up place to write to.
        check(unsafe { sys::st_txn_plan(transaction, &mut c) })?;
        Ok(Plan::of_c(&c))
    }

    pub(crate) fn of_c(c: &sys::st_plan) -> Plan {
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
