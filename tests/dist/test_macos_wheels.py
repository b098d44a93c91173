"""The wheels for macOS: their content is checked, and what the linker wrote. Nothing runs them here.

The programs of tests/unit/ are compiled and linked, so that whoever has a Mac finds tests that run.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
from pathlib import Path

import pytest
from conftest import BUILD, OF_MACOS, ROOT, long, run, wheel

pytestmark = long
each_platform = pytest.mark.parametrize("platform", OF_MACOS)

LARGEST = 3 << 20
PROCESSORS = {"arm64": 0x0100000C, "x86_64": 0x01000007}
MAGIC_64, EXECUTE, DYLIB = 0xFEEDFACF, 2, 6
SYMTAB, LOAD_DYLIB, ID_DYLIB, CODE_SIGNATURE, BUILD_VERSION = 0x2, 0xC, 0xD, 0x1D, 0x32
MACOS = 1
EXTERNAL, PRIVATE, TYPE = 0x01, 0x10, 0x0E


class Library:
    """What a 64-bit Mach-O file says of itself (mach-o/loader.h, mach-o/nlist.h)."""

    def __init__(self, image: bytes):
        magic, self.processor, _, kind, count, _, _, _ = struct.unpack_from("<8I", image)
        assert (magic, kind) == (MAGIC_64, DYLIB)
        self.own_name, self.oldest, self.signed = "", (0, 0), False
        self.needed: list[str] = []
        self.exported: set[str] = set()
        at = 32
        for _ in range(count):
            command, size = struct.unpack_from("<2I", image, at)
            words = struct.unpack_from(f"<{(size - 8) // 4}I", image, at + 8)
            if command in (LOAD_DYLIB, ID_DYLIB):
                name = text(image, at + words[0])
                if command == ID_DYLIB:
                    self.own_name = name
                else:
                    self.needed.append(name)
            elif command == BUILD_VERSION:
                assert words[0] == MACOS
                self.oldest = (words[1] >> 16, words[1] >> 8 & 0xFF)
            elif command == SYMTAB:
                symbols, n, strings, _ = words
                for i in range(n):
                    name, kind, _, _, _ = struct.unpack_from("<IBBHQ", image, symbols + 16 * i)
                    if kind & EXTERNAL and not kind & PRIVATE and kind & TYPE:
                        self.exported.add(text(image, strings + name))
            self.signed |= command == CODE_SIGNATURE
            at += size


def text(image: bytes, at: int) -> str:
    return image[at : image.index(b"\0", at)].decode()


def library(platform: str) -> Library:
    with zipfile.ZipFile(wheel(platform)) as packed:
        return Library(packed.read("libst/libst.2.dylib"))


@each_platform
def test_it_carries_what_the_others_do(platform):
    path = wheel(platform)
    assert path.stat().st_size <= LARGEST
    with zipfile.ZipFile(path) as packed, zipfile.ZipFile(wheel("manylinux2014_x86_64")) as other:
        names = {re.sub(r"libst\.2\.dylib$", "libst.so.2", name) for name in packed.namelist()}
        assert names == set(other.namelist())
        (tags,) = [packed.read(name).decode() for name in packed.namelist() if name.endswith(".dist-info/WHEEL")]
    assert f"Tag: py3-none-{platform}\n" in tags


@each_platform
def test_its_library_is_for_that_processor_and_macos_11_and_wants_the_system_alone(platform):
    found = library(platform)
    machine = platform.removeprefix("macosx_11_0_")
    assert found.processor == PROCESSORS[machine] and found.oldest <= (11, 0)
    assert found.own_name.endswith("libst.2.dylib")
    assert found.needed and all(re.match(r"/usr/lib/lib(System|resolv)\.", name) for name in found.needed), found.needed
    assert found.signed or machine != "arm64"  # its kernel runs nothing else


@each_platform
def test_its_library_exports_the_abi_alone(platform):
    """And C++'s new and delete, which a program of macOS does not take from it: it names the library of each name."""
    wanted = re.findall(r"^ +(st_\w+);", (ROOT / "capi" / "st.map").read_text(), re.M)
    exported = {name for name in library(platform).exported if not re.match("__Z(na|nw|da|dl)", name)}
    assert exported - {"___dso_handle", "__mh_dylib_header"} == {f"_{name}" for name in wanted}


@each_platform
def test_pip_takes_it_on_its_platform(platform, tmp_path):
    run(
        "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--root-user-action=ignore", "--platform", platform, "--target", tmp_path,
        wheel(platform),
    )  # fmt: skip
    assert (tmp_path / "libst" / "libst.2.dylib").is_file()


def test_the_unit_tests_compile_and_link():
    environment = {**os.environ, "ROOT": str(ROOT), "BUILD": str(BUILD)}
    said = run("bash", ROOT / "tests" / "dist" / "macos_tests.sh", env=environment)
    programs = [Path(line) for line in said.splitlines() if "/tests/unit/unit_" in line]
    assert {"unit_os", "unit_journal", "unit_capi"} <= {program.name for program in programs}
    for program in programs:
        magic, processor, _, kind = struct.unpack("<4I", program.read_bytes()[:16])
        assert (magic, processor, kind) == (MAGIC_64, PROCESSORS["arm64"], EXECUTE), program
