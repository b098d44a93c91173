//! Conversions to and from the types of the `safetensors` crate.

use safetensors::tensor::TensorView as TheirView;
use safetensors::{Dtype as TheirDtype, SafeTensorError};

use crate::{Dtype, Error, Result, Status, TensorView};

macro_rules! dtypes {
    ($($name:ident)*) => {
        /// # Errors
        /// Their reader has no other; the dtype of a newer libst is [`SafeTensorError::TensorInvalidInfo`].
        impl TryFrom<Dtype> for TheirDtype {
            type Error = SafeTensorError;

            fn try_from(dtype: Dtype) -> Result<TheirDtype, SafeTensorError> {
                match dtype {
                    $(Dtype::$name => Ok(TheirDtype::$name),)*
                    Dtype::Other(_) => Err(SafeTensorError::TensorInvalidInfo),
                }
            }
        }

        /// # Errors
        /// [`Status::Dtype`] for one of a newer `safetensors`.
        impl TryFrom<TheirDtype> for Dtype {
            type Error = Error;

            fn try_from(dtype: TheirDtype) -> Result<Dtype> {
                match dtype {
                    $(TheirDtype::$name => Ok(Dtype::$name),)*
                    other => Err(Error::new(Status::Dtype, format!("libst does not know the dtype {other}"))),
                }
            }
        }
    };
}

dtypes! {
    BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64
    I64 U64
}

impl<'data> TryFrom<TensorView<'data>> for TheirView<'data> {
    type Error = SafeTensorError;

    fn try_from(view: TensorView<'data>) -> Result<TheirView<'data>, SafeTensorError> {
        TheirView::new(view.dtype().try_into()?, view.shape().to_vec(), view.data())
    }
}

impl<'data> TryFrom<TheirView<'data>> for TensorView<'data> {
    type Error = Error;

    fn try_from(view: TheirView<'data>) -> Result<TensorView<'data>> {
        TensorView::new(view.dtype().try_into()?, view.shape().to_vec(), view.data())
    }
}
