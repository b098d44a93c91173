//! Every declaration of this crate against st.h: names, signatures, fields. What the header gains fails here, by
//! name, until it is declared.

use std::collections::BTreeMap;

use crate::header::{self, Function, Struct};
use crate::rust;

fn by_name<T>(items: Vec<T>, name: impl Fn(&T) -> String) -> BTreeMap<String, T> {
    let count = items.len();
    let map: BTreeMap<_, _> = items.into_iter().map(|item| (name(&item), item)).collect();
    assert_eq!(map.len(), count, "something is declared twice");
    map
}

/// One complaint a line, none if they agree.
fn compare<T>(what: &str, c: Vec<T>, rust: Vec<T>, name: fn(&T) -> String, shape: fn(&T) -> String) {
    let (c, rust) = (by_name(c, name), by_name(rust, name));
    assert!(c.len() > 2, "st.h was not understood: {} of {what}", c.len());
    let mut complaints = Vec::new();
    for (name, declared) in &c {
        match rust.get(name) {
            None => complaints.push(format!("{name}: in st.h, not in libst-sys; it is {}", shape(declared))),
            Some(ours) if shape(ours) != shape(declared) => complaints.push(format!(
                "{name}: in st.h it is\n    {}\n  in libst-sys\n    {}",
                shape(declared),
                shape(ours)
            )),
            Some(_) => {}
        }
    }
    for name in rust.keys().filter(|name| !c.contains_key(*name)) {
        complaints.push(format!("{name}: in libst-sys, not in st.h"));
    }
    assert!(complaints.is_empty(), "{what}:\n  {}", complaints.join("\n  "));
}

fn signature(f: &Function) -> String {
    format!("{} parameters: ({}) -> {}", f.parameters.len(), f.parameters.join(", "), f.returns)
}

fn fields(s: &Struct) -> String {
    s.fields.iter().map(|(name, ty)| format!("{name}: {ty}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn every_function_is_declared_with_its_signature() {
    compare("functions", header::header().functions, rust::functions(), |f| f.name.clone(), signature);
}

#[test]
fn every_exported_symbol_is_a_function_of_the_header() {
    let Some(exported) = header::exported() else {
        eprintln!("skipped: st.map is only in the repository");
        return;
    };
    let declared: Vec<String> = header::header().functions.into_iter().map(|f| f.name).collect();
    assert!(exported.len() > 40);
    for name in &exported {
        assert!(declared.contains(name), "{name} is exported by st.map and not declared in st.h");
    }
    for name in &declared {
        assert!(exported.contains(name), "{name} is declared in st.h and not exported by st.map");
    }
}

#[test]
fn every_callback_is_declared_with_its_signature() {
    compare("callbacks", header::header().callbacks, rust::callbacks(), |f| f.name.clone(), signature);
}

#[test]
fn every_struct_has_the_fields_of_the_header() {
    let header = header::header();
    let opaque = header.opaque.into_iter().map(|name| Struct { name, fields: Vec::new() });
    let structs = header.structs.into_iter().chain(opaque).collect();
    compare("structs", structs, rust::structs(), |s| s.name.clone(), fields);
}

#[test]
fn the_parser_reads_what_st_h_may_come_to_hold() {
    let header = header::parse(
        "#define ST_A 1u /* one */\n\
         #define ST_B_INIT { (uint32_t)sizeof(st_b), \\\n 0 }\n\
         extern \"C\" {\n\
         typedef struct st_c st_c;\n\
         typedef struct st_b { uint32_t struct_size, flags; const char *const *names; char text[8]; } st_b;\n\
         typedef int (*st_d_fn)(void *user, const st_b *b);\n\
         int32_t st_e(st_c **out, const char *const *names, /* n */ size_t n);\n\
         void st_f(void);\n}",
    );
    assert_eq!(header.constants, ["ST_A"]);
    assert_eq!(header.initialisers, [("ST_B_INIT".to_owned(), "st_b".to_owned())]);
    assert_eq!(
        fields(&header.structs[0]),
        "struct_size: u32, flags: u32, names: *const *const c_char, text: [c_char; 8]"
    );
    assert_eq!(signature(&header.callbacks[0]), "2 parameters: (*mut c_void, *const st_b) -> c_int");
    assert_eq!(
        signature(&header.functions[0]),
        "3 parameters: (*mut *mut st_c, *const *const c_char, usize) -> i32"
    );
    assert_eq!(signature(&header.functions[1]), "0 parameters: () -> ");
}
