//! What the tests share: files, random numbers, locks of other workers, children.

#![allow(dead_code)] // each test uses its part

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use safetensors::Dtype as TheirDtype;

pub use libst::*;

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// A tensor for the `safetensors` crate to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub dtype: TheirDtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Sample {
    pub fn new(dtype: TheirDtype, shape: &[usize], random: &mut Random) -> Sample {
        let bits = shape.iter().product::<usize>() * dtype.bitsize();
        assert_eq!(bits % 8, 0);
        Sample { dtype, shape: shape.to_vec(), data: random.bytes(bits / 8) }
    }
}

impl safetensors::View for &Sample {
    fn dtype(&self) -> TheirDtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        (&self.data).into()
    }
    fn data_len(&self) -> usize {
        self.data.len()
    }
}

/// The same names and values for the trait of libst.
impl View for &Sample {
    fn dtype(&self) -> Dtype {
        self.dtype.to_string().parse().unwrap()
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        (&self.data).into()
    }
    fn data_len(&self) -> usize {
        self.data.len()
    }
}

pub const THEIR_DTYPES: &[TheirDtype] = &[
    TheirDtype::BOOL,
    TheirDtype::F4,
    TheirDtype::F6_E2M3,
    TheirDtype::F6_E3M2,
    TheirDtype::U8,
    TheirDtype::I8,
    TheirDtype::F8_E5M2,
    TheirDtype::F8_E4M3,
    TheirDtype::F8_E8M0,
    TheirDtype::F8_E4M3FNUZ,
    TheirDtype::F8_E5M2FNUZ,
    TheirDtype::I16,
    TheirDtype::U16,
    TheirDtype::F16,
    TheirDtype::BF16,
    TheirDtype::I32,
    TheirDtype::U32,
    TheirDtype::F32,
    TheirDtype::C64,
    TheirDtype::F64,
    TheirDtype::I64,
    TheirDtype::U64,
];

pub type Samples = HashMap<String, Sample>;

/// A file in a folder of its own, written by the `safetensors` crate.
pub struct Model {
    pub samples: Samples,
    pub metadata: HashMap<String, String>,
    pub path: PathBuf,
    folder: tempfile::TempDir,
}

impl Model {
    pub fn new(samples: Samples, metadata: HashMap<String, String>) -> Model {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        safetensors::serialize_to_file(&samples, Some(metadata.clone()), &path).unwrap();
        Model { samples, metadata, path, folder }
    }

    /// Every dtype, a scalar, tensors without elements, names that are peculiar.
    pub fn random(seed: u64) -> Model {
        let mut random = Random::new(seed);
        let mut samples = Samples::new();
        for &dtype in THEIR_DTYPES {
            let mut shape: Vec<usize> = (0..random.below(4)).map(|_| random.below(5)).collect();
            shape.push(4 * random.below(9)); // so that 4 and 6 bits fill bytes
            samples.insert(format!("layer.{dtype}.{seed}"), Sample::new(dtype, &shape, &mut random));
        }
        for name in ["", "scalar", "nul\0inside", "\0", "größe/張量 🦀", "quote\"\\\n\t\u{1}"] {
            samples.insert(name.to_owned(), Sample::new(TheirDtype::F64, &[], &mut random));
        }
        samples.insert("nothing".to_owned(), Sample::new(TheirDtype::BF16, &[3, 0, 2], &mut random));
        let pairs = (0..random.below(5)).map(|i| (format!("key\0{i}"), format!("välue {i}\0")));
        let metadata = pairs.collect();
        Model::new(samples, metadata)
    }

    /// `w` (F32 [64, 96]), `b` (U8 [7]) and `v` (I64 [1000]).
    pub fn plain() -> Model {
        let mut random = Random::new(7);
        let samples = [
            ("w", TheirDtype::F32, vec![64, 96]),
            ("b", TheirDtype::U8, vec![7]),
            ("v", TheirDtype::I64, vec![1000]),
        ];
        let samples =
            samples.map(|(name, dtype, shape)| (name.to_owned(), Sample::new(dtype, &shape, &mut random)));
        Model::new(samples.into(), HashMap::from([("made by".to_owned(), "a test".to_owned())]))
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    pub fn writable(&self) -> File {
        OpenOptions::new().write(true).open(&self.path).unwrap()
    }

    pub fn data(&self, name: &str) -> &[u8] {
        &self.samples[name].data
    }

    /// All that the `safetensors` crate finds in the file.
    pub fn now(&self) -> (Samples, HashMap<String, String>) {
        read_by_them(&self.path)
    }

    /// What lies beside the file.
    pub fn others(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.path()).unwrap().map(|e| e.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| name != "model.safetensors").collect()
    }

