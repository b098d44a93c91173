//! A safetensors file that is no file of this system.

use std::any::Any;
use std::ffi::{c_int, c_void, CString};
use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::ptr::null;
use std::sync::{Arc, Mutex, PoisonError};

use crate::callback::{guard, is_calling, Shared};
use crate::file::Opened;
use crate::handle::Handle;
use crate::options::{with, CPaths};
use crate::{sys, Error, File, OpenOptions, Result, Status};

/// Bytes that are no file of this system: an object in a store, a member of an archive, a stream that is decrypted as it
/// is read. They and their size must not change while the file is open; a source that cannot promise this checks it, and
/// answers the error of `ESTALE` ([`io::Error::from_raw_os_error`]), which becomes [`Status::FileChanged`].
///
/// A `Mutex` of anything that reads and seeks is a source, and so is a `Box` or an `Arc` of one.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// use std::{io::Cursor, sync::Mutex};
///
/// let held = Mutex::new(Cursor::new(std::fs::read(&path).unwrap()));
/// let file = libst::File::open_source(held)?;
/// assert_eq!(file.read("w")?.len(), 24);
/// # Ok::<(), libst::Error>(())
/// ```
pub trait Source: Send + Sync {
    /// The size in bytes; asked once.
    ///
    /// # Errors
    /// Whatever it is; opening then fails with it.
    fn size(&self) -> io::Result<u64>;

    /// Fill the whole buffer with what lies from `offset` on. The buffer is zeroed. Threads of the library call this
    /// too, [`most_reads`](Source::most_reads) at once. It must not use the file.
    ///
    /// # Errors
    /// The file's call fails with the [`Status`] of the error's `errno`, or of its kind; others are [`Status::Io`]. An
    /// [`Error`] of another file that is handed on by `?` keeps its `errno`, and [`Status::FileChanged`]. The error itself
    /// is the [`source`](std::error::Error::source) of the call's.
    /// A panic in a thread of the library is an error likewise, of [`Status::Io`]; one in the calling thread goes on there.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// How many calls of `read_at` may run at once. With 1, as it is by default, the thread makes them that called.
    fn most_reads(&self) -> u32 {
        1
    }

    /// For messages.
    fn name(&self) -> String {
        "source".to_owned()
    }

    /// The version of the bytes, as an `ETag`; for messages.
    fn identity(&self) -> Option<String> {
        None
    }
}

macro_rules! pointers_to_sources {
    ($($pointer:ident)*) => {
        $(impl<S: Source + ?Sized> Source for $pointer<S> {
            fn size(&self) -> io::Result<u64> {
                (**self).size()
            }

            fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
                (**self).read_at(buffer, offset)
            }

            fn most_reads(&self) -> u32 {
                (**self).most_reads()
            }

            fn name(&self) -> String {
                (**self).name()
            }

            fn identity(&self) -> Option<String> {
                (**self).identity()
            }
        })*
    };
}
pointers_to_sources! { Box Arc }

impl<R: Read + Seek + Send> Source for Mutex<R> {
    fn size(&self) -> io::Result<u64> {
        self.lock().unwrap_or_else(PoisonError::into_inner).seek(SeekFrom::End(0))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut reader = self.lock().unwrap_or_else(PoisonError::into_inner);
        reader.seek(SeekFrom::Start(offset))?;
        reader.read_exact(buffer)
    }
}

impl File {
    /// Open a safetensors file that a [`Source`] holds, for reading; [`OpenOptions::open_source`] has the choices and
    /// tells the errors.
    pub fn open_source(source: impl Source + 'static) -> Result<File> {
        OpenOptions::new().open_source(source)
    }
}

