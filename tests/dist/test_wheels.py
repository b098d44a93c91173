"""A wheel carries all that it needs, and says truly where it runs."""

from __future__ import annotations

import re
import sys
import zipfile

import pytest
from conftest import OF_MACOS, ROOT, library, long, run, source_package, wheel

PLATFORMS = ["manylinux2014_x86_64", "manylinux2014_aarch64", "musllinux_1_1_x86_64", "musllinux_1_1_aarch64"]
each_platform = pytest.mark.parametrize(
    "platform", [PLATFORMS[0], *(pytest.param(name, marks=long) for name in PLATFORMS[1:])]
)
LARGEST = 3 << 20

# What the libc of the platform brings. All else is inside.
OF_LIBC = {
    "manylinux2014": r"(libc|libm|libdl|libpthread|librt)\.so\.\d|ld-linux-.*",
    "musllinux_1_1": r"libc\.musl-(x86_64|aarch64)\.so\.1",
}

CHANGE = """
import libst, numpy as np, sys
libst.save("f.safetensors", {"a": np.arange(6.0), "b": np.ones(3, np.int8)})
with libst.open("f.safetensors", "r+") as f:
    f.update("a", f["a"] * 2)
    with f.transaction() as t:
        t.delete("b")
with libst.open("f.safetensors") as f:
    assert list(f) == ["a"] and (f["a"] == np.arange(6.0) * 2).all()
try:
    libst.open("none.safetensors")
except FileNotFoundError:
    print(libst.__file__)
"""


def version() -> str:
    (found,) = re.findall(r"^  version: '(.*)'", (ROOT / "meson.build").read_text(), re.M)
    return found


@each_platform
def test_a_wheel_is_small_and_carries_library_licenses_and_nothing_of_the_build(platform):
    path = wheel(platform)
    assert path.stat().st_size <= LARGEST
    with zipfile.ZipFile(path) as packed:
        names = packed.namelist()
        (tags,) = [packed.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL")]
        (notices,) = [packed.read(name).decode() for name in names if name.endswith("/NOTICES")]
    assert f"Tag: py3-none-{platform}\n" in tags
    assert "libst/libst.so.2" in names and "libst-compat.pth" in names
    assert all(name in notices for name in ("xxHash", "simdjson", "zstd"))
    assert [name for name in names if name.endswith("/licenses/LICENSE")]
    assert not [name for name in names if re.search(r"meson|tests/|\.a$|\.pc$|\.h$", name)]


@each_platform
def test_its_library_wants_the_libc_of_its_name_and_exports_the_abi_alone(platform, tmp_path):
    found = library(platform, tmp_path)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", found))
    libc = re.sub("_(x86_64|aarch64)$", "", platform)
    assert needed and not [name for name in needed if not re.fullmatch(OF_LIBC[libc], name)], needed
    versions = re.findall(r"UND \w+@GLIBC_2\.(\d+)", run("readelf", "--dyn-syms", "-W", found))
    assert all(int(version) <= 17 for version in versions) and bool(versions) == libc.startswith("many")
    said = run("sh", ROOT / "tests/c/exports.sh", "cc", found, ROOT / "capi", ROOT / "tests/c/lifecycle.c")
    assert "not ok" not in said and "1.." in said, said


def test_pip_installs_it_where_nothing_of_libst_is(tmp_path):
    if sys.platform != "linux" or "x86_64" not in run("uname", "-m"):
        pytest.skip("the wheel is for x86-64")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel("manylinux2014_x86_64"))
    where = run("env", "-i", python, "-c", CHANGE, cwd=tmp_path).strip()
    assert where.startswith(str(tmp_path / "venv"))


@each_platform
def test_pip_takes_it_on_its_platform(platform, tmp_path):
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--root-user-action=ignore", "--platform", platform, "--target", tmp_path,
        wheel(platform),
    )  # fmt: skip
    assert (tmp_path / "libst" / "libst.so.2").is_file()


def test_the_readme_names_these_files():
    named = re.findall(r"pip install dist/(libst-\S+\.whl|\S+\.tar\.gz)", (ROOT / "README.md").read_text())
    wheels = [f"libst-{version()}-py3-none-{platform}.whl" for platform in (*PLATFORMS, *OF_MACOS, "win_amd64")]
    assert sorted(named) == sorted([*wheels, f"libst-{version()}.tar.gz"])
    assert source_package().name in named
    made = {path.stem for path in (ROOT / "core" / "platforms").iterdir()}
    assert made == {*PLATFORMS, *OF_MACOS, "windows_x86_64"}
