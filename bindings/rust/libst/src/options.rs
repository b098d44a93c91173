//! How a file is opened; and what all options share: layouts, waits, and paths on their way to C.

use std::ffi::{c_char, CString};
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::callback::Shared;
use crate::file::Opened;
use crate::handle::Handle;
use crate::info::numbered;
use crate::{sys, Direct, Error, File, Level, Map, Prefetch, Progress, Result, Status};

/// How a file is opened: [`File::open`] with choices.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// use libst::{Map, OpenOptions};
/// use std::time::Duration;
///
/// let file = OpenOptions::new()
///     .write(true)
///     .map(Map::Private)
///     .lock_timeout(Duration::from_secs(2))
///     .log(|level, sentence| eprintln!("{level:?}: {sentence}"))
///     .open(&path)?;
/// # Ok::<(), libst::Error>(())
/// ```
#[must_use]
pub struct OpenOptions {
    pub(crate) c: sys::st_open_options,
    pub(crate) deltas: Vec<PathBuf>,
    pub(crate) callbacks: Shared,
}

// SAFETY: the pointers in `c` are NULL until the file is opened.
unsafe impl Send for OpenOptions {}
// SAFETY: as above.
unsafe impl Sync for OpenOptions {}

impl OpenOptions {
    /// For reading, mapped as the storage asks, waiting up to ten seconds for locks.
    pub fn new() -> OpenOptions {
        OpenOptions { c: sys::st_open_options::default(), deltas: Vec::new(), callbacks: Shared::default() }
    }

    /// Whether changes are allowed; the file must be writable.
    pub fn write(mut self, write: bool) -> OpenOptions {
        set(&mut self.c.flags, sys::ST_OPEN_READ_WRITE, write);
        self
    }

    /// How the data is reached. [`File::info`] tells the choice, and why. With [`Map::Auto`] the environment's
    /// `ST_MAP` has a say.
    pub fn map(mut self, map: Map) -> OpenOptions {
        self.c.map = map.code();
        self
    }

    /// How long changing and recovering wait for other workers' locks; `None` is for ever.
    pub fn lock_timeout(mut self, timeout: impl Into<Option<Duration>>) -> OpenOptions {
        self.c.lock_timeout_ms = milliseconds(timeout.into());
        self
    }

    /// How bulk reads go: [`File::prefetch`], [`File::read_many`], [`File::load`]. [`File::info`] tells what came of it,
    /// and why. With [`Prefetch::Auto`] the environment's `ST_PREFETCH` has a say.
    pub fn prefetch(mut self, prefetch: Prefetch) -> OpenOptions {
        self.c.prefetch = prefetch.code();
        self
    }

    /// Whether bulk reads into memory go past the page cache. With [`Direct::Auto`] the environment's `ST_DIRECT` has a
    /// say.
    pub fn direct(mut self, direct: Direct) -> OpenOptions {
        self.c.direct = direct.code();
        self
    }

    /// Readers of a bulk read, at most 64; 0: as the storage asks, or the environment's `ST_IO_THREADS`.
    pub fn io_threads(mut self, threads: u32) -> OpenOptions {
        self.c.io_threads = threads;
        self
    }

    /// Bytes of a request of bulk reads, taken between 64 KiB and 256 MiB; 0: as the storage asks, or the environment's
    /// `ST_BLOCK_SIZE`.
    pub fn block_size(mut self, bytes: u32) -> OpenOptions {
        self.c.block_size = bytes;
        self
    }

    /// This file is worker `index` of a group of `count` that share the warming of it: [`File::prefetch`] of everything
    /// is then of this worker's contiguous part.
    pub fn worker(mut self, index: u32, count: u32) -> OpenOptions {
        (self.c.worker_index, self.c.worker_count) = (index, count);
        self
    }

    /// Bytes of page cache that bulk reads may leave behind; 0: no limit.
    pub fn memory_limit(mut self, bytes: u64) -> OpenOptions {
        self.c.memory_limit = bytes;
        self
    }

