//! Element types. The variants are spelled as in a header, as those of the `safetensors` crate are.

use std::ffi::CStr;
use std::fmt;
use std::str::FromStr;

use crate::error::check;
use crate::{sys, Error, Result, Status};

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $constant:ident, $bits:literal;)*) => {
        /// An element type of the format, in the order of the format's writers.
        ///
        /// ```
        /// # use libst::Dtype;
        /// let dtype: Dtype = "BF16".parse()?;
        /// assert_eq!(dtype, Dtype::BF16);
        /// assert_eq!(dtype.bitsize(), 16);
        /// # Ok::<(), libst::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(non_camel_case_types)]
        pub enum Dtype {
            $($(#[$doc])* $variant,)*
            /// A dtype of a library newer than this crate: its number.
            Other(u32),
        }

        impl Dtype {
            /// All of them but [`Dtype::Other`].
            pub const ALL: &'static [Dtype] = &[$(Dtype::$variant),*];

            /// The number in the C interface.
            pub const fn code(self) -> u32 {
                match self {
                    $(Dtype::$variant => sys::$constant,)*
                    Dtype::Other(code) => code,
                }
            }

            /// The dtype of that number.
            #[inline]
            pub const fn from_code(code: u32) -> Dtype {
                match code {
                    $(sys::$constant => Dtype::$variant,)*
                    code => Dtype::Other(code),
                }
            }

            /// The size of an element in bits.
            pub fn bitsize(&self) -> usize {
                match *self {
                    $(Dtype::$variant => $bits,)*
                    // SAFETY: takes any number.
                    Dtype::Other(code) => unsafe { sys::st_dtype_bits(code) as usize },
                }
            }

            /// The name as in a header: "BF16".
            pub fn name(&self) -> &'static str {
                match *self {
                    $(Dtype::$variant => stringify!($variant),)*
                    Dtype::Other(code) => foreign_name(code),
                }
            }
        }

        /// By its name in a header.
        impl FromStr for Dtype {
            type Err = Error;

            fn from_str(name: &str) -> Result<Dtype> {
                match name {
                    $(stringify!($variant) => Ok(Dtype::$variant),)*
                    name => parse_foreign(name),
                }
            }
        }
    };
}

dtypes! {
    /// True and false, a byte each.
    BOOL = ST_DTYPE_BOOL, 8;
    /// 4-bit floats, two a byte.
    F4 = ST_DTYPE_F4, 4;
    /// 6-bit floats of 2 exponent bits, four in three bytes.
    F6_E2M3 = ST_DTYPE_F6_E2M3, 6;
    /// 6-bit floats of 3 exponent bits, four in three bytes.
    F6_E3M2 = ST_DTYPE_F6_E3M2, 6;
    /// Unsigned, 8 bits.
    U8 = ST_DTYPE_U8, 8;
    /// Signed, 8 bits.
    I8 = ST_DTYPE_I8, 8;
    /// 8-bit floats of 5 exponent bits.
    F8_E5M2 = ST_DTYPE_F8_E5M2, 8;
    /// 8-bit floats of 4 exponent bits.
    F8_E4M3 = ST_DTYPE_F8_E4M3, 8;
    /// 8-bit exponents alone, for scales.
    F8_E8M0 = ST_DTYPE_F8_E8M0, 8;
    /// 8-bit floats of 4 exponent bits without infinities and negative zero.
    F8_E4M3FNUZ = ST_DTYPE_F8_E4M3FNUZ, 8;
    /// 8-bit floats of 5 exponent bits without infinities and negative zero.
    F8_E5M2FNUZ = ST_DTYPE_F8_E5M2FNUZ, 8;
    /// Signed, 16 bits.
    I16 = ST_DTYPE_I16, 16;
    /// Unsigned, 16 bits.
    U16 = ST_DTYPE_U16, 16;
    /// IEEE half precision.
    F16 = ST_DTYPE_F16, 16;
    /// Brain floating point: the upper half of an `f32`.
    BF16 = ST_DTYPE_BF16, 16;
    /// Signed, 32 bits.
    I32 = ST_DTYPE_I32, 32;
    /// Unsigned, 32 bits.
    U32 = ST_DTYPE_U32, 32;
    /// IEEE single precision.
    F32 = ST_DTYPE_F32, 32;
    /// Complex numbers of two `f32`.
    C64 = ST_DTYPE_C64, 64;
    /// IEEE double precision.
    F64 = ST_DTYPE_F64, 64;
    /// Signed, 64 bits.
    I64 = ST_DTYPE_I64, 64;
    /// Unsigned, 64 bits.
    U64 = ST_DTYPE_U64, 64;
}

impl Dtype {
    /// The bytes that this many elements take. The library counts their bits in 64, too.
    pub(crate) fn bytes_of(self, shape: &[usize]) -> Result<usize> {
        let elements = shape.iter().try_fold(1_usize, |elements, n| elements.checked_mul(*n));
        let bits = elements.and_then(|elements| elements.checked_mul(self.bitsize()));
        let (status, why) = match bits {
            Some(bits) if bits % 8 == 0 => return Ok(bits / 8),
            Some(_) => (Status::Subbyte, "takes no whole number of bytes"),
            None => (Status::ShapeOverflow, "takes more than 2^64 bits"),
        };
        Err(Error::new(status, format!("{self} of shape {shape:?} {why}")))
    }
}

/// Its name in a header.
impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn foreign_name(code: u32) -> &'static str {
    // SAFETY: takes any number, answers a static string or NULL.
    let name = unsafe { sys::st_dtype_name(code) };
    if name.is_null() {
        return "unknown";
    }
    // SAFETY: not NULL, so a static C string.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("unknown")
}

fn parse_foreign(name: &str) -> Result<Dtype> {
    let mut code = 0;
    // SAFETY: a name with its length, and a place to write to.
    check(unsafe { sys::st_dtype_parse(name.as_ptr().cast(), name.len(), &mut code) })?;
    Ok(Dtype::from_code(code))
}
