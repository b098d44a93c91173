#!/usr/bin/env python3
"""Does each room of core see the rooms that core/README.md gives it, what those see, and nothing else?

    rooms_test.py SOURCES BUILD-TREE

Asks the compiler: small sources are compiled as those of the room are, by the tree's compile_commands.json.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

WITH_VALUE = {"-o", "-MF", "-MQ", "-MT", "-c"}


def rooms_of(readme: str) -> dict:
    """{room: the rooms that it sees, also by those that it names}, from the table of rooms."""
    named = {}
    for room, names in re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", readme.split("\n## ")[1], re.MULTILINE):
        named[room] = set(re.findall(r"`(\w+)`", names))

    def seen(room: str) -> set:
        return named[room].union(*(seen(below) for below in named[room]))

    return {room: seen(room) for room in named}


def command_of(room: str, build: Path) -> list:
    """How the sources of a room are compiled, without the source and what comes of it."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if f"core/libcore_{room}.a.p/" in entry["output"]:
            words = iter(shlex.split(entry["command"]))
            command = []
            for word in words:
                if word in WITH_VALUE:
                    next(words)
                elif word not in ("-MD", "-MMD"):
                    command.append(word)
            return command
    sys.exit(f"nothing of core/{room} is compiled in {build}")


def errors_of(room: str, source: str, build: Path) -> str:
    """What the compiler says of such a source of the room; empty: it is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seen.cpp"
        path.write_text(source)
        command = [*command_of(room, build), "-fdiagnostics-color=never", "-fsyntax-only", str(path)]
        run = subprocess.run(command, cwd=build, capture_output=True, text=True)
        return run.stderr if run.returncode else ""


def question(other: str, header: str, seen: bool) -> str:
    condition = f'{"!" if seen else ""}__has_include("{other}/{header}")'
    return f"#if {condition}\n#error {'does not see' if seen else 'sees'} {other}\n#endif\n"


def main(sources: Path, build: Path) -> int:
    wrong = []
    rooms = rooms_of((sources / "core" / "README.md").read_text())
    folders = {path.parent.name for path in sources.glob("core/*/*.cpp")}
    if rooms.keys() != folders:
        wrong.append(f"core/README.md has the rooms {sorted(rooms)}, but core/ has {sorted(folders)}")

    # An include that is looked for beside its file, and not by room, would pass the compiler by.
    for path in sorted(path for room in rooms for path in (sources / "core" / room).rglob("*.[hc]*")):
        for name in re.findall(r'^\s*#\s*include\s*"([^"]*)"', path.read_text(), re.MULTILINE):
            if name.split("/")[0] not in rooms or "/" not in name or ".." in name:
                wrong.append(f'{path.relative_to(sources)}: "{name}" does not begin with a room')

    a_header = {room: sorted(sources.glob(f"core/{room}/*.h"))[0].name for room in rooms}
    for room, sees in rooms.items():
        others = [question(other, a_header[other], other in sees) for other in rooms if other != room]
        if errors := errors_of(room, "".join(others), build):
            found = re.findall(r"error: (?:#error )?((?:does not see|sees) \w+)", errors)
            wrong += [f"{room} {each}" for each in found] or [errors]

    # What the questions above come to.
    if errors := errors_of("journal", '#include "format/header.h"\n', build):
        wrong.append(f"journal cannot include what is below it: {errors}")
    if not errors_of("format", '#include "journal/patch.h"\n', build):
        wrong.append("format can include what is above it")

    print("\n".join(wrong) or f"{len(rooms)} rooms, each sees what it may")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
