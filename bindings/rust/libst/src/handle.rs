//! An open st_file: the only owner of the pointer, closed when dropped. All that the catalogue answers is tied to a
//! borrow of it, as names and shapes live until st_close. Where calls belong together they go to a handle whose state
//! nobody changes: a pin, which st_snapshot answers, or bytes in memory.

use std::ffi::{c_char, CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{null, null_mut, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::callback::{self, Shared};
use crate::error::check;
use crate::interrupt::Interrupted;
use crate::owned::OwnedViews;
use crate::{sys, Dtype, Error, Result, Status, TensorView};

pub(crate) struct Handle {
    raw: NonNull<sys::st_file>,
    callbacks: Arc<Shared>,  // C holds a pointer to it until st_close
    calls_back: bool,        // whether there is one; asked here, as a look-up notices each load
    origin: u64,             // the same of what was opened once and its pins
    owned_views: OwnedViews, // of that file and its pins
    interrupted: OnceLock<Arc<Interrupted>>,
}

// SAFETY: st.h: "A handle may be used from many threads at once"; the callbacks are Send and Sync.
unsafe impl Send for Handle {}
// SAFETY: as above. st_close, which must not race, is called by Drop alone.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(interrupted) = self.interrupted.get() {
            interrupted.end();
        }
        // SAFETY: the last use of the pointer.
        callback::call_in_drop(|| unsafe { sys::st_close(self.raw.as_ptr()) });
    }
}

/// A tensor as the catalogue has it.
#[derive(Clone, Copy)]
pub(crate) struct Described<'f> {
    pub(crate) name: &'f str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'f [usize],
    pub(crate) nbytes: usize,
    pub(crate) file_offset: u64,
    pub(crate) shard: u32,
}

