//! Views of memory that nobody else can reach, which own what they need.

use std::borrow::Cow;
use std::fmt;
use std::ptr::{null, null_mut, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::handle::Handle;
use crate::{sys, Dtype, Error, Result, Status, TensorView, View};

/// What both kinds show of their `view`.
macro_rules! looks_like_a_view {
    ($view:ident) => {
        impl $view {
            /// The type of its elements.
            pub fn dtype(&self) -> Dtype {
                self.view.dtype()
            }

            /// Its shape, slowest dimension first; empty for a scalar.
            pub fn shape(&self) -> &[usize] {
                self.view.shape()
            }

            /// Little-endian elements in C order. May be unaligned for their type.
            pub fn data(&self) -> &[u8] {
                self.view.data()
            }

            /// The length of the data in bytes.
            pub fn data_len(&self) -> usize {
                self.view.data_len()
            }

            /// The same, borrowed.
            pub fn as_view(&self) -> TensorView<'_> {
                TensorView::of_parts(self.dtype(), self.shape(), self.data())
            }
        }

        impl View for $view {
            fn dtype(&self) -> Dtype {
                self.dtype()
            }

            fn shape(&self) -> &[usize] {
                self.shape()
            }

            fn data(&self) -> Cow<'_, [u8]> {
                self.data().into()
            }

            fn data_len(&self) -> usize {
                self.data_len()
            }
        }

        impl fmt::Debug for $view {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($view))
                    .field("dtype", &self.dtype())
                    .field("shape", &self.shape())
                    .finish_non_exhaustive()
            }
        }
    };
}

/// A view that owns what it needs: memory of a file's own, which nobody else can reach, and no more. It may outlive its
/// file, be cloned cheaply, and go to other threads; see [`File::view_owned`](crate::File::view_owned).
#[derive(Clone)]
pub struct OwnedView {
    view: TensorView<'static>, // in truth for as long as the pin lives
    _pin: Arc<Handle>,
    _one: OneMore,
}

impl OwnedView {
    /// # Safety
    /// `load` sees to it that the bytes of that tensor of the pin lie in memory that only a refresh writes to.
    pub(crate) unsafe fn of(
        pin: &Arc<Handle>,
        name: &str,
        load: impl FnOnce() -> Result<()>,
    ) -> Result<OwnedView> {
        let one = pin.owned_views().one_more(); // from here on there is no refresh
        load()?;
        // SAFETY: the caller's promise.
        let view = unsafe { pin.view(name)? };
        // SAFETY: shape and data live until st_close, which this view's part of `pin` puts off. Nothing gives them out for
        // longer than a borrow of the view.
        let view = unsafe { std::mem::transmute::<TensorView<'_>, TensorView<'static>>(view) };
        Ok(OwnedView { view, _pin: Arc::clone(pin), _one: one })
    }
}

looks_like_a_view!(OwnedView);

/// A view of mapped bytes that owns their mapping, and neither a descriptor nor a name. It may outlive its file, be cloned
/// cheaply, and go to other threads; see [`File::view_kept`](crate::File::view_kept).
#[derive(Clone)]
pub struct KeptView {
    view: TensorView<'static>, // in truth for as long as the mapping lives
    _mapping: Arc<Mapping>,
}

impl KeptView {
    /// # Safety
    /// As [`Handle::view`].
    pub(crate) unsafe fn of(pin: &Handle, name: &str) -> Result<KeptView> {
        let mapping = Mapping::of(pin)?;
        // SAFETY: the caller's promise.
        let view = unsafe { pin.view(name)? };
        let data = view.data();
        if !data.is_empty() && !mapping.holds(data) {
            let message =
                format!("tensor {name:?} is viewed in memory of the file's own, not in its mapping");
            return Err(Error::new(Status::Unsupported, message).about_tensor(name));
        }
        // SAFETY: the mapping holds them, so they live as long as it, which this view has a part of. Nothing gives them out
        // for longer than a borrow of the view.
        let data: &'static [u8] = unsafe { std::slice::from_raw_parts(data.as_ptr(), data.len()) };
        Ok(KeptView { view: view.with_own_shape(data), _mapping: Arc::new(mapping) })
    }
}

looks_like_a_view!(KeptView);

/// Unmapped once all that share it are gone.
struct Mapping {
    raw: NonNull<sys::st_mapping>,
    begin: usize,
    size: usize,
}

// SAFETY: st.h: st_mapping_free may be called from any thread, and nothing else is called.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(pin: &Handle) -> Result<Mapping> {
        let (mut raw, mut begin, mut size) = (null_mut(), null(), 0);
        // SAFETY: an open handle and places to write to.
        pin.call(|handle| unsafe { sys::st_mapping_keep(handle, &mut raw, &mut begin, &mut size) })?;
        let raw = NonNull::new(raw).expect("libst put out a mapping");
        Ok(Mapping { raw, begin: begin as usize, size })
    }

    fn holds(&self, data: &[u8]) -> bool {
        let at = data.as_ptr() as usize;
        at >= self.begin && at - self.begin <= self.size && data.len() <= self.size - (at - self.begin)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the last use of it; what views it holds it, too.
        unsafe { sys::st_mapping_free(self.raw.as_ptr()) }
    }
}

/// How many owned views of a file there are. A refresh reads the file's own memory anew. So no refresh begins while
/// there are owned views, and no owned view is made during a refresh.
#[derive(Clone, Default)]
pub(crate) struct OwnedViews(Arc<Mutex<usize>>);

impl OwnedViews {
    pub(crate) fn lock(&self) -> MutexGuard<'_, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn one_more(&self) -> OneMore {
        *self.lock() += 1;
        OneMore(self.clone())
    }
}

struct OneMore(OwnedViews);

impl Clone for OneMore {
    fn clone(&self) -> OneMore {
        self.0.one_more()
    }
}

impl Drop for OneMore {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}
