//! Names of st.h as the crate declares them, for tests that walk over all of them.

#![allow(dead_code, unused_macros)] // each test uses a part of it

#[macro_use]
mod generated;

pub use generated::INITIALISERS;

const DECLARATIONS: &str = include_str!("../../src/generated.rs");

pub fn functions() -> impl Iterator<Item = &'static str> {
    DECLARATIONS.lines().filter_map(|line| line.strip_prefix("    pub fn ")?.split('(').next())
}

/// Macros that stand for a number, and what Rust makes of it.
pub fn constants() -> impl Iterator<Item = (&'static str, i64)> {
    DECLARATIONS.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
        let (_, value) = rest.strip_suffix(';')?.split_once(" = ")?;
        Some((name, if value == "usize::MAX" { -1 } else { value.parse().unwrap() }))
    })
}

macro_rules! names {
    ($($name:ident { $($field:ident),* })*) => {
        &[$((stringify!($name), &[$(stringify!($field)),*])),*]
    };
}

pub const STRUCTS: &[(&str, &[&str])] = structs!(names);
