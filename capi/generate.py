#!/usr/bin/env python3
"""Spells capi/include/st/st.h in the other places that need it, so that it is written by hand once.

    generate.py                     writes the files of OUTPUTS; commit them with the header
    generate.py --check             writes nothing; exit status 1 and the names of files that differ
    generate.py --constants HEADER  prints the constants of a header, for the record of the ABI

No build runs this. st_h.py reads the header, and stops at what it does not understand.
"""

import re
import sys
from itertools import groupby
from pathlib import Path
from textwrap import fill

from st_h import Constant, Function, Header, Type, Variable, read

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "capi/include/st/st.h"
GENERATED = "Generated from capi/include/st/st.h by capi/generate.py; do not edit."
GENERATED_GO = "// Code generated from capi/include/st/st.h by capi/generate.py; DO NOT EDIT."  # as its tools want it

# ------------------------------------------------------------------ C and C++


def short(name: str) -> str:
    """ "BUSY" of ST_E_BUSY, "open_options" of st_open_options."""
    return re.sub(r"^(st_|ST_E_|ST_)", "", name)


def sentence(text: str) -> str:
    """The first one: a heading."""
    return text.split(". ")[0].rstrip(".") + "." if text else ""


def version_script(header: Header) -> str:
    text, parent = f"/* {GENERATED} */\n", ""
    for version in sorted({0, *(f.since for f in header.functions)}):
        names = sorted(f.name for f in header.functions if f.since == version)
        text += f"ST_2.{version} {{\n  global:\n" + "".join(f"    {name};\n" for name in names)
        text += "" if parent else "  local:\n    *;\n"
        text += f"}}{parent};\n"
        parent = f" ST_2.{version}"
    return text


def left(header: Header, committed: str) -> list[str]:
    """What would leave its node of the committed version script. Programs are linked to a name in its node, so it never
    leaves."""
    nodes, node = {}, ""
    for line in committed.splitlines():
        node = line.split()[0] if line.endswith(" {") else node
        if name := re.fullmatch(r" +(st_\w+);", line):
            nodes[name[1]] = node
    now = {f.name: f"ST_2.{f.since}" for f in header.functions}
    moved = [name for name, node in nodes.items() if now.get(name) != node]
    return [f"{name}: of {nodes[name]}, and now {now.get(name, 'gone')}" for name in moved]


def action(header: Header, status: Constant) -> str:
    """ "ST_ACTION_RETRY": of the word that begins its comment."""
    name = "ST_ACTION_" + ("NONE" if status.name == "ST_OK" else status.comment.split(":")[0].upper())
    if name not in {c.name for c in header.constants}:
        sys.exit(f"{status.name}: its comment begins with no word of ST_ACTION_...")
    return name


def status_names(header: Header) -> str:
    """An X macro: the status in C and in core, and what a caller can do."""
    rows = [f"{c.name}, {short(c.name).lower()}, {action(header, c)}" for c in header.statuses()]
    lines = "".join(f"ST_STATUS({row})\n" for row in rows)
    head = "// What includes this says what ST_STATUS(in C, in core, action) makes of each status.\n"
    return f"// {GENERATED}\n{head}{lines}"


def status_enum(header: Header) -> str:
    text = f"// {GENERATED}\n#pragma once\n\n#include <cstdint>\n\nnamespace st {{\n\nenum class Status : int32_t {{\n"
    for c in header.statuses():
        text += f"\n  // {sentence(c.group)}\n" if c.group and c.value else ""
        text += f"  {short(c.name).lower()} = {c.value},\n"
    return text + "};\n\n}  // namespace st\n"


def constants(header: Header) -> str:
    """One "NAME value" a line: without the version, which changes, and initialisers that follow their structs."""
    spelled = {c.name: c.spelling for c in header.constants} | header.initialisers
    kept = sorted(name for name in spelled if not re.match(r"ST_(VERSION_|\w+_INIT$)", name))
    return "".join(f"{name} {spelled[name]}\n" for name in kept)


# ----------------------------------------------------------------------- Rust

