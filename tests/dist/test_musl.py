"""The libraries of the musllinux wheels under musl's own loaders, that for aarch64 by qemu.

Debian has no Python that is made for musl. So a program in C calls every function: tests/c/lifecycle.c.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from conftest import CACHE, ROOT, library, long, run

pytestmark = long

each_machine = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
QEMU = "qemu-aarch64-static"
# Names that musl 1.2 brought, or later ones of it. The wheels promise 1.1.
NEWER = {
    "_Fork", "gettid", "preadv2", "pwritev2", "qsort_r", "reallocarray",
    "posix_getdents", "renameat2", "statx", "tcgetwinsize", "tcsetwinsize",
}  # fmt: skip


def loader(machine: str) -> list[object]:
    """The words that run a program of that machine: musl's loader, and qemu before it."""
    name = f"ld-musl-{machine}.so.1"
    if machine == os.uname().machine:
        if not Path("/lib", name).exists():
            pytest.skip("musl's loader is not here: apt-get install musl")
        return [Path("/lib", name)]
    if not shutil.which(QEMU) or not shutil.which("apt-get"):
        pytest.skip("no emulator, or no Debian to have musl of: apt-get install qemu-user-static")
    # Debian's package for the other machine, unpacked and not installed; apt keeps lists of its own for it.
    musl = CACHE / "musl-arm64"
    if not (musl / "lib" / name).exists():
        shutil.rmtree(musl, ignore_errors=True)
        (musl / "lists" / "partial").mkdir(parents=True)
        of_arm64 = [f"Dir::State::lists={musl}/lists", f"Dir::Cache={musl}/cache"]
        of_arm64 += ["APT::Architecture=arm64", "APT::Architectures=arm64", "APT::Sandbox::User="]
        apt = ["apt-get", "-qq", *(word for option in of_arm64 for word in ("-o", option))]
        run(*apt, "update", cwd=musl)
        run(*apt, "download", "musl", cwd=musl)
        run("dpkg-deb", "--extract", *musl.glob("musl_*.deb"), musl)
    return [QEMU, musl / "lib" / name]


@each_machine
def test_it_wants_nothing_that_came_after_musl_1_1(machine, tmp_path):
    wanted = run("readelf", "--dyn-syms", "-W", library(f"musllinux_1_1_{machine}", tmp_path))
    names = set(re.findall(r"UND (\w+)", wanted))
    assert "malloc" in names and not names & NEWER, names & NEWER
    assert not re.findall(r"@GLIBC", wanted)


@each_machine
def test_a_program_calls_every_function(machine, tmp_path):
    shutil.copy(library(f"musllinux_1_1_{machine}", tmp_path), tmp_path / "libst.so.2")
    program = tmp_path / "lifecycle"
    run(
        "python3", "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl", "-dynamic", "-O2", "-s", "-std=c99",
        "-D_POSIX_C_SOURCE=200809L", f"-I{ROOT}/capi/include", ROOT / "tests/c/lifecycle.c", tmp_path / "libst.so.2",
        "-o", program,
    )  # fmt: skip
    assert f"/lib/ld-musl-{machine}.so.1" in run("readelf", "-lW", program)
    run(*loader(machine), "--library-path", tmp_path, program, tmp_path / "lifecycle.safetensors")
