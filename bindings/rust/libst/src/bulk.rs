//! Many tensors at once: read, warmed, or loaded into memory of the file's own.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::callback::{self, CallProgressFn};
use crate::error::check;
use crate::handle::Handle;
use crate::options::set;
use crate::{sys, Error, File, Progress, Result, Snapshot, Status, Tensor};

/// A tensor or a part of one, and where its bytes go: [`Tensor::request`](crate::Tensor::request) and
/// [`Slice::request`](crate::Slice::request) make it, [`File::read_many`] takes it.
pub struct ReadRequest<'a> {
    of: Tensor,
    ranges: &'a [sys::st_range],
    dst: &'a mut [MaybeUninit<u8>],
}

impl<'a> ReadRequest<'a> {
    pub(crate) fn of(
        of: Tensor,
        ranges: &'a [sys::st_range],
        dst: &'a mut [MaybeUninit<u8>],
    ) -> ReadRequest<'a> {
        ReadRequest { of, ranges, dst }
    }

    fn c(&mut self) -> sys::st_read_request {
        sys::st_read_request {
            name: self.of.name().as_ptr().cast(),
            name_len: self.of.name().len(),
            index: 0,
            dst: self.dst.as_mut_ptr().cast(),
            dst_size: self.dst.len(),
            ranges: if self.ranges.is_empty() { null() } else { self.ranges.as_ptr() },
            range_count: self.ranges.len(),
            reserved: 0,
        }
    }
}

impl fmt::Debug for ReadRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRequest").field("of", &self.of.name()).finish_non_exhaustive()
    }
}

