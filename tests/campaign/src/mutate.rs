//! Damage, from a byte to the meaning of a header. Each kind leaves some files valid, so that contents are compared,
//! too, and not only refusals.

use fastrand::Rng;

use crate::generate::{junk, pick, spacer, spell, text, valid, DTYPES};
use crate::tree::Node;

/// A file: its bytes, and which kind of damage was done.
pub struct Mutant {
    pub kind: usize,
    pub bytes: Vec<u8>,
}

/// A header under way to a file.
struct Draft {
    header: Node,
    data_bytes: u64,
    raw: Vec<u8>,              // once spelled
    length_field: Option<u64>, // in place of the true one
}

type Damage = fn(&mut Rng, &mut Draft);

/// Before the tree is spelled, or after.
enum Stage {
    Tree(Damage),
    Bytes(Damage),
}

pub const KINDS: [&str; 14] = [
    "none, spelled anew",
    "bytes",
    "tokens",
    "values moved, doubled, dropped",
    "numbers at limits",
    "offsets",
    "strings and escapes",
    "dtypes",
    "metadata",
    "white space",
    "depth",
    "ignored numbers",
    "doubled keys",
    "length and size",
];

const DAMAGES: [Stage; 14] = [
    Stage::Tree(|_, _| {}),
    Stage::Bytes(bytes),
    Stage::Bytes(tokens),
    Stage::Tree(values),
    Stage::Tree(numbers),
    Stage::Tree(offsets),
    Stage::Tree(strings),
    Stage::Tree(dtypes),
    Stage::Tree(metadata),
    Stage::Bytes(white_space),
    Stage::Tree(depth),
    Stage::Tree(ignored_numbers),
    Stage::Tree(doubled_keys),
    Stage::Bytes(length_and_size),
];

const NUMBERS: [&str; 42] = [
    "0",
    "-0",
    "00",
    "01",
    "1",
    "2",
    "8",
    "1.0",
    "1e0",
    "0e5",
    "0.0",
    "0.5",
    "-1",
    "+1",
    "1e",
    "1.",
    ".5",
    "-",
    "1e999",
    "1e-999",
    "1E+2",
    "0x10",
    "1_0",
    "NaN",
    "Infinity",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "1152921504606846976",
    "2305843009213693951",
    "2305843009213693952",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551614",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709551625",
    "99999999999999999999",
    "1000000000000000000000000000000",
    "-9223372036854775808",
    "-9223372036854775809",
];

const VALUES: [&str; 16] = [
    "null",
    "true",
    "false",
    "nul",
    "\"\"",
    "\"F32\"",
    "\"0\"",
    "[]",
    "{}",
    "[[]]",
    "[0]",
    "[0,0]",
    "[0,0,0]",
    "{\"F32\":null}",
    "{\"\":0}",
    "'x'",
];

const STRINGS: [&[u8]; 30] = [
    b"\"\\u0000\"",
    b"\"\\ud800\"",
    b"\"\\udc00\"",
    b"\"\\ud83d\\ude00\"",
    b"\"\\ud83d\\ud83d\"",
    b"\"\\ud83dx\"",
    b"\"\\uD83D\\u0041\"",
    b"\"\\x41\"",
    b"\"\\u12\"",
    b"\"\\u12g4\"",
    b"\"\\\"",
    b"\"\\a\"",
    b"\"\\/\"",
    b"\"\\b\\f\"",
    b"\"\x01\"",
    b"\"\x1f\"",
    b"\"\x7f\"",
    b"\"\t\"",
    b"\"\n\"",
    b"\"\0\"",
    b"\"\xff\"",
    b"\"\xc0\x80\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xf4\x90\x80\x80\"",
    b"\"\xe2\x82\"",
    b"\"\xef\xbb\xbf\"",
    b"\"",
    b"x",
    b"\"a\"b\"",
    b"\"\\U0041\"",
];

const TOKENS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    " ",
    "\n",
    "\t",
    "\u{b}",
    "\0",
    "null",
    "true",
    "false",
    "nul",
    "NaN",
    "''",
    "/**/",
    "//",
    "\"\"",
    "\"a\"",
    "\"F32\"",
    "\"f32\"",
    "\"BF16\"",
    "\"F4\"",
    "\"U8\"",
    "\"dtype\"",
    "\"shape\"",
    "\"data_offsets\"",
    "\"__metadata__\"",
    "\"dtyp\\u0065\"",
    "{}",
    "[]",
    "{\"F32\":null}",
    "0",
    "-0",
    "1",
    "8",
    "18446744073709551615",
    "1e0",
];

