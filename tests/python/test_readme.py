"""What README.md shows in Python runs as it stands there, on the model that the demo uses."""

import re
import shutil
import subprocess
import sys
import zipfile

import libst
import numpy as np
import pytest
from conftest import REPOSITORY

FOLDER = REPOSITORY / "build" / "cache"


@pytest.fixture
def model(tmp_path):
    """silero-vad, where the demo or this test has downloaded it."""
    wheel = FOLDER / "silero_vad-6.2.3-py3-none-any.whl"
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", FOLDER, "silero-vad==6.2.3"]
        if subprocess.run(command).returncode:
            pytest.skip("silero-vad 6.2.3 cannot be had from PyPI")
    with zipfile.ZipFile(wheel) as archive, archive.open("silero_vad/data/silero_vad_16k.safetensors") as source:
        with open(tmp_path / "model.safetensors", "wb") as target:
            shutil.copyfileobj(source, target)
    return tmp_path / "model.safetensors"


def blocks(page, heading):
    section = (REPOSITORY / page).read_text().split(f"\n{heading}\n", 1)[1]
    return re.findall(r"```python\n(.*?)```", re.split(r"\n## ", section)[0], re.S)


def test_the_example_of_the_readme_runs(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    with libst.open(model) as f:
        before = {name: f.read(name) for name in f}
    (example,) = blocks("README.md", "## In Python")
    exec(compile(example, "README.md", "exec"), {})
    after = libst.load(model)
    assert libst.verify(model) == []
    changed = [name for name in before if name not in after or not np.array_equal(before[name], after[name])]
    assert changed and len(changed) < len(before)
