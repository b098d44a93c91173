//! The declarations of this crate against `st/st.h`.

mod declarations;
mod header;
mod layout;
mod rust;
