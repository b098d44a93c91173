//! A safetensors file, open.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::handle::Handle;
use crate::view::with_value;
use crate::{
    sys, Error, Interrupt, IoInfo, KeptView, OpenOptions, OwnedView, Range, Result, Slice, Snapshot, Stats,
    Status, Tensor, TensorView, Transaction, TransactionOptions, View,
};

/// A safetensors file, open. Closed when dropped, whereupon nothing that borrows it can be alive.
///
/// ```
/// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
/// use libst::{s, File};
///
/// let file = File::open(&path)?;
/// for tensor in file.tensors()? {
///     println!("{}: {} {:?}", tensor.name(), tensor.dtype(), tensor.shape());
/// }
/// let weights: Vec<u8> = file.read("w")?;
/// let corner: Vec<u8> = file.slice("w", &s![..2, -1..])?.read()?;
/// # assert_eq!((weights.len(), corner.len()), (24, 8));
/// # Ok::<(), libst::Error>(())
/// ```
///
/// # Safe and unsafe ways to the data
///
/// A view of mapped bytes costs nothing, but others may write the file. When another process, another handle or this
/// one patches a tensor, the bytes under a view change. When the file is truncated, touching them is a signal. No `&[u8]` may do that, so [`File::view`] is `unsafe` and asks for a promise. Without one:
///
/// * [`File::read`] and its kin copy, with reads and not through a mapping: a file that changed is an error;
/// * [`File::view_owned`] views memory that nobody else can reach, into which [`File::load`] reads any number of tensors
///   at once; for files opened for reading.
///
/// # Threads
///
/// A file may be read and updated from many threads at once. What other handles add or remove shows after
/// [`File::refresh`], or after a commit here that found the file replaced. Each call shows one state of the file, and what
/// it answers keeps to that state: a [`Tensor`] reads what it describes, whatever other threads commit meanwhile. Where
/// several calls belong together, make them on a [`Snapshot`].
///
/// # What a file keeps
///
/// A commit that publishes, or a refresh, replaces the file that is shown. Whatever was taken from the replaced file
/// ([`Tensor`], [`Slice`], [`OwnedView`], [`Snapshot`]) keeps it mapped, and its blocks on the disk, until dropped. Only
/// what [`File::view`] has answered borrows this `File`, which keeps it until [`File::release`].
pub struct File {
    handle: Handle,
    shown: OnceLock<Arc<Handle>>, // a pin of what it shows, where only a refresh changes that
    path: PathBuf,
    opened: Opened,
}

/// As it was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) writable: bool,
    pub(crate) copy_on_write: bool,
}

impl Opened {
    pub(crate) fn by(c: &sys::st_open_options) -> Opened {
        Opened {
            writable: c.flags & sys::ST_OPEN_READ_WRITE != 0,
            copy_on_write: c.map == sys::ST_MAP_COPY_ON_WRITE,
        }
    }

    pub(crate) fn for_reading(self) -> Opened {
        Opened { writable: false, ..self }
    }

    /// As ST_REOPEN_COPY_ON_WRITE has it.
    pub(crate) fn of_copy_on_write(self) -> Opened {
        Opened { copy_on_write: true, ..self.for_reading() }
    }
}

