//! Parts of tensors: ranges with steps, as Python has them.

use std::fmt;
use std::ops::Bound;

use crate::handle::{Described, Handle};
use crate::{sys, Dtype, Error, ReadRequest, Result, Status};

/// One dimension's part of a slice: Rust's ranges of `i64`, where a negative end counts from the back, with a step.
/// Both ends are clipped to the dimension. [`s!`](crate::s) writes several.
///
/// ```
/// use libst::Range;
/// let every_other: Range = Range::from(1..5).step(2);
/// let last_two = Range::from(-2..);
/// let backwards = Range::from(..).step(-1); // a missing end is the one that lies that way
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
}

impl Range {
    /// From `start` to before `stop`; a missing end is the one that lies in the direction of the step.
    pub const fn new(start: Option<i64>, stop: Option<i64>, step: i64) -> Range {
        Range { start, stop, step }
    }

    /// The same ends with another step: negative goes backwards, 0 is an error when the slice is made.
    #[must_use]
    pub const fn step(self, step: i64) -> Range {
        Range { step, ..self }
    }

    fn to_c(self) -> sys::st_range {
        let (first, last) = if self.step < 0 { (i64::MAX, i64::MIN) } else { (i64::MIN, i64::MAX) };
        sys::st_range { start: self.start.unwrap_or(first), stop: self.stop.unwrap_or(last), step: self.step }
    }

    /// How many elements of a dimension it takes. The step is not 0.
    fn length(self, dimension: usize) -> usize {
        let n = dimension as i128;
        let step = i128::from(self.step);
        let (lowest, highest) = if step < 0 { (-1, n - 1) } else { (0, n) };
        let place = |end: Option<i64>, missing: i128| {
            end.map_or(missing, |end| {
                let end = i128::from(end);
                (if end < 0 { end + n } else { end }).clamp(lowest, highest)
            })
        };
        let (first, last) = if step < 0 { (highest, lowest) } else { (lowest, highest) };
        let (start, stop) = (place(self.start, first), place(self.stop, last));
        let span = if step < 0 { start - stop } else { stop - start };
        span.max(0).unsigned_abs().div_ceil(step.unsigned_abs()) as usize
    }
}

/// The whole dimension.
impl Default for Range {
    fn default() -> Range {
        Range::new(None, None, 1)
    }
}

macro_rules! from_std {
    ($($std:ty),*) => {
        $(impl From<$std> for Range {
            fn from(range: $std) -> Range {
                use std::ops::RangeBounds;
                let start = match RangeBounds::<i64>::start_bound(&range) {
                    Bound::Included(&start) => Some(start),
                    _ => None,
                };
                let stop = match RangeBounds::<i64>::end_bound(&range) {
                    Bound::Excluded(&stop) => Some(stop),
                    // -1 is the last element, and what comes after it is the end.
                    Bound::Included(&last) => last.checked_add(1).filter(|stop| *stop != 0),
                    Bound::Unbounded => None,
                };
                Range::new(start, stop, 1)
            }
        })*
    };
}
from_std! {
    std::ops::Range<i64>, std::ops::RangeInclusive<i64>, std::ops::RangeFrom<i64>, std::ops::RangeTo<i64>,
    std::ops::RangeToInclusive<i64>, std::ops::RangeFull
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
    ($($range:expr $(; $step:expr)?),* $(,)?) => {
        [$($crate::Range::from($range)$(.step($step))?),*]
    };
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
    /// Of a tensor that the library has found them to fit.
    fn shape(&self, of: &[usize]) -> Vec<usize> {
        let parts = self.given.iter().map(|range| Some(*range)).chain(std::iter::repeat(None));
        of.iter().zip(parts).map(|(&n, part)| part.map_or(n, |part| part.length(n))).collect()
    }
}

/// A part of a tensor, which is read when asked to be: packed, in C order. Only the bytes needed are read.
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
pub struct Slice<'f> {
    handle: &'f Handle,
    of: Described<'f>,
    ranges: Ranges,
    shape: Vec<usize>,
    nbytes: usize,
}

