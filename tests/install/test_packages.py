"""What is handed to others: the wheel, the source package, the crates."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import ROOT, quick_compiler, shell

LICENSE = (ROOT / "LICENSE").read_text()

FROZEN = """
import libst.compat

libst.compat.install()

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

save_file({"a": np.arange(4.0)}, "a.safetensors")
with libst.open("a.safetensors", "r+") as f:
    f.update("a", f["a"] * 2)
print(load_file("a.safetensors")["a"].tolist())
try:
    import safetensors.torch
except ImportError as error:
    print(error.name)
"""


@pytest.fixture(scope="module")
def installed(python) -> Path:
    """The folder of libst in an environment that has never seen this tree."""
    where = "import libst; print(libst.__file__)"
    return Path(shell(f"cd / && python -c '{where}'", Path("/"), python).strip()).parent


@pytest.fixture(scope="module")
def notes(installed) -> Path:
    (found,) = installed.parent.glob("libst-*.dist-info")
    return found


def test_the_wheel_is_for_every_python_of_its_platform(notes):
    tags = re.findall(r"^Tag: (.*)$", (notes / "WHEEL").read_text(), re.M)
    assert tags and all(re.fullmatch(r"py3-none-linux_\w+", tag) for tag in tags), tags


def test_the_wheel_carries_the_library_and_the_license(installed, notes):
    assert (installed / "libst.so.2").is_file() and not (installed / "libst.so.2").is_symlink()
    assert (notes / "licenses" / "LICENSE").read_text() == LICENSE
    assert "License-Expression: Apache-2.0" in (notes / "METADATA").read_text()
    record = (notes / "RECORD").read_text()
    assert "meson" not in record and "tests/" not in record


def test_a_program_that_is_frozen_has_the_library_inside(python, tmp_path):
    (tmp_path / "program.py").write_text(FROZEN)
    shell(
        "pip install --quiet --disable-pip-version-check pyinstaller==6.22.3 && "
        "pyinstaller --log-level ERROR program.py && mv dist/program moved",
        tmp_path,
        python | {"PYINSTALLER_CONFIG_DIR": str(tmp_path / "cache")},
    )
    said = shell("env -i moved/program", tmp_path, python)
    assert said.splitlines() == ["[0.0, 2.0, 4.0, 6.0]", "torch"]  # torch itself is what lacks, not libst's part for it


@pytest.fixture
def build_of_its_own():
    """Beside that of the wheel, so that ccache has compiled it already."""
    folder = ROOT / "build-editable"
    shutil.rmtree(folder, ignore_errors=True)
    yield folder
    shutil.rmtree(folder)


def test_an_editable_install_finds_the_library_of_its_build(python, build_of_its_own, tmp_path):
    shell(
        "python3 -m venv venv && venv/bin/pip install --quiet --disable-pip-version-check "
        f"-Cbuild-dir={build_of_its_own} --editable {ROOT}",
        tmp_path,
        python | quick_compiler() | {"CXXFLAGS": "-O0"},
    )
    said = shell("venv/bin/python -c 'import libst; print(libst.__file__, libst._library.path)'", tmp_path, python)
    package, library = map(Path, said.split())
    assert package.is_relative_to(ROOT) and library == build_of_its_own / "bindings/python/libst.so.2"


def test_the_source_package_has_what_the_build_takes_and_not_what_fuzzing_found(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("a source package is made of a git checkout")
    packed = tmp_path / "source.tar"
    subprocess.run(
        ["git", "-C", ROOT, "archive", "--output", packed, "--prefix=libst/", "HEAD"], check=True
    )  # as `meson dist`
    with tarfile.open(packed) as archive:
        names = {name.removeprefix("libst/") for name in archive.getnames()}
    assert {"LICENSE", "meson.build", "pyproject.toml", "bindings/python/any_python.py", "core/base/error.cpp"} <= names
    assert not [name for name in names if name.startswith("tests/fuzz/corpus")]


@pytest.mark.parametrize("crate", ["libst", "libst-sys"])
def test_a_crate_carries_the_license(crate):
    if not shutil.which("cargo"):
        pytest.skip("there is no cargo")
    folder = ROOT / "bindings" / "rust" / crate
    listed = shell(f"cargo package --list --allow-dirty --locked -p {crate}", folder, None).split()
    assert "LICENSE" in listed and (folder / "LICENSE").read_text() == LICENSE
