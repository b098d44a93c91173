//! What a call answers: the statuses of st.h as an enum. The tests compare it with the header.

use std::fmt;

use crate::{sys, Action};

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $constant:ident,)*) => {
        /// Why a call failed; see [`Error::status`](crate::Error::status).
        ///
        /// ```
        /// # use libst::{File, Status};
        /// let error = File::open("/no/such/model.safetensors").unwrap_err();
        /// assert_eq!(error.status(), Status::NoFile);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $variant,)*
            /// A status of a library newer than this crate: its number.
            Other(i32),
        }

        impl Status {
            /// The number in the C interface.
            pub const fn code(self) -> i32 {
                match self {
                    $(Status::$variant => sys::$constant,)*
                    Status::Other(code) => code,
                }
            }

            /// The status of that number, which is not ST_OK.
            pub const fn from_code(code: i32) -> Status {
                match code {
                    $(sys::$constant => Status::$variant,)*
                    code => Status::Other(code),
                }
            }

            /// All of them but [`Status::Other`].
            pub const ALL: &'static [Status] = &[$(Status::$variant),*];
        }
    };
}

statuses! {
    /// A parameter is not what the function takes.
    InvalidArgument = ST_E_INVALID_ARGUMENT,
    /// Memory could not be had.
    NoMemory = ST_E_NOMEM,
    /// A bug in libst; please report it.
    Internal = ST_E_INTERNAL,
    /// An option from a newer version, or a thing this platform cannot do.
    Unsupported = ST_E_UNSUPPORTED,
    /// A callback asked to stop; nothing changed.
    Cancelled = ST_E_CANCELLED,
    /// [`File::interrupt`](crate::File::interrupt) was called; nothing changed.
    Interrupted = ST_E_INTERRUPTED,
    /// No tensor, or no metadata key, of that name.
    NotFound = ST_E_NOT_FOUND,
    /// An index or a slice lies outside.
    OutOfRange = ST_E_OUT_OF_RANGE,
    /// The destination is too small.
    BufferSize = ST_E_BUFFER_SIZE,
    /// The file was opened for reading only.
    ReadOnly = ST_E_READ_ONLY,
    /// Another worker holds the lock; try again later.
    Busy = ST_E_BUSY,
    /// The transaction belongs to the parent process.
    Forked = ST_E_FORKED,

    /// The operating system failed a call; [`Error::os_errno`](crate::Error::os_errno) says how.
    Io = ST_E_IO,
    /// No such file.
    NoFile = ST_E_NO_FILE,
    /// The operating system forbids it.
    Permission = ST_E_PERMISSION,
    /// The disk, or the quota, is full; nothing changed.
    NoSpace = ST_E_NO_SPACE,
    /// A folder, a device or a pipe, where a plain file is needed.
    NotRegular = ST_E_NOT_REGULAR,
    /// The file was truncated or rewritten under an open handle.
    FileChanged = ST_E_FILE_CHANGED,
    /// The filesystem cannot lock, or grants every lock; changing is refused.
    LockUnsupported = ST_E_LOCK_UNSUPPORTED,
    /// A write or sync failed on this handle earlier; close it and open anew.
    Poisoned = ST_E_POISONED,
    /// The bytes that came are not those that were stored; read them once more.
    Checksum = ST_E_CHECKSUM,

    /// The file is shorter than its 8-byte length.
    HeaderTooSmall = ST_E_HEADER_TOO_SMALL,
    /// The header is longer than 100,000,000 bytes.
    HeaderTooLarge = ST_E_HEADER_TOO_LARGE,
    /// The file ends inside its header.
    HeaderTruncated = ST_E_HEADER_TRUNCATED,
    /// The header is not UTF-8.
    HeaderUtf8 = ST_E_HEADER_UTF8,
    /// The header is not one JSON object.
    HeaderJson = ST_E_HEADER_JSON,
    /// `__metadata__` is not a map from string to string.
    Metadata = ST_E_METADATA,
    /// An entry is not {dtype, shape, data_offsets}, each once and of the right type.
    TensorInfo = ST_E_TENSOR_INFO,
    /// A dtype that the format does not have.
    Dtype = ST_E_DTYPE,
    /// The product of the shape, in bits, exceeds 2^64.
    ShapeOverflow = ST_E_SHAPE_OVERFLOW,
    /// data_offsets end before they begin.
    Offsets = ST_E_OFFSETS,
    /// Two tensors share bytes.
    Overlap = ST_E_OVERLAP,
    /// Bytes between tensors, or before the first, belong to none.
    Hole = ST_E_HOLE,
    /// data_offsets span another size than shape and dtype ask for.
    SizeMismatch = ST_E_SIZE_MISMATCH,
    /// 4- and 6-bit elements that do not fill whole bytes.
    Subbyte = ST_E_SUBBYTE,
    /// The file ends before the last tensor does.
    Truncated = ST_E_TRUNCATED,
    /// Bytes follow the last tensor.
    TrailingData = ST_E_TRAILING_DATA,
    /// A name stands twice, which would hide a tensor.
    DuplicateName = ST_E_DUPLICATE_NAME,
    /// An index of shards is not `{"metadata": {}, "weight_map": {name: shard}}`.
    ShardIndex = ST_E_SHARD_INDEX,
    /// A shard that the index names is not there.
    ShardMissing = ST_E_SHARD_MISSING,
    /// Index and shards disagree about where a tensor is.
    ShardTensor = ST_E_SHARD_TENSOR,
    /// A tensor stands twice: in the index, or in two shards.
    ShardDuplicate = ST_E_SHARD_DUPLICATE,
    /// A shard's name leads out of the index's folder.
    ShardPath = ST_E_SHARD_PATH,

    /// The file is no delta, or one that contradicts itself or was damaged.
    Delta = ST_E_DELTA,
    /// The delta was made for another base, or has been applied already; nothing changed.
    DeltaBase = ST_E_DELTA_BASE,

    /// An update may not change the dtype.
    DtypeMismatch = ST_E_DTYPE_MISMATCH,
    /// An update may not change the shape.
    ShapeMismatch = ST_E_SHAPE_MISMATCH,
    /// The payload has another size than the tensor.
    NbytesMismatch = ST_E_NBYTES_MISMATCH,
    /// A committed journal waits: recover from where the file can be written.
    NeedsRecovery = ST_E_NEEDS_RECOVERY,
    /// A journal that is damaged, foreign or planted; it was not applied.
    Journal = ST_E_JOURNAL,
    /// An earlier call of this transaction, or of this writer, failed; abort it.
    TransactionFailed = ST_E_TXN_FAILED,
    /// The file has other names, which would keep the old bytes.
    HardLinks = ST_E_HARD_LINKS,
    /// Bytes of a declared tensor were not written.
    Incomplete = ST_E_INCOMPLETE,
}

impl Status {
    /// The name in the C interface: "ST_E_BUSY".
    pub fn name(self) -> &'static str {
        // SAFETY: takes any number, answers a static string.
        let name = unsafe { std::ffi::CStr::from_ptr(sys::st_status_name(self.code())) };
        name.to_str().expect("names of statuses are ASCII")
    }

    /// What a caller can do, also about a status that is newer than this crate.
    ///
    /// ```
    /// assert_eq!(libst::Status::Busy.action(), libst::Action::Retry);
    /// ```
    pub fn action(self) -> Action {
        // SAFETY: takes any number.
        Action::from_code(unsafe { sys::st_status_action(self.code()) })
    }
}

/// Its name in the C interface.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
