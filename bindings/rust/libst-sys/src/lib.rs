//! The C interface of [libst](https://docs.rs/libst), a storage engine for safetensors files, as it stands in
//! `st/st.h`: every function, struct and constant, under its own name, and nothing else. The header is the
//! reference for what each of them does; programs want the safe crate `libst`. A struct that may grow is set up by its
//! `Default`: its size, and zero for the rest.
//!
//! With the default feature `bundled` the crate compiles the libst that it carries. Without it, or where `LIBST_DIR` is set,
//! the library is found at build time: in `LIBST_DIR` (a prefix, or the folder that holds `libst.so.2`), else through
//! `pkg-config libst`. A library outside the system's folders is found at run time with `LD_LIBRARY_PATH`.
//!
//! The declarations are generated from the header. Tests of this crate compare sizes, offsets and values with what a C
//! compiler makes of it.
//!
//! ```
//! let version = unsafe { std::ffi::CStr::from_ptr(libst_sys::st_version()) };
//! assert!(version.to_str().unwrap().starts_with("2."));
//! ```
#![no_std]
#![allow(non_camel_case_types)]
// The meaning of each item is documented once, in st.h.
#![allow(missing_docs)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("libst is for 64-bit platforms");

mod generated;
mod initialisers;

pub use generated::*;
pub use initialisers::*;