impl File {
    pub(crate) fn of(handle: Handle, path: PathBuf, opened: Opened) -> File {
        File { handle, shown: OnceLock::new(), path, opened }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    // ---------------------------------------------------------- open and close

    /// Open a file for reading; [`OpenOptions`] has the choices and tells the errors.
    pub fn open(path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().open(path)
    }

    /// A second file on the same path, with the same options: its own descriptor, mapping and locks. For workers.
    ///
    /// # Errors
    /// [`Status::FileChanged`] if the path now names no file, or another one, which no commit of this one put there; what
    /// opening may answer.
    pub fn reopen(&self) -> Result<File> {
        self.reopened(0, self.opened)
    }

    /// The same for reading only, with [`Map::CopyOnWrite`](crate::Map::CopyOnWrite) however the data of this one is reached:
    /// for [`File::view_raw`].
    ///
    /// # Errors
    /// As [`File::reopen`].
    pub fn reopen_copy_on_write(&self) -> Result<File> {
        self.reopened(sys::ST_REOPEN_COPY_ON_WRITE, self.opened.of_copy_on_write())
    }

    fn reopened(&self, flags: u32, opened: Opened) -> Result<File> {
        Ok(File::of(self.handle.reopen(flags)?, self.path.clone(), opened))
    }

    /// As it was opened, with all that a URL has, which may be secrets; empty for a [`Source`](crate::Source).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file shows now, for reading, for as long as the snapshot lives; nearly free.
    ///
    /// # Errors
    /// [`Status::NoMemory`].
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// let file = libst::OpenOptions::new().write(true).open(&path)?;
    /// let before = file.snapshot()?;
    /// let mut change = file.begin()?;
    /// change.delete("b")?;
    /// change.commit()?;
    /// assert_eq!((before.names()?, before.read("b")?.len()), (vec!["w", "b"], 2));
    /// assert_eq!(file.names()?, ["w"]);
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::of(self.pin()?, self.path.clone(), self.opened))
    }

    /// Let go what was kept for the sake of what [`File::view`] has answered so far: mappings, descriptors and blocks
    /// of files that were replaced. Exclusive, so that none of it can be in use. Snapshots, tensors and owned views keep
    /// what is theirs.
    pub fn release(&mut self) {
        // SAFETY: an open handle. What was taken from it borrows the file, so it is dead, and no call runs, but for an
        // Interrupt, which may at any time.
        unsafe { sys::st_release(self.handle.raw()) }
    }

    /// The absolute paths of the files that it stands for: one, or those that an index of shards names, in their order;
    /// and then the deltas that lie on them. None for a [`Source`](crate::Source).
    pub fn shards(&self) -> Vec<PathBuf> {
        self.pin_infallibly().shards()
    }

    /// A pin of what the file shows now. A file that was opened for reading shows the same until [`File::refresh`], so
    /// one pin does until then.
    pub(crate) fn pin(&self) -> Result<Arc<Handle>> {
        match self.opened.writable {
            true => Ok(Arc::new(self.handle.pin()?)),
            false => self.pin_until_refresh().map(Arc::clone),
        }
    }

    fn pin_until_refresh(&self) -> Result<&Arc<Handle>> {
        if let Some(pin) = self.shown.get() {
            return Ok(pin);
        }
        let pin = Arc::new(self.handle.pin()?);
        Ok(self.shown.get_or_init(|| pin))
    }

    /// For what cannot fail but for want of memory.
    fn pin_infallibly(&self) -> Arc<Handle> {
        self.pin().expect("memory for a snapshot")
    }

    /// Whether it was opened for changes.
    pub fn is_writable(&self) -> bool {
        self.opened.writable
    }

    /// Make the calls that now run on this file, in any thread, give up waiting for locks and stop long reads: they
    /// fail with [`Status::Interrupted`].
    pub fn interrupt(&self) {
        // SAFETY: an open handle; st_interrupt may be called at any time from anywhere.
        unsafe { sys::st_interrupt(self.handle.raw()) }
    }

    /// A handle that interrupts from elsewhere, and does not keep the file open. Calls on what was taken from the file and
    /// outlives it are interrupted by [`Snapshot::interrupt_handle`] and [`Tensor::interrupt_handle`].
    pub fn interrupt_handle(&self) -> Interrupt {
        Interrupt::of(&self.handle)
    }

    /// For calls of `libst-sys` beside those here. They keep to what `st.h` says, and this `File` alone closes, refreshes and
    /// releases it. A progress or a source that panics in such a call ends the call, and a log does not. The panic goes no
    /// further.
    pub fn as_raw(&self) -> *mut sys::st_file {
        self.handle.raw()
    }

    // -------------------------------------------------------------- catalogue

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.handle.count()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a tensor of that name.
    ///
    /// # Errors
    /// A shard that is not open yet is opened here. It fails as [`OpenOptions::open`] does.
    pub fn contains(&self, name: &str) -> Result<bool> {
        self.handle.contains(name)
    }

    /// The names, in the order of the tensors' places in the file. [`Snapshot::names`] copies none.
    /// For the names of a sharded checkpoint each of the two opens every shard.
    ///
    /// # Errors
    /// As [`File::tensors`].
    pub fn names(&self) -> Result<Vec<String>> {
        self.pin()?.names()
    }

    /// A tensor: its description, and the ways to its bytes. Reads nothing, unless its shard is to be opened.
    ///
    /// # Errors
    /// [`Status::NotFound`]; of a shard those of [`OpenOptions::open`].
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        Tensor::of(&self.pin()?, name)
    }

    /// Tensors of these names, in their order and all of one state. The shards behind a URL that have them are opened side
    /// by side, where calls of [`File::tensor`] wait for one shard after the other.
    ///
    /// # Errors
    /// As [`File::tensor`].
    pub fn tensors_by_name(&self, names: &[&str]) -> Result<Vec<Tensor>> {
        Tensor::each_of(&self.pin()?, names)
    }

    /// All tensors, in the order of their places in the file: the order to read them in.
    ///
    /// # Errors
    /// Shards that are not open yet are opened here. They fail as [`OpenOptions::open`] does.
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        Tensor::all_of(&self.pin()?)
    }

    /// The pairs of `__metadata__`, in the order of the header.
    pub fn metadata(&self) -> Vec<(String, String)> {
        self.pin_infallibly()
            .metadata()
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// One value of `__metadata__`.
    pub fn metadata_get(&self, key: &str) -> Option<String> {
        self.pin_infallibly().metadata_get(key).map(str::to_owned)
    }

    // ---------------------------------------------------------------- reading

    /// Copy a tensor's bytes.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::Io`], [`Status::FileChanged`], [`Status::Cancelled`], [`Status::Interrupted`].
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let pin = self.pin()?;
        pin.read(name, pin.describe(name)?.nbytes)
    }

    /// Copy a tensor's bytes to the start of `dst`.
    ///
    /// # Errors
    /// [`Status::BufferSize`] if `dst` is shorter than the tensor; what [`File::read`] answers.
    pub fn read_into(&self, name: &str, dst: &mut [u8]) -> Result<()> {
        if self.opened.writable {
            return self.handle.read_into(name, dst);
        }
        self.pin_until_refresh()?.read_into(name, dst) // which needs not hold what the handle shows
    }

    /// A part of a tensor, to read: [`s!`](crate::s) spells the ranges of its leading dimensions.
    ///
    /// # Errors
    /// [`Status::NotFound`]; [`Status::InvalidArgument`] for a step of 0; [`Status::OutOfRange`] for more ranges than
    /// dimensions; [`Status::Subbyte`] where 4- or 6-bit elements would be cut inside a byte.
    pub fn slice(&self, name: &str, ranges: &[Range]) -> Result<Slice> {
        self.tensor(name)?.slice(ranges)
    }

    /// A tensor's bytes where they lie, without a copy.
    ///
    /// # Errors
    /// [`Status::NotFound`]; without a mapping also [`Status::Io`] and [`Status::FileChanged`].
    ///
    /// # Safety
    /// Until the last use of the view nobody changes or truncates the file: no other process, no other handle, and no
    /// update through this one. (Files that are replaced as a whole, by renaming another over them, are fine: the
    /// view stays on the old one, which this `File` then keeps until [`File::release`]; a view of a [`Snapshot`] keeps it
    /// no longer than the snapshot lives.) A model that is only ever read keeps the promise.
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// # let file = libst::File::open(&path)?;
    /// // SAFETY: nobody writes to this file.
    /// let w = unsafe { file.view("w")? };
    /// assert_eq!((w.dtype(), w.shape(), w.data().len()), (libst::Dtype::F32, &[3, 2][..], 24));
    /// # Ok::<(), libst::Error>(())
    /// ```
    #[inline]
    pub unsafe fn view(&self, name: &str) -> Result<TensorView<'_>> {
        // SAFETY: the caller's promise.
        unsafe { self.handle.view(name) }
    }

    /// As [`File::view`], of bytes that are mapped: the view keeps their mapping, and may outlive the file. It keeps
    /// no descriptor, so many files may be closed whose views are in use.
    ///
    /// # Errors
    /// [`Status::Unsupported`] where the tensor does not lie in a mapping, and for a file of several shards;
    /// [`Status::NotFound`].
    ///
    /// # Safety
    /// As [`File::view`], until the last use of the view and its clones.
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// # let file = libst::File::open(&path)?;
    /// // SAFETY: nobody writes to this file.
    /// let w = unsafe { file.view_kept("w")? };
    /// drop(file);
    /// assert_eq!(w.data().len(), 24);
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub unsafe fn view_kept(&self, name: &str) -> Result<KeptView> {
        // SAFETY: the caller's promise.
        unsafe { KeptView::of(&*self.pin()?, name) }
    }

    /// A tensor's bytes, to be written by this process for itself: an optimiser steps on them, say. The file and other
    /// handles never see it, further views of this one do. Only of a file that was opened with
    /// [`Map::CopyOnWrite`](crate::Map::CopyOnWrite), or by [`File::reopen_copy_on_write`].
    ///
    /// To read or write through the pointer, all of this must hold:
    ///
    /// * the file is neither dropped nor [released](File::release);
    /// * no other thread uses these bytes;
    /// * while they are written there is no reference to them. Views of this file, of its snapshots and tensors, and
    ///   [`KeptView`]s give such;
    /// * nobody changes or truncates the file meanwhile. A patch by another process shows in pages that were not written
    ///   yet, and a truncation makes all pages behind the new end a signal.
    ///
    /// After an update through this file, or a [`File::refresh`], new views are of the file's bytes, at
    /// another address.
    ///
    /// # Errors
    /// [`Status::Unsupported`] for a file that was opened otherwise, whose views nobody may write; as [`File::view`].
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// let file = libst::OpenOptions::new().map(libst::Map::CopyOnWrite).open(&path)?;
    /// let b = file.view_raw("b")?;
    /// // SAFETY: nobody else uses the file.
    /// unsafe { (*b)[0] = 1 };
    /// # // SAFETY: as above.
    /// # assert_eq!(unsafe { (&*b).to_vec() }, [1, 9]);
    /// # assert_eq!(file.read("b")?, [8, 9]);
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn view_raw(&self, name: &str) -> Result<*mut [u8]> {
        if !self.opened.copy_on_write {
            let message = "views of this file are not to be written; open it with Map::CopyOnWrite";
            return Err(Error::new(Status::Unsupported, message));
        }
        self.handle.view_raw(name)
    }

    /// A tensor's bytes in memory that this file owns: read there by [`File::load`], or now. For files opened for
    /// reading, where nobody else can reach that memory. The view keeps it, and may outlive the file.
    ///
    /// # Errors
    /// [`Status::Unsupported`] for a file opened for changes, whose own commits would show in that memory. Also for one
    /// of [`Map::CopyOnWrite`](crate::Map::CopyOnWrite), whose views lie in the mapping. [`Status::NotFound`],
    /// [`Status::Io`], [`Status::FileChanged`].
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// let file = libst::File::open(&path)?;
    /// let w = file.view_owned("w")?;
    /// drop(file);
    /// assert_eq!(w.data().len(), 24);
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn view_owned(&self, name: &str) -> Result<OwnedView> {
        self.snapshot()?.view_owned(name)
    }

    // --------------------------------------------------------------- changing

    /// Replace a tensor, in place, as a transaction of its own: checked, locked, journalled, and durable on return.
    /// Dtype and shape must be those in the file.
    ///
    /// # Errors
    /// What [`Transaction::update`] and [`Transaction::commit`] answer; then the file is as it was, unless it is
    /// [`Status::NeedsRecovery`].
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// use libst::{Dtype, OpenOptions, TensorView};
    ///
    /// let file = OpenOptions::new().write(true).open(&path)?;
    /// file.update("w", TensorView::new(Dtype::F32, vec![3, 2], &[0; 24])?)?;
    /// assert_eq!(file.read("w")?, [0; 24]);
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn update(&self, name: &str, value: impl View) -> Result<()> {
        let update = |value: &sys::st_tensor| {
            // SAFETY: a name with its length, and a tensor whose data lives during the call.
            self.handle.call(|raw| unsafe { sys::st_update(raw, name.as_ptr().cast(), name.len(), value) })
        };
        with_value(value.dtype(), value.shape(), &value.data(), update)?
    }

    /// [`File::update`] with bytes alone: dtype and shape are those in the file.
    pub fn update_bytes(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let tensor = self.tensor(name)?;
        self.update(name, TensorView::of_parts(tensor.dtype(), tensor.shape(), bytes))
    }

    /// [`Transaction::update_slice`], durable on return: other workers may change other rows of the tensor meanwhile.
    ///
    /// # Errors
    /// What [`Transaction::update_slice`] and [`Transaction::commit`] answer.
    pub fn update_slice(&self, name: &str, ranges: &[Range], value: impl View) -> Result<()> {
        let mut change = self.begin()?;
        change.update_slice(name, ranges, value)?;
        change.commit()
    }

    /// [`Transaction::update_rows`], durable on return: `rows` in any order, of which others may be changed meanwhile.
    ///
    /// # Errors
    /// What [`Transaction::update_rows`] and [`Transaction::commit`] answer.
    pub fn update_rows(&self, name: &str, rows: &[i64], ranges: &[Range], value: impl View) -> Result<()> {
        let mut change = self.begin()?;
        change.update_rows(name, rows, ranges, value)?;
        change.commit()
    }

    /// Begin a transaction: several changes, all or none. Holds no lock until [`Transaction::commit`].
    /// [`TransactionOptions`] has choices.
    ///
    /// # Errors
    /// [`Status::ReadOnly`], [`Status::Poisoned`].
    pub fn begin(&self) -> Result<Transaction<'_>> {
        TransactionOptions::new().begin(self)
    }

    /// See the file as it is now: what others have committed, replaced files included. Exclusive, because it must not
    /// race with calls that look tensors up: share what is refreshed behind a `RwLock`, or open anew. To use a
    /// view by [`Snapshot::view`] or [`Tensor::view`] is to promise that there is none, unless the bytes are mapped.
    ///
    /// # Errors
    /// What opening may answer; [`Status::Unsupported`] while there is an [`OwnedView`] of it, in whose memory the bytes
    /// would be read anew. The file is then as it was.
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// let mut reader = libst::File::open(&path)?;
    /// let file = libst::OpenOptions::new().write(true).open(&path)?;
    /// let mut change = file.begin()?;
    /// change.delete("b")?;
    /// change.commit()?;
    /// assert_eq!((file.len(), reader.len()), (1, 2)); // a snapshot
    /// reader.refresh()?;
    /// assert_eq!(reader.len(), 1);
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn refresh(&mut self) -> Result<()> {
        let owned_views = self.handle.owned_views().lock(); // there comes none meanwhile
        if *owned_views > 0 {
            let message = format!("the file has {owned_views} owned views, whose bytes a refresh would change; drop them, or open it anew");
            return Err(Error::new(Status::Unsupported, message));
        }
        self.shown.take();
        // SAFETY: an open handle. What borrows it is dead, and no call takes an index of it. Pins go on as they are, but
        // for memory of the file's own: to view that by a pin is to promise that there is no refresh.
        self.handle.call(|raw| unsafe { sys::st_refresh(raw) })
    }

    /// Makes durable in the file what was committed with
    /// [`journal_only`](crate::TransactionOptions::journal_only). Dropping the file does so, too, and the next commit of the
    /// same bytes.
    ///
    /// # Errors
    /// [`Status::Busy`] while another process recovers or publishes the file; [`Status::NeedsRecovery`] if a sync fails:
    /// nothing is lost, and the next open finishes it; [`Status::Poisoned`].
    ///
    /// ```
    /// # let (_folder, path) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs"));
    /// # let file = libst::OpenOptions::new().write(true).open(&path)?;
    /// let mut change = libst::TransactionOptions::new().journal_only(true).begin(&file)?;
    /// change.update_bytes("b", &[1; 2])?;
    /// change.commit()?; // durable: after a crash the next open finishes it
    /// file.sync()?; // in the file, too
    /// # Ok::<(), libst::Error>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        // SAFETY: an open handle.
        self.handle.call(|raw| unsafe { sys::st_sync(raw) })
    }

    // ------------------------------------------------------------- observation

    /// What storage lies behind the file, how its data is reached, and why.
    pub fn info(&self) -> Result<IoInfo> {
        IoInfo::of(&self.handle)
    }

    /// What this handle has read, mapped, written and waited for so far.
    pub fn stats(&self) -> Result<Stats> {
        Stats::of(&self.handle)
    }
}

