"""The Python suite on the oldest Debian that its mirror has, on which there is nothing but Python.

It has no compiler, no pip, and none of the libraries that libst is built with.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, ROOT, run, wheel

pytestmark = pytest.mark.timeout(1500)  # a whole suite, and the making of the root
SUITE, PYTHON = "bullseye", "3.9"

# The last stock safetensors for that Python. The three at the end pip would add if it ran there.
SUITE_NEEDS = [
    "safetensors==0.7.0", "pytest==8.4.2", "pytest-timeout==2.4.0", "exceptiongroup", "tomli", "typing_extensions",
]  # fmt: skip

# In a mount namespace of its own, so nothing stays mounted: the packages, and the tests to be read.
ENTER = """
set -e
mount --make-rprivate /
mount --bind "$SITE" "$BARE/usr/local/lib/python$PYTHON/dist-packages"
mkdir -p "$BARE/srv/libst/tests"
mount --bind "$TESTS" "$BARE/srv/libst/tests"
mount -o remount,bind,ro "$BARE/srv/libst/tests"
mount -t proc proc "$BARE/proc"
mount --rbind /dev "$BARE/dev"
mount --bind "$SCRATCH" "$BARE/tmp"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LIBST_TEST_INSTALLED=yes ST_TEST_BOUND=small \
  PYTHONDONTWRITEBYTECODE=1 chroot "$BARE" sh -c 'cd /srv/libst && exec "$@"' sh "$@"
"""


@pytest.fixture(scope="module")
def bare() -> Path:
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("a bare root needs debootstrap, and root to enter it")
    root = BUILD / "dist" / "roots" / SUITE
    if not (root / "made").exists():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        run("debootstrap", "--variant=minbase", "--include=python3", SUITE, root)
        (root / "made").touch()
    for tool in ("cc", "g++", "pip3", "pkg-config"):
        assert not (root / "usr" / "bin" / tool).exists()
    assert not list(root.glob("usr/lib/*/libsimdjson*"))
    return root


@pytest.fixture(scope="module")
def inside(bare, tmp_path_factory):
    """Runs a command there, with the wheel and what the suite imports; pip picks both by the tags of that system."""
    site = tmp_path_factory.mktemp("site")
    run(
        "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", site,
        "--python-version", PYTHON, "--platform", "manylinux2014_x86_64", "--only-binary=:all:",
        "--root-user-action=ignore", wheel("manylinux2014_x86_64"), *SUITE_NEEDS,
    )  # fmt: skip

    def command(*words: str) -> str:
        scratch = tmp_path_factory.mktemp("scratch")  # on a disk: libst reads memory filesystems in other ways
        env = {"BARE": bare, "SITE": site, "SCRATCH": scratch, "TESTS": ROOT / "tests", "PYTHON": PYTHON}
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-c", ENTER, "bash", *words],
            env=os.environ | {name: str(value) for name, value in env.items()}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        print(done.stdout)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return command


# Two files read st.h by capi/st_h.py, which wants Python 3.11. Comparisons with stock 0.8 want 3.10. The loaders are
# examples of the tree, which is not there.
LEFT_OUT = [f"--ignore=tests/python/test_{name}.py" for name in ("abi", "struct_sizes", "compat")]
LEFT_OUT += ["-k", "not FNUZ and not stock_writes_them and not loader"]


def test_the_python_suite_passes_there(inside):
    said = inside(
        "python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=300", "-rs", *LEFT_OUT, "tests/python"
    )
    (passed,) = re.findall(r"^(?:=+ )?(\d+) passed", said, re.M)
    assert int(passed) > 300


def test_its_switch_for_safetensors_works_there(inside):
    said = inside(
        "env", "LIBST_COMPAT=1", "python3", "-c", "import safetensors; print(safetensors.safe_open.__module__)"
    )
    assert said.startswith("libst.compat")
