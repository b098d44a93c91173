"""The library of the musllinux wheel under musl's own loader.

Debian has no Python that is made for musl. So a program in C calls every function: tests/c/lifecycle.c.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, library, long, run

pytestmark = long

PLATFORM = "musllinux_1_1_x86_64"
LOADER = Path("/lib/ld-musl-x86_64.so.1")
# Names that musl 1.2 brought, or later ones of it. The wheels promise 1.1.
NEWER = {
    "_Fork", "gettid", "preadv2", "pwritev2", "qsort_r", "reallocarray",
    "posix_getdents", "renameat2", "statx", "tcgetwinsize", "tcsetwinsize",
}  # fmt: skip


def test_it_wants_nothing_that_came_after_musl_1_1(tmp_path):
    wanted = run("readelf", "--dyn-syms", "-W", library(PLATFORM, tmp_path))
    names = set(re.findall(r"UND (\w+)", wanted))
    assert "memcpy" in names and not names & NEWER, names & NEWER
    assert not re.findall(r"@GLIBC", wanted)


def test_a_program_calls_every_function(tmp_path):
    if os.uname().machine != "x86_64" or not LOADER.exists():
        pytest.skip("musl's loader for x86-64 is not here: apt-get install musl")
    shutil.copy(library(PLATFORM, tmp_path), tmp_path / "libst.so.2")
    program = tmp_path / "lifecycle"
    run(
        "python3", "-m", "ziglang", "cc", "-target", "x86_64-linux-musl", "-dynamic", "-O2", "-s", "-std=c99",
        "-D_POSIX_C_SOURCE=200809L", f"-I{ROOT}/capi/include", ROOT / "tests/c/lifecycle.c", tmp_path / "libst.so.2",
        "-o", program,
    )  # fmt: skip
    assert str(LOADER) in run("readelf", "-lW", program)
    run(LOADER, "--library-path", tmp_path, program, tmp_path / "lifecycle.safetensors")
