//! One state of a file, for reading.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::{shown, Opened};
use crate::handle::Handle;
#[cfg(doc)]
use crate::LoadOptions;
use crate::{
    sys, Error, File, Interrupt, IoInfo, KeptView, OwnedView, Range, Result, Slice, Stats, Status, Tensor,
    TensorView,
};

/// What a [`File`] showed when [`File::snapshot`] was called: the same tensors and metadata for as long as it lives, whatever
/// is published or refreshed meanwhile, and after the file was closed. (What is patched in place shows.) It shares
/// descriptor and mapping with the file, so it costs next to nothing; and when it is dropped, with what was taken from it,
/// nothing of a replaced file is kept any more.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// let now = libst::File::open(&path)?.snapshot()?;
/// let total: usize = now.tensors()?.iter().map(|tensor| tensor.data_len()).sum();
/// assert_eq!((now.names()?, total), (vec!["w", "b"], 26));
/// # Ok::<(), libst::Error>(())
/// ```
///
/// Its views cannot outlive it:
///
/// ```compile_fail,E0505
/// # fn f() -> libst::Result<()> {
/// let now = libst::File::open("model.safetensors")?.snapshot()?;
/// let view = unsafe { now.view("w")? };
/// drop(now);
/// println!("{:?}", view.data());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    pin: Arc<Handle>,
    path: PathBuf,
    opened: Opened,
}

impl Snapshot {
    pub(crate) fn of(pin: Arc<Handle>, path: PathBuf, opened: Opened) -> Snapshot {
        Snapshot { pin, path, opened }
    }

    pub(crate) fn pin(&self) -> &Arc<Handle> {
        &self.pin
    }

    /// As the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file on the same path with the same options, but for reading only: its own descriptor and mapping. For workers.
    ///
    /// # Errors
    /// As [`File::reopen`], if the path names no longer the file that this shows.
    pub fn reopen(&self) -> Result<File> {
        self.reopened(0, self.opened.for_reading())
    }

    /// As [`File::reopen_copy_on_write`].
    ///
    /// # Errors
    /// As [`Snapshot::reopen`].
    pub fn reopen_copy_on_write(&self) -> Result<File> {
        self.reopened(sys::ST_REOPEN_COPY_ON_WRITE, self.opened.of_copy_on_write())
    }

    fn reopened(&self, flags: u32, opened: Opened) -> Result<File> {
        Ok(File::of(self.pin.reopen(flags)?, self.path.clone(), opened))
    }

    /// As [`File::shards`].
    pub fn shards(&self) -> Vec<PathBuf> {
        self.pin.shards()
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.pin.count()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a tensor of that name.
    ///
    /// # Errors
    /// As [`File::contains`].
    pub fn contains(&self, name: &str) -> Result<bool> {
        self.pin.contains(name)
    }

    /// The names, in the order of the tensors' places in the file.
    ///
    /// # Errors
    /// As [`File::tensors`].
    pub fn names(&self) -> Result<Vec<&str>> {
        Ok(self.pin.describe_all()?.into_iter().map(|tensor| tensor.name).collect())
    }

    /// A tensor: its description, and the ways to its bytes. Reads nothing.
    ///
    /// # Errors
    /// [`Status::NotFound`].
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        Tensor::of(&self.pin, name)
    }

    /// As [`File::tensors_by_name`].
    ///
    /// # Errors
    /// As [`File::tensor`].
    pub fn tensors_by_name(&self, names: &[&str]) -> Result<Vec<Tensor>> {
        Tensor::each_of(&self.pin, names)
    }

