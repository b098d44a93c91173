//! Write a file at once; and how a file is written.

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::callback::{self, OwnProgress, ProgressFn};
use crate::error::check;
use crate::options::{c_path, milliseconds, CPaths};
use crate::view::c_tensor;
#[cfg(doc)]
use crate::Status;
use crate::{sys, Dtype, Error, Layout, Progress, Result, View, Writer};

/// Write a file of tensors, durably: until this returns the path leads to the old file, or to none; then to the new one.
/// Readers of an old file keep it. [`SaveOptions`] has choices, metadata among them, and [`Writer`] writes what is larger
/// than memory.
///
/// A file that is replaced hands on its mode, owner, ACL and extended attributes, and a symbolic link is followed.
///
/// # Errors
/// [`Status::DuplicateName`], [`Status::Dtype`], [`Status::SizeMismatch`], [`Status::ShapeOverflow`],
/// [`Status::Subbyte`], [`Status::Metadata`], [`Status::HeaderTooLarge`]: no reader would take it.
/// [`Status::InvalidArgument`]: the path has the name of an index of shards, `*.safetensors.index.json` or
/// `*.safetensors.index.VARIANT.json`; or a tensor is named `__metadata__`.
/// [`Status::NoSpace`], [`Status::NoFile`] (the folder), [`Status::Permission`], [`Status::NotRegular`], [`Status::Io`], [`Status::Busy`],
/// [`Status::Cancelled`]: nothing changed. [`Status::NeedsRecovery`]: the new file is in place, but a power cut may bring
/// the old one back; save it again.
///
/// ```
/// # let (folder, _) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// # let path = folder.path().join("new.safetensors");
/// use libst::{Dtype, TensorView};
///
/// let ones: Vec<u8> = [1.0f32; 6].iter().flat_map(|x| x.to_le_bytes()).collect();
/// libst::save(&path, [("w", TensorView::new(Dtype::F32, vec![2, 3], &ones)?)])?;
/// # assert_eq!(libst::File::open(&path)?.read("w")?, ones);
/// # Ok::<(), libst::Error>(())
/// ```
pub fn save<N, V>(path: impl AsRef<Path>, tensors: impl IntoIterator<Item = (N, V)>) -> Result<()>
where
    N: AsRef<str>,
    V: View,
{
    SaveOptions::new().save(path, tensors)
}

/// How a file is written: [`save`] and [`Writer::create`] with choices.
///
/// ```
/// # let (folder, _) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// # let path = folder.path().join("new.safetensors");
/// use libst::{Dtype, Layout, SaveOptions, TensorView};
///
/// SaveOptions::new()
///     .layout(Layout::Canonical)
///     .alignment(4096)
///     .metadata([("format", "pt")])
///     .save(&path, [("w", TensorView::new(Dtype::U8, vec![2], &[1, 2])?)])?;
/// # assert_eq!(libst::File::open(&path)?.snapshot()?.metadata(), [("format", "pt")]);
/// # Ok::<(), libst::Error>(())
/// ```
#[must_use]
pub struct SaveOptions<'a> {
    c: sys::st_save_options,
    metadata: Vec<(String, String)>,
    progress: Option<ProgressFn<'a>>,
}

// SAFETY: the pointers in `c` are NULL; the closure is Send.
unsafe impl Send for SaveOptions<'_> {}

