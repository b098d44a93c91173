//! Commits, and writers' finishes, that failed and may be tried again.

use std::error::Error as StdError;
use std::fmt;

use crate::{Error, Result, Status, Transaction, Writer};

macro_rules! unfinished {
    ($(#[$doc:meta])* $name:ident<$life:lifetime> of $kept:ident: $of:ty,
     $(#[$error_doc:meta])* $into_error:ident, $(#[$kept_doc:meta])* $into_kept:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<$life> {
            error: Error,
            $kept: Option<$of>,
        }

        impl<$life> $name<$life> {
            pub(crate) fn of(error: Error, $kept: Option<$of>) -> Self {
                $name { error, $kept }
            }

            /// What kind of failure.
            pub fn status(&self) -> Status {
                self.error.status()
            }

            /// What failed.
            pub fn error(&self) -> &Error {
                &self.error
            }

            $(#[$error_doc])*
            pub fn $into_error(self) -> Error {
                self.error
            }

            $(#[$kept_doc])*
            pub fn $into_kept(self) -> Result<$of> {
                self.$kept.ok_or(self.error)
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.error.fmt(f)
            }
        }

        impl From<$name<'_>> for Error {
            fn from(failed: $name<'_>) -> Error {
                failed.error
            }
        }

        // What it keeps may borrow, so it cannot be a std Error that outlives it; but what it says can.
        impl From<$name<'_>> for Box<dyn StdError> {
            fn from(failed: $name<'_>) -> Self {
                failed.error.into()
            }
        }

        impl From<$name<'_>> for Box<dyn StdError + Send + Sync> {
            fn from(failed: $name<'_>) -> Self {
                failed.error.into()
            }
        }
    };
}

unfinished! {
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
    CommitError<'f> of transaction: Transaction<'f>,
    /// What failed; a transaction that could have been committed again is aborted.
    into_error,
    /// The transaction, if it may be committed again; else the error.
    into_transaction
}

unfinished! {
    /// A finish that failed: the [`Error`], and after [`Status::Busy`] and [`Status::Incomplete`] the writer, to go on
    /// with. `?` makes an [`Error`] of it, which aborts the writer.
    ///
    /// ```
    /// # let (folder, _) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// # let path = folder.path().join("new.safetensors");
    /// use libst::{Dtype, SaveOptions, Status};
    ///
    /// let mut writer = SaveOptions::new().writer_declaring(&path, [("w", Dtype::U8, [4])])?;
    /// writer.add("w", &[1, 2, 3])?;
    /// let unfinished = writer.finish().unwrap_err();
    /// assert_eq!((unfinished.status(), unfinished.error().tensor()), (Status::Incomplete, Some("w")));
    /// let mut writer = unfinished.into_writer()?;
    /// writer.add("w", &[4])?;
    /// writer.finish()?;
    /// # Ok::<(), libst::Error>(())
    /// ```
    FinishError<'a> of writer: Writer<'a>,
    /// What failed; a writer that could have gone on is aborted.
    into_error,
    /// The writer, if it may go on; else the error.
    into_writer
}
