"""Where the library or a compiler is missing, the sentence that one sees says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, shell
from readme import block


def refused(text: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode, f"{text} did not fail"
    return done.stdout


def test_go_without_cgo_is_told_to_have_it(go, folder):
    shell(block("bindings/go/README.md", "sh", 1).text, folder, go)
    (folder / "main.go").write_text(block("README.md", "go").text)
    said = refused("go build .", folder, go | {"CGO_ENABLED": "0"})
    assert "libst/st needs cgo: build with CGO_ENABLED=1 and a C compiler" in said
    assert "build constraints" not in said and "undefined" not in said


def test_rust_says_at_the_build_what_a_start_needs(environment, prefix, folder):
    if not shutil.which("cargo"):
        pytest.skip("there is no cargo")
    package = '[package]\nname = "program"\nedition = "2021"\n'
    (folder / "Cargo.toml").write_text(package + block("bindings/rust/libst/README.md", "toml", 1).text)
    shutil.copy(ROOT / "bindings/rust/Cargo.lock", folder)
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text(block("README.md", "rust").text)
    unset = {k: v for k, v in environment.items() if k not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH")}
    unset |= {"LIBST_DIR": str(prefix.path), "CARGO_TARGET_DIR": f"{environment['CARGO_TARGET_DIR']}-missing"}
    assert f"set LD_LIBRARY_PATH={prefix.libdir}" in shell("cargo build", folder, unset)
    assert "set LD_LIBRARY_PATH" not in shell("cargo build", folder, unset | {"LD_LIBRARY_PATH": str(prefix.libdir)})


@pytest.fixture
def package(tmp_path) -> Path:
    """The Python package without a library beside it."""
    shutil.copytree(ROOT / "bindings" / "python" / "libst", tmp_path / "libst")
    return tmp_path


def test_a_wheel_whose_library_is_missing_says_where_it_was_looked_for(package, python):
    beside = package / "libst" / "libst.so.2"
    unset = {k: v for k, v in python.items() if k != "LD_LIBRARY_PATH"} | {"PYTHONPATH": str(package)}
    said = refused("python -c 'import libst'", package, unset)
    assert f"lacks its library: it is neither {beside}, where a wheel has it, nor among the system's" in said
    assert "Install the package anew" in said and "LIBST_LIBRARY" in said
    beside.write_bytes(b"not a library")
    assert f"{beside} cannot be loaded. Install libst for Python anew" in refused(
        "python -c 'import libst'", package, unset
    )
    named = unset | {"LIBST_LIBRARY": "/none/libst.so.2"}
    assert "LIBST_LIBRARY names /none/libst.so.2, which cannot be loaded" in refused(
        "python -c 'import libst'", package, named
    )


def test_a_library_in_an_archive_is_not_said_to_be_missing(package, python):
    (package / "libst" / "libst.so.2").write_bytes(b"in the archive as it is in a wheel")
    archive = Path(shutil.make_archive(str(package / "program"), "zip", package, "libst"))
    unset = {k: v for k, v in python.items() if k != "LD_LIBRARY_PATH"} | {"PYTHONPATH": str(archive)}
    said = refused("python -c 'import libst'", package.parent, unset)
    assert f"lies in an archive ({archive / 'libst'})" in said and "LIBST_LIBRARY" in said
    assert "Install the package anew" not in said


def test_python_looks_for_the_systems_library_where_a_package_has_none(package, python):
    told = shell(
        "python -c 'import libst; print(libst.verify(\"none\") if 0 else libst.version)'",
        package,
        python | {"PYTHONPATH": str(package)},
    )
    assert told.startswith("2.") and os.path.exists(package / "libst")
