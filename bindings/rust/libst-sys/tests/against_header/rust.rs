//! Reads the declarations of this crate as text.

#![allow(dead_code)] // the tests of libst use a part of it

use crate::header::{Function, Struct};

pub const TYPES: &str = include_str!("../../src/types.rs");
pub const FUNCTIONS: &str = include_str!("../../src/functions.rs");
pub const CONSTANTS: &str = include_str!("../../src/constants.rs");

pub fn functions() -> Vec<Function> {
    after(FUNCTIONS, "pub fn ")
        .map(|text| {
            let text = text.split(';').next().unwrap();
            let (name, rest) = text.split_once('(').unwrap();
            signature(name, rest)
        })
        .collect()
}

pub fn callbacks() -> Vec<Function> {
    after(TYPES, "pub type ")
        .filter_map(|text| {
            let text = text.split(';').next().unwrap();
            let (name, rest) = text.split_once('=').unwrap();
            let rest = rest.trim().strip_prefix("Option<unsafe extern \"C\" fn(")?;
            Some(signature(name.trim(), rest.strip_suffix('>').unwrap()))
        })
        .collect()
}

/// Those with `#[repr(C)]`, opaque ones too.
pub fn structs() -> Vec<Struct> {
    after(TYPES, "#[repr(C)]")
        .map(|text| {
            let text = text.split_once("pub struct ").unwrap().1;
            let (name, rest) = text.split_once('{').unwrap();
            let fields = rest.split('}').next().unwrap().split(",\n").filter_map(|field| {
                let (name, ty) = field.trim().strip_prefix("pub ")?.split_once(':')?;
                Some((name.to_owned(), tidy(ty)))
            });
            Struct { name: name.trim().to_owned(), fields: fields.collect() }
        })
        .collect()
}

/// The numbers.
pub fn constants() -> Vec<(String, i64)> {
    after(CONSTANTS, "pub const ")
        .filter_map(|text| {
            let (name, rest) = text.split_once(':').unwrap();
            let value = rest.split_once('=').unwrap().1.split(';').next().unwrap();
            // As C's (long long) has it.
            let value = value.trim().replace('_', "").replace("usize::MAX", "-1");
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect()
}

fn signature(name: &str, rest: &str) -> Function {
    let (parameters, returns) = rest.rsplit_once(')').unwrap();
    let parameters = parameters.split(',').filter_map(|p| Some(tidy(p.split_once(':')?.1)));
    Function {
        name: name.to_owned(),
        parameters: parameters.collect(),
        returns: tidy(returns.trim().trim_start_matches("->")),
    }
}

fn after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1)
}

fn tidy(ty: &str) -> String {
    ty.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches(',').to_owned()
}
