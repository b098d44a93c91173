//! st.h against this crate: what the header gains fails here, by name, until the crate uses it or EXCUSED says why not.

#[path = "../../libst-sys/tests/st_h/mod.rs"]
mod st_h;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use libst::{Action, Direct, Dtype, Layout, Map, PlanKind, Prefetch, Status, Storage};
use libst_sys as sys;

/// The words of this crate's sources, without comments and unit tests.
fn words() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut words = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for line in code.lines().map(|line| line.split("//").next().unwrap()) {
            words.extend(line.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
        }
    }
    words
}

/// What of the C interface is not here, and why.
const EXCUSED: &[(&str, &str)] = &[
    ("st_last_error", "st_last_error_info tells that sentence too"),
    ("ST_VERSION_MAJOR", "of the header; libst::version is of the library that runs"),
    ("ST_VERSION_MINOR", "of the header; libst::version is of the library that runs"),
    ("ST_VERSION_PATCH", "of the header; libst::version is of the library that runs"),
    ("ST_LOG_ERROR", "Level::Error is what is neither information nor warning"),
    ("st_shard_io_info", "File::io_info is of the first shard, and nobody has asked for another's"),
    ("ST_RANGE_ALL", "Range::default(), or `..`"),
    ("ST_TIMEOUT_DEFAULT", "what is zero until lock_timeout() sets it"),
];

/// Every name is used or excused, and nothing is excused that is used or is no more.
fn check(what: &str, names: &BTreeSet<String>, is_it: fn(&str) -> bool) {
    assert!(names.len() > 5);
    let (words, excused) = (words(), BTreeMap::from_iter(EXCUSED.iter().copied()));
    let mut complaints = Vec::new();
    for name in names {
        match (words.contains(name), excused.get(name.as_str())) {
            (false, None) => {
                complaints.push(format!("{name}: in st.h, and libst neither uses it nor says why not"));
            }
            (true, Some(_)) => complaints.push(format!("{name}: used by libst, but excused here")),
            (false, Some(_)) | (true, None) => {}
        }
    }
    for name in excused.keys().filter(|name| is_it(name) && !names.contains(**name)) {
        complaints.push(format!("{name}: excused here, and not in st.h"));
    }
    assert!(complaints.is_empty(), "{what}:\n  {}", complaints.join("\n  "));
}

#[test]
fn every_function_is_covered_or_excused() {
    let names = st_h::functions().map(str::to_owned).collect();
    check("functions", &names, |name| name.starts_with("st_"));
}

#[test]
fn every_constant_is_covered_or_excused() {
    let numbers = st_h::constants().map(|(name, _)| name);
    let names = numbers.chain(st_h::INITIALISERS.iter().copied()).map(str::to_owned).collect();
    check("constants", &names, |name| name.starts_with("ST_"));
}

#[test]
fn every_field_is_covered_or_excused() {
    let words = words();
    let mut complaints = Vec::new();
    for (of, fields) in st_h::STRUCTS {
        for &field in *fields {
            let name = format!("{of}.{field}");
            // Their Default sets these, and the library looks after them.
            let of_the_interface = field == "struct_size" || field.starts_with("reserved");
            if !of_the_interface && !words.contains(field) {
                complaints.push(format!("{name}: in st.h, and libst does not use it"));
            }
        }
    }
    assert!(complaints.is_empty(), "fields:\n  {}", complaints.join("\n  "));
}

fn constants(prefix: &str) -> Vec<(&'static str, i64)> {
    let found: Vec<_> = st_h::constants().filter(|(name, _)| name.starts_with(prefix)).collect();
    assert!(!found.is_empty(), "{prefix}");
    found
}

#[test]
fn every_status_has_its_variant_and_name() {
    let constants = constants("ST_E_");
    assert_eq!(constants.len(), Status::ALL.len());
    for (name, code) in constants {
        let status = Status::from_code(code as i32);
        assert!(!matches!(status, Status::Other(_)), "{name} has no variant");
        assert_eq!((status.code(), status.name()), (code as i32, name));
    }
    assert_eq!(Status::from_code(9999), Status::Other(9999));
    assert_eq!(Status::Other(9999).name(), "ST_E_UNKNOWN");
}

#[test]
fn every_dtype_has_its_variant_name_and_size() {
    let constants = constants("ST_DTYPE_");
    assert_eq!(constants.len(), Dtype::ALL.len());
    for (name, code) in constants {
        let dtype = Dtype::from_code(code as u32);
        assert!(!matches!(dtype, Dtype::Other(_)), "{name} has no variant");
        assert_eq!(dtype.code(), code as u32);
        assert_eq!(dtype.name(), name.strip_prefix("ST_DTYPE_").unwrap());
        assert_eq!(dtype.name().parse::<Dtype>().unwrap(), dtype);
        // SAFETY: they take any number, and answer a static string.
        let theirs = unsafe {
            (std::ffi::CStr::from_ptr(sys::st_dtype_name(dtype.code())), sys::st_dtype_bits(dtype.code()))
        };
        assert_eq!((theirs.0.to_str().unwrap(), theirs.1 as usize), (dtype.name(), dtype.bitsize()));
    }
    assert_eq!((Dtype::Other(9999).name(), Dtype::Other(9999).bitsize()), ("unknown", 0));
    for wrong in ["f32", "", "F32\0", "F33"] {
        assert_eq!(wrong.parse::<Dtype>().unwrap_err().status(), Status::Dtype, "{wrong:?}");
    }
}

macro_rules! every_number_has_its_variant {
    ($($test:ident: $ty:ident, $prefix:literal;)*) => {
        $(#[test]
        fn $test() {
            for (name, code) in constants($prefix) {
                let variant = $ty::from_code(code as u32);
                assert!(!matches!(variant, $ty::Other(_)), "{name} has no variant");
                assert_eq!(variant.code(), code as u32);
            }
            assert_eq!($ty::from_code(9999), $ty::Other(9999));
        })*
    };
}

every_number_has_its_variant! {
    every_action_has_its_variant: Action, "ST_ACTION_";
    every_mapping_has_its_variant: Map, "ST_MAP_";
    every_storage_has_its_variant: Storage, "ST_STORAGE_";
    every_prefetch_has_its_variant: Prefetch, "ST_PREFETCH_";
    every_direct_has_its_variant: Direct, "ST_DIRECT_";
    every_layout_has_its_variant: Layout, "ST_LAYOUT_";
    every_plan_has_its_variant: PlanKind, "ST_PLAN_";
}
