//! Parts of tensors: ranges with steps, as Python has them.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Bound, RangeBounds};
use std::ptr::null_mut;

use crate::bulk::uninit;
use crate::handle::filled;
use crate::{sys, Dtype, ReadRequest, Result, Tensor};

/// One dimension's part of a slice: Rust's ranges of `i64`, `i32` and `usize`, where a negative end counts from the back,
/// with a step.
/// Both ends are clipped to the dimension. An inclusive range (`a..=b`) holds its last element whichever way the step goes.
/// [`s!`](crate::s) writes several.
///
/// ```
/// use libst::Range;
/// let every_other: Range = Range::from(1..5).step(2);
/// let last_two = Range::from(-2..);
/// let backwards = Range::from(..).step(-1); // a missing end is the one that lies that way
/// let four_three_two = Range::from(4..=2).step(-1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
    inclusive: bool, // `stop` itself is an element; what comes after it depends on the step
}

impl Range {
    /// From `start` to before `stop`; a missing end is the one that lies in the direction of the step.
    pub const fn new(start: Option<i64>, stop: Option<i64>, step: i64) -> Range {
        Range { start, stop, step, inclusive: false }
    }

    /// The same ends with another step: negative goes backwards, 0 is an error when the slice is made.
    #[must_use]
    pub const fn step(self, step: i64) -> Range {
        Range { step, ..self }
    }

    fn to_c(self) -> sys::st_range {
        let (first, last) = if self.step < 0 { (i64::MAX, i64::MIN) } else { (i64::MIN, i64::MAX) };
        let stop = self.before().unwrap_or(last);
        sys::st_range { start: self.start.unwrap_or(first), stop, step: self.step }
    }

    /// Where it stops, which is no element any more; None at the dimension's end that lies in the direction of the step.
    fn before(self) -> Option<i64> {
        match self.stop {
            // -1 counts from the back: before the first element there is none.
            Some(last) if self.inclusive && self.step < 0 => last.checked_sub(1).filter(|stop| *stop != -1),
            // -1 is the last element, and what comes after it is the end.
            Some(last) if self.inclusive => last.checked_add(1).filter(|stop| *stop != 0),
            stop => stop,
        }
    }
}

/// The whole dimension.
impl Default for Range {
    fn default() -> Range {
        Range::new(None, None, 1)
    }
}

impl Range {
    fn of<T: Copy + TryInto<i64>>(range: impl RangeBounds<T>) -> Range {
        let place = |end: &T| (*end).try_into().unwrap_or(i64::MAX); // no dimension reaches so far
        let start = match range.start_bound() {
            Bound::Included(start) => Some(place(start)),
            _ => None,
        };
        let (stop, inclusive) = match range.end_bound() {
            Bound::Excluded(stop) => (Some(place(stop)), false),
            Bound::Included(last) => (Some(place(last)), true),
            Bound::Unbounded => (None, false),
        };
        Range { inclusive, ..Range::new(start, stop, 1) }
    }
}

macro_rules! from_std {
    ($($number:ty: $($std:ident)*;)*) => {
        $($(impl From<std::ops::$std<$number>> for Range {
            fn from(range: std::ops::$std<$number>) -> Range {
                Range::of::<$number>(range)
            }
        })*)*
    };
}
// A number without a type is an i32 to the compiler, where there are several.
from_std! {
    i64: Range RangeInclusive RangeFrom RangeTo RangeToInclusive;
    i32: Range RangeInclusive RangeFrom RangeTo RangeToInclusive;
    usize: Range RangeInclusive RangeFrom RangeTo RangeToInclusive;
}

impl From<std::ops::RangeFull> for Range {
    fn from(range: std::ops::RangeFull) -> Range {
        Range::of::<i64>(range)
    }
}

/// The ranges of a slice, each with a step if one stands after a semicolon: `s![1..3, ..;2, -1..]` is Python's
/// `[1:3, ::2, -1:]`.
///
/// ```
/// # use libst::{s, Range};
/// assert_eq!(s![1..3, ..;2, -1..], [Range::from(1..3), Range::from(..).step(2), Range::from(-1..)]);
/// ```
#[macro_export]
macro_rules! s {
    ($($range:expr $(; $step:expr)?),* $(,)?) => {{
        // With a step that goes backwards 4..=2 is not empty.
        #[allow(clippy::reversed_empty_ranges)]
        let ranges = [$($crate::Range::from($range)$(.step($step))?),*];
        ranges
    }};
}

pub(crate) struct Ranges {
    given: Vec<Range>,
    c: Vec<sys::st_range>,
}

impl From<&[Range]> for Ranges {
    fn from(given: &[Range]) -> Ranges {
        Ranges { given: given.to_vec(), c: given.iter().map(|range| range.to_c()).collect() }
    }
}

impl Ranges {
    pub(crate) fn c(&self) -> &[sys::st_range] {
        &self.c
    }
}

