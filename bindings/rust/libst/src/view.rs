//! Bytes with a dtype and a shape: what reading gives and what updating takes.

use std::borrow::Cow;

use crate::{sys, Dtype, Error, Result, Status};

/// What [`File::update`](crate::File::update), [`Transaction::put`](crate::Transaction::put) and
/// [`save`](crate::save()) take. The same methods as the trait of this name in the `safetensors` crate has.
///
/// ```
/// use libst::{Dtype, View};
/// use std::borrow::Cow;
///
/// struct Bias(Vec<f32>, [usize; 1]);
///
/// impl View for Bias {
///     fn dtype(&self) -> Dtype { Dtype::F32 }
///     fn shape(&self) -> &[usize] { &self.1 }
///     fn data(&self) -> Cow<'_, [u8]> { self.0.iter().flat_map(|x| x.to_le_bytes()).collect() }
///     fn data_len(&self) -> usize { 4 * self.0.len() }
/// }
/// ```
pub trait View {
    /// The type of its elements.
    fn dtype(&self) -> Dtype;
    /// Its shape, slowest dimension first; empty for a scalar.
    fn shape(&self) -> &[usize];
    /// Little-endian elements in C order.
    fn data(&self) -> Cow<'_, [u8]>;
    /// The length of the data in bytes.
    fn data_len(&self) -> usize;
}

/// A tensor that lies in memory: borrowed bytes with a dtype and a shape.
///
/// ```
/// # use libst::{Dtype, TensorView};
/// let bytes: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// let view = TensorView::new(Dtype::F32, vec![2, 2], &bytes)?;
/// assert_eq!((view.shape(), view.data_len()), (&[2, 2][..], 16));
/// # Ok::<(), libst::Error>(())
/// ```
///
/// One taken from a file cannot outlive it:
///
/// ```compile_fail,E0505
/// # fn f() -> libst::Result<()> {
/// let file = libst::File::open("model.safetensors")?;
/// let view = unsafe { file.view("w")? };
/// drop(file);
/// println!("{:?}", view.data());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorView<'data> {
    dtype: Dtype,
    shape: Cow<'data, [usize]>,
    data: &'data [u8],
}

impl<'data> TensorView<'data> {
    /// Little-endian elements in C order, as a tensor.
    ///
    /// # Errors
    /// [`Status::NbytesMismatch`] if `data` has another size than dtype and shape ask for, [`Status::Subbyte`] if they
    /// ask for no whole number of bytes, [`Status::ShapeOverflow`] if they ask for more than 2^64 bits.
    pub fn new(dtype: Dtype, shape: impl Into<Cow<'data, [usize]>>, data: &'data [u8]) -> Result<Self> {
        let shape = shape.into();
        let nbytes = dtype.bytes_of(&shape)?;
        if nbytes != data.len() {
            let message = format!("{dtype} of shape {shape:?} takes {nbytes} bytes, not {}", data.len());
            return Err(Error::new(Status::NbytesMismatch, message));
        }
        Ok(TensorView { dtype, shape, data })
    }

    /// The parts are such as the library has checked.
    #[inline]
    pub(crate) fn of_parts(dtype: Dtype, shape: &'data [usize], data: &'data [u8]) -> Self {
        TensorView { dtype, shape: Cow::Borrowed(shape), data }
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its shape, slowest dimension first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Little-endian elements in C order. May be unaligned for their type.
    pub fn data(&self) -> &'data [u8] {
        self.data
    }

    /// The length of the data in bytes.
    pub fn data_len(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn with_own_shape<'longer>(self, data: &'longer [u8]) -> TensorView<'longer> {
        TensorView { dtype: self.dtype, shape: Cow::Owned(self.shape.into_owned()), data }
    }
}

impl View for TensorView<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.data.into()
    }

    fn data_len(&self) -> usize {
        self.data.len()
    }
}

/// So that what holds a tensor need not be given away.
impl<V: View + ?Sized> View for &V {
    fn dtype(&self) -> Dtype {
        (**self).dtype()
    }

    fn shape(&self) -> &[usize] {
        (**self).shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        (**self).data()
    }

    fn data_len(&self) -> usize {
        (**self).data_len()
    }
}

/// The value of an update, for the length of `use_it`.
pub(crate) fn with_value<R>(
    dtype: Dtype,
    shape: &[usize],
    data: &[u8],
    use_it: impl FnOnce(&sys::st_tensor) -> R,
) -> Result<R> {
    Ok(use_it(&c_tensor("", dtype, shape, data, data.len() as u64)?))
}

/// A tensor for C, which points into these. `data` may be left away where only `nbytes` counts.
pub(crate) fn c_tensor(
    name: &str,
    dtype: Dtype,
    shape: &[usize],
    data: &[u8],
    nbytes: u64,
) -> Result<sys::st_tensor> {
    let rank = u32::try_from(shape.len())
        .map_err(|_| Error::new(Status::ShapeMismatch, format!("a shape of {} dimensions", shape.len())))?;
    Ok(sys::st_tensor {
        name: name.as_ptr().cast(),
        name_len: name.len(),
        dtype: dtype.code(),
        rank,
        shape: shape.as_ptr().cast(), // usize is u64 here
        data: data.as_ptr().cast(),
        nbytes,
        ..crate::handle::EMPTY
    })
}
