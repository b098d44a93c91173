//! Reads `st/st.h` and `st.map` as text, as far as they are written today, and says what they declare in
//! the words of Rust. Stops with a sentence at anything it does not understand, so nothing is passed over.

#![allow(dead_code)] // the tests of libst use a part of it

use std::path::{Path, PathBuf};

/// A function, or a callback type.
#[derive(Debug, Clone)]
pub struct Function {
    pub name: String,
    pub parameters: Vec<String>, // their types in Rust
    pub returns: String,         // "" for void
}

#[derive(Debug, Clone)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<(String, String)>, // name, type in Rust
}

#[derive(Debug, Default)]
pub struct Header {
    pub functions: Vec<Function>,
    pub callbacks: Vec<Function>,
    pub structs: Vec<Struct>,
    pub opaque: Vec<String>,
    pub aliases: Vec<(String, String)>,
    /// Macros that stand for a number.
    pub constants: Vec<String>,
    /// Macros that stand for an initialiser, and their structs' names.
    pub initialisers: Vec<(String, String)>,
}

/// The folder that holds `st/st.h`: of this repository, else of the library that was found.
pub fn include_folder() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../capi/include");
    let found = [Some(repository), option_env!("LIBST_SYS_INCLUDE").map(PathBuf::from)];
    found.into_iter().flatten().find(|p| p.join("st/st.h").exists()).expect(
        "st/st.h is neither in this repository nor beside the library; the header is needed to compare with",
    )
}

pub fn header() -> Header {
    let path = include_folder().join("st/st.h");
    parse(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// What the version script exports, under whatever version; None outside the repository.
pub fn exported() -> Option<Vec<String>> {
    let text = std::fs::read_to_string(include_folder().join("../st.map")).ok()?;
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    Some(words.filter(|w| w.starts_with("st_")).map(str::to_owned).collect())
}

pub fn parse(text: &str) -> Header {
    let text = without_comments(text).replace("\\\n", " ");
    let mut header = Header::default();
    let mut declarations = String::new();
    for line in text.lines() {
        match line.trim().strip_prefix('#') {
            Some(directive) => define(directive, &mut header),
            None => {
                declarations.push_str(line);
                declarations.push('\n');
            }
        }
    }
    let declarations = declarations.replacen("extern \"C\" {", "", 1);
    let mut statement = Vec::new();
    let mut depth = 0;
    for token in tokens(&declarations) {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth == 0 => continue, // of extern "C"
            "}" => depth -= 1,
            ";" if depth == 0 => {
                declare(&std::mem::take(&mut statement), &mut header);
                continue;
            }
            _ => {}
        }
        statement.push(token);
    }
    assert!(statement.is_empty(), "st.h ends inside a declaration: {statement:?}");
    header
}

fn define(directive: &str, header: &mut Header) {
    let Some(rest) = directive.trim().strip_prefix("define ") else { return };
    let (name, value) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    if value.is_empty() {
        return; // the include guard
    }
    if value.trim().starts_with('{') {
        let of = match name.strip_suffix("_INIT") {
            Some(stem) => stem.to_lowercase(),
            None if name == "ST_RANGE_ALL" => "st_range".to_owned(),
            None => panic!("{name}: an initialiser of which struct?"),
        };
        header.initialisers.push((name.to_owned(), of));
    } else {
        header.constants.push(name.to_owned());
    }
}

fn declare(tokens: &[String], header: &mut Header) {
    let words: Vec<&str> = tokens.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {}
        ["typedef", "struct", name, alias] => {
            assert_eq!(name, alias);
            header.opaque.push((*name).to_owned());
        }
        ["typedef", "struct", name, "{", fields @ .., "}", alias] => {
            assert_eq!(name, alias);
            let fields = fields.split(|t| *t == ";").filter(|f| !f.is_empty()).flat_map(declarators);
            header.structs.push(Struct { name: (*name).to_owned(), fields: fields.collect() });
        }
        ["typedef", rest @ ..] if rest.contains(&"(") => {
            let open = rest.iter().position(|t| *t == "(").unwrap();
            let [ret @ .., "(", "*", name, ")"] = &rest[..open + 4] else { panic!("what is {words:?}?") };
            header.callbacks.push(function(name, ret, &rest[open + 4..]));
        }
        ["typedef", ty @ .., name] => header.aliases.push(((*name).to_owned(), rust_type(ty))),
        _ => {
            let open = words.iter().position(|t| *t == "(").unwrap_or_else(|| panic!("what is {words:?}?"));
            header.functions.push(function(words[open - 1], &words[..open - 1], &words[open..]));
        }
    }
}

fn function(name: &str, returns: &[&str], parameters: &[&str]) -> Function {
    let ["(", inner @ .., ")"] = parameters else {
        panic!("what are the parameters {parameters:?} of {name}?")
    };
    assert!(!inner.contains(&"("), "{name}: a function pointer needs a typedef");
    let parameters = match inner {
        ["void"] => Vec::new(),
        _ => inner.split(|t| *t == ",").map(|p| rust_type(&p[..p.len() - 1])).collect(),
    };
    let returns = if returns == ["void"] { String::new() } else { rust_type(returns) };
    Function { name: name.to_owned(), parameters, returns }
}

/// `uint64_t a, b` and `char c[64]`.
fn declarators(field: &[&str]) -> Vec<(String, String)> {
    let parts = field.split(|t| *t == ",");
    let mut base: &[&str] = &[];
    let mut fields = Vec::new();
    for part in parts {
        let (part, size) = match part {
            [part @ .., "[", size, "]"] => (part, Some(*size)),
            part => (part, None),
        };
        let (name, ty) = part.split_last().unwrap();
        if !ty.is_empty() {
            base = ty;
        }
        assert!(ty.is_empty() || fields.is_empty(), "what is {field:?}?");
        let ty = match size {
            Some(size) => format!("[{}; {size}]", rust_type(base)),
            None => rust_type(base),
        };
        fields.push(((*name).to_owned(), ty));
    }
    fields
}

/// `const char *const *` is `*const *const c_char`.
pub fn rust_type(c: &[&str]) -> String {
    let mut ty = String::new();
    let mut is_const = false;
    for token in c {
        match *token {
            "const" => is_const = true,
            "*" => ty = format!("*{} {ty}", if std::mem::take(&mut is_const) { "const" } else { "mut" }),
            base => {
                assert!(ty.is_empty(), "what type is {c:?}?");
                ty = match base {
                    "char" => "c_char",
                    "void" => "c_void",
                    "int" => "c_int",
                    "size_t" => "usize",
                    "int32_t" => "i32",
                    "uint32_t" => "u32",
                    "int64_t" => "i64",
                    "uint64_t" => "u64",
                    own => {
                        assert!(own.starts_with("st_"), "what type is {own}?");
                        own
                    }
                }
                .to_owned();
            }
        }
    }
    ty
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some(begin) = rest.find("/*") {
        out.push_str(&rest[..begin]);
        out.push(' ');
        rest = &rest[begin + rest[begin..].find("*/").expect("a comment that does not end") + 2..];
    }
    out + rest
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in text.chars() {
        let word = c.is_alphanumeric() || c == '_';
        match tokens.last_mut() {
            Some(last) if word && in_word => last.push(c),
            _ if !c.is_whitespace() => tokens.push(c.to_string()),
            _ => {}
        }
        in_word = word;
    }
    tokens
}
