//! Rust types for elements: reading gives a `Vec` of them, and what takes bytes takes theirs. For little-endian machines
//! alone, as a file is: on others the bytes of a value are not those of an element.

use std::borrow::Cow;

use crate::handle::filled;
use crate::{Dtype, Error, File, Result, Slice, Snapshot, Status, Tensor, TensorView};

/// A Rust type that stores the elements of a dtype as they are. Only types of this crate's choice have it.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// use libst::{bytes_of, OpenOptions, TensorView};
///
/// let file = OpenOptions::new().write(true).open(&path)?;
/// let mut w: Vec<f32> = file.read_as("w")?;
/// w[0] /= 2.0;
/// file.update("w", TensorView::of_values(&w, vec![3, 2])?)?;
/// file.update_bytes("w", bytes_of(&w))?; // the same: dtype and shape are those in the file
/// # assert_eq!(file.tensor("w")?.read_as::<f32>()?, w);
/// # Ok::<(), libst::Error>(())
/// ```
pub trait Element: sealed::Sealed + Copy {
    /// The dtype whose elements it stores.
    const DTYPE: Dtype;
}

mod sealed {
    /// For types without padding, of which every byte pattern is a value; but for `bool`.
    pub trait Sealed {
        /// Whether it also takes the bits of other dtypes, as an unsigned integer does.
        const BITS: bool;
    }
}

macro_rules! elements {
    ($($ty:ty: $dtype:ident, $bits:literal;)*) => {
        $(impl sealed::Sealed for $ty {
            const BITS: bool = $bits;
        }

        impl Element for $ty {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}

elements! {
    bool: BOOL, false;
    i8: I8, false;
    u8: U8, true;
    i16: I16, false;
    u16: U16, true;
    i32: I32, false;
    u32: U32, true;
    i64: I64, false;
    u64: U64, true;
    f32: F32, false;
    f64: F64, false;
    [f32; 2]: C64, false;
}

/// The bytes of elements, as a file has them: for [`File::update_bytes`] and [`Writer::write`](crate::Writer::write).
pub fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: no Element has padding, so all of these bytes are there, and they are borrowed.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

fn holds<T: Element>(dtype: Dtype) -> Result<()> {
    let (has, takes) = (dtype.bitsize(), 8 * std::mem::size_of::<T>());
    let packed = 0 < has && has < takes && T::DTYPE == Dtype::U8;
    if dtype == T::DTYPE || <T as sealed::Sealed>::BITS && (has == takes || packed) {
        return Ok(());
    }
    let message = format!("{dtype} is not what a {} holds", std::any::type_name::<T>());
    Err(Error::new(Status::DtypeMismatch, message))
}

/// Values of `nbytes` bytes, of a dtype that they hold.
///
/// # Safety
/// Where `fill` succeeds, it has filled `nbytes` bytes from the pointer on.
unsafe fn values<T: Element>(nbytes: usize, fill: impl FnOnce(*mut u8) -> Result<()>) -> Result<Vec<T>> {
    let count = nbytes / std::mem::size_of::<T>();
    let read = |values: *mut T| {
        let bytes = values.cast::<u8>();
        fill(bytes)?;
        if T::DTYPE == Dtype::BOOL {
            // SAFETY: just filled, and nobody has the values yet.
            let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, nbytes) };
            // A bool of Rust's is 0 or 1, and no other byte.
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(())
    };
    // SAFETY: the caller's promise: as many bytes as the values take, and each byte pattern is a value now.
    unsafe { filled(count, read) }
}

impl Tensor {
    /// Copy its elements. The dtype must be that of `T`, or of the same width if `T` is an unsigned integer: `u16` takes
    /// the bits of BF16, and `u8` the bytes of packed dtypes. A `bool` is true unless its byte is 0.
    ///
    /// # Errors
    /// [`Status::DtypeMismatch`]; what [`File::read`] answers.
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        holds::<T>(self.dtype()).map_err(|error| error.about_tensor(self.name()))?;
        let nbytes = self.data_len();
        // SAFETY: room for so many bytes, and st_read fills them: the tensor takes no fewer.
        unsafe { values(nbytes, |dst| self.pin().read_to(self.name(), dst, nbytes)) }
    }
}

impl Slice {
    /// Copy its elements, as [`Tensor::read_as`].
    ///
    /// # Errors
    /// As [`Tensor::read_as`].
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        holds::<T>(self.dtype()).map_err(|error| error.about_tensor(self.tensor().name()))?;
        let nbytes = self.data_len();
        // SAFETY: room for so many bytes, and st_read_slice fills them: the slice takes no fewer.
        unsafe { values(nbytes, |dst| self.read_to(dst, nbytes)) }
    }
}

impl File {
    /// Copy a tensor's elements, as [`Tensor::read_as`].
    ///
    /// # Errors
    /// [`Status::NotFound`]; as [`Tensor::read_as`].
    pub fn read_as<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        self.tensor(name)?.read_as()
    }
}

impl Snapshot {
    /// As [`File::read_as`].
    ///
    /// # Errors
    /// As [`File::read_as`].
    pub fn read_as<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        self.tensor(name)?.read_as()
    }
}

impl<'data> TensorView<'data> {
    /// Values as a tensor, without a copy.
    ///
    /// # Errors
    /// As [`TensorView::new`].
    pub fn of_values<T: Element>(values: &'data [T], shape: impl Into<Cow<'data, [usize]>>) -> Result<Self> {
        TensorView::new(T::DTYPE, shape, bytes_of(values))
    }

    /// A copy of its elements, as [`Tensor::read_as`]: the data may be unaligned.
    ///
    /// # Errors
    /// [`Status::DtypeMismatch`].
    pub fn values<T: Element>(&self) -> Result<Vec<T>> {
        holds::<T>(self.dtype())?;
        let data = self.data();
        let copy = |dst: *mut u8| {
            // SAFETY: room for so many bytes, in memory that was just taken.
            unsafe { dst.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            Ok(())
        };
        // SAFETY: all are filled.
        unsafe { values(data.len(), copy) }
    }
}