/// A part of a [`Tensor`], which is read when asked to be: packed, in C order. Only the bytes needed are read.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// use libst::{s, File};
///
/// let file = File::open(&path)?;
/// let part = file.slice("w", &s![..;2])?; // every other row
/// assert_eq!((part.shape(), part.data_len()), (&[2, 2][..], 16));
/// let bytes = part.read()?;
/// # assert_eq!(bytes.len(), 16);
/// # Ok::<(), libst::Error>(())
/// ```
pub struct Slice {
    of: Tensor,
    ranges: Ranges,
    shape: Vec<usize>,
    nbytes: usize,
}

impl Slice {
    pub(crate) fn of(of: Tensor, ranges: Ranges) -> Result<Slice> {
        let (name, c) = (of.name(), &ranges.c);
        let mut shape = vec![0; of.shape().len()];
        let mut nbytes = 0;
        // SAFETY: a name, ranges and a place for the shape with their lengths, and one for the size; usize is u64 here.
        of.pin().call(|raw| unsafe {
            let (place, room, size) = (shape.as_mut_ptr().cast(), shape.len(), &mut nbytes);
            sys::st_slice_shape(
                raw,
                name.as_ptr().cast(),
                name.len(),
                c.as_ptr(),
                c.len(),
                place,
                room,
                null_mut(),
                size,
            )
        })?;
        Ok(Slice { of, ranges, shape, nbytes: nbytes as usize })
    }

    #[cfg(target_endian = "little")]
    pub(crate) fn tensor(&self) -> &Tensor {
        &self.of
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.of.dtype()
    }

    /// Its shape, of as many dimensions as the tensor has.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The length of its data in bytes.
    pub fn data_len(&self) -> usize {
        self.nbytes
    }

    /// Copy its bytes.
    ///
    /// # Errors
    /// As [`File::read`](crate::File::read).
    pub fn read(&self) -> Result<Vec<u8>> {
        // SAFETY: room for so many bytes, and st_read_slice fills them: the slice takes no fewer.
        unsafe { filled(self.nbytes, |dst| self.read_to(dst, self.nbytes)) }
    }

    /// To be read to the start of `dst` with others; see [`File::read_many`](crate::File::read_many).
    pub fn request<'a>(&'a self, dst: &'a mut [u8]) -> ReadRequest<'a> {
        ReadRequest::of(self.of.clone(), &self.ranges.c, uninit(dst))
    }

    /// The same where the buffer holds nothing yet: once read, its first [`data_len`](Slice::data_len) bytes do.
    pub fn request_uninit<'a>(&'a self, dst: &'a mut [MaybeUninit<u8>]) -> ReadRequest<'a> {
        ReadRequest::of(self.of.clone(), &self.ranges.c, dst)
    }

    /// Copy its bytes to the start of `dst`.
    ///
    /// # Errors
    /// As [`File::read_into`](crate::File::read_into).
    pub fn read_into(&self, dst: &mut [u8]) -> Result<()> {
        // SAFETY: a buffer with its length.
        unsafe { self.read_to(dst.as_mut_ptr(), dst.len()) }
    }

    /// # Safety
    /// Room for `dst_size` bytes at `dst`.
    pub(crate) unsafe fn read_to(&self, dst: *mut u8, dst_size: usize) -> Result<()> {
        let (name, c) = (self.of.name(), &self.ranges.c);
        // SAFETY: a name and ranges with their lengths, the caller's promise, and no place for a description.
        self.of.pin().call(|raw| unsafe {
            let (name_bytes, dst) = (name.as_ptr().cast(), dst.cast());
            sys::st_read_slice(raw, name_bytes, name.len(), c.as_ptr(), c.len(), dst, dst_size, null_mut())
        })
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice")
            .field("of", &self.of.name())
            .field("ranges", &self.ranges.given)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_language_mean_what_they_say() {
        let parts = |range: Range| (range.start, range.before(), range.step);
        assert_eq!(
            s![1..3, ..=4, ..=-1, 2.., ..-1, .., 0..=i64::MAX, 4..=2;-1, ..=0;-1, ..=-1;-2, ..=i64::MIN;-1]
                .map(parts),
            [
                (Some(1), Some(3), 1),
                (None, Some(5), 1),
                (None, None, 1),
                (Some(2), None, 1),
                (None, Some(-1), 1),
                (None, None, 1),
                (Some(0), None, 1),
                (Some(4), Some(1), -1),
                (None, None, -1),
                (None, Some(-2), -2),
                (None, None, -1),
            ]
        );
        assert_eq!(s![1..3, ..], [Range::new(Some(1), Some(3), 1), Range::default()]);
        let (rows, back) = (3_usize, -2_i64);
        assert_eq!(s![1..rows, back.., ..=rows], s![1..3, -2.., ..=3]);
        assert_eq!(
            s![rows..usize::MAX, ..=usize::MAX].map(parts),
            [(Some(3), Some(i64::MAX), 1), (None, None, 1)]
        );
        let none: [Range; 0] = s![];
        assert!(none.is_empty());
    }
}