RUST = {"char": "c_char", "void": "c_void", "int": "c_int", "size_t": "usize", "int32_t": "i32", "uint32_t": "u32",
        "int64_t": "i64", "uint64_t": "u64"}  # fmt: skip
RUST_WIDTH = 110  # bindings/rust/rustfmt.toml


def rust_type(of: Type, length: int = 0) -> str:
    text, const = RUST.get(of.base, of.base), of.const
    for pointer in of.pointers:
        text, const = f"*{'const' if const else 'mut'} {text}", pointer
    return f"[{text}; {length}]" if length else text


def rust_call(head: str, f: Function, tail: str) -> str:
    """A signature as rustfmt lays it out."""
    indent = re.match(" *", head)[0]
    parameters = [f"{p.name}: {rust_type(p.type)}" for p in f.parameters]
    result = "" if f.result == Type("void") else f" -> {rust_type(f.result)}"
    line = f"{head}({', '.join(parameters)}){result}{tail}"
    if len(line) == RUST_WIDTH and result:  # rustfmt counts the semicolon twice
        line = f"{head}({', '.join(parameters)})\n{indent}   {result}{tail}"
    elif len(line) > RUST_WIDTH:
        line = f"{head}(\n" + "".join(f"{indent}    {p},\n" for p in parameters) + f"{indent}){result}{tail}"
    return line + "\n"


def rust_constant(c: Constant) -> str:
    kind = "st_status" if c.name == "ST_OK" or c.name.startswith("ST_E_") else "i32" if c.value < 0 else "u32"
    if c.name.startswith("ST_TIMEOUT_"):
        kind = "i32"  # as every lock_timeout_ms, also where it is zero
    kind = "st_dtype" if c.name.startswith("ST_DTYPE_") else RUST.get(c.cast, kind)
    value = "usize::MAX" if (kind, c.value) == ("usize", -1) else c.value
    return f"pub const {c.name}: {kind} = {value};\n"


def rust_declarations(header: Header) -> str:
    text = f"//! {GENERATED}\n\nuse core::ffi::{{c_char, c_int, c_void}};\nuse core::marker::PhantomData;\n\n"
    text += "".join(f"pub type {name} = {rust_type(of)};\n" for name, of in header.aliases.items())
    for name in header.opaque:
        text += f"\n/// Opaque.\n#[repr(C)]\npub struct {name} {{\n    _private: [u8; 0],\n"
        text += "    _neither_send_nor_sync: PhantomData<*mut c_void>,\n}\n"
    for f in header.callbacks.values():
        line = rust_call('Option<unsafe extern "C" fn', f, ">;").strip()
        between = " " if len(f"pub type {f.name} = {line}") <= RUST_WIDTH else "\n    "
        text += f"\npub type {f.name} ={between}{line}\n"
    for name, fields in header.structs.items():
        equal = all(v.type in (Type("int64_t"), Type("uint64_t")) for v in fields)
        text += f"\n#[repr(C)]\n#[derive(Clone, Copy, Debug{', PartialEq, Eq, Hash' if equal else ''})]\n"
        text += f"pub struct {name} {{\n"
        text += "".join(f"    pub {v.name}: {rust_type(v.type, v.length)},\n" for v in fields) + "}\n"
    text += "\n" + "".join(rust_constant(c) for c in header.constants)
    functions = "".join(rust_call(f"    pub fn {f.name}", f, ";") for f in header.functions)
    return f'{text}\nextern "C" {{\n{functions}}}\n'


def rust_names(header: Header) -> str:
    initialisers = ", ".join(f'"{name}"' for name in header.initialisers)
    text = f"//! {GENERATED}\n\n/// Macros that stand for an initialiser.\n"
    text += f"pub const INITIALISERS: &[&str] = &[{initialisers}];\n\n"
    text += "/// Every struct with its fields, given to a macro.\nmacro_rules! structs {\n"
    text += "    ($with:ident) => {\n        $with! {\n"
    for name, fields in header.structs.items():
        line = f"{name} {{ {', '.join(v.name for v in fields)} }}"
        text += fill(line, RUST_WIDTH, initial_indent=" " * 12, subsequent_indent=" " * 16) + "\n"
    return text + "        }\n    };\n}\n"


