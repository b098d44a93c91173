"""Runs the stctl binary: $STCTL, or the one of the build tree."""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The peak of what it starts, in KiB; a process of its own, as whatever is started inherits the peak of its starter.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
STCTL = os.environ.get("STCTL", str(ROOT / "build/bindings/cli/stctl"))


def pytest_collection_modifyitems(items):
    if not os.access(STCTL, os.X_OK):
        raise pytest.UsageError(f"no stctl at {STCTL}: build it, or set STCTL")


class Stctl:
    path = STCTL

    def __call__(self, *args, input=b"", code=0, **options):
        """Run it, check its exit code, and return (stdout, stderr) as text."""
        result = self.raw(*args, input=input, **options)
        shown = f"stctl {args}: {result.returncode}\n{result.stdout[-2000:]!r}\n{result.stderr[-2000:]!r}"
        assert result.returncode == code, shown
        return result.stdout.decode(), result.stderr.decode()

    def raw(self, *args, input=b"", **options):
        return subprocess.run([STCTL, *map(os.fspath, args)], input=input, capture_output=True, timeout=120, **options)

    def json(self, *args, code=0, **options):
        """Run it with --json: the one object on standard output."""
        command, *rest = args
        out, err = self(command, "--json", *rest, code=code, **options)
        assert out.count("\n") == 1 and out.endswith("\n")
        value = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert isinstance(value, dict)
        return value

    def peak(self, *args, **options):
        """Run it: the most memory that it had, in KiB."""
        run = [sys.executable, "-c", PEAK, STCTL, *map(os.fspath, args)]
        return int(subprocess.run(run, check=True, capture_output=True, text=True, timeout=120, **options).stdout)

    def popen(self, *args, **options):
        return subprocess.Popen([STCTL, *map(os.fspath, args)], **options)


@pytest.fixture(scope="session")
def stctl():
    return Stctl()


@pytest.fixture
def arrays():
    return {
        "layer.0.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
        "layer.0.bias": np.array([-1.5, 0.1, 3e30, np.nan], dtype=np.float32),
        "layer.1.weight": np.arange(24, dtype=np.int64).reshape(2, 3, 4) - 7,
        "half": np.array([0.1, 65504, -0.0, np.inf], dtype=np.float16),
        "scalar": np.array(42, dtype=np.uint8),
        "empty": np.zeros((0, 3), dtype=np.float64),
    }


@pytest.fixture
def model(tmp_path, arrays):
    path = tmp_path / "model.safetensors"
    save_file(arrays, path, metadata={"format": "np", "note": "a\nb"})
    return path


def preload(name):
    """A library of that source here, for LD_PRELOAD."""

    @pytest.fixture(scope="session", name=name)
    def compiled(tmp_path_factory):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            pytest.skip("needs a C compiler")
        library = tmp_path_factory.mktemp(name) / f"{name}.so"
        source = pathlib.Path(__file__).with_name(f"{name}.c")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", f"-I{ROOT}/capi/include", "-o", library, source, "-ldl"], check=True
        )
        return library

    return compiled


killer = preload("killer")
interrupter = preload("interrupter")
unlister = preload("unlister")
syncless = preload("syncless")
pageless = preload("pageless")
overquota = preload("overquota")
newer = preload("newer")
changer = preload("changer")
committer = preload("committer")
exchanger = preload("exchanger")


@pytest.fixture
def crashed(stctl, model, killer):
    """A model whose writer died after its commit, before the new bytes were in the file."""
    environment = {**os.environ, "LD_PRELOAD": str(killer), "KILL_WRITE_TO": str(model.resolve()), "KILL_AT": "1"}
    before = model.read_bytes()
    result = stctl.raw("update", model, "layer.0.weight", "--fill", "7", env=environment)
    assert result.returncode == -signal.SIGKILL
    assert model.read_bytes() == before
    assert list(model.with_name(model.name + ".st-journal").iterdir())
    return model


@pytest.fixture(scope="session", autouse=True)  # before a test notes its descriptors
def may_mount():
    """What is mounted here is seen by this process and its children alone, and ends with them. False: it may not be."""
    clone_newns = 0x20000
    with open("/proc/self/ns/mnt"):  # the one that we leave stays, where the files that are open lie
        own_namespace = os.geteuid() == 0 and ctypes.CDLL(None).unshare(clone_newns) == 0
        yield own_namespace and subprocess.run(["mount", "--make-rprivate", "/"]).returncode == 0


@pytest.fixture
def read_only_mount(tmp_path, may_mount):
    """tmp_path, once more, as a read-only mount."""
    if not may_mount:
        pytest.skip("needs root, who may mount")
    mount = tmp_path.with_name(tmp_path.name + "-ro")
    mount.mkdir()
    subprocess.run(["mount", "--bind", tmp_path, mount], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", mount], check=True)
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)
