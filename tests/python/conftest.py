"""Find the package and the library in this tree, and make small files to test on.

With LIBST_TEST_INSTALLED set, the installed wheel is tested instead.
"""

import contextlib
import json
import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

REPOSITORY = Path(__file__).resolve().parents[2]

if not os.environ.get("LIBST_TEST_INSTALLED"):
    sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
    os.environ.setdefault("LIBST_LIBRARY", str(REPOSITORY / "build" / "capi" / "libst.so.2"))

# These start programs by the dozen, or try for seconds.
if os.environ.get("ST_TEST_BOUND") == "small":
    collect_ignore = [
        f"test_{name}.py" for name in ("jax", "next_stock", "states", "stock_suite", "torch", "two_users", "typing")
    ]

# Child processes of tests import the same package.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))


def raw_file(tensors, metadata=None):
    """The bytes of a file, by hand: (name, dtype, shape, payload) in the order given."""
    header = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for name, dtype, shape, payload in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(payload)]}
        offset += len(payload)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(payload for _, _, _, payload in tensors)


TENSORS = {
    "w": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "b": np.arange(5, dtype=np.int64) - 2,
    "scalar": np.array(2.5, dtype=np.float64),
    "empty": np.empty((0, 3), dtype=np.float16),
    "flags": np.array([True, False, True]),
}


@pytest.fixture
def model(tmp_path):
    """A file that the stock package wrote: TENSORS and some metadata."""
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path, metadata={"format": "np", "author": "Änne"})
    return path


@pytest.fixture
def raw(tmp_path):
    """raw(tensors, metadata=None): the path of a file made by raw_file."""

    def make(tensors, metadata=None, name="raw.safetensors"):
        path = tmp_path / name
        path.write_bytes(raw_file(tensors, metadata))
        return path

    return make


def is_mapped(path):
    """Is this file mapped into this process now?"""
    path = os.path.realpath(path)
    with open("/proc/self/maps") as maps:
        return any(line.rstrip("\n").endswith(" " + path) for line in maps)


def is_descriptor_open(path):
    path = os.path.realpath(path)
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") == path:
                return True
        except OSError:
            pass
    return False


def at_once(work, *arguments):
    """Does that with each of these at once, in threads. Raises what one of them raised."""
    with ThreadPoolExecutor(len(arguments)) as threads:
        list(threads.map(work, arguments))


@contextlib.contextmanager
def refused(status, match=None):
    """The block must raise libst.Error of that status, by its name; `as` gives what pytest.raises does."""
    import libst

    with pytest.raises(libst.Error, match=match) as caught:
        yield caught
    assert caught.value.status is libst.Status[status]