fn one_of<T: Copy>(r: &mut Rng, from: &[T]) -> T {
    from[r.usize(..from.len())]
}

fn any_value(r: &mut Rng, header: &mut Node) -> Option<usize> {
    let n = header.count();
    (n > 1).then(|| 1 + r.usize(..n - 1))
}

/// The entries that are tensors: their places in the header.
fn tensors(header: &Node) -> Vec<usize> {
    let Node::Object(pairs) = header else { return Vec::new() };
    (0..pairs.len()).filter(|&i| !pairs[i].0.ends_with(b"__metadata__\"")).collect()
}

/// A field of a tensor at random.
fn field<'a>(r: &mut Rng, header: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let places = tensors(header);
    let Node::Object(pairs) = header else { return None };
    let place = *places.get(r.usize(..places.len().max(1)))?;
    let Node::Object(fields) = &mut pairs[place].1 else { return None };
    let quoted = format!("\"{key}\"");
    fields.iter_mut().find(|(k, _)| *k == quoted.as_bytes()).map(|(_, v)| v)
}

fn number_near(r: &mut Rng, token: &[u8]) -> Vec<u8> {
    let Ok(n) = String::from_utf8_lossy(token).parse::<u64>() else { return b"0".to_vec() };
    let near =
        [n.wrapping_add(1), n.wrapping_sub(1), n.wrapping_mul(2), n / 2, n ^ 8, n | 1 << 63, u64::MAX - n];
    one_of(r, &near).to_string().into_bytes()
}

fn bytes(r: &mut Rng, d: &mut Draft) {
    for _ in 0..one_of(r, &[1, 1, 1, 2, 4]) {
        let b = &mut d.raw;
        let at = r.usize(..b.len().max(1));
        match r.u8(..6) {
            0 if !b.is_empty() => b[at] ^= 1 << r.u8(..8),
            1 if !b.is_empty() => {
                b[at] = one_of(r, b"{}[]\":,\\ 0123456789-+.eEuntfa\x00\x1f\x7f\x80\xc0\xe2\xff")
            }
            2 => b.insert(at, one_of(r, b"{}[]\":,\\ 0123456789-+.eE\x00\xff")),
            3 if !b.is_empty() => {
                b.remove(at);
            }
            4 if b.len() > 1 => {
                let other = r.usize(..b.len());
                b.swap(at, other);
            }
            _ => {
                let end = (at + r.usize(1..20)).min(b.len());
                let piece = b[at..end].to_vec();
                b.splice(at..at, piece);
            }
        }
    }
}

/// Where JSON's tokens begin, roughly: what is no token counts a byte.
fn split(raw: &[u8]) -> Vec<Vec<u8>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < raw.len() {
        let begin = at;
        at += 1;
        if raw[begin] == b'"' {
            while at < raw.len() && raw[at] != b'"' {
                at += if raw[at] == b'\\' { 2 } else { 1 };
            }
            at = (at + 1).min(raw.len());
        } else if raw[begin].is_ascii_alphanumeric() || raw[begin] == b'-' {
            while at < raw.len() && (raw[at].is_ascii_alphanumeric() || b"+-.".contains(&raw[at])) {
                at += 1;
            }
        }
        tokens.push(raw[begin..at].to_vec());
    }
    tokens
}

fn tokens(r: &mut Rng, d: &mut Draft) {
    let mut tokens = split(&d.raw);
    for _ in 0..one_of(r, &[1, 1, 2, 3]) {
        let n = tokens.len().max(1);
        let (at, other) = (r.usize(..n), r.usize(..n));
        let fresh = pick(r, &TOKENS).as_bytes().to_vec();
        match r.u8(..6) {
            1 if !tokens.is_empty() => {
                tokens.remove(at);
            }
            2 if !tokens.is_empty() => tokens.swap(at, other),
            3 if !tokens.is_empty() => tokens[at] = tokens[other].clone(),
            4 if !tokens.is_empty() => tokens[at] = fresh,
            _ => tokens.insert(at.min(tokens.len()), fresh),
        }
    }
    d.raw = tokens.concat();
}

