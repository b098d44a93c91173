#![doc = include_str!("../README.md")]
//!
//! # Switching from the `safetensors` crate
//!
//! Names and shapes of the interface are the same where the meaning is: [`SafeTensors::deserialize`] on bytes in
//! memory, then `names`, `tensor`, `tensors`, `iter`, `len`, `is_empty`; [`TensorView::new`], `dtype`, `shape`,
//! `data`; the trait [`View`] with its four methods; the variants of [`Dtype`]. [`save()`] with [`Layout::Stock`] writes, byte
//! for byte, what `serialize_to_file` does. With the feature `safetensors` the
//! types convert into each other. Two things differ: tensors come in the order of the file, and a name that stands
//! twice is an error.
//!
//! # What may be sent to other threads
//!
//! | type | `Send` | `Sync` | |
//! | --- | --- | --- | --- |
//! | [`File`], [`Snapshot`], [`Tensor`], [`TensorView`], [`OwnedView`], [`KeptView`], [`Slice`], [`SafeTensors`], [`Interrupt`], [`Error`] | yes | yes | a file may be read and updated from many threads at once |
//! | [`Transaction`], [`Writer`] | yes | no | belongs to one thread at a time |
#![cfg_attr(docsrs, feature(doc_cfg))]

use libst_sys as sys;

mod bulk;
mod callback;
mod check;
mod compact;
mod delta;
mod dtype;
#[cfg(target_endian = "little")]
mod element;
mod error;
mod file;
mod handle;
mod info;
#[cfg(feature = "safetensors")]
mod interop;
mod interrupt;
mod memory;
mod options;
mod owned;
mod reshape;
mod save;
mod slice;
mod snapshot;
mod source;
mod status;
mod tensor;
mod transaction;
mod transaction_options;
mod view;
mod writer;

pub use bulk::{LoadOptions, ReadOptions, ReadRequest};
pub use callback::{Level, Progress};
pub use check::{recover, verify, Recover, Report, Verify};
pub use compact::{compact, Compact};
pub use delta::{diff, patch, DeltaInfo, Diff, Patch};
pub use dtype::Dtype;
#[cfg(target_endian = "little")]
pub use element::{bytes_of, Element};
pub use error::{Error, Result};
pub use file::File;
pub use info::{Action, Direct, IoInfo, Map, Prefetch, Stats, Storage};
pub use interrupt::Interrupt;
pub use memory::SafeTensors;
pub use options::{Layout, OpenOptions};
pub use owned::{KeptView, OwnedView};
pub use reshape::{join, reshard};
pub use save::{merge, save, SaveOptions};
pub use slice::{Range, Slice};
pub use snapshot::Snapshot;
pub use source::Source;
pub use status::Status;
pub use tensor::Tensor;
pub use transaction::{Plan, PlanKind, Transaction};
pub use transaction_options::TransactionOptions;
pub use view::{TensorView, View};
pub use writer::Writer;

/// The version of the library that runs, as "2.0.0".
///
/// ```
/// assert!(libst::version().starts_with("2."));
/// ```
pub fn version() -> &'static str {
    // SAFETY: st_version answers a static string.
    unsafe { std::ffi::CStr::from_ptr(sys::st_version()) }.to_str().expect("a version is ASCII")
}

/// What the library that runs is made of, and what it finds here: lines of "name: value", for people and for reports of
/// bugs. `st_build_info` in `st.h` tells which.
///
/// ```
/// let told = libst::build_info();
/// assert!(told.lines().any(|line| line == format!("version: {}", libst::version())));
/// ```
pub fn build_info() -> String {
    // SAFETY: st_build_info answers a string that lives until this thread's next call of it.
    unsafe { std::ffi::CStr::from_ptr(sys::st_build_info()) }.to_string_lossy().into_owned()
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    const fn send<T: Send>() {}
    send_and_sync::<File>();
    send_and_sync::<Snapshot>();
    send_and_sync::<Tensor>();
    send_and_sync::<TensorView<'static>>();
    send_and_sync::<OwnedView>();
    send_and_sync::<KeptView>();
    send_and_sync::<Slice>();
    send_and_sync::<SafeTensors<'static>>();
    send_and_sync::<Interrupt>();
    send_and_sync::<Error>();
    send::<Transaction<'static>>();
    send::<Writer<'static>>();
};
