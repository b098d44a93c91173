"""Random files that are valid, spelled in as many ways as JSON allows; and random damage to them.

Everything follows from a `random.Random`, so a seed names a file.
"""

from __future__ import annotations

import json
import re
import struct
from random import Random

from corpus import DTYPES
from reference import Tensor

NAME_PARTS = [
    "model", "layers", "weight", "bias", ".", "/", " ", "0", "17", "é", "e\u0301", "層", "权重", "😀", "\U0010ffff",
    "\0", "\n", "\t", '"', "\\", "\x7f", "\u2028", "__metadata__", "dtype", "'", "{", "]", "\ufeff", "\uffff",
]  # fmt: skip


def text(r: Random, longest: int = 4) -> str:
    return "".join(r.choice(NAME_PARTS) for _ in range(r.randint(0, longest)))


def spell(r: Random, s: str) -> str:
    """s as a JSON string: any character may be escaped, some must be."""
    out = []
    for ch in s:
        must = ch in '"\\' or ch < " "
        if not must and r.random() < 0.9:
            out.append(ch)
        elif ch in '"\\/' and r.random() < 0.5:
            out.append("\\" + ch)
        elif ch in "\b\f\n\r\t" and r.random() < 0.5:
            out.append("\\" + "bfnrt"["\b\f\n\r\t".index(ch)])
        else:
            units = ch.encode("utf-16-be")
            for i in range(0, len(units), 2):
                hexes = f"{units[i] << 8 | units[i + 1]:04x}"
                out.append("\\u" + (hexes.upper() if r.random() < 0.5 else hexes))
    return '"' + "".join(out) + '"'


def shape(r: Random, bits: int, *, writable: bool) -> list[int]:
    """A small shape whose elements fill whole bytes. `writable`: stock can write it (F4: pairs in the last one)."""
    while True:
        dims = [r.choice([0, 1, 1, 2, 3, 4, 5, 8]) for _ in range(r.choice([0, 1, 1, 2, 2, 3, 5]))]
        elements = 1
        for d in dims:
            elements *= d
        if elements <= 256 and elements * bits % 8 == 0 and not (writable and bits == 4 and (not dims or dims[-1] % 2)):
            return dims


