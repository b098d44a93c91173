//! One tensor of a file: what the catalogue says of it, and the ways to its bytes.

use std::fmt;

use crate::handle::{Described, Handle};
use crate::slice::Ranges;
use crate::{sys, Dtype, Range, ReadRequest, Result, Slice, TensorView};

/// A tensor of a [`File`](crate::File), which it borrows. Its bytes stay in the file until asked for.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// let file = libst::File::open(&path)?;
/// let w = file.tensor("w")?;
/// assert_eq!((w.dtype(), w.shape(), w.data_len()), (libst::Dtype::F32, &[3, 2][..], 24));
/// let bytes = w.read()?;
/// # Ok::<(), libst::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Tensor<'f> {
    handle: &'f Handle,
    described: Described<'f>,
}

impl<'f> Tensor<'f> {
    pub(crate) fn of(handle: &'f Handle, described: Described<'f>) -> Tensor<'f> {
        Tensor { handle, described }
    }

    /// Its name.
    pub fn name(&self) -> &'f str {
        self.described.name
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.described.dtype
    }

    /// Its shape, slowest dimension first; empty for a scalar.
    pub fn shape(&self) -> &'f [usize] {
        self.described.shape
    }

    /// The length of its data in bytes.
    pub fn data_len(&self) -> usize {
        self.described.nbytes
    }

    /// Where its first byte lies, from the start of the file.
    pub fn file_offset(&self) -> u64 {
        self.described.file_offset
    }

    /// The number of its file in a sharded checkpoint; else 0.
    pub fn shard(&self) -> u32 {
        self.described.shard
    }

    /// Copy its bytes; see [`File::read`](crate::File::read).
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.data_len()];
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Copy its bytes to the start of `dst`; see [`File::read_into`](crate::File::read_into).
    pub fn read_into(&self, dst: &mut [u8]) -> Result<()> {
        let (name, dst_size) = (self.described.name, dst.len());
        // SAFETY: a name with its length, and a buffer with its length.
        self.handle.call(|raw| unsafe {
            sys::st_read_n(raw, name.as_ptr().cast(), name.len(), dst.as_mut_ptr().cast(), dst_size)
        })?;
        self.handle.still(&self.described)
    }

    /// To be read to the start of `dst` with others; see [`File::read_many`](crate::File::read_many).
    pub fn request<'a>(&self, dst: &'a mut [u8]) -> ReadRequest<'a>
    where
        'f: 'a,
    {
        ReadRequest::of(self.handle, self.described, &[], dst)
    }

    /// A part of it, to read; see [`File::slice`](crate::File::slice).
    pub fn slice(&self, ranges: &[Range]) -> Result<Slice<'f>> {
        Slice::of(self.handle, self.described, Ranges::from(ranges))
    }

    /// Its bytes where they lie; see [`File::view`](crate::File::view).
    ///
    /// # Safety
    /// As [`File::view`](crate::File::view).
    pub unsafe fn view(&self) -> Result<TensorView<'f>> {
        // SAFETY: the caller's promise.
        unsafe { self.handle.view(self.described.name) }
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name())
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .field("file_offset", &self.file_offset())
            .finish_non_exhaustive()
    }
}
