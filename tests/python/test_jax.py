"""frameworks/jax_cases.py, in a process of its own: jax starts threads, and other tests here fork."""

import importlib.util
import os
from pathlib import Path

import pytest
from frameworks_rig import run_pytest


def test_jax():
    if not importlib.util.find_spec("jax"):
        pytest.skip("jax is not installed")
    folder = Path(__file__).parent
    run_pytest({**os.environ, "JAX_PLATFORMS": "cpu"}, folder, "frameworks/jax_cases.py", at_least=5)