def model(r: Random, *, writable: bool = False) -> tuple[dict[str, Tensor], dict[str, str] | None]:
    """Tensors and metadata, at random."""
    dtypes = [d for d in DTYPES if not (writable and d.startswith("F6"))]
    tensors = {}
    for _ in range(r.choice([0, 1, 1, 2, 3, 5, 8, 20])):
        name = text(r)
        if name == "__metadata__":
            continue
        dtype = r.choice(dtypes)
        dims = shape(r, DTYPES[dtype], writable=writable)
        elements = 1
        for d in dims:
            elements *= d
        tensors[name] = Tensor(dtype, dims, r.randbytes(elements * DTYPES[dtype] // 8))
    metadata = {text(r): text(r) for _ in range(r.randint(0, 4))} if r.random() < 0.6 else None
    if writable and not tensors and metadata == {}:
        metadata = None  # of this, safetensors 0.8.0 writes the header `{},"__metadata__":{}}`, which it can't read
    return tensors, metadata


def junk(r: Random, depth: int = 0) -> str:
    """A JSON value that nobody reads."""
    kind = r.randrange(7 if depth < 4 else 5)
    if kind == 5:
        return "[" + ",".join(junk(r, depth + 1) for _ in range(r.randint(0, 3))) + "]"
    if kind == 6:
        return "{" + ",".join(spell(r, text(r)) + ":" + junk(r, depth + 1) for _ in range(r.randint(0, 3))) + "}"
    return [
        "null", r.choice(["true", "false"]), spell(r, text(r)), str(r.choice([0, -1, 2**64, -(2**70), 7])),
        r.choice(["1.5", "-0.0", "1e300", "2E-400", "1.25e+3", "0e9"]),
    ][kind]  # fmt: skip


def build(r: Random, tensors: dict[str, Tensor], metadata: dict[str, str] | None) -> bytes:
    """A valid file of these tensors: data in any order, header in another, spelled at random."""
    names = list(tensors)
    r.shuffle(names)
    spans, data = {}, b""
    for name in names:
        spans[name] = (len(data), len(data) + len(tensors[name].data))
        data += tensors[name].data

    airy = r.random() < 0.3

    def space() -> str:
        return "".join(r.choice(" \n\t\r") for _ in range(r.randint(0, 2))) if airy else ""

    def pairs(items: list[tuple[str, str]]) -> str:
        r.shuffle(items)
        return "{" + ",".join(f"{space()}{spell(r, k)}{space()}:{space()}{v}{space()}" for k, v in items) + "}"

    def numbers(values) -> str:
        return "[" + ",".join(f"{space()}{v}{space()}" for v in values) + "]"

    entries = []
    for name, t in tensors.items():
        dtype = spell(r, t.dtype) if r.random() < 0.95 else f"{{{spell(r, t.dtype)}:null}}"
        if r.random() < 0.03:
            entries.append((name, f"[{dtype},{numbers(t.shape)},{numbers(spans[name])}]"))
            continue
        fields = [("dtype", dtype), ("shape", numbers(t.shape)), ("data_offsets", numbers(spans[name]))]
        if r.random() < 0.1:
            fields.append((r.choice(["strides", "Dtype", "", "note"]), junk(r)))
        entries.append((name, pairs(fields)))
    if metadata is not None:
        entries.append(("__metadata__", pairs([(k, spell(r, v)) for k, v in metadata.items()])))
    elif r.random() < 0.1:
        entries.append(("__metadata__", "null"))
    header = (space() + pairs(entries) + r.choice(["", " ", " " * 7, "\n"])).encode()
    return struct.pack("<Q", len(header)) + header + data


# ------------------------------------------------------------------ damage

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[{}\[\]:,]|\s+|.', re.S)

_TOKENS = [
    t.encode()
    for t in [
        *"{}[]:,", " ", "\n", "\t", "\x0b", "\0", "null", "true", "false", "nul", "NaN", "''", "/**/", '""', '"a"',
        '"F32"', '"f32"', '"BF16"', '"F4"', '"F6_E2M3"', '"U8"', '"dtype"', '"shape"', '"data_offsets"',
        '"__metadata__"', r'"\u0000"', r'"\ud800"', r'"\udc00"', r'"\ud83d\ude00"', r'"dtyp\u0065"', r'"\x"',
        '"\x01"', "{}", "[]", '{"F32":null}', "0", "-0", "1", "2", "4", "8", "16", "-1", "00", "01", "1.0", "1e0",
        "0e5", "0.5", "1e999", "1e-999", str(2**32), str(2**61), str(2**63), str(2**64 - 1), str(2**64), str(2**70),
    ]
]  # fmt: skip


def split(content: bytes) -> tuple[bytes, bytes]:
    """Header and data of a valid file."""
    n = struct.unpack_from("<Q", content)[0]
    return content[8 : 8 + n], content[8 + n :]


def join(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def mutate_bytes(r: Random, content: bytes) -> bytes:
    """One to four bytes flipped, replaced, inserted or dropped, mostly in the header."""
    header, data = split(content)
    whole = r.random() < 0.15  # then the length field and the data may be hit, too, and nothing is put right
    b = bytearray(content if whole else header)
    for _ in range(r.choice([1, 1, 1, 2, 4])):
        at = r.randrange(len(b)) if b else 0
        kind = r.randrange(5)
        if kind == 0 and b:
            b[at] ^= 1 << r.randrange(8)
        elif kind == 1 and b:
            b[at] = r.choice(b'{}[]":,\\ 0123456789-+.eEuntfa\x00\x1f\x7f\x80\xc0\xe2\xff')
        elif kind == 2:
            b.insert(at, r.choice(b'{}[]":,\\ 0123456789-+.eE\x00\xff'))
        elif kind == 3 and b:
            del b[at]
        elif b:
            b[at:at] = b[at : at + r.randint(1, 20)]
    if whole:
        return bytes(b)
    return join(bytes(b), _cut(r, data))


def mutate_tokens(r: Random, content: bytes) -> bytes:
    """One to three JSON tokens dropped, doubled, swapped or replaced: damage that often still parses."""
    header, data = split(content)
    tokens = _TOKEN.findall(header)
    for _ in range(r.choice([1, 1, 2, 3])):
        at, other = r.randrange(len(tokens) or 1), r.randrange(len(tokens) or 1)
        kind = r.randrange(6)
        if not tokens or kind == 0:
            tokens.insert(at, r.choice(_TOKENS))
        elif kind == 1:
            del tokens[at]
        elif kind == 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 3:
            tokens[at] = tokens[other]
        else:
            tokens[at] = r.choice(_TOKENS)
    return join(b"".join(tokens), _cut(r, data))


def mutate_values(r: Random, content: bytes) -> bytes:
    """Values changed, JSON kept: shapes, offsets, dtypes, fields, keys. Damage that only rules of the format find."""
    header, data = split(content)
    pairs = json.loads(header, object_pairs_hook=lambda p: [[k, v] for k, v in p])
    entries = [
        p
        for p in pairs
        if p[0] != "__metadata__" and p[1] and isinstance(p[1][0], list) and isinstance(p[1][0][0], str)
    ]
    for _ in range(r.choice([1, 1, 2])):
        if not entries:
            pairs.append(
                ["x", [["dtype", "U8"], ["shape", [r.choice([0, 1])]], ["data_offsets", [0, r.choice([0, 1])]]]]
            )
            break
        entry = r.choice(entries)
        field = r.choice(entry[1])
        if r.random() < 0.1:
            kind = r.randrange(4)
            if kind == 0:
                pairs.append(entry)
            elif kind == 1 and entry in pairs:
                pairs.remove(entry)
            elif kind == 2:
                entry[1].append(field)
            elif kind == 3 and len(entry[1]) > 1:
                entry[1].remove(field)
        elif field[0] == "dtype":
            field[1] = r.choice([*DTYPES, "F31", None, 1])
        elif isinstance(field[1], list) and all(isinstance(v, int) for v in field[1]):
            values = list(field[1])
            kind = r.randrange(4)
            if kind == 0 and values:
                i = r.randrange(len(values))
                values[i] = r.choice(
                    [
                        values[i] + 1,
                        values[i] - 1,
                        0,
                        values[i] * 2,
                        1 << 32,
                        1 << 61,
                        (1 << 64) - 1,
                        1 << 64,
                        -values[i],
                        float(values[i]),
                    ]
                )
            elif kind == 1:
                values.append(r.choice([0, 1, 2]))
            elif kind == 2 and values:
                values.pop()
            else:
                values = [v + r.choice([-1, 1, 4]) for v in values]
            field[1] = values
        else:
            field[1] = r.choice([None, [], {}, "x", 1.5])

    def dump(v) -> str:
        if isinstance(v, list) and v and all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) for p in v):
            return "{" + ",".join(json.dumps(k) + ":" + dump(x) for k, x in v) + "}"
        return json.dumps(v)

    return join(dump(pairs).encode() if pairs else b"{}", _cut(r, data))


def _cut(r: Random, data: bytes) -> bytes:
    """The data, now and then with a byte too few or too many."""
    chance = r.random()
    return data + b"\0" if chance < 0.02 else data[:-1] if chance < 0.04 else data
