//! A safetensors file that lies in memory.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::callback::Shared;
use crate::handle::Handle;
use crate::{sys, Result, TensorView};

/// A safetensors file that lies in memory, for reading; what `SafeTensors` is in the `safetensors` crate. The bytes
/// cannot change while it borrows them, so all its views are safe.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// let bytes = std::fs::read(&path).unwrap();
/// let tensors = libst::SafeTensors::deserialize(&bytes)?;
/// assert_eq!(tensors.names(), ["w", "b"]); // in the order of the file
/// assert_eq!(tensors.tensor("w")?.shape(), [3, 2]);
/// # Ok::<(), libst::Error>(())
/// ```
pub struct SafeTensors<'data> {
    handle: Handle,
    borrowed: PhantomData<&'data [u8]>,
}

impl<'data> SafeTensors<'data> {
    /// Read and check the header of a file that lies in memory.
    ///
    /// # Errors
    /// The statuses of the format.
    pub fn deserialize(bytes: &'data [u8]) -> Result<SafeTensors<'data>> {
        let (data, size) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
        // SAFETY: the bytes are borrowed, and cannot change, for longer than the handle lives.
        let open = |out| unsafe { sys::st_open_memory(data, size, out) };
        Ok(SafeTensors { handle: Handle::opened(Arc::new(Shared::default()), open)?, borrowed: PhantomData })
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.handle.count()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names, in the order of the tensors' places in the file.
    pub fn names(&self) -> Vec<&str> {
        let all = self.handle.describe_all().expect("memory needs nothing that can fail");
        all.into_iter().map(|tensor| tensor.name).collect()
    }

    /// A tensor. It borrows the bytes, not this.
    ///
    /// # Errors
    /// [`Status::NotFound`](crate::Status::NotFound).
    pub fn tensor(&self, name: &str) -> Result<TensorView<'data>> {
        // SAFETY: the data lies in the bytes that are borrowed for 'data.
        unsafe { self.handle.view(name).map(|view| own(view)) }
    }

    /// All tensors by name, in the order of their places in the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, TensorView<'data>)> {
        // SAFETY: as above.
        (0..).map_while(|index| unsafe {
            let (name, view) =
                self.handle.view_at(index)?.expect("a view of memory needs nothing that can fail");
            Some((name, own(view)))
        })
    }

    /// The same, collected, with names of their own.
    pub fn tensors(&self) -> Vec<(String, TensorView<'data>)> {
        self.iter().map(|(name, view)| (name.to_owned(), view)).collect()
    }

    /// The pairs of `__metadata__`, in the order of the header.
    pub fn metadata(&self) -> Vec<(&str, &str)> {
        self.handle.metadata()
    }

    /// One value of `__metadata__`.
    pub fn metadata_get(&self, key: &str) -> Option<&str> {
        self.handle.metadata_get(key)
    }
}

/// A view that does not need the handle: its shape is copied.
///
/// # Safety
/// Its data lives, unchanged, for `'data`.
unsafe fn own<'data>(view: TensorView<'_>) -> TensorView<'data> {
    let data = view.data();
    // SAFETY: the caller's promise.
    let data = unsafe { std::slice::from_raw_parts(data.as_ptr(), data.len()) };
    view.with_own_shape(data)
}

impl fmt::Debug for SafeTensors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SafeTensors").field("tensors", &self.len()).finish_non_exhaustive()
    }
}
