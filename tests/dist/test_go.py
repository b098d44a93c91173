"""The Go module that dist.sh packs: a program outside the tree, with nothing of libst installed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tarfile

import numpy as np
import pytest
from conftest import ROOT, block, made, run
from safetensors.numpy import load_file, save_file

MACHINE = {"x86_64": "linux_amd64", "aarch64": "linux_arm64"}.get(platform.machine(), "none")


@pytest.fixture(scope="module")
def go() -> dict[str, str]:
    found = subprocess.run(["bash", ROOT / "tests/go/toolchain.sh"], stdout=subprocess.PIPE, text=True)
    if found.returncode:
        pytest.skip("there is no Go that can build the binding")
    unset = {"LIBST_LIBRARY", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CGO_LDFLAGS", "CGO_CFLAGS"}
    kept = {k: v for k, v in os.environ.items() if k not in unset}
    path = f"{found.stdout.strip()}:{kept['PATH']}"
    return kept | {"PATH": path, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "PKG_CONFIG_LIBDIR": "/nonexistent"}


@pytest.fixture(scope="module")
def program(go, tmp_path_factory):
    """The README's program, built as the README says: beside the unpacked module."""
    place = tmp_path_factory.mktemp("go")
    with tarfile.open(made("libst-go-*.tar.gz")) as packed:
        packed.extractall(place, filter="data")
    if not (place / made("libst-go-*.tar.gz").name.removesuffix(".tar.gz") / "lib" / MACHINE).exists():
        pytest.skip("the module has no library for this machine")
    folder = place / "program"
    folder.mkdir()
    (folder / "main.go").write_text(block("README.md", "go"))
    run("bash", "-euc", block("bindings/go/README.md", "sh", 0), cwd=folder, env=go)
    run("go", "build", "-o", "program", ".", cwd=folder, env=go)
    return folder / "program"


def changes(program, folder):
    path = folder / "model.safetensors"
    weights = {"lstm_cell.weight_ih": np.ones((8, 4), np.float32), "final_conv.bias": np.ones(1, np.float32)}
    save_file(weights, path)
    run(program, cwd=folder, env={})
    now = load_file(path)
    assert now["head"].shape == (4, 4) and "output.bias" in now


def test_a_fresh_program_finds_the_library_in_the_module(program, tmp_path):
    changes(program, tmp_path)


def test_a_program_that_is_handed_on_finds_the_library_beside_itself(program, tmp_path):
    (module,) = program.parents[1].glob("libst-go-*")
    shutil.copy(program, tmp_path)
    shutil.copy(module / "lib" / MACHINE / "libst.so.2", tmp_path)
    away = module.rename(module.parent / "away")
    try:
        changes(tmp_path / "program", tmp_path)
        (tmp_path / "libst.so.2").unlink()
        done = subprocess.run([tmp_path / "program"], env={}, capture_output=True, text=True)
        assert done.returncode and "libst.so.2" in done.stderr
    finally:
        away.rename(module)


def test_the_systems_library_is_taken_where_it_is_asked_for(program, go):
    done = subprocess.run(
        ["go", "build", "-tags", "libst_system", "-o", "other", "."],
        cwd=program.parent,
        env=go,
        capture_output=True,
        text=True,
    )
    assert done.returncode and re.search("pkg-config.*libst", done.stderr, re.S), done.stderr


def test_the_first_page_has_the_line_that_was_built_with():
    (line,) = (line for line in block("bindings/go/README.md", "sh").splitlines() if "-replace=" in line)
    assert f"`{line}`" in (ROOT / "README.md").read_text()


def test_the_module_carries_no_tests_and_its_licenses():
    with tarfile.open(made("libst-go-*.tar.gz")) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"LICENSE", "NOTICES", "go.mod", "include/st/st.h", "link_beside.go", "link_system.go"} <= names
    assert not [name for name in names if name.endswith("_test.go")]
