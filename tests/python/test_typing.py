"""The package is typed, and its types are right."""

import subprocess
import sys

import pytest
from conftest import REPOSITORY


def test_mypy_has_nothing_to_say(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--config-file", "pyproject.toml"]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