impl File {
    /// Read tensors, and parts of them, in the order of the file whatever order they are given in: neighbours with one
    /// request, small gaps read through, by as many threads as the storage likes. What was taken before a publish lies in
    /// another file than what was taken after it: these are read one file after the other. [`File::tensors_by_name`] looks
    /// many tensors up at once.
    ///
    /// # Errors
    /// [`Status::BufferSize`]; as [`File::read`]. What was to be filled then holds any bytes.
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// let file = libst::File::open(&path)?;
    /// let tensors = file.tensors_by_name(&["w", "b"])?;
    /// let mut all: Vec<_> = tensors.iter().map(|tensor| vec![0; tensor.data_len()]).collect();
    /// file.read_many(tensors.iter().zip(&mut all).map(|(tensor, to)| tensor.request(to)))?;
    /// # assert_eq!(all[1], [8, 9]);
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn read_many<'a>(&self, requests: impl IntoIterator<Item = ReadRequest<'a>>) -> Result<()> {
        ReadOptions::new().read_many(self, requests)
    }

    /// [`File::read_many`] with progress of its own; [`ReadOptions`] has more choices.
    pub fn read_many_with<'a>(
        &self,
        requests: impl IntoIterator<Item = ReadRequest<'a>>,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        ReadOptions::new().progress(progress).read_many(self, requests)
    }

    /// Bring tensors into memory, in the order of the file and in large requests, so that views of them do not wait for
    /// the storage. `None` is all tensors, or this worker's part of them
    /// ([`OpenOptions::worker`](crate::OpenOptions::worker)).
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::Io`], [`Status::FileChanged`], [`Status::Cancelled`], [`Status::Interrupted`].
    pub fn prefetch(&self, names: Option<&[&str]>) -> Result<()> {
        prefetch(&self.handle().pin()?, names, None)
    }

    /// [`File::prefetch`] with progress of its own.
    pub fn prefetch_with(
        &self,
        names: Option<&[&str]>,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        prefetch(&self.handle().pin()?, names, Some(Box::new(progress)))
    }

    /// Read tensors, or with `None` all of them, into one block of memory that this file owns. The block lives until the
    /// file is closed, or was replaced and nothing views it any more. Each tensor is aligned there as it is in the file.
    /// Views are then of that memory: [`File::view_owned`] where that is safe. Those that lie there already are not read
    /// again. [`LoadOptions`] has choices.
    ///
    /// Views in a mapping of [`Map::CopyOnWrite`](crate::Map::CopyOnWrite) stay where they are, with what was written
    /// into them. All their pages become this process's own instead. A truncation makes such pages a signal.
    ///
    /// # Errors
    /// As [`File::prefetch`].
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// let file = libst::File::open(&path)?;
    /// file.load(None)?;
    /// for name in file.names()? {
    ///     println!("{name}: {:?}", file.view_owned(&name)?.data());
    /// }
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn load(&self, names: Option<&[&str]>) -> Result<()> {
        LoadOptions::new().load(self, names)
    }
}

/// For calls on a [`Snapshot`]; see those of the same names on [`File`].
impl Snapshot {
    /// As [`File::read_many`].
    ///
    /// # Errors
    /// As [`File::read_many`].
    pub fn read_many<'a>(&self, requests: impl IntoIterator<Item = ReadRequest<'a>>) -> Result<()> {
        ReadOptions::new().read_many_in(self, requests)
    }

    /// As [`File::read_many_with`].
    ///
    /// # Errors
    /// As [`File::read_many`].
    pub fn read_many_with<'a>(
        &self,
        requests: impl IntoIterator<Item = ReadRequest<'a>>,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        ReadOptions::new().progress(progress).read_many_in(self, requests)
    }

    /// As [`File::prefetch`].
    ///
    /// # Errors
    /// As [`File::prefetch`].
    pub fn prefetch(&self, names: Option<&[&str]>) -> Result<()> {
        prefetch(self.pin(), names, None)
    }

    /// As [`File::prefetch_with`].
    ///
    /// # Errors
    /// As [`File::prefetch`].
    pub fn prefetch_with(
        &self,
        names: Option<&[&str]>,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        prefetch(self.pin(), names, Some(Box::new(progress)))
    }

    /// As [`File::load`].
    ///
    /// # Errors
    /// As [`File::load`].
    pub fn load(&self, names: Option<&[&str]>) -> Result<()> {
        LoadOptions::new().load_in(self, names)
    }
}

/// A buffer of bytes is one that may have none yet: the library only writes to it.
pub(crate) fn uninit(dst: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same layout; what has it here writes bytes to it and nothing else.
    unsafe { &mut *(dst as *mut [u8] as *mut [MaybeUninit<u8>]) }
}

fn read_requests(
    of: &Handle,
    mut requests: Vec<ReadRequest<'_>>,
    mut options: ReadOptions<'_>,
) -> Result<()> {
    if !requests.iter().all(|request| request.of.pin().is_of_the_same_file(of)) {
        let message = "a request is of another file; give it to that file's read_many";
        return Err(Error::new(Status::InvalidArgument, message));
    }
    let mut states: Vec<(Arc<Handle>, Vec<sys::st_read_request>)> = Vec::new();
    for request in &mut requests {
        let state = match states.iter().position(|(pin, _)| request.of.is_in(pin)) {
            Some(state) => state,
            None => {
                states.push((Arc::clone(request.of.pin()), Vec::new()));
                states.len() - 1
            }
        };
        states[state].1.push(request.c());
    }
    bulk(of, options.flags, &mut options.progress, |options| {
        // SAFETY: names, ranges and buffers with their lengths, which the requests borrow; the buffers are distinct, as
        // they are borrowed mutably.
        let read = |(pin, c): &(Arc<Handle>, Vec<sys::st_read_request>)| unsafe {
            sys::st_read_many(pin.raw(), c.as_ptr(), c.len(), options)
        };
        states.iter().map(read).find(|status| *status != sys::ST_OK).unwrap_or(sys::ST_OK)
    })
}

fn prefetch(pin: &Handle, names: Option<&[&str]>, mut progress: Option<CallProgressFn<'_>>) -> Result<()> {
    let indices = indices(pin, names, &mut progress)?;
    let (data, n) = pointer(&indices);
    // SAFETY: indices with their number, or NULL and 0; set-up options.
    bulk(pin, 0, &mut progress, |options| unsafe { sys::st_prefetch(pin.raw(), data, n, options) })
}

/// A call with set-up options, whose closure lives during it. Without one C tells the handle's.
fn bulk(
    of: &Handle,
    flags: u32,
    progress: &mut Option<CallProgressFn<'_>>,
    run: impl FnOnce(&sys::st_bulk_options) -> sys::st_status,
) -> Result<()> {
    let mut c = sys::st_bulk_options { flags, ..Default::default() };
    (c.progress, c.progress_user) = callback::of_call(progress);
    of.told(|| check(run(&c)))
}

/// Indices of a pin.
fn indices(
    pin: &Handle,
    names: Option<&[&str]>,
    progress: &mut Option<CallProgressFn<'_>>,
) -> Result<Option<Vec<usize>>> {
    open_files_of(pin, names.unwrap_or_default(), progress)?;
    let find = |names: &[&str]| names.iter().map(|name| pin.find(name)).collect();
    names.map(find).transpose()
}

/// Opens the shards of a URL that have these tensors, side by side. Calls for one tensor would wait one by one.
pub(crate) fn open_files_of(
    pin: &Handle,
    names: &[&str],
    progress: &mut Option<CallProgressFn<'_>>,
) -> Result<()> {
    if pin.shard_count() == 1 {
        return Ok(());
    }
    let without_room = |name: &&str| sys::st_read_request {
        name: name.as_ptr().cast(),
        name_len: name.len(),
        index: 0,
        dst: null_mut(),
        dst_size: 0,
        ranges: null(),
        range_count: 0,
        reserved: 0,
    };
    let requests: Vec<_> = names.iter().map(without_room).collect();
    // SAFETY: names with their lengths, and no room to write to; set-up options.
    let open =
        |options: &_| unsafe { sys::st_read_many(pin.raw(), requests.as_ptr(), requests.len(), options) };
    match bulk(pin, 0, progress, open) {
        Err(error) if error.status() != Status::BufferSize => Err(error), // that is told after the opens
        _ => Ok(()),
    }
}

fn pointer(indices: &Option<Vec<usize>>) -> (*const usize, usize) {
    indices.as_ref().map_or((null(), 0), |indices| (indices.as_ptr(), indices.len()))
}

/// [`File::read_many`] with choices.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// let file = libst::File::open(&path)?;
/// let w = file.tensor("w")?;
/// let mut bytes = Vec::with_capacity(w.data_len());
/// let options = libst::ReadOptions::new().fresh_memory(true);
/// options.read_many(&file, [w.request_uninit(bytes.spare_capacity_mut())])?;
/// // SAFETY: they were read.
/// unsafe { bytes.set_len(w.data_len()) };
/// # assert_eq!(bytes, file.read("w")?);
/// # Ok::<(), libst::Error>(())
/// ```
#[must_use]
#[derive(Default)]
pub struct ReadOptions<'a> {
    flags: u32,
    progress: Option<CallProgressFn<'a>>,
}