# --------------------------------------------------------------------- Python

CTYPES = {"char": "c_char", "int": "c_int", "size_t": "c_size_t", "int32_t": "c_int32", "uint32_t": "c_uint32",
          "int64_t": "c_int64", "uint64_t": "c_uint64"}  # fmt: skip
PYTHON_WIDTH = 120  # pyproject.toml


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in short(name).split("_"))


def python_type(header: Header, v: Variable, beside: list[Variable], is_field: bool) -> str:
    """Handles are addresses. A string whose length stands beside it may hold NUL, so as a result it is an address."""
    base, depth = v.type.base, len(v.type.pointers)
    counted = any(other.name == f"{v.name}_len" for other in beside)
    if base == "void" or base in header.opaque:
        inner, depth = "c_void_p" if depth else "None", depth - 1
    elif base == "char" and depth:
        out = depth > 1 and not v.type.pointers[0]
        inner, depth = "c_void_p" if counted and (is_field or out) else "c_char_p", depth - 1
    elif base in header.structs:
        inner = camel(base)
    else:
        inner = CTYPES.get(base) or f"c_{short(base)}" if base not in header.callbacks else short(base)
    for _ in range(depth):
        inner = f"POINTER({inner})"
    return f"{inner} * {v.length}" if v.length else inner


def python_entry(name: str, items: list[str]) -> str:
    """A tuple in the table, as ruff lays it out."""
    line = f'    "{name}": ({", ".join(items)}{"," if len(items) == 1 else ""}),\n'
    if len(line) > PYTHON_WIDTH + 1:
        line = f'    "{name}": (\n' + "".join(f"        {i},\n" for i in items) + "    ),\n"
    return line


def python_struct(header: Header, name: str) -> str:
    fields = header.structs[name]
    text = f"\n\nclass {camel(name)}(ctypes.Structure):\n    _fields_ = [\n"
    for v in fields:
        text += f'        ("{v.name}", {python_type(header, v, fields, True)}),\n'
    return text + "    ]\n"


def python_signature(header: Header, f: Function) -> list[str]:
    result = Variable("", f.result)
    return [python_type(header, v, f.parameters, False) for v in [result, *f.parameters]]


def python_table(header: Header) -> str:
    head = f'"""{GENERATED}\n\nst.h in ctypes. It needs no library, so tests can load it by its path. A handle is\n'
    head += 'an address; so is, in structs and results, a string with a length beside it, as it may hold NUL.\n"""\n\n'
    text = "".join(f"c_{short(name)} = {CTYPES[of.base]}\n" for name, of in header.aliases.items())
    done: set[str] = set()

    def declare(name: str) -> str:
        """After what it is made of."""
        if name in done or name not in {*header.structs, *header.callbacks}:
            return ""
        done.add(name)
        callback = header.callbacks.get(name)
        parts = callback.parameters if callback else header.structs[name]
        before = "".join(declare(v.type.base) for v in parts)
        if not callback:
            return before + python_struct(header, name)
        return before + f"\n\n{short(name)} = ctypes.CFUNCTYPE({', '.join(python_signature(header, callback))})\n"

    text += "".join(declare(name) for name in [*header.callbacks, *header.structs]) + "\n\n"
    text += "".join(f"{c.name} = {c.value}\n" for c in header.constants)
    text += "\n#: What each function answers, and what it takes.\nFUNCTIONS: dict[str, tuple[Any, ...]] = {\n"
    for f in header.functions:
        text += python_entry(f.name, python_signature(header, f))
    text += '}\n\n\ndef declare(library: ctypes.CDLL) -> None:\n    """Tell ctypes the types of the functions."""\n'
    text += "    for name, (result, *parameters) in FUNCTIONS.items():\n        function = getattr(library, name)\n"
    text += "        function.restype, function.argtypes = result, parameters\n"
    used = {"POINTER", "c_char_p", "c_void_p", *CTYPES.values()} & {*re.findall(r"\w+", text)}
    return f"{head}import ctypes\nfrom ctypes import {', '.join(sorted(used))}\nfrom typing import Any\n\n{text}"