    /// All tensors, in the order of their places in the file: the order to read them in.
    ///
    /// # Errors
    /// As [`File::tensors`].
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        Tensor::all_of(&self.pin)
    }

    /// The pairs of `__metadata__`, in the order of the header.
    pub fn metadata(&self) -> Vec<(&str, &str)> {
        self.pin.metadata()
    }

    /// One value of `__metadata__`.
    pub fn metadata_get(&self, key: &str) -> Option<&str> {
        self.pin.metadata_get(key)
    }

    /// As [`File::read`].
    ///
    /// # Errors
    /// As [`File::read`].
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        self.pin.read(name, self.pin.describe(name)?.nbytes)
    }

    /// As [`File::read_into`].
    ///
    /// # Errors
    /// As [`File::read_into`].
    pub fn read_into(&self, name: &str, dst: &mut [u8]) -> Result<()> {
        self.pin.read_into(name, dst)
    }

    /// As [`File::slice`].
    ///
    /// # Errors
    /// As [`File::slice`].
    pub fn slice(&self, name: &str, ranges: &[Range]) -> Result<Slice> {
        self.tensor(name)?.slice(ranges)
    }

    /// A tensor's bytes where they lie, without a copy.
    ///
    /// # Errors
    /// As [`File::view`].
    ///
    /// # Safety
    /// As [`File::view`]. Nor is the [`File`] that this was taken from refreshed, unless the bytes are mapped:
    /// [`File::refresh`] reads memory of the file's own anew, where it is. Such memory is all under
    /// [`Map::None`](crate::Map::None) and on network storage, and what [`File::load`] and [`File::view_owned`] have read.
    /// What is published meanwhile, by whatever handle, is fine.
    #[inline]
    pub unsafe fn view(&self, name: &str) -> Result<TensorView<'_>> {
        // SAFETY: the caller's promise.
        unsafe { self.pin.view(name) }
    }

    /// As [`File::view_kept`].
    ///
    /// # Errors
    /// As [`File::view_kept`].
    ///
    /// # Safety
    /// As [`File::view_kept`].
    pub unsafe fn view_kept(&self, name: &str) -> Result<KeptView> {
        // SAFETY: the caller's promise.
        unsafe { KeptView::of(&self.pin, name) }
    }

    /// Views of all tensors by name, in the order of their places in the file.
    ///
    /// # Safety
    /// As [`Snapshot::view`].
    pub unsafe fn views(&self) -> impl Iterator<Item = Result<(&str, TensorView<'_>)>> {
        // SAFETY: the caller's promise.
        (0..).map_while(|index| unsafe { self.pin.view_at(index) })
    }

    /// As [`File::view_owned`].
    ///
    /// # Errors
    /// As [`File::view_owned`].
    pub fn view_owned(&self, name: &str) -> Result<OwnedView> {
        if self.opened.writable {
            return Err(Error::new(
                Status::Unsupported,
                "memory of a file opened for changes shows them while it is viewed; open another one for reading, or \
                 read a copy",
            ));
        }
        if self.opened.copy_on_write {
            return Err(Error::new(
                Status::Unsupported,
                "views of Map::CopyOnWrite lie in the mapping, where a truncation is a signal; open another file, or \
                 read a copy",
            ));
        }
        // SAFETY: the bytes then lie in memory that is private to the file and its snapshots. The file writes to it in a
        // refresh, and after commits of its own, of which it has none.
        unsafe { OwnedView::of(&self.pin, name, || self.load(Some(&[name]))) }
    }

    /// As [`File::interrupt_handle`], also after the file was closed.
    pub fn interrupt_handle(&self) -> Interrupt {
        Interrupt::of(&self.pin)
    }

    /// As [`File::as_raw`]: this alone closes it.
    pub fn as_raw(&self) -> *mut sys::st_file {
        self.pin.raw()
    }

    /// As [`File::info`].
    ///
    /// # Errors
    /// As [`File::info`].
    pub fn info(&self) -> Result<IoInfo> {
        IoInfo::of(&self.pin)
    }

    /// As [`File::stats`], of the file and its snapshots together.
    ///
    /// # Errors
    /// As [`File::stats`].
    pub fn stats(&self) -> Result<Stats> {
        Stats::of(&self.pin)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("path", &shown(&self.path))
            .field("tensors", &self.len())
            .finish_non_exhaustive()
    }
}