impl OpenOptions {
    /// Open a safetensors file that a source holds, for reading only. Nothing is mapped: views are memory of the file,
    /// read when first looked at; [`File::load`] and [`File::read_many`] read in the order of the file. A forked child
    /// sees what was in memory, and reads nothing.
    ///
    /// # Errors
    /// [`Unsupported`](Status::Unsupported) with [`write`](OpenOptions::write) or [`deltas`](OpenOptions::deltas); every
    /// status of the format; what the source answers.
    pub fn open_source(mut self, source: impl Source + 'static) -> Result<File> {
        let deltas = CPaths::new(&self.deltas)?; // which C refuses
        let size = source.size().map_err(|error| {
            let message = format!("cannot tell the size of '{}': {error}", source.name());
            Error::new(Status::Io, message).caused_by(error)
        })?;
        let c_text = |text: String| {
            CString::new(text)
                .map_err(|_| Error::new(Status::InvalidArgument, "a name of a source holds no NUL"))
        };
        self.callbacks.source_name = Some(c_text(source.name())?);
        self.callbacks.source_identity = source.identity().map(c_text).transpose()?;
        let most_reads = source.most_reads();
        self.callbacks.source = Some(Box::new(source));
        let callbacks = Arc::new(self.callbacks); // from here on at one address
        let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        let given = sys::st_source {
            most_reads,
            size,
            name: pointer(&callbacks.source_name),
            identity: pointer(&callbacks.source_identity),
            read: Some(read),
            close: None, // the handle drops it and its names, after st_close
            user: callbacks.user(),
            ..sys::st_source::default()
        };
        let c = with(self.c, &deltas, &callbacks);
        // SAFETY: a source whose parts live, set-up options, a place to write to; the handle keeps the callbacks.
        let handle = Handle::opened(callbacks, |out| unsafe { sys::st_open_source(&given, &c, out) })?;
        Ok(File::of(handle, PathBuf::new(), Opened::by(&c)))
    }
}

const EINTR: c_int = 4;
const EIO: c_int = 5;
const ESTALE: c_int = 116;

unsafe extern "C" fn read(user: *mut c_void, ranges: *const sys::st_source_range, n: usize) -> c_int {
    // SAFETY: `user` is a Shared that outlives the handle; st.h: there are n ranges, which live during the call.
    let (shared, ranges) = unsafe { (&*user.cast::<Shared>(), std::slice::from_raw_parts(ranges, n)) };
    let fill = || {
        let source = shared.source.as_ref().expect("only a source is read");
        for range in ranges {
            // SAFETY: st.h: so many bytes, which nobody else touches meanwhile. They may never have been written.
            let buffer = unsafe {
                range.dst.cast::<u8>().write_bytes(0, range.nbytes as usize);
                std::slice::from_raw_parts_mut(range.dst.cast::<u8>(), range.nbytes as usize)
            };
            if let Err(error) = source.read_at(buffer, range.offset) {
                let errno = errno_of(&error);
                shared.keep((errno, error));
                return errno;
            }
        }
        0
    };
    if is_calling() {
        guard(EIO, fill)
    } else {
        catch_unwind(AssertUnwindSafe(fill)).unwrap_or_else(|payload| {
            shared.keep((EIO, io::Error::other(format!("the source panicked: {}", words_of(&*payload)))));
            EIO
        })
    }
}

fn words_of(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (_, Some(words)) => words,
        _ => "it did not say why",
    }
}

fn errno_of(error: &io::Error) -> c_int {
    // A source may read what libst has open, and hand its error on.
    let own = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let errno = error.raw_os_error().or_else(|| own.and_then(Error::os_errno));
    match (errno, error.kind()) {
        // EINTR would be EIO to the library, which asks for nothing again.
        (Some(errno), _) if errno > 0 && errno != EINTR => errno,
        _ if own.is_some_and(|own| own.status() == Status::FileChanged) => ESTALE,
        (_, io::ErrorKind::NotFound) => 2,
        (_, io::ErrorKind::OutOfMemory) => 12,
        (_, io::ErrorKind::PermissionDenied) => 13,
        (_, io::ErrorKind::Unsupported) => 95,
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore)] // which cannot call C
    fn a_source_has_its_names_for_as_long_as_its_file() {
        let header = br#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat();
        let file = File::open_source(Mutex::new(io::Cursor::new(bytes))).unwrap();
        let snapshot = file.snapshot().unwrap();
        drop(file);
        let callbacks = snapshot.pin().callbacks();
        assert_eq!(callbacks.source_name.as_deref(), Some(c"source"));
        assert_eq!(callbacks.source_identity, None);
    }
}
