"""The library of the aarch64 wheel, by qemu and Debian's glibc for it: a program in C calls every function."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, library, long, run

pytestmark = long

PLATFORM = "manylinux2014_aarch64"
GLIBC = Path("/usr/aarch64-linux-gnu/lib")
QEMU = "qemu-aarch64-static"


def test_its_segments_fit_pages_of_64_kib(tmp_path):
    aligned = re.findall(r"LOAD .* (0x[0-9a-f]+)$", run("readelf", "-lW", library(PLATFORM, tmp_path)), re.M)
    assert aligned and all(int(size, 16) >= 0x10000 for size in aligned), aligned


def test_a_program_calls_every_function(tmp_path):
    loader = GLIBC / "ld-linux-aarch64.so.1"
    if not shutil.which(QEMU) or not loader.exists():
        pytest.skip("no emulator, or no glibc for it: apt-get install qemu-user-static libc6-arm64-cross")
    shutil.copy(library(PLATFORM, tmp_path), tmp_path / "libst.so.2")
    program = tmp_path / "lifecycle"
    run(
        "python3", "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.17", "-O2", "-s", "-std=c99",
        "-D_POSIX_C_SOURCE=200809L", f"-I{ROOT}/capi/include", ROOT / "tests/c/lifecycle.c", tmp_path / "libst.so.2",
        "-o", program,
    )  # fmt: skip
    assert "AArch64" in run("readelf", "-hW", program)
    run(QEMU, loader, "--library-path", f"{tmp_path}:{GLIBC}", program, tmp_path / "lifecycle.safetensors")
