//! One tensor of a file: what the catalogue says of it, and the ways to its bytes.

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::bulk::{open_files_of, uninit};
use crate::handle::{Described, Handle};
use crate::slice::Ranges;
use crate::{Dtype, Interrupt, Range, ReadRequest, Result, Slice, TensorView};

/// A tensor of a [`File`](crate::File) as it was when this was taken: its bytes stay in the file until asked for, and come
/// from the state that name and shape are of, whatever is published meanwhile. It keeps that state, and may outlive the
/// [`File`](crate::File).
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// let file = libst::File::open(&path)?;
/// let w = file.tensor("w")?;
/// assert_eq!((w.dtype(), w.shape(), w.data_len()), (libst::Dtype::F32, &[3, 2][..], 24));
/// let bytes = w.read()?;
/// # Ok::<(), libst::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    described: Described<'static>, // in truth for as long as `pin` lives
    pin: Arc<Handle>,
}

impl Tensor {
    /// # Errors
    /// [`Status::NotFound`](crate::Status::NotFound).
    pub(crate) fn of(pin: &Arc<Handle>, name: &str) -> Result<Tensor> {
        let described = pin.describe(name)?;
        // SAFETY: the pin has just described it.
        Ok(unsafe { Tensor::of_parts(pin, described) })
    }

    pub(crate) fn each_of(pin: &Arc<Handle>, names: &[&str]) -> Result<Vec<Tensor>> {
        open_files_of(pin, names, &mut None)?;
        names.iter().map(|name| Tensor::of(pin, name)).collect()
    }

    pub(crate) fn all_of(pin: &Arc<Handle>) -> Result<Vec<Tensor>> {
        let all = pin.describe_all()?;
        // SAFETY: as above.
        Ok(all.into_iter().map(|described| unsafe { Tensor::of_parts(pin, described) }).collect())
    }

    /// # Safety
    /// `described` is of this pin.
    unsafe fn of_parts(pin: &Arc<Handle>, described: Described<'_>) -> Tensor {
        // SAFETY: name and shape live until st_close, which this Tensor's part of `pin` puts off. Nothing gives them out
        // for longer than a borrow of the Tensor.
        let described = unsafe { std::mem::transmute::<Described<'_>, Described<'static>>(described) };
        Tensor { described, pin: Arc::clone(pin) }
    }

    pub(crate) fn pin(&self) -> &Arc<Handle> {
        &self.pin
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.described.name
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.described.dtype
    }

    /// Its shape, slowest dimension first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        self.described.shape
    }

    /// The length of its data in bytes.
    pub fn data_len(&self) -> usize {
        self.described.nbytes
    }

    /// Where its first byte lies, from the start of its file. For a tensor that steps of a delta lead to: from the start
    /// of memory that looks like a file.
    pub fn file_offset(&self) -> u64 {
        self.described.file_offset
    }

    /// The number of its file among [`File::shards`](crate::File::shards): 0 in one file; else among an index's shards,
    /// or the base's files and then the deltas.
    pub fn shard(&self) -> u32 {
        self.described.shard
    }

    /// Copy its bytes; see [`File::read`](crate::File::read).
    pub fn read(&self) -> Result<Vec<u8>> {
        self.pin.read(self.name(), self.data_len())
    }

    /// Copy its bytes to the start of `dst`; see [`File::read_into`](crate::File::read_into).
    pub fn read_into(&self, dst: &mut [u8]) -> Result<()> {
        self.pin.read_into(self.name(), dst)
    }

    /// To be read to the start of `dst` with others; see [`File::read_many`](crate::File::read_many).
    pub fn request<'a>(&self, dst: &'a mut [u8]) -> ReadRequest<'a> {
        ReadRequest::of(self.clone(), &[], uninit(dst))
    }

    /// The same where the buffer holds nothing yet: once read, its first [`data_len`](Tensor::data_len) bytes do.
    pub fn request_uninit<'a>(&self, dst: &'a mut [MaybeUninit<u8>]) -> ReadRequest<'a> {
        ReadRequest::of(self.clone(), &[], dst)
    }

    /// A part of it, to read; see [`File::slice`](crate::File::slice).
    pub fn slice(&self, ranges: &[Range]) -> Result<Slice> {
        Slice::of(self.clone(), Ranges::from(ranges))
    }

    /// Its bytes where they lie; see [`File::view`](crate::File::view).
    ///
    /// # Safety
    /// As [`Snapshot::view`](crate::Snapshot::view): also nobody refreshes the file, unless the bytes are mapped.
    pub unsafe fn view(&self) -> Result<TensorView<'_>> {
        // SAFETY: the caller's promise.
        unsafe { self.pin.view(self.name()) }
    }

    /// As [`File::interrupt_handle`](crate::File::interrupt_handle), also after the file was closed.
    pub fn interrupt_handle(&self) -> Interrupt {
        Interrupt::of(&self.pin)
    }

    /// Whether that state has this very tensor, and not another of its name.
    pub(crate) fn is_in(&self, pin: &Handle) -> bool {
        let same = |there: Described<'_>| std::ptr::eq(there.name, self.name());
        std::ptr::eq(pin, &*self.pin) || pin.describe(self.name()).is_ok_and(same)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name())
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .field("file_offset", &self.file_offset())
            .finish_non_exhaustive()
    }
}