impl<'a> ReadOptions<'a> {
    /// Memory of which nothing is known.
    pub fn new() -> ReadOptions<'a> {
        ReadOptions::default()
    }

    /// Whether nobody has touched the memory of the destinations since the system gave it. So it is in a large
    /// `vec![0; n]` and `Vec::with_capacity(n)`. The library then chooses the size of its pages: huge ones for as
    /// long as they come quickly. Touched memory is safe, too, but may end on small pages.
    pub fn fresh_memory(mut self, fresh: bool) -> ReadOptions<'a> {
        set(&mut self.flags, sys::ST_BULK_FRESH_MEMORY, fresh);
        self
    }

    /// Told now and then how much has been read; [`ControlFlow::Break`] cancels.
    pub fn progress<F>(mut self, progress: F) -> ReadOptions<'a>
    where
        F: FnMut(Progress) -> ControlFlow<()> + 'a,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// As [`File::read_many`].
    ///
    /// # Errors
    /// As [`File::read_many`].
    pub fn read_many<'r>(
        self,
        file: &File,
        requests: impl IntoIterator<Item = ReadRequest<'r>>,
    ) -> Result<()> {
        read_requests(file.handle(), requests.into_iter().collect(), self)
    }

    /// As [`Snapshot::read_many`].
    ///
    /// # Errors
    /// As [`File::read_many`].
    pub fn read_many_in<'r>(
        self,
        of: &Snapshot,
        requests: impl IntoIterator<Item = ReadRequest<'r>>,
    ) -> Result<()> {
        read_requests(of.pin(), requests.into_iter().collect(), self)
    }
}

impl fmt::Debug for ReadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOptions").field("flags", &self.flags).finish_non_exhaustive()
    }
}

/// [`File::load`] with choices.
#[must_use]
#[derive(Default)]
pub struct LoadOptions<'a> {
    flags: u32,
    progress: Option<CallProgressFn<'a>>,
}

impl<'a> LoadOptions<'a> {
    /// Through the page cache if the file asks for nothing else, into plain memory.
    pub fn new() -> LoadOptions<'a> {
        LoadOptions::default()
    }

    /// Whether to take the system's reserved huge pages, if there are enough.
    pub fn huge_pages(mut self, wanted: bool) -> LoadOptions<'a> {
        set(&mut self.flags, sys::ST_BULK_HUGE_PAGES, wanted);
        self
    }

    /// Whether to read past the page cache.
    pub fn direct(mut self, wanted: bool) -> LoadOptions<'a> {
        set(&mut self.flags, sys::ST_BULK_DIRECT, wanted);
        self
    }

    /// Told now and then how much has been read; [`ControlFlow::Break`] cancels.
    pub fn progress<F>(mut self, progress: F) -> LoadOptions<'a>
    where
        F: FnMut(Progress) -> ControlFlow<()> + 'a,
    {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Load tensors, or with `None` all of them.
    ///
    /// # Errors
    /// As [`File::load`].
    pub fn load(self, file: &File, names: Option<&[&str]>) -> Result<()> {
        self.load_of(&file.handle().pin()?, names)
    }

    /// The same of a snapshot.
    ///
    /// # Errors
    /// As [`File::load`].
    pub fn load_in(self, of: &Snapshot, names: Option<&[&str]>) -> Result<()> {
        self.load_of(of.pin(), names)
    }

    fn load_of(mut self, pin: &Handle, names: Option<&[&str]>) -> Result<()> {
        let indices = indices(pin, names, &mut self.progress)?;
        let (data, n) = pointer(&indices);
        // SAFETY: indices with their number, or NULL and 0; set-up options.
        bulk(pin, self.flags, &mut self.progress, |options| unsafe {
            sys::st_load(pin.raw(), data, n, options)
        })
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions").field("flags", &self.flags).finish_non_exhaustive()
    }
}
