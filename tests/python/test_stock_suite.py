"""Stock's own tests pass with libst in the place of stock.

They come with its source distribution, from PyPI, when this runs, and are no part of this tree. Left out are those that
need a package which is not here: tests/test_{tf,paddle,mlx}_comparison.py their frameworks, and
tests/test_flax_comparison.py the package flax, of which it takes another format to compare with.
"""

import os
import subprocess
import sys
import tarfile

import pytest
from conftest import REPOSITORY
from frameworks_rig import environment, run_pytest
from libst.compat._install import SHADOW

NAME = "safetensors-0.8.0"
CACHE = REPOSITORY / "build" / "cache"

# pip asks a source distribution's build system for metadata before it hands over the file. The real one wants Rust.
BUILD_SYSTEM = f"""
import os
def prepare_metadata_for_build_wheel(folder, settings=None):
    os.mkdir(os.path.join(folder, "{NAME}.dist-info"))
    with open(os.path.join(folder, "{NAME}.dist-info", "METADATA"), "w") as f:
        f.write("Metadata-Version: 2.1\\nName: safetensors\\nVersion: {NAME.split("-")[1]}\\n")
    return "{NAME}.dist-info"
"""


@pytest.fixture
def suite(tmp_path):
    """The folder that its tests are run in."""
    archive = CACHE / f"{NAME}.tar.gz"
    if not archive.exists():
        (tmp_path / "maturin.py").write_text(BUILD_SYSTEM)
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-build-isolation", "--no-binary", ":all:", "-d", CACHE, NAME.replace("-", "==")]
        said = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True)
        if said.returncode:
            pytest.skip(f"the source distribution of {NAME} cannot be had from PyPI")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / NAME / "bindings" / "python"


def test_stock_suite(suite):
    names = ("simple", "handle", "threadable", "multithreaded", "pread_backend", "pt_comparison", "pt_model")
    env = environment(SHADOW)
    code = "import safetensors; print(safetensors.safe_open.__module__)"
    said = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert said.stdout == "libst.compat._open\n"
    report = run_pytest(env, suite, *(f"tests/test_{name}.py" for name in names))
    passed = int(report.rsplit(" passed", 1)[0].split()[-1])
    assert passed >= 60