fn values(r: &mut Rng, d: &mut Draft) {
    for _ in 0..r.usize(1..3) {
        let (Some(a), Some(b)) = (any_value(r, &mut d.header), any_value(r, &mut d.header)) else { return };
        match r.u8(..5) {
            0 => *d.header.at(a) = d.header.at(b).clone(),
            1 => *d.header.at(a) = Node::scalar(pick(r, &VALUES)),
            2 => *d.header.at(a) = junk(r, 0),
            _ => match d.header.at(a) {
                Node::Scalar(token) => *token = number_near(r, token),
                Node::Array(items) if !items.is_empty() => {
                    let at = r.usize(..items.len());
                    match r.u8(..3) {
                        0 => drop(items.remove(at)),
                        1 => items.insert(at, items[at].clone()),
                        _ => r.shuffle(items),
                    }
                }
                Node::Object(pairs) if !pairs.is_empty() => {
                    let at = r.usize(..pairs.len());
                    match r.u8(..4) {
                        0 => drop(pairs.remove(at)),
                        1 => pairs.push(pairs[at].clone()),
                        2 => {
                            let key = text(r);
                            pairs[at].0 = spell(r, &key);
                        }
                        _ => {
                            let other = r.usize(..pairs.len());
                            let key = pairs[other].0.clone();
                            pairs[other].0 = std::mem::replace(&mut pairs[at].0, key);
                        }
                    }
                }
                Node::Array(items) => items.push(Node::scalar("0")),
                Node::Object(pairs) => pairs.push((b"\"x\"".to_vec(), Node::scalar("null"))),
            },
        }
    }
}

fn numbers(r: &mut Rng, d: &mut Draft) {
    for _ in 0..r.usize(1..3) {
        let key = pick(r, &["shape", "data_offsets"]);
        let Some(Node::Array(items)) = field(r, &mut d.header, key) else { continue };
        let at = r.usize(..items.len() + 1);
        if at == items.len() {
            if key == "shape" {
                items.push(Node::scalar(pick(r, &["1", "0", "2", "18446744073709551615", "01", "1.0"])));
            }
        } else if let Node::Scalar(token) = &mut items[at] {
            *token = if r.bool() { pick(r, &NUMBERS).as_bytes().to_vec() } else { number_near(r, token) };
        }
    }
}

fn offsets(r: &mut Rng, d: &mut Draft) {
    // Those of one tensor for another's: fine if both are empty or of one size.
    let mut tree = d.header.clone();
    let (Some(a), Some(b)) =
        (field(r, &mut tree, "data_offsets").cloned(), field(r, &mut d.header, "data_offsets"))
    else {
        return;
    };
    match r.u8(..4) {
        0 => *b = a,
        1 => {
            if let Node::Array(items) = b {
                items.reverse();
            }
        }
        2 => {
            let by = r.u64(..3) + 1;
            if let Node::Array(items) = b {
                for item in items {
                    if let Node::Scalar(token) = item {
                        let n = String::from_utf8_lossy(token).parse::<u64>().unwrap_or(0);
                        *token = n.wrapping_add(by).to_string().into_bytes();
                    }
                }
            }
        }
        _ => {
            // A tensor more: empty ones fit anywhere on an edge, others behind the last.
            let (at, n) = (r.u64(..d.data_bytes + 1), r.u64(..3));
            let at = if r.bool() { d.data_bytes } else { at };
            let fields = vec![
                (b"\"dtype\"".to_vec(), Node::scalar("\"U8\"")),
                (b"\"shape\"".to_vec(), Node::numbers(&[n])),
                (b"\"data_offsets\"".to_vec(), Node::numbers(&[at, at + n])),
            ];
            if let Node::Object(pairs) = &mut d.header {
                let place = r.usize(..pairs.len() + 1);
                pairs.insert(place, (b"\"one more\"".to_vec(), Node::Object(fields)));
            }
            d.data_bytes = d.data_bytes.max(at + n);
        }
    }
}

