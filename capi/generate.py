#!/usr/bin/env python3
"""Spells capi/include/st/st.h in the other places that need it, so that it is written by hand once.

    generate.py                     writes the files of OUTPUTS; commit them with the header
    generate.py --check             writes nothing; exit status 1 and the names of files that differ
    generate.py --constants HEADER  prints the constants of a header, for the record of the ABI

No build runs this. st_h.py reads the header, and stops at what it does not understand.
"""

import re
import sys
from pathlib import Path

from st_h import Header, read

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "capi/include/st/st.h"
GENERATED = "Generated from capi/include/st/st.h by capi/generate.py; do not edit."

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


def status_names(header: Header) -> str:
    """An X macro: the status in C and in core."""
    lines = "".join(f"ST_STATUS({c.name}, {short(c.name).lower()})\n" for c in header.statuses())
    return f"// {GENERATED}\n// What includes this says what ST_STATUS(in C, in core) makes of each status.\n{lines}"


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


# ---------------------------------------------------------------------- files

OUTPUTS = {
    "capi/st.map": version_script,
    "capi/status_list.h": status_names,
    "core/status.h": status_enum,
}


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--constants":
        print(constants(read(Path(arguments[1]))), end="")
        return 0
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    header, differ = read(HEADER), []
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
