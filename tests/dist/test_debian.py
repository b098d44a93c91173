"""The Debian packages: lintian has nothing to say, and apt installs them on a Debian 12 that has nothing of libst."""

from __future__ import annotations

import re
import shutil

import pytest
from bare_debian import BareDebian
from conftest import ROOT, block, made, run
from roots import BARE

pytestmark = pytest.mark.timeout(1500)  # making a root, and a compiler to be downloaded into it

PACKAGES = ["libst2", "libst2-dev", "stctl", "python3-libst"]
APT = "apt-get -qq -o APT::Sandbox::User=root -o Binary::apt::APT::Keep-Downloaded-Packages=true install -y --no-install-recommends"


@pytest.fixture(scope="module")
def packages():
    return {name: made(f"{name}_*.deb") for name in PACKAGES}


@pytest.fixture(scope="module")
def debian(packages, tmp_path_factory):
    inside = BareDebian(BARE, tmp_path_factory.mktemp("debian"), ROOT / "dist")
    assert inside("command -v cc python3 pkg-config stctl || true; find / -xdev -name 'libst.*' -o -name st.h") == ""
    inside("apt-get -qq update")
    return inside


@pytest.fixture(scope="module")
def installed(debian, packages):
    """As README.md says, and beside State Threads, whose packages have the names libst1 and libst-dev."""
    line = re.search(r"`sudo (apt install [^`]*)`", (ROOT / "README.md").read_text())[1]
    assert sorted(re.findall(r"\./dist/(\S+)", line)) == sorted(path.name for path in packages.values())
    debian(f"cd /srv && {line.replace('apt install', APT)}")
    debian(f"{APT} g++ pkg-config libst1 libst-dev")
    return debian


def test_lintian_has_nothing_to_say(packages):
    if not shutil.which("lintian"):
        pytest.skip("there is no lintian")
    said = run("lintian", "--fail-on=error,warning", "--allow-root", *packages.values())
    assert not re.findall(r"^[EW]: .*", said, re.M), said


MODEL = """
import libst, numpy
libst.save("model.safetensors", {"final_conv.bias": numpy.full(1, 3, numpy.float32), "w": numpy.ones((2, 3), numpy.float32)})
"""

CHANGE = """
import libst, numpy
bits = numpy.array([0x3F80, 0x4000], "<u2").view([("BF16", "<u2")])
libst.save("p.safetensors", {"w": numpy.arange(3.0), "b": bits})
with libst.open("p.safetensors", "r+") as f:
    f.update("w", f["w"] * 2)
    assert f["b"]["BF16"].tolist() == [0x3F80, 0x4000]
assert libst.load("p.safetensors")["w"].tolist() == [0, 2, 4]
libst.show_config()
"""


@pytest.fixture
def model(installed):
    installed.put("model.py", MODEL)
    installed("rm -f model.safetensors && python3 model.py")


def test_stctl_lists_and_changes_a_file(installed, model):
    assert re.search(r"w\s+F32\s+\[2, ?3\]", installed("stctl ls model.safetensors"))
    installed("stctl update model.safetensors w --fill 2")
    assert installed("stctl get model.safetensors w -o w.raw --format raw && od -An -tf4 w.raw").split() == ["2"] * 6
    assert "\nplatform: Linux " in installed("stctl --version --verbose")
    assert "Usage" in installed("stctl update --help") and installed("ls /usr/share/man/man1/stctl.1.gz")


def test_python_takes_the_library_of_the_system(installed):
    installed.put("change.py", CHANGE)
    said = installed("python3 change.py")
    assert "\nlibrary: libst.so.2\n" in said and "no ml_dtypes" in said
    version = re.search(r"version: '(.*)'", (ROOT / "meson.build").read_text())[1]
    assert installed("python3 -c 'import importlib.metadata as m; print(m.version(\"libst\"))'").strip() == version
    assert (
        installed("LIBST_COMPAT=1 python3 -c 'import safetensors; print(safetensors.__file__)'").count("libst/compat")
        == 1
    )


@pytest.mark.parametrize("compile_", ["cc", "cc -static"])
def test_the_program_of_the_readme_is_built_with_pkg_config(installed, model, compile_):
    installed.put("program.c", block("README.md", "c"))
    flags = "--static" if "static" in compile_ else ""
    installed(f"{compile_} program.c -o program $(pkg-config {flags} --cflags --libs libst)")
    needed = installed("objdump -p program").split()
    assert ("libst.so.2" in needed) == ("static" not in compile_)
    installed("./program")
    assert "1.5" in installed("stctl get model.safetensors final_conv.bias")


def test_state_threads_stays_what_it_is(installed):
    installed.put("threads.c", "#include <st.h>\nint main(void) { return st_init(); }\n")
    installed("cc threads.c -o threads -lst && ./threads")  # libst has no such function


def test_the_packages_leave_nothing_behind(installed):
    names = " ".join(PACKAGES)
    listed = set(installed(f"dpkg -L {names}").split())
    installed(f"apt-get -qq purge -y {names}")
    ours = sorted(path for path in listed if re.search("libst|stctl|/st/", path))
    assert len(ours) > 40
    assert installed(f"ls -d {' '.join(ours)} 2>/dev/null || true") == ""
    assert "usr/lib/libst.so.1.9" in installed("ls /usr/lib/libst.so.1.9")