impl<'a> SaveOptions<'a> {
    /// Tensors as they are given, data at 64, no metadata; waits up to ten seconds for locks where a file is replaced.
    pub fn new() -> SaveOptions<'a> {
        SaveOptions { c: sys::st_save_options::default(), metadata: Vec::new(), progress: None }
    }

    /// More pairs of `__metadata__`.
    pub fn metadata<K, V>(mut self, pairs: impl IntoIterator<Item = (K, V)>) -> SaveOptions<'a>
    where
        K: Into<String>,
        V: Into<String>,
    {
        self.metadata.extend(pairs.into_iter().map(|(key, value)| (key.into(), value.into())));
        self
    }

    /// The order of the tensors.
    pub fn layout(mut self, layout: Layout) -> SaveOptions<'a> {
        self.c.layout = layout.code();
        self
    }

    /// The first data byte lies at a multiple of `bytes`: a multiple of 8, at most 2^20. 4096 suits `O_DIRECT` and
    /// devices. 0 is 64, or 8 with [`Layout::Stock`].
    pub fn alignment(mut self, bytes: u32) -> SaveOptions<'a> {
        self.c.alignment = bytes;
        self
    }

    /// Bytes of spare room in the header, for later growth.
    pub fn header_reserve(mut self, bytes: u64) -> SaveOptions<'a> {
        self.c.header_reserve = bytes;
        self
    }

    /// How long to wait for other workers' locks where a file is replaced; `None` is for ever.
    pub fn lock_timeout(mut self, timeout: impl Into<Option<Duration>>) -> SaveOptions<'a> {
        self.c.lock_timeout_ms = milliseconds(timeout.into());
        self
    }

    /// Told now and then how far it has come, of a [`Writer`] in all its calls; [`ControlFlow::Break`] cancels.
    pub fn progress<F>(mut self, progress: F) -> SaveOptions<'a>
    where
        F: FnMut(Progress) -> ControlFlow<()> + Send + 'a,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Write a file of tensors; all of their data is held at once.
    ///
    /// # Errors
    /// As [`save`].
    pub fn save<N, V>(self, path: impl AsRef<Path>, tensors: impl IntoIterator<Item = (N, V)>) -> Result<()>
    where
        N: AsRef<str>,
        V: View,
    {
        let path = c_path(path.as_ref())?;
        let tensors: Vec<(N, V)> = tensors.into_iter().collect();
        let data: Vec<Cow<'_, [u8]>> = tensors.iter().map(|(_, value)| value.data()).collect();
        let raw = tensors.iter().zip(&data).map(|((name, value), data)| {
            c_tensor(name.as_ref(), value.dtype(), value.shape(), data, data.len() as u64)
        });
        let raw = raw.collect::<Result<Vec<_>>>()?;
        let (c, pairs, _progress) = self.parts();
        let pairs = c_metadata(&pairs);
        callback::call(|| {
            // SAFETY: a C string, tensors and pairs with their numbers, set-up options; what they point to lives during the
            // call, the closure too.
            check(unsafe {
                sys::st_save(path.as_ptr(), raw.as_ptr(), raw.len(), pairs.as_ptr(), pairs.len(), &c)
            })
        })
    }

    /// Begin a file that is written tensor by tensor: [`Writer::put`].
    ///
    /// # Errors
    /// As [`save`].
    pub fn writer(self, path: impl AsRef<Path>) -> Result<Writer<'a>> {
        self.writer_declaring::<&str, &[usize]>(path, [])
    }

    /// Begin a file whose tensors, or some of them, are known beforehand: they have their places from the start, and may
    /// be written in any order and in pieces, with [`Writer::write`].
    ///
    /// # Errors
    /// As [`save`].
    pub fn writer_declaring<N, S>(
        self,
        path: impl AsRef<Path>,
        declared: impl IntoIterator<Item = (N, Dtype, S)>,
    ) -> Result<Writer<'a>>
    where
        N: AsRef<str>,
        S: AsRef<[usize]>,
    {
        let path = c_path(path.as_ref())?;
        let declared: Vec<(N, Dtype, S)> = declared.into_iter().collect();
        let raw = declared.iter().map(|(name, dtype, shape)| {
            let (name, shape) = (name.as_ref(), shape.as_ref());
            let nbytes = dtype.bytes_of(shape).map_err(|error| {
                Error::new(error.status(), format!("tensor {name:?}: {error}")).about_tensor(name)
            })?;
            c_tensor(name, *dtype, shape, &[], nbytes as u64)
        });
        let raw = raw.collect::<Result<Vec<_>>>()?;
        let (c, pairs, progress) = self.parts();
        Writer::open(&path, &raw, &c_metadata(&pairs), c, progress)
    }

    /// Fold deltas, the oldest first, and their base into a new file; metadata given here is not looked at.
    ///
    /// # Errors
    /// As [`merge`].
    pub fn merge<P: AsRef<Path>>(
        self,
        base: impl AsRef<Path>,
        deltas: impl IntoIterator<Item = P>,
        to: impl AsRef<Path>,
    ) -> Result<()> {
        let (base, to) = (c_path(base.as_ref())?, c_path(to.as_ref())?);
        let deltas = CPaths::new(&deltas.into_iter().collect::<Vec<_>>())?;
        let (c, _, _progress) = self.parts();
        callback::call(|| {
            // SAFETY: C strings and set-up options, whose closure lives during the call.
            check(unsafe {
                sys::st_delta_merge(base.as_ptr(), deltas.as_ptr(), deltas.len(), to.as_ptr(), &c)
            })
        })
    }

    pub(crate) fn parts(self) -> (sys::st_save_options, Vec<(String, String)>, Option<OwnProgress<'a>>) {
        let mut c = self.c;
        let progress = self.progress.map(OwnProgress::new);
        if let Some(own) = &progress {
            (c.progress, c.progress_user) = own.c();
        }
        (c, self.metadata, progress)
    }
}

impl Default for SaveOptions<'_> {
    fn default() -> Self {
        SaveOptions::new()
    }
}

impl fmt::Debug for SaveOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveOptions")
            .field("layout", &Layout::from_code(self.c.layout))
            .field("alignment", &self.c.alignment)
            .field("header_reserve", &self.c.header_reserve)
            .field("lock_timeout_ms", &self.c.lock_timeout_ms)
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

/// Fold deltas, the oldest first, and their base into a new file, which shares with them what the filesystem lets it.
/// The base may be sharded; what is made of it is one file all the same. [`SaveOptions::merge`] has choices.
///
/// # Errors
/// [`Status::DeltaBase`] (a delta was not made for what lies below it), [`Status::Delta`]; what opening answers, and
/// [`save`].
pub fn merge<P: AsRef<Path>>(
    base: impl AsRef<Path>,
    deltas: impl IntoIterator<Item = P>,
    to: impl AsRef<Path>,
) -> Result<()> {
    SaveOptions::new().merge(base, deltas, to)
}

/// Pairs for C, which point into these.
fn c_metadata(pairs: &[(String, String)]) -> Vec<sys::st_metadata> {
    let pair = |(key, value): &(String, String)| sys::st_metadata {
        key: key.as_ptr().cast(),
        key_len: key.len(),
        value: value.as_ptr().cast(),
        value_len: value.len(),
    };
    pairs.iter().map(pair).collect()
}
