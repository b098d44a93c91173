"""The Python suite on the oldest Debian that its mirror has, on which there is nothing but Python.

It has no compiler, no pip, and none of the libraries that libst is built with. With ST_DIST=all the same on
aarch64, which qemu-user emulates.
"""

from __future__ import annotations

import os
import re

import pytest
from conftest import long, run, wheel
from roots import OLDEST, OLDEST_ARM

pytestmark = pytest.mark.timeout(1500)  # a whole suite, and the making of the root

# The last stock safetensors for that Python. The three at the end pip would add if it ran there.
SUITE_NEEDS = [
    "safetensors==0.7.0", "pytest==8.4.2", "pytest-timeout==2.4.0", "exceptiongroup", "tomli", "typing_extensions",
]  # fmt: skip


@pytest.fixture(
    scope="module",
    params=["manylinux2014_x86_64", pytest.param("manylinux2014_aarch64", marks=[long, pytest.mark.timeout(3000)])],
)
def platform(request):
    return request.param


@pytest.fixture(scope="module")
def inside(platform, tmp_path_factory):
    """Runs a command there, with the wheel and what the suite imports; pip picks both by the tags of that system."""
    root = OLDEST if platform.endswith("x86_64") else OLDEST_ARM
    root.make()
    for tool in ("cc", "g++", "pip3", "pkg-config"):
        assert not (root.path / "usr" / "bin" / tool).exists()
    assert not list(root.path.glob("usr/lib/*/libsimdjson*"))
    site = tmp_path_factory.mktemp("site")
    run(
        "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", site,
        "--python-version", root.python, "--platform", platform, "--only-binary=:all:",
        "--root-user-action=ignore", wheel(platform), *SUITE_NEEDS,
    )  # fmt: skip
    return lambda *words: root.run(*words, site=site, scratch=tmp_path_factory.mktemp("scratch"))


# Two files read st.h by capi/st_h.py, which wants Python 3.11. Comparisons with stock 0.8 want 3.10. The loaders are
# examples of the tree, which is not there.
LEFT_OUT = [f"--ignore=tests/python/test_{name}.py" for name in ("abi", "struct_sizes", "compat")]
OTHERS = ("FNUZ", "stock_writes_them", "loader")
# The root for aarch64 has a namespace of users of its own, in which nobody but root is. And qemu takes no filter of
# system calls, and lacks process_vm_readv.
NOT_THERE = ("without_a_home", "may_not_search", "only_owners_replace", "forbidden_file", "mode_owner")
NOT_BY_QEMU = ("forbids_calls", "memory_that_is_gone")
# They reach the library in most of its ways; what they then do is tried by the stage `python`.
FEW = ("api", "callbacks", "delta", "open", "shards", "update")
SUITE = ["tests/python"] if os.environ.get("ST_DIST") == "all" else [f"tests/python/test_{name}.py" for name in FEW]


def test_the_python_suite_passes_there(inside, platform):
    others = OTHERS if platform.endswith("x86_64") else OTHERS + NOT_THERE + NOT_BY_QEMU
    left_out = [*LEFT_OUT, "-k", " and ".join(f"not {name}" for name in others)]
    said = inside("python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=300", "-rs", *left_out, *SUITE)
    (passed,) = re.findall(r"^(?:=+ )?(\d+) passed", said, re.M)
    assert int(passed) > 200


def test_its_switch_for_safetensors_works_there(inside):
    said = inside(
        "env", "LIBST_COMPAT=1", "python3", "-c", "import safetensors; print(safetensors.safe_open.__module__)"
    )
    assert said.startswith("libst.compat")
