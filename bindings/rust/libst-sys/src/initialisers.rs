//! Structs of st.h as a caller begins them.

use core::mem::{size_of, zeroed};

use crate::generated::*;

pub const ST_RANGE_ALL: st_range = st_range { start: 0, stop: i64::MAX, step: 1 };

macro_rules! sized {
    ($($name:ident)*) => {
        $(
            /// Zero, which is the default of every field, but for its size.
            impl Default for $name {
                #[inline]
                fn default() -> $name {
                    // SAFETY: zero is a value of each field: a number, a pointer, no function, text that ends at once.
                    $name { struct_size: size_of::<$name>() as u32, ..unsafe { zeroed() } }
                }
            }
        )*
    };
}

sized! {
    st_error_info st_open_options st_txn_options st_plan st_save_options st_bulk_options st_delta_create_options
    st_delta_apply_options st_delta_info st_verify_options st_recover_options st_io_info st_stats st_source
}
