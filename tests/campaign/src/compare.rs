//! What the stock reader and libst say of the same bytes.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

use libst_sys::*;
use safetensors::{Dtype, SafeTensors};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// A tensor as a reader sees it. Offsets are from the beginning of the data.
#[derive(Debug, PartialEq, Eq)]
pub struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    begin: u64,
    end: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Contents {
    tensors: HashMap<Vec<u8>, Tensor>,
    metadata: HashMap<Vec<u8>, Vec<u8>>,
}

pub enum Verdict {
    BothRefuse,
    BothAccept,
    /// A difference that has a row in capi/README.md.
    Explained,
    Disagree(String),
}

thread_local! {
    static IN_STOCK: Cell<bool> = const { Cell::new(false) };
}

/// A panic of the stock reader is told with the verdict, and nowhere else.
pub fn quieten_stock() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !IN_STOCK.get() {
            usual(info);
        }
    }));
}

fn by_stock(bytes: &[u8]) -> Result<Contents, String> {
    IN_STOCK.set(true);
    let read = catch_unwind(AssertUnwindSafe(|| SafeTensors::read_metadata(bytes)));
    IN_STOCK.set(false);
    let (_, header) = read.map_err(|_| "it panicked".to_string())?.map_err(|e| e.to_string())?;
    let tensors = header.tensors().into_iter().map(|(name, info)| {
        let (begin, end) = info.data_offsets;
        let shape = info.shape.iter().map(|&d| d as u64).collect();
        (
            name.into_bytes(),
            Tensor { dtype: name_of(info.dtype), shape, begin: begin as u64, end: end as u64 },
        )
    });
    let metadata =
        header.metadata().iter().flatten().map(|(k, v)| (k.clone().into_bytes(), v.clone().into_bytes()));
    Ok(Contents { tensors: tensors.collect(), metadata: metadata.collect() })
}

fn name_of(dtype: Dtype) -> String {
    dtype.to_string()
}

/// Closes itself.
struct File(*mut st_file);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: open, and closed only here.
        unsafe { st_close(self.0) };
    }
}

/// # Safety
/// As `st_tensor` and `st_metadata_at` promise: `len` bytes are there.
unsafe fn bytes_at(at: *const core::ffi::c_char, len: usize) -> Vec<u8> {
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }.to_vec()
}

fn by_libst(bytes: &[u8]) -> Result<Contents, (st_status, String)> {
    let mut raw = ptr::null_mut();
    // SAFETY: the bytes outlive the handle; out parameters are valid; strings are copied while the handle lives.
    unsafe {
        let status = st_open_memory(bytes.as_ptr().cast(), bytes.len(), &mut raw);
        if status != ST_OK {
            return Err((status, CStr::from_ptr(st_last_error()).to_string_lossy().into_owned()));
        }
        let file = File(raw);
        let header = u64::from_le_bytes(bytes[..8].try_into().expect("it was accepted")) + 8;
        let mut contents = Contents { tensors: HashMap::new(), metadata: HashMap::new() };
        for i in 0..st_count(file.0) {
            let mut t: st_tensor = std::mem::zeroed();
            assert_eq!(st_at(file.0, i, 1, &mut t), ST_OK);
            let begin = t.file_offset - header;
            let shape = std::slice::from_raw_parts(t.shape, t.rank as usize).to_vec();
            let dtype = CStr::from_ptr(st_dtype_name(t.dtype)).to_string_lossy().into_owned();
            let tensor = Tensor { dtype, shape, begin, end: begin + t.nbytes };
            if contents.tensors.insert(bytes_at(t.name, t.name_len), tensor).is_some() {
                return Err((ST_OK, "it lists a name twice".into()));
            }
        }
        for i in 0..st_metadata_count(file.0) {
            let (mut key, mut key_len, mut value, mut value_len) = (ptr::null(), 0, ptr::null(), 0);
            assert_eq!(st_metadata_at(file.0, i, &mut key, &mut key_len, &mut value, &mut value_len), ST_OK);
            if contents.metadata.insert(bytes_at(key, key_len), bytes_at(value, value_len)).is_some() {
                return Err((ST_OK, "it lists a metadata key twice".into()));
            }
        }
        Ok(contents)
    }
}

/// Does the name of a tensor stand twice? Asked of JSON only.
fn has_duplicate_name(bytes: &[u8]) -> bool {
    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = bool;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
            let (mut seen, mut twice) = (HashSet::new(), false);
            while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
                twice |= !seen.insert(key);
            }
            Ok(twice)
        }
    }
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("stock accepted it")) as usize;
    serde_json::Deserializer::from_slice(&bytes[8..8 + n]).deserialize_map(Keys).unwrap_or(false)
}

pub fn compare(bytes: &[u8]) -> Verdict {
    match (by_stock(bytes), by_libst(bytes)) {
        (Err(_), Err((status, _))) if status != ST_OK && status != ST_E_INTERNAL => Verdict::BothRefuse,
        (Ok(stock), Ok(libst)) if stock == libst => Verdict::BothAccept,
        (Ok(_), Err((ST_E_DUPLICATE_NAME, _))) if has_duplicate_name(bytes) => Verdict::Explained,
        (Ok(stock), Ok(libst)) => {
            Verdict::Disagree(format!("they read different things:\n  {stock:?}\n  {libst:?}"))
        }
        (Ok(_), Err((status, why))) => {
            Verdict::Disagree(format!("stock accepts, libst refuses ({status}): {why}"))
        }
        (Err(why), Ok(_)) => Verdict::Disagree(format!("libst accepts, stock refuses: {why}")),
        (Err(_), Err((status, why))) => {
            Verdict::Disagree(format!("both refuse, but libst by {status}: {why}"))
        }
    }
}
