//! Sizes, alignments, offsets, constants and initialisers against what a C compiler makes of st.h.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of, size_of_val};
use std::path::{Path, PathBuf};
use std::process::Command;

use libst_sys::*;

#[macro_use]
mod st_h;

/// What Rust makes of the structs, in the words of the C program below.
macro_rules! layouts {
    ($($name:ident { $($field:ident),* $(,)? })*) => {
        fn rust_layout() -> BTreeMap<String, String> {
            let mut facts = BTreeMap::new();
            $(
                facts.insert(stringify!($name).to_owned(),
                             format!("size {} alignment {}", size_of::<$name>(), align_of::<$name>()));
                $(
                    facts.insert(concat!(stringify!($name), ".", stringify!($field)).to_owned(),
                                 format!("offset {}", offset_of!($name, $field)));
                )*
            )*
            facts
        }
    };
}

structs!(layouts);

fn hex<T>(value: &T) -> String {
    // SAFETY: the structs of st.h have no padding, so every byte is initialised.
    let bytes = unsafe { std::slice::from_raw_parts((value as *const T).cast::<u8>(), size_of_val(value)) };
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn rust_initialisers() -> BTreeMap<String, String> {
    BTreeMap::from([("ST_RANGE_ALL".to_owned(), format!("bytes {}", hex(&ST_RANGE_ALL)))])
}

macro_rules! set_up {
    ($($name:ident)*) => {
        const SET_UP: &[(&str, fn() -> String)] = &[$((stringify!($name), || hex(&$name::default()))),*];
    };
}
set_up! {
    st_error_info st_open_options st_txn_options st_plan st_save_options st_bulk_options st_delta_create_options
    st_delta_apply_options st_delta_info st_verify_options st_recover_options st_io_info st_stats st_source
}

#[test]
fn every_struct_that_a_caller_sets_up_is_zero_but_for_its_size() {
    let of_the_caller =
        |(name, fields): &&(&str, &[&str])| fields[0] == "struct_size" && *name != "st_report";
    let wanted: Vec<&str> = st_h::STRUCTS.iter().filter(of_the_caller).map(|(name, _)| *name).collect();
    let names: BTreeMap<_, _> = SET_UP.iter().copied().collect();
    assert_eq!(wanted.len(), names.len());
    for name in wanted {
        let bytes = names.get(name).unwrap_or_else(|| panic!("{name} has no Default"))();
        let size = u32::try_from(bytes.len() / 2).unwrap();
        let expected: String = size.to_ne_bytes().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(bytes[..8], expected, "{name}");
        assert!(bytes[8..].bytes().all(|digit| digit == b'0'), "{name}: {bytes}");
    }
}

/// A C program that prints one fact a line, "NAME<tab>FACT", for all that st.h declares.
fn c_program() -> String {
    let mut c = String::from("#include <st/st.h>\n#include <stdio.h>\nint main(void) {\n");
    for (name, fields) in st_h::STRUCTS {
        writeln!(c, "{{ struct a {{ char c; {name} s; }};").unwrap();
        writeln!(
            c,
            r#"printf("{name}\tsize %zu alignment %zu\n", sizeof({name}), offsetof(struct a, s)); }}"#
        )
        .unwrap();
        for field in *fields {
            writeln!(c, r#"printf("{name}.{field}\toffset %zu\n", offsetof({name}, {field}));"#).unwrap();
        }
    }
    for (name, _) in st_h::constants() {
        writeln!(c, r#"printf("{name}\tvalue %lld\n", (long long)({name}));"#).unwrap();
    }
    for name in st_h::INITIALISERS {
        assert_eq!(*name, "ST_RANGE_ALL", "an initialiser of which struct?");
        writeln!(c, r#"{{ const st_range s = {name}; printf("{name}\tbytes ");"#).unwrap();
        writeln!(
            c,
            "for (size_t i = 0; i < sizeof s; ++i) printf(\"%02x\", ((const unsigned char *)&s)[i]);"
        )
        .unwrap();
        writeln!(c, "puts(\"\"); }}").unwrap();
    }
    c + "return 0;\n}\n"
}

/// The folder that holds `st/st.h`: of this repository, else of the library that was found.
fn include_folder() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../capi/include");
    let found = [Some(repository), option_env!("LIBST_SYS_INCLUDE").map(PathBuf::from)];
    found.into_iter().flatten().find(|p| p.join("st/st.h").exists()).expect(
        "st/st.h is neither in this repository nor beside the library; the header is needed to compare with",
    )
}

fn c_facts() -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("probe.c"), folder.path().join("probe"));
    std::fs::write(&source, c_program()).unwrap();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut compile = cc::Build::new().target(&target).host(&target).opt_level(0).get_compiler().to_command();
    let compile = compile.arg("-I").arg(include_folder()).arg(&source).arg("-o").arg(&program);
    assert!(compile.status().expect("no C compiler").success(), "{compile:?}");
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    let facts = lines.lines().map(|line| line.split_once('\t').unwrap());
    facts.map(|(name, fact)| (name.to_owned(), fact.to_owned())).collect()
}

#[test]
fn everything_has_the_layout_and_the_value_that_c_gives_it() {
    let c = c_facts();
    let mut ours = rust_layout();
    ours.extend(rust_initialisers());
    ours.extend(st_h::constants().map(|(name, value)| (name.to_string(), format!("value {value}"))));
    let names: std::collections::BTreeSet<&String> = c.keys().chain(ours.keys()).collect();
    assert!(names.len() > 150);
    let complaints: Vec<String> = names
        .into_iter()
        .filter(|name| c.get(*name) != ours.get(*name))
        .map(|name| {
            let say = |fact: Option<&String>| fact.map_or("absent", |f| f.as_str()).to_owned();
            format!("{name}: in C {}, in Rust {}", say(c.get(name)), say(ours.get(name)))
        })
        .collect();
    assert!(complaints.is_empty(), "\n  {}", complaints.join("\n  "));
}
