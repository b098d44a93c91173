//! Valid headers, spelled in as many ways as JSON allows.

use fastrand::Rng;

use crate::tree::Node;

pub const DTYPES: [(&str, u64); 22] = [
    ("BOOL", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("I16", 16),
    ("U16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("I32", 32),
    ("U32", 32),
    ("F32", 32),
    ("C64", 64),
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
];

const NAME_PARTS: [&str; 26] = [
    "model",
    "layers",
    "weight",
    "bias",
    ".",
    "/",
    " ",
    "0",
    "17",
    "é",
    "e\u{301}",
    "層",
    "😀",
    "\u{10ffff}",
    "\0",
    "\n",
    "\t",
    "\"",
    "\\",
    "\u{7f}",
    "\u{2028}",
    "__metadata__",
    "dtype",
    "{",
    "\u{feff}",
    "\u{ffff}",
];

pub struct Valid {
    pub header: Node,
    pub data_bytes: u64,
}

pub fn pick<'a, T: ?Sized>(r: &mut Rng, from: &[&'a T]) -> &'a T {
    from[r.usize(..from.len())]
}

pub fn text(r: &mut Rng) -> String {
    (0..r.usize(..4)).map(|_| pick(r, &NAME_PARTS)).collect()
}

/// `s` as a JSON string: any character may be escaped, some must be.
pub fn spell(r: &mut Rng, s: &str) -> Vec<u8> {
    let mut out = vec![b'"'];
    let escapes = r.u8(..8) == 0;
    for c in s.chars() {
        let must = c == '"' || c == '\\' || c < ' ';
        if !must && !(escapes && r.u8(..4) == 0) {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let short = match c {
            '"' | '\\' | '/' => Some(c),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            _ => None,
        };
        if let (Some(short), true) = (short, r.bool()) {
            out.extend_from_slice(&[b'\\', short as u8]);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let hex = if r.bool() { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
                out.extend_from_slice(hex.as_bytes());
            }
        }
    }
    out.push(b'"');
    out
}

fn shape(r: &mut Rng, bits: u64) -> (Vec<u64>, u64) {
    loop {
        let mut dims: Vec<u64> =
            (0..[0, 1, 1, 2, 2, 3][r.usize(..6)]).map(|_| [0, 1, 1, 2, 3, 4, 5, 8][r.usize(..8)]).collect();
        if dims.contains(&0) && r.u8(..4) == 0 {
            dims.push([1 << 32, 1 << 61, u64::MAX][r.usize(..3)]); // behind the 0 it costs nothing
        }
        // As the reference multiplies: in this order, in bits.
        let bytes = dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).and_then(|n| n.checked_mul(bits));
        match bytes {
            Some(n) if n % 8 == 0 && n <= 2048 => return (dims, n / 8),
            _ => continue,
        }
    }
}

/// A value that no reader looks at.
pub fn junk(r: &mut Rng, depth: u32) -> Node {
    match r.u8(..if depth < 4 { 7 } else { 5 }) {
        0 => Node::scalar("null"),
        1 => Node::scalar(pick(r, &["true", "false"])),
        2 => {
            let s = text(r);
            Node::Scalar(spell(r, &s))
        }
        3 => Node::scalar(pick(r, &["0", "-1", "18446744073709551616", "-99999999999999999999", "7"])),
        4 => Node::scalar(pick(r, &["1.5", "-0.0", "1e300", "2E-400", "1.25e+3", "0e9", "-0"])),
        5 => Node::Array((0..r.usize(..4)).map(|_| junk(r, depth + 1)).collect()),
        _ => Node::Object(
            (0..r.usize(..4))
                .map(|_| {
                    let key = text(r);
                    (spell(r, &key), junk(r, depth + 1))
                })
                .collect(),
        ),
    }
}

fn entry(r: &mut Rng, dtype: &str, shape: &[u64], begin: u64, end: u64) -> Node {
    let spelled = spell(r, dtype);
    let dtype = if r.u8(..20) == 0 {
        Node::Object(vec![(spelled, Node::scalar("null"))]) // serde's other spelling of an enum
    } else {
        Node::Scalar(spelled)
    };
    let (shape, offsets) = (Node::numbers(shape), Node::numbers(&[begin, end]));
    if r.u8(..30) == 0 {
        return Node::Array(vec![dtype, shape, offsets]); // and of a struct
    }
    let mut fields =
        vec![(spell(r, "dtype"), dtype), (spell(r, "shape"), shape), (spell(r, "data_offsets"), offsets)];
    if r.u8(..10) == 0 {
        let key = pick(r, &["strides", "Dtype", "", "note"]);
        fields.push((spell(r, key), junk(r, 0)));
    }
    if r.bool() {
        r.shuffle(&mut fields);
    }
    Node::Object(fields)
}

pub fn valid(r: &mut Rng) -> Valid {
    let mut names = Vec::new();
    for _ in 0..[0, 1, 1, 2, 3, 5, 8][r.usize(..7)] {
        let name = text(r);
        if name != "__metadata__" && !names.contains(&name) {
            names.push(name);
        }
    }
    let mut at = 0;
    let mut pairs = Vec::new();
    for name in &names {
        let (dtype, bits) = DTYPES[r.usize(..DTYPES.len())];
        let (shape, bytes) = shape(r, bits);
        pairs.push((spell(r, name), entry(r, dtype, &shape, at, at + bytes)));
        at += bytes;
    }
    match r.u8(..8) {
        0..=3 => {
            let count = r.usize(..4);
            let metadata = (0..count)
                .map(|_| {
                    let (key, value) = (text(r), text(r));
                    (spell(r, &key), Node::Scalar(spell(r, &value)))
                })
                .collect();
            pairs.push((spell(r, "__metadata__"), Node::Object(metadata)));
        }
        4 => pairs.push((spell(r, "__metadata__"), Node::scalar("null"))),
        _ => {}
    }
    if r.bool() {
        r.shuffle(&mut pairs);
    }
    Valid { header: Node::Object(pairs), data_bytes: at }
}

/// Between tokens: mostly nothing, in some files a lot.
pub fn spacer(r: &mut Rng) -> impl FnMut(&mut Vec<u8>) {
    let airy = r.u8(..4) == 0;
    let mut r = r.fork();
    move |out| {
        if airy {
            for _ in 0..r.usize(..3) {
                out.push(b" \n\t\r"[r.usize(..4)]);
            }
        }
    }
}
