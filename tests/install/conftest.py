"""libst as `meson install` lays it out, in a prefix that is then moved: nothing in it may remember where it was."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "capi" / "examples"


def run(*command: object, env: dict[str, str] | None = None, fails: bool = False) -> str:
    """The output of a command, which must succeed, or must not."""
    done = subprocess.run([str(c) for c in command], env={**os.environ, **(env or {})}, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{command} answered {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def install(build: Path, place: Path) -> Path:
    """Install a build tree below `place`; its prefix there."""
    run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", place)
    (header,) = place.rglob("include/st/st.h")
    return header.parents[2]


class Prefix:
    """An installed libst, and how programs find it."""

    def __init__(self, path: Path):
        self.path = path
        (pc,) = path.rglob("libst.pc")
        (config,) = path.rglob("libstConfig.cmake")
        self.libdir = pc.parents[1]
        self.cmake_dir = config.parent
        self.env = {"PKG_CONFIG_PATH": str(pc.parent), "LD_LIBRARY_PATH": str(self.libdir)}


@pytest.fixture(scope="session")
def build() -> Path:
    return Path(os.environ.get("BUILD", ROOT / "build"))


@pytest.fixture(scope="session")
def prefix(build, tmp_path_factory) -> Prefix:
    place = tmp_path_factory.mktemp("install")
    installed = install(build, place / "first")
    moved = place / "moved" / "prefix"
    moved.parent.mkdir()
    installed.rename(moved)
    return Prefix(moved)


@pytest.fixture
def model(tmp_path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file({"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.int16)}, path)
    return path
