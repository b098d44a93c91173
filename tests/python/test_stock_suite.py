"""Stock's own tests pass with libst in the place of stock.

They come with its source distribution, from PyPI, when this runs, and are no part of this tree. Left out are those that
need a package which is not here: tests/test_{tf,paddle,mlx}_comparison.py their frameworks, and
tests/test_flax_comparison.py the package flax, of which it takes another format to compare with.
"""

import subprocess
import sys

import pytest
from conftest import REPOSITORY
from frameworks_rig import environment, run_pytest
from libst.compat._install import SHADOW
from stock_source import NAME, fetch


@pytest.fixture
def suite(tmp_path):
    """The folder that its tests are run in."""
    source = fetch(REPOSITORY / "build" / "cache", tmp_path)
    return source or pytest.skip(f"the source distribution of {NAME} cannot be had from PyPI")


def test_stock_suite(suite):
    names = ("simple", "handle", "threadable", "multithreaded", "pread_backend", "pt_comparison", "pt_model")
    env = environment(SHADOW)
    code = "import safetensors; print(safetensors.safe_open.__module__)"
    said = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert said.stdout == "libst.compat._open\n"
    run_pytest(env, suite, *(f"tests/test_{name}.py" for name in names), at_least=60)
