"""The wheel for Windows: its content is checked, and its DLL runs under wine by stctl.exe. No Python runs it here."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import zipfile

import pytest
from conftest import BUILD, ROOT, long, run, wheel

pytestmark = long
LARGEST = 3 << 20
STCTL = BUILD / "windows" / "x86_64" / "bindings" / "cli" / "stctl.exe"
WINE = "/usr/lib/wine/wine64"


@pytest.fixture
def dll(tmp_path):
    with zipfile.ZipFile(wheel("win_amd64")) as packed:
        return packed.extract("libst/libst-2.dll", tmp_path)


def test_it_carries_what_the_others_do(tmp_path):
    path = wheel("win_amd64")
    assert path.stat().st_size <= LARGEST
    with zipfile.ZipFile(path) as packed, zipfile.ZipFile(wheel("manylinux2014_x86_64")) as other:
        names = {re.sub("libst-2.dll$", "libst.so.2", name) for name in packed.namelist()}
        assert names == set(other.namelist())
        (tags,) = [packed.read(name).decode() for name in packed.namelist() if name.endswith(".dist-info/WHEEL")]
        for name in packed.namelist():
            if name.endswith((".py", ".pth", "py.typed", "/NOTICES", "/LICENSE")):
                assert packed.read(name) == other.read(name), name
    assert "Tag: py3-none-win_amd64\n" in tags


def test_its_library_wants_the_system_alone_and_exports_the_abi_alone(dll):
    table = run("x86_64-w64-mingw32-objdump", "-p", dll)
    system = {"KERNEL32.dll", "msvcrt.dll", "ntdll.dll", "bcrypt.dll"}
    assert set(re.findall(r"DLL Name: (\S+)", table)) == system  # core/os/README.md says why it is this C library
    exported = re.findall(r"\s(\w+)$", table.split("[Ordinal/Name Pointer] Table")[1].split("\n\n")[0], re.M)
    wanted = re.findall(r"^ +(st_\w+);", (ROOT / "capi" / "st.map").read_text(), re.M)
    assert sorted(exported) == sorted(wanted)


def test_pip_takes_it_on_its_platform(tmp_path):
    run(
        "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--root-user-action=ignore", "--platform", "win_amd64", "--target", tmp_path,
        wheel("win_amd64"),
    )  # fmt: skip
    assert (tmp_path / "libst" / "libst-2.dll").is_file()


@pytest.mark.skipif(not STCTL.exists() or not os.path.exists(WINE), reason="bash tests/run.sh windows makes stctl.exe")
def test_its_library_reads_and_changes_files_under_wine(dll, tmp_path):
    header = json.dumps({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "f.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"abcd")
    program = shutil.copy(STCTL, os.path.dirname(dll))
    environment = {**os.environ, "WINEPREFIX": str(BUILD / "windows" / "wine"), "WINEDEBUG": "-all"}
    for command in (
        ("update", "f.safetensors", "a", "--fill", "7"),
        ("mv", "f.safetensors", "a", "b"),
        ("ls", "f.safetensors"),
    ):
        done = subprocess.run([WINE, program, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "b" in done.stdout
    content = (tmp_path / "f.safetensors").read_bytes()
    assert content.endswith(b"\x07" * 4) and b'"b"' in content