fn strings(r: &mut Rng, d: &mut Draft) {
    let odd = pick(r, &STRINGS).to_vec();
    let Some(at) = any_value(r, &mut d.header) else { return };
    match r.u8(..4) {
        0 => {
            if let Node::Object(pairs) = &mut d.header {
                let place = r.usize(..pairs.len().max(1));
                if let Some(pair) = pairs.get_mut(place) {
                    pair.0 = odd;
                }
            }
        }
        1 => {
            if let Node::Object(pairs) = &mut d.header {
                let pair =
                    (b"\"__metadata__\"".to_vec(), Node::Object(vec![(odd.clone(), Node::Scalar(odd))]));
                pairs.push(pair);
            }
        }
        2 => match d.header.at(at) {
            Node::Object(pairs) => pairs.push((odd, junk(r, 2))), // a field that is ignored
            other => *other = Node::Scalar(odd),
        },
        _ => {
            // A letter of a token as an escape: another spelling, the same string.
            if let Node::Scalar(token) = d.header.at(at) {
                if let Some(i) =
                    (1..token.len()).find(|&i| token[0] == b'"' && token[i].is_ascii_alphanumeric())
                {
                    let escape = format!("\\u{:04x}", token[i]);
                    token.splice(i..=i, escape.into_bytes());
                }
            }
        }
    }
}

fn dtypes(r: &mut Rng, d: &mut Draft) {
    let known = DTYPES[r.usize(..DTYPES.len())].0;
    let quoted = format!("\"{known}\"");
    let other = match r.u8(..9) {
        0 => quoted,
        1 => quoted.to_lowercase(),
        2 => format!("\"{known} \""),
        3 => format!("{{{quoted}:null}}"),
        4 => format!("{{{quoted}:{}}}", pick(r, &VALUES)),
        5 => format!("{{{quoted}:null,\"U8\":null}}"),
        6 => pick(
            r,
            &["\"F8\"", "\"F128\"", "\"\"", "\"C128\"", "\"F8_E4M3FN\"", "\"U4\"", "\"\\u0055\\u0038\""],
        )
        .to_string(),
        7 => pick(r, &VALUES).to_string(),
        _ => format!("[{quoted}]"),
    };
    if let Some(dtype) = field(r, &mut d.header, "dtype") {
        *dtype = Node::scalar(other);
    }
}

fn metadata(r: &mut Rng, d: &mut Draft) {
    let text = text(r);
    let value = match r.u8(..8) {
        0 => Node::scalar(pick(r, &VALUES)),
        1 => Node::Object(vec![(spell(r, &text), Node::scalar(pick(r, &VALUES)))]),
        2 => Node::Object(vec![(spell(r, &text), junk(r, 0))]),
        3 => Node::Object(vec![
            (b"\"k\"".to_vec(), Node::scalar("\"1\"")),
            (b"\"\\u006b\"".to_vec(), Node::scalar("\"2\"")),
        ]),
        4 => Node::Object(
            (0..r.usize(..20)).map(|i| (spell(r, &i.to_string()), Node::Scalar(spell(r, &text)))).collect(),
        ),
        5 => Node::Array(vec![]),
        6 => Node::scalar("null"),
        _ => Node::Object(vec![(pick(r, &STRINGS).to_vec(), Node::scalar("\"v\""))]),
    };
    let key = if r.u8(..4) == 0 { &b"\"__metadata\\u005f_\""[..] } else { &b"\"__metadata__\""[..] };
    if let Node::Object(pairs) = &mut d.header {
        if r.u8(..4) != 0 {
            pairs.retain(|(k, _)| !k.ends_with(b"__metadata__\""));
        }
        let place = r.usize(..pairs.len() + 1);
        pairs.insert(place, (key.to_vec(), value));
    }
}

fn white_space(r: &mut Rng, d: &mut Draft) {
    let odd = pick(
        r,
        &[
            " ", "\n", "\r\n", "\t", "\u{b}", "\u{c}", "\0", "\u{a0}", "\u{feff}", "\u{2028}", "\u{85}",
            "/* */",
        ],
    );
    match r.u8(..4) {
        0 => drop(d.raw.splice(0..0, odd.bytes())),
        1 => (0..r.usize(..100)).for_each(|_| d.raw.extend_from_slice(odd.as_bytes())),
        _ => {
            let mut tokens = split(&d.raw);
            let at = r.usize(..tokens.len() + 1);
            tokens.insert(at, odd.as_bytes().to_vec());
            d.raw = tokens.concat();
        }
    }
}

fn depth(r: &mut Rng, d: &mut Draft) {
    let n = if r.bool() { r.usize(120..132) } else { r.usize(..400) };
    let (open, close) = if r.bool() { ("[", "]") } else { ("{\"a\":", "}") };
    let inner = if open == "[" { "" } else { "0" };
    let deep = Node::scalar(format!(
        "{}{inner}{}",
        open.repeat(n),
        close.repeat(if r.u8(..8) == 0 { n + 1 } else { n })
    ));
    match r.u8(..3) {
        0 => {
            if let Some(at) = any_value(r, &mut d.header) {
                *d.header.at(at) = deep;
            }
        }
        _ => ignored(r, d, deep),
    }
}

