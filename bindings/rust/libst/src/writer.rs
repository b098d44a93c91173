//! A file that is written tensor by tensor.

use std::ffi::CStr;
use std::fmt;
use std::path::Path;
use std::ptr::null_mut;

use crate::callback::{self, OwnProgress};
use crate::error::check;
use crate::view::c_tensor;
#[cfg(doc)]
use crate::Status;
use crate::{sys, Result, SaveOptions, View};

/// A file being written, which may be larger than memory. Until [`Writer::finish`] returns the path leads to the old
/// file, or to none. Aborted when dropped. It belongs to one thread at a time.
///
/// ```
/// # let (folder, _) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// # let path = folder.path().join("new.safetensors");
/// use libst::{Dtype, TensorView, Writer};
///
/// let mut writer = Writer::create(&path)?;
/// for layer in 0..3u8 {
///     let bytes = [layer; 1024];
///     writer.put(&format!("layers.{layer}"), TensorView::new(Dtype::U8, vec![32, 32], &bytes)?)?;
/// }
/// writer.finish()?; // durable, and there
/// # assert_eq!(libst::File::open(&path)?.len(), 3);
/// # Ok::<(), libst::Error>(())
/// ```
#[must_use = "a writer that is dropped writes nothing"]
pub struct Writer<'a> {
    raw: *mut sys::st_writer,           // freed by Drop alone
    _progress: Option<OwnProgress<'a>>, // C holds a pointer to it
}

// SAFETY: st.h: "belongs to one thread at a time"; its progress closure is Send. Not Sync, by `raw`.
unsafe impl Send for Writer<'_> {}

impl Writer<'static> {
    /// Begin. [`SaveOptions::writer`] has choices, metadata among them.
    ///
    /// # Errors
    /// As [`save`](crate::save()).
    pub fn create(path: impl AsRef<Path>) -> Result<Writer<'static>> {
        SaveOptions::new().writer(path)
    }
}

impl<'a> Writer<'a> {
    pub(crate) fn open(
        path: &CStr,
        declared: &[sys::st_tensor],
        metadata: &[sys::st_metadata],
        c: sys::st_save_options,
        progress: Option<OwnProgress<'a>>,
    ) -> Result<Writer<'a>> {
        let mut writer = Writer { raw: null_mut(), _progress: progress };
        let (tensors, pairs) = (declared.as_ptr(), metadata.as_ptr());
        callback::call(|| {
            // SAFETY: a C string, tensors and pairs with their numbers, set-up options, a place to write to; the writer keeps
            // the closure.
            check(unsafe {
                let out = &mut writer.raw;
                sys::st_writer_open(path.as_ptr(), tensors, declared.len(), pairs, metadata.len(), &c, out)
            })
        })?;
        Ok(writer)
    }

    /// Write a whole tensor, [declared](SaveOptions::writer_declaring) or not. Those that are not lie behind one another
    /// as they come.
    ///
    /// # Errors
    /// [`Status::DuplicateName`], [`Status::ShapeMismatch`]
    /// (not as declared), [`Status::Dtype`],
    /// [`Status::ShapeOverflow`], [`Status::Subbyte`]; as
    /// [`Writer::write`].
    pub fn put(&mut self, name: &str, value: impl View) -> Result<()> {
        let data = value.data();
        let tensor = c_tensor(name, value.dtype(), value.shape(), &data, data.len() as u64)?;
        // SAFETY: a live writer, and a tensor whose name, shape and data live during the call.
        callback::call(|| check(unsafe { sys::st_writer_put(self.raw, &tensor) }))
    }

    /// Write the next bytes of a declared tensor.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::NbytesMismatch`] (more
    /// than is missing): the writer is as it was. [`Status::NoSpace`],
    /// [`Status::Io`], [`Status::Cancelled`]: it can only be dropped, and
    /// everything else answers [`Status::TransactionFailed`].
    /// [`Status::Forked`]: it belongs to the parent process.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let (data, nbytes) = (bytes.as_ptr().cast(), bytes.len() as u64);
        callback::call(|| {
            // SAFETY: a live writer, a name and bytes with their lengths.
            check(unsafe { sys::st_writer_write(self.raw, name.as_ptr().cast(), name.len(), data, nbytes) })
        })
    }

    /// Make the file durable and give it its name.
    ///
    /// # Errors
    /// As [`Writer::try_finish`].
    pub fn finish(mut self) -> Result<()> {
        self.try_finish()
    }

    /// [`Writer::finish`] that keeps the writer, to go on where it was not finished yet. After every other answer it has
    /// ended, and everything answers [`Status::TransactionFailed`].
    ///
    /// # Errors
    /// [`Status::Busy`] (another worker holds a lock), [`Status::Incomplete`] (bytes of a declared tensor are missing),
    /// [`Status::Io`] where too many files were open (`EMFILE`, `ENFILE`): it may be called again. Else as
    /// [`save`](crate::save()).
    ///
    /// ```
    /// # let (folder, _) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// # let path = folder.path().join("new.safetensors");
    /// use libst::{Dtype, SaveOptions, Status};
    ///
    /// let mut writer = SaveOptions::new().writer_declaring(&path, [("w", Dtype::U8, [4])])?;
    /// writer.write("w", &[1, 2, 3])?;
    /// let unfinished = writer.try_finish().unwrap_err();
    /// assert_eq!((unfinished.status(), unfinished.tensor()), (Status::Incomplete, Some("w")));
    /// writer.write("w", &[4])?;
    /// writer.finish()?;
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn try_finish(&mut self) -> Result<()> {
        // SAFETY: a live writer.
        callback::call(|| check(unsafe { sys::st_writer_finish(self.raw) }))
    }

    /// Drop what was written, as dropping the writer does.
    pub fn abort(self) {}
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // SAFETY: a live writer, or NULL if it could not be opened.
        callback::call_in_drop(|| unsafe { sys::st_writer_free(self.raw) });
    }
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}