    /// Deltas, the oldest first, that lie on the file or the shards: what is shown, for reading only, is what
    /// [`patch`](crate::patch()) with each of them in turn would make of it.
    pub fn deltas<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> OpenOptions {
        self.deltas.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Told now and then during this file's long calls; [`ControlFlow::Break`] cancels the call, which then fails with
    /// [`Status::Cancelled`] and has changed nothing. A panic cancels the call likewise, and
    /// then goes on. It must not use the file but to [interrupt](crate::Interrupt) it: a change would wait for the one that calls it.
    pub fn progress<F>(mut self, progress: F) -> OpenOptions
    where
        F: Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static,
    {
        self.callbacks.progress = Some(Box::new(progress));
        self
    }

    /// Told what a user may want to know: a mapping fell back, a journal was recovered. Must not use the same file. A
    /// panic cancels the call that told it, as far as it can be cancelled, and then goes on. A call of `libst-sys` is not
    /// cancelled ([`File::as_raw`]).
    pub fn log<F>(mut self, log: F) -> OpenOptions
    where
        F: Fn(Level, &str) + Send + Sync + 'static,
    {
        self.callbacks.log = Some(Box::new(log));
        self
    }

    /// Open a safetensors file: read and check its header, map its data, and first of all finish what a crashed writer
    /// had committed.
    ///
    /// # Errors
    /// [`NoFile`](Status::NoFile), [`Permission`](Status::Permission),
    /// [`NotRegular`](Status::NotRegular), [`Io`](Status::Io); every status of the format; from recovery
    /// [`NeedsRecovery`](Status::NeedsRecovery), [`Journal`](Status::Journal) and
    /// [`Busy`](Status::Busy); with [`deltas`](OpenOptions::deltas) [`Delta`](Status::Delta),
    /// [`DeltaBase`](Status::DeltaBase).
    pub fn open(self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let c_path = c_path(path)?;
        let deltas = CPaths::new(&self.deltas)?;
        let callbacks = Arc::new(self.callbacks); // from here on at one address
        let c = with(self.c, &deltas, &callbacks);
        // SAFETY: a C string, set-up options, a place to write to; the handle keeps the callbacks.
        let handle = Handle::opened(callbacks, |out| unsafe { sys::st_open(c_path.as_ptr(), &c, out) })?;
        Ok(File::of(handle, path.to_owned(), Opened::by(&c)))
    }
}

/// As C takes them. It must not use them for longer than the paths live, nor the handle for longer than the callbacks.
pub(crate) fn with(mut c: sys::st_open_options, deltas: &CPaths, callbacks: &Shared) -> sys::st_open_options {
    (c.deltas, c.delta_count) = (deltas.as_ptr(), deltas.len());
    (c.progress, c.log) = (callbacks.c_progress(), callbacks.c_log());
    (c.progress_user, c.log_user) = (callbacks.user(), callbacks.user());
    c
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("write", &(self.c.flags & sys::ST_OPEN_READ_WRITE != 0))
            .field("map", &Map::from_code(self.c.map))
            .field("lock_timeout_ms", &self.c.lock_timeout_ms)
            .finish_non_exhaustive()
    }
}

numbered! {
    /// In which order a new file has its tensors.
    Layout {
        /// As given; of a transaction: as in the file, new ones at the end.
        Keep = ST_LAYOUT_KEEP,
        /// Descending dtype, then name, as stock writers do.
        Canonical = ST_LAYOUT_CANONICAL,
        /// Canonical, and byte for byte what safetensors 0.8 writes. For [`SaveOptions`](crate::SaveOptions) only.
        Stock = ST_LAYOUT_STOCK,
    }
}

/// None: for ever. A wait that is not nothing is at least a millisecond.
pub(crate) fn milliseconds(timeout: Option<Duration>) -> i32 {
    match timeout {
        None => sys::ST_TIMEOUT_FOREVER,
        Some(wait) if wait.is_zero() => sys::ST_TIMEOUT_NONE,
        Some(wait) => i32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
    }
}

/// How long old shards stay. What is not nothing is at least a second.
pub(crate) fn seconds(grace: Duration) -> u32 {
    const LONGEST: u32 = sys::ST_GRACE_NONE - 1;
    if grace.is_zero() {
        return sys::ST_GRACE_NONE;
    }
    u32::try_from(grace.as_nanos().div_ceil(1_000_000_000)).unwrap_or(LONGEST).min(LONGEST)
}

pub(crate) fn set(flags: &mut u32, flag: u32, wanted: bool) {
    *flags = if wanted { *flags | flag } else { *flags & !flag };
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        Error::new(Status::InvalidArgument, format!("the path {path:?} holds a NUL, which no path can"))
    })
}

/// Paths on their way to C, and the pointers to them, which live as long.
pub(crate) struct CPaths {
    _paths: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CPaths {
    pub(crate) fn new(paths: &[impl AsRef<Path>]) -> Result<CPaths> {
        let paths = paths.iter().map(|path| c_path(path.as_ref())).collect::<Result<Vec<_>>>()?;
        let pointers = paths.iter().map(|path| path.as_ptr()).collect();
        Ok(CPaths { _paths: paths, pointers })
    }

    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_and_saturate() {
        assert_eq!(milliseconds(None), sys::ST_TIMEOUT_FOREVER);
        assert_eq!(milliseconds(Some(Duration::ZERO)), sys::ST_TIMEOUT_NONE);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_millis(250))), 250);
        assert_eq!(milliseconds(Some(Duration::from_secs(1 << 40))), i32::MAX);
        assert_eq!(milliseconds(Some(Duration::MAX)), i32::MAX);
    }

    #[test]
    fn graces_are_rounded_up_and_saturate() {
        assert_eq!(seconds(Duration::ZERO), sys::ST_GRACE_NONE);
        assert_eq!(seconds(Duration::from_nanos(1)), 1);
        assert_eq!(seconds(Duration::from_secs(3600)), 3600);
        assert_eq!(seconds(Duration::from_secs(u32::MAX.into())), u32::MAX - 1, "not ST_GRACE_NONE");
        assert_eq!(seconds(Duration::MAX), u32::MAX - 1);
    }
}
