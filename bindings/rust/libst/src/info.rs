//! What lies behind a file, and what was done with it.

use std::ffi::c_char;

use crate::error::text;
use crate::handle::Handle;
use crate::{sys, Result};

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $constant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// One of a library newer than this crate: its number.
            Other(u32),
        }

        impl $name {
            /// The number in the C interface.
            pub const fn code(self) -> u32 {
                match self {
                    $($name::$variant => sys::$constant,)*
                    $name::Other(code) => code,
                }
            }

            /// What has that number.
            pub const fn from_code(code: u32) -> $name {
                match code {
                    $(sys::$constant => $name::$variant,)*
                    code => $name::Other(code),
                }
            }
        }
    };
}
pub(crate) use numbered;

numbered! {
    /// How a file's data is reached.
    Map {
        /// As the storage asks.
        Auto = ST_MAP_AUTO,
        /// A shared mapping; falls back to a private one, then to none.
        Shared = ST_MAP_SHARED,
        /// A private mapping; falls back to none.
        Private = ST_MAP_PRIVATE,
        /// No mapping: tensors are read into owned memory when first viewed.
        None = ST_MAP_NONE,
        /// A private mapping whose pages may be written, by [`File::view_raw`](crate::File::view_raw), and that never
        /// reach the file; falls back to none.
        CopyOnWrite = ST_MAP_COPY_ON_WRITE,
    }
}

numbered! {
    /// How much is read ahead of use, and how bulk reads go about it.
    Prefetch {
        /// As the storage asks.
        Auto = ST_PREFETCH_AUTO,
        /// Nothing is read ahead.
        None = ST_PREFETCH_NONE,
        /// One reader, in the order of the file.
        Sequential = ST_PREFETCH_SEQUENTIAL,
        /// Several readers; on network and FUSE storage each in a contiguous range of its own.
        Parallel = ST_PREFETCH_PARALLEL,
    }
}

numbered! {
    /// Whether bulk reads into memory go past the page cache.
    Direct {
        /// As the storage asks.
        Auto = ST_DIRECT_AUTO,
        /// Through the page cache.
        Off = ST_DIRECT_OFF,
        /// Past it, queued; where the filesystem cannot, as `Off`.
        On = ST_DIRECT_ON,
    }
}

numbered! {
    /// What a caller can do about a status; see [`Status::action`](crate::Status::action).
    Action {
        /// The status is newer than the library.
        None = ST_ACTION_NONE,
        /// Mend the argument or the file; the same call fails again.
        Fix = ST_ACTION_FIX,
        /// Call again, later.
        Retry = ST_ACTION_RETRY,
        /// Drop the file, open it anew, and look at what it holds.
        Reopen = ST_ACTION_REOPEN,
        /// Free space on the disk or in memory, then call again.
        Space = ST_ACTION_SPACE,
        /// Use another filesystem, machine or library.
        Move = ST_ACTION_MOVE,
        /// This call, or this transaction, was stopped; begin it anew.
        End = ST_ACTION_END,
        /// A bug in libst; please report it.
        Report = ST_ACTION_REPORT,
    }
}

numbered! {
    /// What kind of storage lies behind a path.
    Storage {
        /// Not known.
        Unknown = ST_STORAGE_UNKNOWN,
        /// A local disk.
        Local = ST_STORAGE_LOCAL,
        /// Memory.
        Memory = ST_STORAGE_MEMORY,
        /// A network filesystem.
        Network = ST_STORAGE_NETWORK,
        /// A parallel filesystem.
        Parallel = ST_STORAGE_PARALLEL,
        /// A FUSE filesystem.
        Fuse = ST_STORAGE_FUSE,
        /// A FUSE filesystem over an object store; also a source, as of a URL.
        ObjectStore = ST_STORAGE_OBJECT_STORE,
    }
}