impl Handle {
    /// Takes what a call puts out, which borrows `callbacks`.
    pub(crate) fn opened(
        callbacks: Arc<Shared>,
        open: impl FnOnce(*mut *mut sys::st_file) -> sys::st_status,
    ) -> Result<Handle> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        Handle::put_out(callbacks, OPENED.fetch_add(1, Ordering::Relaxed), OwnedViews::default(), open)
    }

    fn put_out(
        callbacks: Arc<Shared>,
        origin: u64,
        owned_views: OwnedViews,
        open: impl FnOnce(*mut *mut sys::st_file) -> sys::st_status,
    ) -> Result<Handle> {
        callback::call(|| {
            let mut raw = null_mut();
            check(open(&mut raw)).map_err(|error| callbacks.explain(error))?;
            let raw = NonNull::new(raw).expect("libst put out a handle");
            let calls_back = !callbacks.is_empty();
            let interrupted = OnceLock::new();
            Ok(Handle { raw, callbacks, calls_back, origin, owned_views, interrupted })
        })
    }

    /// A handle of what this one shows now, for ever.
    pub(crate) fn pin(&self) -> Result<Handle> {
        let (callbacks, owned_views) = (Arc::clone(&self.callbacks), self.owned_views.clone());
        // SAFETY: an open handle and a place to write to; the pin shares the callbacks.
        Handle::put_out(callbacks, self.origin, owned_views, |out| unsafe {
            sys::st_snapshot(self.raw(), out)
        })
    }

    /// A handle with its own descriptor, mapping and locks.
    pub(crate) fn reopen(&self, flags: u32) -> Result<Handle> {
        let callbacks = Arc::clone(self.callbacks());
        // SAFETY: an open handle and a place to write to; the new handle shares the callbacks.
        Handle::opened(callbacks, |out| unsafe { sys::st_reopen(self.raw(), flags, out) })
    }

    pub(crate) fn owned_views(&self) -> &OwnedViews {
        &self.owned_views
    }

    pub(crate) fn interrupted(&self) -> &Arc<Interrupted> {
        self.interrupted.get_or_init(|| Arc::new(Interrupted::new(self.raw)))
    }

    pub(crate) fn is_of_the_same_file(&self, other: &Handle) -> bool {
        self.origin == other.origin
    }

    pub(crate) fn raw(&self) -> *mut sys::st_file {
        self.raw.as_ptr()
    }

    pub(crate) fn callbacks(&self) -> &Arc<Shared> {
        &self.callbacks
    }

    /// A call that may call the handle's callbacks.
    #[inline]
    pub(crate) fn call(&self, run: impl FnOnce(*mut sys::st_file) -> sys::st_status) -> Result<()> {
        if !self.calls_back {
            return check(run(self.raw()));
        }
        self.told(|| check(run(self.raw())))
    }

    /// A call that may read, and why it failed.
    pub(crate) fn told(&self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        self.callbacks.begin();
        callback::call(|| run().map_err(|error| self.callbacks.explain(error)))
    }

    pub(crate) fn count(&self) -> usize {
        // SAFETY: an open handle.
        unsafe { sys::st_count(self.raw()) }
    }

    pub(crate) fn shard_count(&self) -> u32 {
        // SAFETY: an open handle.
        unsafe { sys::st_shard_count(self.raw()) }
    }

    /// The shards' paths. For a pin.
    pub(crate) fn shards(&self) -> Vec<PathBuf> {
        let path = |i| {
            let mut path = null();
            // SAFETY: an open handle and a place to write to; the string lives until st_close.
            let status = unsafe { sys::st_shard_path(self.raw(), i, &mut path) };
            // SAFETY: as above.
            (status == sys::ST_OK).then(|| unsafe { CStr::from_ptr(path) }.to_bytes())
        };
        (0..self.shard_count()).map_while(path).map(|bytes| PathBuf::from(OsStr::from_bytes(bytes))).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Result<usize> {
        let mut index = 0;
        // SAFETY: a name with its length, and a place to write to.
        self.call(|raw| unsafe { sys::st_find(raw, name.as_ptr().cast(), name.len(), &mut index) })?;
        Ok(index)
    }

    /// Whether there is a tensor of that name. For want of a shard, say, nobody knows.
    pub(crate) fn contains(&self, name: &str) -> Result<bool> {
        match self.find(name) {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Status::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    #[inline]
    pub(crate) fn describe(&self, name: &str) -> Result<Described<'_>> {
        let mut tensor = MaybeUninit::uninit();
        // SAFETY: a name with its length, and a place to write to.
        self.call(|raw| unsafe {
            sys::st_describe(raw, name.as_ptr().cast(), name.len(), tensor.as_mut_ptr())
        })?;
        // SAFETY: filled by this handle. The name is the one that was asked for, so it is UTF-8.
        Ok(unsafe {
            let tensor = tensor.assume_init_ref();
            self.described_as(tensor, std::str::from_utf8_unchecked(bytes(tensor.name, tensor.name_len)))
        })
    }

    /// Copy a tensor to the start of `dst`. One call, so that it needs no pin.
    pub(crate) fn read_into(&self, name: &str, dst: &mut [u8]) -> Result<()> {
        // SAFETY: a buffer with its length.
        unsafe { self.read_to(name, dst.as_mut_ptr(), dst.len()) }
    }

    /// Copy a tensor that takes `nbytes`. For a pin.
    pub(crate) fn read(&self, name: &str, nbytes: usize) -> Result<Vec<u8>> {
        // SAFETY: room for so many bytes, and st_read fills them: the tensor takes no fewer.
        unsafe { filled(nbytes, |dst| self.read_to(name, dst, nbytes)) }
    }

    /// # Safety
    /// Room for `dst_size` bytes at `dst`.
    pub(crate) unsafe fn read_to(&self, name: &str, dst: *mut u8, dst_size: usize) -> Result<()> {
        // SAFETY: a name with its length, the caller's promise, and no place for a description.
        self.call(|raw| unsafe {
            sys::st_read(raw, name.as_ptr().cast(), name.len(), dst.cast(), dst_size, null_mut())
        })
    }

    /// All tensors, in the order of their offsets. For a pin.
    ///
    /// # Errors
    /// What opening shards may answer.
    pub(crate) fn describe_all(&self) -> Result<Vec<Described<'_>>> {
        let mut raw = vec![EMPTY; self.count()];
        // SAFETY: room for as many tensors as there are.
        self.call(|handle| unsafe { sys::st_at(handle, 0, raw.len(), raw.as_mut_ptr()) })?;
        // SAFETY: filled by this handle.
        Ok(raw.iter().map(|tensor| unsafe { self.described(tensor) }).collect())
    }

    /// The bytes of a tensor where they lie.
    ///
    /// # Safety
    /// Nobody changes them while the view lives; see [`File::view`](crate::File::view).
    #[inline]
    pub(crate) unsafe fn view(&self, name: &str) -> Result<TensorView<'_>> {
        let mut tensor = MaybeUninit::uninit(); // to empty it first would be a tenth of the call
                                                // SAFETY: a name with its length, and a place to write to.
        self.call(|raw| unsafe { sys::st_get(raw, name.as_ptr().cast(), name.len(), tensor.as_mut_ptr()) })?;
        // SAFETY: filled by this handle; the rest is the caller's promise.
        Ok(unsafe { self.viewed(tensor.assume_init_ref()) })
    }

    /// The same, to be written. No reference is made, so others may write it meanwhile.
    pub(crate) fn view_raw(&self, name: &str) -> Result<*mut [u8]> {
        let mut tensor = EMPTY;
        // SAFETY: a name with its length, and a place to write to.
        self.call(|raw| unsafe { sys::st_get(raw, name.as_ptr().cast(), name.len(), &mut tensor) })?;
        let data = match tensor.nbytes {
            0 => NonNull::dangling().as_ptr(),
            _ => tensor.data.cast_mut().cast::<u8>(),
        };
        Ok(std::ptr::slice_from_raw_parts_mut(data, tensor.nbytes as usize))
    }

    /// The same, by place. None past the end.
    ///
    /// # Safety
    /// As [`Handle::view`].
    pub(crate) unsafe fn view_at(&self, index: usize) -> Option<Result<(&str, TensorView<'_>)>> {
        let mut tensor = EMPTY;
        // SAFETY: a place to write to.
        match self.call(|raw| unsafe { sys::st_get_at(raw, index, &mut tensor) }) {
            // SAFETY: filled by this handle; the rest is the caller's promise.
            Ok(()) => Some(Ok(unsafe { (string(tensor.name, tensor.name_len), self.viewed(&tensor)) })),
            Err(error) if error.status() == Status::OutOfRange => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// All names, in the order of the offsets. For a pin.
    ///
    /// # Errors
    /// As [`Handle::describe_all`].
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut size = 0;
        // SAFETY: a place for the size alone.
        self.call(|raw| unsafe { sys::st_names(raw, null_mut(), &mut size) })?;
        let mut all = vec![0_u8; size];
        // SAFETY: a buffer with its length.
        self.call(|raw| unsafe { sys::st_names(raw, all.as_mut_ptr().cast(), &mut size) })?;
        let all = std::str::from_utf8(&all).expect("libst's names are UTF-8");
        let count = self.count();
        if all.bytes().filter(|byte| *byte == 0).count() == count {
            return Ok(all.split_terminator('\0').map(str::to_owned).collect());
        }
        // A name that holds NUL makes the parts ambiguous.
        Ok(self.describe_all()?.into_iter().map(|tensor| tensor.name.to_owned()).collect())
    }

    /// All pairs. For a pin.
    pub(crate) fn metadata(&self) -> Vec<(&str, &str)> {
        // SAFETY: an open handle.
        let count = unsafe { sys::st_metadata_count(self.raw()) };
        (0..count).filter_map(|i| self.metadata_at(i)).collect()
    }

    fn metadata_at(&self, index: usize) -> Option<(&str, &str)> {
        let (mut key, mut value) = (null(), null());
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: places to write to; the strings live until st_close.
        unsafe {
            let status =
                sys::st_metadata_at(self.raw(), index, &mut key, &mut key_len, &mut value, &mut value_len);
            (status == sys::ST_OK).then(|| (string(key, key_len), string(value, value_len)))
        }
    }

    pub(crate) fn metadata_get(&self, key: &str) -> Option<&str> {
        let (mut value, mut value_len) = (null(), 0);
        // SAFETY: a key with its length and places to write to; the string lives until st_close.
        unsafe {
            let status =
                sys::st_metadata_get(self.raw(), key.as_ptr().cast(), key.len(), &mut value, &mut value_len);
            (status == sys::ST_OK).then(|| string(value, value_len))
        }
    }

    /// # Safety
    /// `tensor` was filled by this handle.
    unsafe fn described(&self, tensor: &sys::st_tensor) -> Described<'_> {
        // SAFETY: the caller's promise; names live until st_close.
        unsafe { self.described_as(tensor, string(tensor.name, tensor.name_len)) }
    }

    /// # Safety
    /// As [`Handle::described`].
    #[inline]
    unsafe fn described_as<'h>(&'h self, tensor: &sys::st_tensor, name: &'h str) -> Described<'h> {
        Described {
            name,
            dtype: Dtype::from_code(tensor.dtype),
            // SAFETY: the caller's promise; shapes live until st_close.
            shape: unsafe { shape_of(tensor) },
            nbytes: tensor.nbytes as usize,
            file_offset: tensor.file_offset,
            shard: tensor.shard,
        }
    }

    /// # Safety
    /// `tensor` was filled by this handle, with data; nobody changes that while the view lives.
    #[inline]
    unsafe fn viewed(&self, tensor: &sys::st_tensor) -> TensorView<'_> {
        let data = match tensor.nbytes {
            0 => &[],
            // SAFETY: the caller's promise.
            n => unsafe { std::slice::from_raw_parts(tensor.data.cast::<u8>(), n as usize) },
        };
        // SAFETY: as above.
        TensorView::of_parts(Dtype::from_code(tensor.dtype), unsafe { shape_of(tensor) }, data)
    }
}