    /// Whether the `safetensors` crate finds exactly these bytes in the file.
    pub fn holds(&self, expected: &[(&str, &[u8])]) -> bool {
        let bytes = self.bytes();
        let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        expected.iter().all(|(name, data)| theirs.tensor(name).unwrap().data() == *data)
    }

    pub fn journals(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("model.safetensors.st-journal");
        std::fs::read_dir(folder).map_or(Vec::new(), |entries| entries.map(|e| e.unwrap().path()).collect())
    }
}

/// A file as the `safetensors` crate reads it: its tensors and its metadata.
pub fn read_by_them(path: &Path) -> (Samples, HashMap<String, String>) {
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let sample = |view: &safetensors::tensor::TensorView<'_>| Sample {
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        data: view.data().to_vec(),
    };
    let samples = theirs.tensors().iter().map(|(name, view)| (name.clone(), sample(view))).collect();
    (samples, header.metadata().clone().unwrap_or_default())
}

/// The real model that LIBST_TEST_MODEL names, copied; else one of the same kind, made by the `safetensors` crate.
pub fn real_model() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    match std::env::var_os("LIBST_TEST_MODEL") {
        Some(model) => {
            std::fs::copy(&model, &path).unwrap_or_else(|e| panic!("LIBST_TEST_MODEL is {model:?}: {e}"));
        }
        None => {
            eprintln!("LIBST_TEST_MODEL is not set: a generated file stands in for the real model");
            let mut random = Random::new(16);
            let shapes = [("conv1.weight", vec![128, 129, 3]), ("lstm_cell.weight_ih", vec![512, 128])];
            let samples: Samples = shapes
                .map(|(name, shape)| (name.to_owned(), Sample::new(TheirDtype::F32, &shape, &mut random)))
                .into();
            safetensors::serialize_to_file(&samples, None, &path).unwrap();
        }
    }
    (folder, path)
}

/// The indices that Python's `range(*slice(start, stop, step).indices(n))` gives.
pub fn indices(start: Option<i64>, stop: Option<i64>, step: i64, n: usize) -> Vec<usize> {
    let n = n as i128;
    let step = i128::from(step);
    let (low, high) = if step < 0 { (-1, n - 1) } else { (0, n) };
    let place = |end: i64| {
        let end = i128::from(end);
        (if end < 0 { end + n } else { end }).clamp(low, high)
    };
    let mut at = start.map_or(if step < 0 { high } else { low }, place);
    let stop = stop.map_or(if step < 0 { low } else { high }, place);
    let mut all = Vec::new();
    while if step < 0 { at > stop } else { at < stop } {
        all.push(at as usize);
        at += step;
    }
    all
}

/// An exclusive open-file-description lock on a file, as another worker's commit holds it.
pub struct Lock(std::fs::File);

impl Lock {
    pub fn hold(path: &Path) -> Lock {
        Lock::hold_part(path, 0, 0)
    }

    /// A lock of so many bytes; 0 is all to the end.
    pub fn hold_part(path: &Path, begin: u64, length: usize) -> Lock {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        // SAFETY: all zeros is a flock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as _;
        lock.l_whence = libc::SEEK_SET as _;
        (lock.l_start, lock.l_len) = (begin as _, length as _);
        // SAFETY: an open descriptor and a flock.
        let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
        Lock(file)
    }
}

/// A forked child, killed when dropped.
pub struct Child(pub libc::pid_t);

impl Child {
    /// Runs `body` in a child, which ends with the status that it answers.
    pub fn fork(body: impl FnOnce() -> i32) -> Child {
        // SAFETY: the child runs `body` and ends without the parent's destructors.
        match unsafe { libc::fork() } {
            -1 => panic!("{}", std::io::Error::last_os_error()),
            0 => {
                let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
                // SAFETY: ends the process.
                unsafe { libc::_exit(status) }
            }
            pid => Child(pid),
        }
    }

    pub fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: our child.
        let pid = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!(pid, self.0);
        std::mem::forget(self);
        if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            -libc::WTERMSIG(status)
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our child.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
