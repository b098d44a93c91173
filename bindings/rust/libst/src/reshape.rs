//! A checkpoint as shards with an index, or as one file.

use std::path::Path;

use crate::error::check;
use crate::options::c_path;
use crate::{callback, sys, Result, SaveOptions};

/// Write a checkpoint into a folder as shards of at most `max_shard_size` bytes of tensors, with their index, named as
/// Hugging Face names them. The source (anything that [`File::open`](crate::File::open) takes) is not changed, and its
/// bytes do not pass through memory. It is copied in one state: a writer that changes it meanwhile waits.
/// [`SaveOptions::reshard`] has choices.
///
/// # Errors
/// What opening and [`save`](crate::save()) answer;
/// [`Status::InvalidArgument`](crate::Status::InvalidArgument) if the folder holds a checkpoint already.
///
/// ```
/// # let (folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// let sharded = folder.path().join("sharded");
/// libst::reshard(&path, &sharded, 5_000_000_000)?;
/// assert_eq!(libst::File::open(&sharded)?.shards().len(), 1);
/// libst::join(&sharded, folder.path().join("joined.safetensors"))?;
/// # Ok::<(), libst::Error>(())
/// ```
pub fn reshard(from: impl AsRef<Path>, to_folder: impl AsRef<Path>, max_shard_size: u64) -> Result<()> {
    SaveOptions::new().reshard(from, to_folder, max_shard_size)
}

/// Write a checkpoint, sharded or not, as one file. [`SaveOptions::join`] has choices.
///
/// # Errors
/// What opening and [`save`](crate::save()) answer.
pub fn join(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    SaveOptions::new().join(from, to)
}

impl SaveOptions<'_> {
    /// As [`reshard()`]; metadata given here are not used.
    ///
    /// # Errors
    /// As [`reshard()`].
    pub fn reshard(
        self,
        from: impl AsRef<Path>,
        to_folder: impl AsRef<Path>,
        max_shard_size: u64,
    ) -> Result<()> {
        let (from, to) = (c_path(from.as_ref())?, c_path(to_folder.as_ref())?);
        let (c, _pairs, _progress) = self.parts();
        // SAFETY: C strings and set-up options, whose closure lives during the call.
        callback::call(|| check(unsafe { sys::st_reshard(from.as_ptr(), to.as_ptr(), max_shard_size, &c) }))
    }

    /// As [`join()`]; metadata given here are not used.
    ///
    /// # Errors
    /// As [`join()`].
    pub fn join(self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (c_path(from.as_ref())?, c_path(to.as_ref())?);
        let (c, _pairs, _progress) = self.parts();
        // SAFETY: C strings and set-up options, whose closure lives during the call.
        callback::call(|| check(unsafe { sys::st_join(from.as_ptr(), to.as_ptr(), &c) }))
    }
}