/// A field more in some tensor, or an element that is none.
fn ignored(r: &mut Rng, d: &mut Draft, value: Node) {
    let places = tensors(&d.header);
    let Node::Object(pairs) = &mut d.header else { return };
    let Some(&place) = places.get(r.usize(..places.len().max(1))) else { return };
    if let Node::Object(fields) = &mut pairs[place].1 {
        let at = r.usize(..fields.len() + 1);
        fields.insert(at, (b"\"more\"".to_vec(), value));
    }
}

fn ignored_numbers(r: &mut Rng, d: &mut Draft) {
    let mut digits =
        |most: usize| -> String { (0..1 + r.usize(..most)).map(|_| (b'0' + r.u8(..10)) as char).collect() };
    let (whole, fraction, exponent) = (digits(25), digits(25), digits(4));
    let whole = if r.u8(..4) == 0 { whole } else { whole.trim_start_matches('0').to_string() };
    let mut token = format!("{}{whole}", if r.bool() { "-" } else { "" });
    if r.bool() {
        token += &format!(".{fraction}");
    }
    if r.bool() {
        token += &format!("{}{}{exponent}", pick(r, &["e", "E"]), pick(r, &["", "+", "-"]));
    }
    let token = if r.u8(..4) == 0 { pick(r, &NUMBERS).to_string() } else { token };
    ignored(r, d, Node::scalar(token));
}

fn doubled_keys(r: &mut Rng, d: &mut Draft) {
    let count = d.header.count();
    let at = r.usize(..count);
    let node = if r.bool() { &mut d.header } else { d.header.at(at) };
    let Node::Object(pairs) = node else { return };
    if pairs.is_empty() {
        return;
    }
    let (from, to) = (r.usize(..pairs.len()), r.usize(..pairs.len() + 1));
    let mut pair = pairs[from].clone();
    if let Some(i) =
        pair.0.iter().position(u8::is_ascii_alphanumeric).filter(|_| r.bool() && !pair.0.contains(&b'\\'))
    {
        let escape = format!("\\u{:04x}", pair.0[i]);
        pair.0.splice(i..=i, escape.into_bytes());
    }
    if r.u8(..4) == 0 {
        pair.1 = junk(r, 0);
    }
    pairs.insert(to, pair);
}

fn length_and_size(r: &mut Rng, d: &mut Draft) {
    let n = d.raw.len() as u64;
    match r.u8(..4) {
        0 => {
            let lengths =
                [n + 1, n.wrapping_sub(1), 0, 1, 2, 100_000_000, 100_000_001, 1 << 63, u64::MAX, n | 1 << 32];
            d.length_field = Some(one_of(r, &lengths));
        }
        1 => {
            let n = d.data_bytes;
            d.data_bytes = one_of(r, &[n + 1, n.saturating_sub(1), 0, n * 2]);
        }
        2 => d.raw.truncate(r.usize(..d.raw.len() + 1)),
        _ => {
            // A brace of the padding or of the data moves to the other side.
            d.length_field = Some(n.wrapping_add(r.u64(..8)).wrapping_sub(4));
        }
    }
}

/// File number i of a campaign.
pub fn mutant(seed: u64, i: u64) -> Mutant {
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i);
    let r = &mut rng;
    let kind = (i % KINDS.len() as u64) as usize;
    let base = valid(r);
    let mut draft =
        Draft { header: base.header, data_bytes: base.data_bytes, raw: Vec::new(), length_field: None };
    if let Stage::Tree(damage) = DAMAGES[kind] {
        damage(r, &mut draft);
    }
    let mut space = spacer(r);
    draft.header.write(&mut draft.raw, &mut space);
    if r.bool() {
        draft.raw.resize(draft.raw.len().next_multiple_of(8), b' ');
    }
    if let Stage::Bytes(damage) = DAMAGES[kind] {
        damage(r, &mut draft);
    }
    let length = draft.length_field.unwrap_or(draft.raw.len() as u64);
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&draft.raw);
    bytes.resize(bytes.len() + draft.data_bytes.min(1 << 16) as usize, 0);
    if kind == 13 && r.u8(..16) == 0 {
        bytes.truncate(r.usize(..16));
    }
    Mutant { kind, bytes }
}
