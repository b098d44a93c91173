"""The Debian packages: lintian has nothing to say, and apt installs them on a Debian 12 that has nothing of libst."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from bare_debian import BareDebian
from conftest import ROOT, block, library, made, run
from roots import BARE

pytestmark = pytest.mark.timeout(1500)  # making a root, and a compiler to be downloaded into it

PACKAGES = ["libst2", "libst2-dev", "stctl", "python3-libst"]
FOR_URLS = "libst-remote2"
APT = "apt-get -qq -o APT::Sandbox::User=root -o Binary::apt::APT::Keep-Downloaded-Packages=true install -y --no-install-recommends"


@pytest.fixture(scope="module")
def packages():
    return {name: made(f"{name}_*.deb") for name in [*PACKAGES, FOR_URLS]}


@pytest.fixture(scope="module")
def debian(packages, tmp_path_factory):
    inside = BareDebian(BARE, tmp_path_factory.mktemp("debian"), ROOT / "dist")
    assert inside("command -v cc python3 pkg-config stctl || true; find / -xdev -name 'libst.*' -o -name st.h") == ""
    inside("apt-get -qq update")
    return inside


def install_line(number: int = 0) -> str:
    lines = re.findall(r"`sudo (apt install [^`]*)`", (ROOT / "README.md").read_text())
    return lines[number].replace("apt install", APT)


@pytest.fixture(scope="module")
def installed(debian, packages):
    """As README.md says, and beside State Threads, whose packages have the names libst1 and libst-dev."""
    line = install_line()
    assert sorted(re.findall(r"\./dist/(\S+)", line)) == sorted(packages[name].name for name in PACKAGES)
    debian(f"cd /srv && {line}")
    debian(f"{APT} g++ pkg-config libst1 libst-dev")
    return debian


@pytest.mark.parametrize("name", [*PACKAGES, FOR_URLS])
def test_lintian_has_nothing_to_say(packages, name):
    if not shutil.which("lintian"):
        pytest.skip("there is no lintian")
    if name == "libst2-dev" and "DIST_CXXFLAGS" in os.environ:
        pytest.skip("lintian takes a minute for a static library that is not optimised: bash tests/run.sh dist-all")
    said = run("lintian", "--fail-on=error,warning", "--allow-root", packages[name])
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


# A server on loopback, in the system's Python: a small file comes whole with its first answer.
BY_URL = """
import functools, http.server, subprocess, sys, threading
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/model.safetensors"
sys.exit(subprocess.run([word.replace("URL", url) for word in sys.argv[1:]]).returncode)
"""

LOAD = """
import libst, sys
assert libst.load(sys.argv[1])["w"].sum() == 6
print(libst.show_config("dicts")["library"])
"""


def test_urls_are_read_with_a_package_of_their_own(installed, model, packages, tmp_path):
    installed.put("by_url.py", BY_URL)
    ls = "python3 by_url.py stctl ls URL"
    said = installed(f"{ls} 2>&1 || true")
    assert "Debian's package libst-remote2;" in said and "ST_E_UNSUPPORTED" in said
    assert "\nURLs: no; " in installed("stctl --version --verbose")

    line = install_line(1)
    assert re.findall(r"\./dist/(\S+)", line) == [packages[FOR_URLS].name]
    installed(f"cd /srv && {line}")
    assert re.search(r"w\s+F32\s+\[2, ?3\]", installed(ls))
    assert "\nURLs: yes\n" in installed("stctl --version --verbose")

    # The library of a wheel finds it, too.
    shutil.copy(library("manylinux2014_x86_64", tmp_path), installed.folder / "wheel.so")
    installed.put("load.py", LOAD)
    said = installed("LIBST_LIBRARY=/work/wheel.so python3 by_url.py python3 load.py URL")
    assert said == "/work/wheel.so\n"


def test_state_threads_stays_what_it_is(installed):
    installed.put("threads.c", "#include <st.h>\nint main(void) { return st_init(); }\n")
    installed("cc threads.c -o threads -lst && ./threads")  # libst has no such function


def test_the_packages_leave_nothing_behind(installed):
    names = " ".join([*PACKAGES, FOR_URLS])
    listed = set(installed(f"dpkg -L {names}").split())
    installed(f"apt-get -qq purge -y {names}")
    ours = sorted(path for path in listed if re.search("libst|stctl|/st/", path))
    assert len(ours) > 40
    assert installed(f"ls -d {' '.join(ours)} 2>/dev/null || true") == ""
    assert "usr/lib/libst.so.1.9" in installed("ls /usr/lib/libst.so.1.9")
