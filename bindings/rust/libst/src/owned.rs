//! Views of memory that nobody else can reach, which own what they need.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::handle::Handle;
use crate::{Dtype, Result, TensorView, View};

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

impl View for OwnedView {
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

impl fmt::Debug for OwnedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedView")
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .finish_non_exhaustive()
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