/// A URL without its user and query, which may be secrets. A name in a store may have a '?', and an '@'. Core does the
/// same: `tests/unit/base/shown_urls.inc`.
pub(crate) fn shown(path: &Path) -> Cow<'_, Path> {
    let url = path.to_string_lossy();
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    };
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return path.into();
    };
    let stores = ["s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf"];
    let is_name = stores.iter().any(|store| scheme.eq_ignore_ascii_case(store));
    let parts = ["sig=", "signature=", "token=", "versionid=", "generation=", "snapshot="];
    let end = match rest.find(if is_name { &['?'][..] } else { &['?', '#'][..] }) {
        Some(mark)
            if !is_name || parts.iter().any(|part| rest[mark..].to_ascii_lowercase().contains(part)) =>
        {
            mark
        }
        _ => rest.len(),
    };
    let rest = &rest[..end];
    let host = rest.split('/').next().unwrap_or(rest);
    let begin = match host.rfind('@') {
        Some(at) if !is_name || host[..at].contains(':') => at + 1,
        _ => 0,
    };
    let is_known = match host[begin..].split_once(':') {
        None => true,
        Some(("arn", _)) if is_name => true,
        Some((_, port)) => {
            !is_name && (host[begin..].starts_with('[') || port.bytes().all(|c| c.is_ascii_digit()))
        }
    };
    PathBuf::from(format!("{scheme}://{}", if is_known { &rest[begin..] } else { "..." })).into()
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &shown(&self.path))
            .field("opened", &self.opened)
            .field("tensors", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn of_a_url_nothing_is_shown_that_may_be_a_secret() {
        let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/unit/base/shown_urls.inc");
        // There is no repository around a published crate.
        let rows = std::fs::read_to_string(table).unwrap_or_default();
        for row in rows.lines().filter_map(|line| line.strip_prefix("{\"")?.strip_suffix("\"},")) {
            let (url, expected) = row.split_once("\", \"").unwrap();
            assert_eq!(*shown(Path::new(url)), *Path::new(expected), "{url}");
        }
        let url = Path::new(OsStr::from_bytes(b"az://box/\xff?sig=hidden"));
        assert_eq!(*shown(url), *Path::new("az://box/\u{fffd}"));
        let plain = Path::new(OsStr::from_bytes(b"\xff?sig=hidden"));
        assert_eq!(*shown(plain), *plain);
    }
}