impl<'f> Slice<'f> {
    pub(crate) fn of(handle: &'f Handle, of: Described<'f>, ranges: Ranges) -> Result<Slice<'f>> {
        let mut nbytes = 0;
        // The shape is reckoned here: the library would write as many numbers as the tensor now has dimensions, which
        // may be more than it had when it was described. SAFETY: a name and ranges with their lengths, NULL for the
        // shape, and a place for the size.
        handle.call(|raw| unsafe {
            let (name, c) = (of.name, &ranges.c);
            let (shape, size) = (std::ptr::null_mut(), &mut nbytes);
            sys::st_slice_shape(raw, name.as_ptr().cast(), name.len(), c.as_ptr(), c.len(), shape, size)
        })?;
        handle.still(&of)?;
        let shape = ranges.shape(of.shape);
        let nbytes = nbytes as usize;
        if of.dtype.bytes_of(&shape) != Some(nbytes) {
            let message =
                format!("a slice of shape {shape:?} was said to take {nbytes} bytes; please report it");
            return Err(Error::new(Status::Internal, message).about_tensor(of.name));
        }
        Ok(Slice { handle, of, ranges, shape, nbytes })
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.of.dtype
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
        let mut bytes = vec![0; self.nbytes];
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// To be read to the start of `dst` with others; see [`File::read_many`](crate::File::read_many).
    pub fn request<'a>(&'a self, dst: &'a mut [u8]) -> ReadRequest<'a> {
        ReadRequest::of(self.handle, self.of, &self.ranges.c, dst)
    }

    /// Copy its bytes to the start of `dst`.
    ///
    /// # Errors
    /// As [`File::read_into`](crate::File::read_into).
    pub fn read_into(&self, dst: &mut [u8]) -> Result<()> {
        let (name, c, dst_size) = (self.of.name, &self.ranges.c, dst.len());
        // SAFETY: a name, ranges and a buffer with their lengths.
        self.handle.call(|raw| unsafe {
            let (name_bytes, dst) = (name.as_ptr().cast(), dst.as_mut_ptr().cast());
            sys::st_read_slice_n(raw, name_bytes, name.len(), c.as_ptr(), c.len(), dst, dst_size)
        })?;
        self.handle.still(&self.of)
    }
}

impl fmt::Debug for Slice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice")
            .field("of", &self.of.name)
            .field("ranges", &self.ranges.given)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element by element, as Python's `range(*slice.indices(n))` walks.
    fn walk(range: Range, n: i64) -> usize {
        let clip = |end: i64, low: i64, high: i64| {
            let end = if end < 0 { end.saturating_add(n) } else { end };
            end.max(low).min(high)
        };
        let (low, high) = if range.step < 0 { (-1, n - 1) } else { (0, n) };
        let missing = if range.step < 0 { (high, low) } else { (low, high) };
        let mut at = range.start.map_or(missing.0, |start| clip(start, low, high));
        let stop = range.stop.map_or(missing.1, |stop| clip(stop, low, high));
        let mut count = 0;
        while if range.step < 0 { at > stop } else { at < stop } {
            count += 1;
            at = at.saturating_add(range.step);
        }
        count
    }

    #[test]
    fn lengths_are_those_of_a_walk() {
        let ends =
            [None, Some(i64::MIN), Some(-9), Some(-2), Some(-1), Some(0), Some(1), Some(4), Some(i64::MAX)];
        for n in 0..6 {
            for start in ends {
                for stop in ends {
                    for step in [i64::MIN, -7, -2, -1, 1, 2, 3, i64::MAX] {
                        let range = Range::new(start, stop, step);
                        assert_eq!(range.length(n as usize), walk(range, n), "{range:?} of {n}");
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_of_the_language_mean_what_they_say() {
        assert_eq!(
            s![1..3, ..=4, ..=-1, 2.., ..-1, .., 0..=i64::MAX],
            [
                Range::new(Some(1), Some(3), 1),
                Range::new(None, Some(5), 1),
                Range::new(None, None, 1),
                Range::new(Some(2), None, 1),
                Range::new(None, Some(-1), 1),
                Range::default(),
                Range::new(Some(0), None, 1),
            ]
        );
        let none: [Range; 0] = s![];
        assert!(none.is_empty());
    }
}