def python_statuses(header: Header) -> str:
    text = f'"""{GENERATED}\n\nWhat a call of libst answers: the numbers of st.h, fixed for ever.\n"""\n\n'
    text += "from enum import IntEnum\n\n\nclass Status(IntEnum):\n"
    text += '    """`ST_E_BUSY` of st.h is `Status.BUSY`. Members are ints and compare as such."""\n\n'
    for c in header.statuses():
        text += f"\n    # {sentence(c.group)}\n" if c.group and c.value else ""
        line = f"    {short(c.name)} = {c.value}"
        comment = f"  # {c.comment}" if c.comment else ""
        text += line + comment + "\n" if len(line + comment) <= PYTHON_WIDTH else f"    # {c.comment}\n{line}\n"
    return text


# ------------------------------------------------------------------------- Go

GO_PARTS = {"IO": "IO", "UTF8": "UTF8", "JSON": "JSON", "NOMEM": "NoMem", "NBYTES": "NBytes", "DTYPE": "DType",
            "SUBBYTE": "SubByte"}  # fmt: skip


def go_constants(kind: str, rows: list[tuple[str, Constant]]) -> str:
    """A group, in gofmt's columns."""
    name_width = max(len(name) for name, _ in rows)
    text = "const (\n"
    for commented, run in groupby(rows, lambda row: bool(row[1].comment)):
        run = list(run)
        width = max(len(str(c.value)) for _, c in run)
        for name, c in run:
            line = f"\t{name:{name_width}} {kind} = {c.value}"
            text += f"{line:{len(line) - len(str(c.value)) + width}} // {c.comment}\n" if commented else f"{line}\n"
    return text + ")\n"


def go_numbers(header: Header) -> str:
    text = f"{GENERATED_GO}\n\n//go:build cgo\n\npackage st\n"
    groups: list[tuple[str, list[tuple[str, Constant]]]] = []
    for c in header.statuses()[1:]:
        if c.group or not groups:
            groups.append((sentence(c.group), []))
        parts = short(c.name).split("_")
        groups[-1][1].append(("Err" + "".join(GO_PARTS.get(p) or p.capitalize() for p in parts), c))
    for heading, rows in groups:
        text += f"\n// {heading}\n" + go_constants("Status", rows)
    dtypes = [c for c in header.constants if c.name.startswith("ST_DTYPE_")]
    named = [("Bool" if c.name == "ST_DTYPE_BOOL" else c.name[9:].replace("_", ""), c) for c in dtypes]
    return text + "\n// The element types.\n" + go_constants("DType", named)


# ---------------------------------------------------------------------- files

OUTPUTS = {
    "capi/st.map": version_script,
    "capi/status_list.h": status_names,
    "core/base/status.h": status_enum,
    "bindings/rust/libst-sys/src/generated.rs": rust_declarations,
    "bindings/rust/libst-sys/tests/st_h/generated.rs": rust_names,
    "bindings/python/libst/_st_h.py": python_table,
    "bindings/python/libst/status.py": python_statuses,
    "bindings/go/numbers.go": go_numbers,
}


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--constants":
        print(constants(read(Path(arguments[1]))), end="")
        return 0
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    header, differ = read(HEADER), []
    if leave := left(header, (ROOT / "capi/st.map").read_text()):
        unreleased = "If no release has it yet, take the name out of capi/st.map first."
        sys.exit("\n".join([*leave, "A name never leaves its node of capi/st.map. " + unreleased]))
    for name, write in OUTPUTS.items():
        path, text = ROOT / name, write(header)
        if not path.exists() or path.read_text() != text:
            differ.append(name)
            if not arguments:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
    for name in differ:
        print(f"{name} differs from st.h: run python3 capi/generate.py" if arguments else f"wrote {name}")
    return 1 if arguments and differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