/// What storage lies behind a file, how its data is reached, and why; see [`File::info`](crate::File::info).
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// let info = libst::File::open(&path)?.info()?;
/// println!("{:?} on {}: {}", info.map, info.filesystem, info.reason);
/// # Ok::<(), libst::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoInfo {
    /// What kind of storage.
    pub storage: Storage,
    /// The mapping in use.
    pub map: Map,
    /// How many steps down from the mapping first tried.
    pub map_fallbacks: u32,
    /// Bytes of the file.
    pub file_size: u64,
    /// Bytes of JSON with padding.
    pub header_size: u64,
    /// Where tensors begin.
    pub data_offset: u64,
    /// Its type, as in the mount table: "ext4", "fuse.gcsfuse".
    pub filesystem: String,
    /// One sentence: why this mapping.
    pub reason: String,
    /// How bulk reads go.
    pub prefetch: Prefetch,
    /// Whether bulk reads into memory go past the page cache.
    pub direct: Direct,
    /// Readers of a bulk read.
    pub io_threads: u32,
    /// Bytes of a request of theirs, at most.
    pub block_size: u32,
    /// One sentence: how bulk reads go, and why.
    pub prefetch_reason: String,
}

impl IoInfo {
    pub(crate) fn of(handle: &Handle) -> Result<IoInfo> {
        let mut c = sys::st_io_info::default();
        // SAFETY: an open handle and a set-up place to write to.
        handle.call(|raw| unsafe { sys::st_file_io_info(raw, &mut c) })?;
        Ok(IoInfo {
            storage: Storage::from_code(c.storage),
            map: Map::from_code(c.map),
            map_fallbacks: c.map_fallbacks,
            file_size: c.file_size,
            header_size: c.header_size,
            data_offset: c.data_offset,
            filesystem: sentence(&c.filesystem),
            reason: sentence(&c.reason),
            prefetch: Prefetch::from_code(c.prefetch),
            direct: Direct::from_code(c.direct),
            io_threads: c.io_threads,
            block_size: c.block_size,
            prefetch_reason: sentence(&c.prefetch_reason),
        })
    }
}

/// Text of at most so many bytes, which ends in a NUL.
pub(crate) fn sentence(bytes: &[c_char]) -> String {
    debug_assert!(bytes.contains(&0));
    // SAFETY: the library ends its texts with a NUL.
    unsafe { text(bytes.as_ptr()) }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident: $ty:ty,)*) => {
        /// What a handle has read, mapped, written and waited for so far; see [`File::stats`](crate::File::stats).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $field: $ty,)*
        }

        impl Stats {
            pub(crate) fn of(handle: &Handle) -> Result<Stats> {
                let mut c = sys::st_stats::default();
                // SAFETY: an open handle and a set-up place to write to.
                handle.call(|raw| unsafe { sys::st_file_stats(raw, &mut c) })?;
                Ok(Stats { $($field: c.$field),* })
            }
        }
    };
}

stats! {
    /// Steps down from the mapping first tried.
    map_fallbacks: u32,
    /// Bytes read by libst's own reads, of this handle.
    bytes_read: u64,
    /// Address space mapped.
    bytes_mapped: u64,
    /// Bytes of the mapping that are in memory now.
    bytes_resident: u64,
    /// Bytes of the mapping that are this process's own: pages of [`Map::CopyOnWrite`] that were written here, or
    /// patched.
    bytes_private_dirty: u64,
    /// Bytes filled in memory that the handle owns.
    bytes_owned: u64,
    /// Names, shapes, offsets and the hash table.
    index_bytes: u64,
    /// Bytes written into the file, of this handle.
    bytes_written: u64,
    /// Bytes written into journals.
    journal_bytes: u64,
    /// Transactions committed.
    commits: u64,
    /// Journals applied or dropped.
    recoveries: u64,
    /// Times that a lock was not free at once.
    lock_waits: u64,
    /// Requests of bulk reads.
    read_requests: u64,
    /// Bytes brought into the page cache by [`File::prefetch`](crate::File::prefetch).
    bytes_prefetched: u64,
    /// Times that this handle opened its file anew, in forked children.
    reopens: u64,
}
