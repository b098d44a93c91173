"""libst as `meson install` lays it out, in a prefix that is then moved: nothing in it may remember where it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from readme import ROOT, block
from safetensors.numpy import save_file

EXAMPLES = ROOT / "capi" / "examples"


def run(*command: object, env: dict[str, str] | None = None, fails: bool = False) -> str:
    """The output of a command, which must succeed, or must not."""
    done = subprocess.run([str(c) for c in command], env={**os.environ, **(env or {})}, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{command} answered {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def quick_compiler() -> dict[str, str]:
    """For builds that show how libst is put together: clang takes half the time of g++ where it optimises nothing."""
    ccache = "ccache " if shutil.which("ccache") else ""
    return {"CXX": f"{ccache}clang++-14", "CC": f"{ccache}clang-14"} if shutil.which("clang++-14") else {}


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


def set_up(place: Path, *options: object) -> Path:
    """A build tree with these options in which nothing is compiled: what is generated is there."""
    run("meson", "setup", place, ROOT, "-Dcli=false", *options)
    return place


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


def shell(text: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\nanswered {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def beside(tmp_path_factory) -> Path:
    """A reader's folder of folders, a clone among them."""
    place = tmp_path_factory.mktemp("readme")
    (place / "libst").symlink_to(ROOT)
    return place


@pytest.fixture(scope="session")
def environment(prefix, build) -> dict[str, str]:
    """That of a reader who has installed libst; not the one that tests/setup.sh makes.

    The prefix has the same name in each run: Go's cache does not know what pkg-config said, and keeps an old -L.
    """
    installed = build / "installed"
    installed.unlink(missing_ok=True)
    installed.symlink_to(prefix.path)
    prefix = Prefix(installed)
    env = {k: v for k, v in os.environ.items() if k not in ("LIBST_LIBRARY", "LIBST_DIR", "STCTL", "PYTHONPATH")}
    env |= prefix.env | {
        "PATH": f"{prefix.path / 'bin'}:{env['PATH']}",
        "CARGO_TARGET_DIR": str(build / "cargo" / "readme"),
    }
    return env


@pytest.fixture(scope="session")
def model_of_the_readme(beside, environment) -> Path:
    """What the README takes its examples' model from; kept in build/cache, as the demo keeps it."""
    cache = ROOT / "build" / "cache"
    folder = beside / "model"
    folder.mkdir()
    kept = list(cache.glob("silero_vad-6.2.3-*.whl"))
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(cache)} if kept else {}
    shell(block("README.md", "sh", 2).text, folder, environment | offline)
    if not kept:
        shutil.copy(next(folder.glob("silero_vad-*.whl")), cache)
    return folder / "model.safetensors"


@pytest.fixture(scope="session")
def python(beside, environment) -> dict[str, str]:
    """The environment with the package in it, installed as the README says.

    Compiled quickly: the wheel that is handed out is the one that dist/ tries.
    """
    folder = beside / "python"
    folder.mkdir()
    shell(block("README.md", "sh", 3).text, folder, environment | quick_compiler() | {"CXXFLAGS": "-O0"})
    return environment | {"PATH": f"{folder / 'venv' / 'bin'}:{environment['PATH']}"}


@pytest.fixture(scope="session")
def go(environment) -> dict[str, str]:
    found = subprocess.run(["bash", ROOT / "tests/go/toolchain.sh"], stdout=subprocess.PIPE, text=True)
    if found.returncode:
        pytest.skip("there is no Go that can build the binding")
    key = {"CGO_LDFLAGS": f"-O2 -g -L{environment['LD_LIBRARY_PATH']}"}  # part of the cache's key, unlike pkg-config's
    return environment | {"PATH": f"{found.stdout.strip()}:{environment['PATH']}", "GOTOOLCHAIN": "local"} | key


@pytest.fixture
def folder(beside, model_of_the_readme) -> Path:
    """Where a reader works: the model, beside a clone."""
    place = beside / f"work{len(list(beside.iterdir()))}"
    place.mkdir()
    shutil.copy(model_of_the_readme, place / "model.safetensors")
    return place
