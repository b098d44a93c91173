"""The package is typed, and its types are right."""

import os
import subprocess
import sys

import pytest
from conftest import REPOSITORY


def test_mypy_has_nothing_to_say(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--config-file", "pyproject.toml"]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


OF_A_USER = """
import gzip, io, mmap, tempfile, zipfile

import libst

with zipfile.ZipFile("models.zip") as archive, archive.open("m.safetensors") as member:
    libst.load(member)
    libst.open_source(member)
with gzip.open("m.safetensors.gz") as packed, tempfile.SpooledTemporaryFile() as spooled:
    libst.load(packed)
    libst.load(spooled)
with open("m.safetensors", "rb") as buffered, open("m.safetensors", "rb", buffering=0) as raw:
    libst.load(buffered)
    libst.load(raw)
    libst.load(mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ))
libst.load(io.BytesIO(b""))
libst.load(io.StringIO())  # gives no bytes
"""


def test_mypy_takes_the_file_objects_that_run(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "program.py").write_text(OF_A_USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "program.py"]
    environment = os.environ | {"MYPYPATH": str(REPOSITORY / "bindings" / "python")}
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert [line.split(":")[1] for line in said.splitlines() if ": error:" in line] == ["17"], said
