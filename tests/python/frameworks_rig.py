"""Run pytest with a framework in a process of its own; with torch, as install_torch.sh unpacks it."""

import os
import subprocess
import sys

import pytest
from conftest import REPOSITORY

TORCH = REPOSITORY / "build" / "cache" / "torch"


def environment(*paths):
    """Where the loader and Python find torch; with more for Python before all."""
    if not (TORCH / ".complete").exists():
        pytest.skip("Debian's torch is not unpacked: PYTHON=... CACHE=build/cache bash tests/python/install_torch.sh")
    libraries = [TORCH / "usr/lib", *(TORCH / "usr/lib").glob("*-linux-gnu")]
    libraries += [folder / name for folder in libraries for name in ("blas", "lapack")]
    python = [*paths, TORCH / "numpy", TORCH / "usr/lib/python3/dist-packages", *sys.path]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "PYTHONPATH": os.pathsep.join(str(path) for path in python if path),
    }


def run_pytest(env, cwd, *arguments, at_least):
    """Fails with pytest's own report, or where fewer tests pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-W", "ignore", *arguments]
    said = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    print(said.stdout)
    passed = int(said.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed >= at_least
