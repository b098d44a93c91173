//! Sizes, alignments, offsets, constants and initialisers against what a C compiler makes of st.h, and the
//! initialisers also against the functions of the library.

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

/// The initialisers, and for each the function of the library that does the same.
macro_rules! initialisers {
    ($($name:ident $(= $init:ident)?;)*) => {
        fn rust_initialisers() -> BTreeMap<String, String> {
            BTreeMap::from([$((stringify!($name).to_owned(), format!("bytes {}", hex(&$name)))),*])
        }

        #[test]
        fn every_initialiser_equals_its_function() {
            $($(
                let mut filled = $name;
                // SAFETY: all fields take any bytes that a C program may put there.
                unsafe {
                    std::ptr::write_bytes((&mut filled as *mut _ as *mut u8).cast::<u8>(), 0, size_of_val(&filled));
                    $init(&mut filled, size_of_val(&filled));
                }
                assert_eq!(hex(&filled), hex(&$name), stringify!($init));
            )?)*
        }
    };
}

initialisers! {
    ST_RANGE_ALL;
    ST_ERROR_INFO_INIT = st_error_info_init;
    ST_OPEN_OPTIONS_INIT = st_open_options_init;
    ST_LOAD_OPTIONS_INIT = st_load_options_init;
    ST_TXN_OPTIONS_INIT = st_txn_options_init;
    ST_PLAN_INIT = st_plan_init;
    ST_SAVE_OPTIONS_INIT = st_save_options_init;
    ST_VERIFY_OPTIONS_INIT = st_verify_options_init;
    ST_RECOVER_OPTIONS_INIT = st_recover_options_init;
    ST_IO_INFO_INIT = st_io_info_init;
    ST_STATS_INIT = st_stats_init;
    ST_DIFF_OPTIONS_INIT = st_diff_options_init;
    ST_PATCH_OPTIONS_INIT = st_patch_options_init;
    ST_DELTA_INFO_INIT = st_delta_info_init;
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
    for (name, _) in st_h::CONSTANTS {
        writeln!(c, r#"printf("{name}\tvalue %lld\n", (long long)({name}));"#).unwrap();
    }
    for name in st_h::INITIALISERS {
        let of = name.strip_suffix("_INIT").map_or("st_range".to_owned(), str::to_lowercase);
        writeln!(c, r#"{{ const {of} s = {name}; printf("{name}\tbytes ");"#).unwrap();
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
    ours.extend(st_h::CONSTANTS.iter().map(|(name, value)| (name.to_string(), format!("value {value}"))));
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