/// As many values as `fill` puts into memory that was not cleared, which would take a tenth of a read. A file may say that
/// it is larger than all memory, so that there is none for it is no reason to abort.
///
/// # Safety
/// Where `fill` succeeds, there are `count` values from the pointer on.
pub(crate) unsafe fn filled<T>(count: usize, fill: impl FnOnce(*mut T) -> Result<()>) -> Result<Vec<T>> {
    let mut values = Vec::new();
    if values.try_reserve_exact(count).is_err() {
        let nbytes = count.saturating_mul(std::mem::size_of::<T>());
        return Err(Error::new(Status::NoMemory, format!("there is no memory for {nbytes} bytes")));
    }
    fill(values.as_mut_ptr())?;
    // SAFETY: the caller's promise.
    unsafe { values.set_len(count) };
    Ok(values)
}

pub(crate) const EMPTY: sys::st_tensor = sys::st_tensor {
    name: null(),
    name_len: 0,
    dtype: 0,
    rank: 0,
    shape: null(),
    data: null(),
    nbytes: 0,
    file_offset: 0,
    shard: 0,
    reserved0: 0,
    reserved: [0; 2],
};

/// # Safety
/// `len` bytes at `s` that live, unchanged, for `'a`.
unsafe fn string<'a>(s: *const c_char, len: usize) -> &'a str {
    // SAFETY: the caller's promise.
    std::str::from_utf8(unsafe { bytes(s, len) }).expect("libst's names are UTF-8")
}

/// # Safety
/// As [`string`].
#[inline]
unsafe fn bytes<'a>(s: *const c_char, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(s.cast::<u8>(), len) }
}

/// # Safety
/// The shape of `tensor` lives, unchanged, for `'a`.
#[inline]
unsafe fn shape_of<'a>(tensor: &sys::st_tensor) -> &'a [usize] {
    // SAFETY: the caller's promise; usize is u64 here (libst-sys refuses other platforms), and st.h says that the
    // pointer is never NULL.
    unsafe { std::slice::from_raw_parts(tensor.shape.cast::<usize>(), tensor.rank as usize) }
}
