"""Exceptions: their classes, what they carry, and that they travel."""

import copy
import errno
import io
import os
import pickle
import sys
from functools import partial

import libst
import numpy as np
import pytest
from conftest import at_once, raw_file, refused
from libst.errors import error
from test_abi import HEADER

PUBLIC = [
    libst.Error,
    libst.BusyError,
    libst.NotFoundError,
    libst.ClosedError,
    libst.FormatError,
    libst.StorageError,
    libst.DeltaError,
    libst.NeedsRecoveryError,
]
NATURAL = {
    libst.NotFoundError: KeyError,
    libst.ClosedError: ValueError,
    libst.FormatError: ValueError,
    libst.BusyError: TimeoutError,
    libst.StorageError: OSError,
    libst.DeltaError: ValueError,
}

# By status: what a caller may catch it as, ours and Python's. For the format's (40 to 61) it is FormatError.
KINDS = {
    "INVALID_ARGUMENT": (libst.Error, ValueError),
    "NOMEM": (libst.Error, MemoryError),
    "INTERNAL": (libst.Error, RuntimeError),
    "UNSUPPORTED": (libst.Error, NotImplementedError),
    "CANCELLED": (libst.Error,),
    "INTERRUPTED": (libst.Error,),
    "NOT_FOUND": (libst.NotFoundError, KeyError),
    "OUT_OF_RANGE": (libst.Error, IndexError),
    "BUFFER_SIZE": (libst.Error, ValueError),
    "READ_ONLY": (libst.Error, io.UnsupportedOperation),
    "BUSY": (libst.BusyError, TimeoutError),
    "FORKED": (libst.Error, RuntimeError),
    "IO": (libst.StorageError, OSError),
    "NO_FILE": (libst.StorageError, FileNotFoundError),
    "PERMISSION": (libst.StorageError, PermissionError),
    "NO_SPACE": (libst.StorageError, OSError),
    "NOT_REGULAR": (libst.StorageError, OSError),
    "FILE_CHANGED": (libst.StorageError, OSError),
    "LOCK_UNSUPPORTED": (libst.StorageError, OSError),
    "POISONED": (libst.StorageError, OSError),
    "CHECKSUM": (libst.StorageError, OSError),
    "DELTA": (libst.DeltaError, ValueError),
    "DELTA_BASE": (libst.DeltaError, ValueError),
    "DTYPE_MISMATCH": (libst.Error, TypeError),
    "SHAPE_MISMATCH": (libst.Error, ValueError),
    "NBYTES_MISMATCH": (libst.Error, ValueError),
    "NEEDS_RECOVERY": (libst.NeedsRecoveryError,),
    "JOURNAL": (libst.Error,),
    "TXN_FAILED": (libst.Error,),
    "HARD_LINKS": (libst.Error,),
    "INCOMPLETE": (libst.Error, ValueError),
}


def test_these_classes_are_all_there_are():
    assert {k for k in vars(libst).values() if isinstance(k, type) and issubclass(k, Exception)} == set(PUBLIC)


@pytest.mark.parametrize("kind", NATURAL, ids=lambda kind: kind.__name__)
def test_classes_are_what_python_calls_them(kind):
    assert issubclass(kind, NATURAL[kind]) and issubclass(kind, libst.Error)
    assert str(kind("a sentence")) == "a sentence"


@pytest.mark.parametrize("status", [s for s in libst.Status if s])
def test_every_status_is_caught_by_its_classes(status):
    made = error(status)
    assert made.status is status and made.status_name == f"ST_E_{status.name}"
    comments = {c.name: c.comment for c in HEADER.constants}
    assert made.action == comments[made.status_name].split(":")[0]
    kinds = (libst.FormatError, ValueError) if 40 <= status <= 61 else KINDS[status.name]
    assert all(isinstance(made, kind) for kind in kinds)
    ours = {kind for kind in PUBLIC if isinstance(made, kind)}
    assert ours == {libst.Error, kinds[0]}
    assert type(made).__name__ == kinds[0].__name__  # what a traceback says


@pytest.mark.parametrize("status", [s for s in libst.Status if s])
def test_errors_of_every_status_travel(status):
    before = error(status)
    for after in (pickle.loads(pickle.dumps(before)), copy.copy(before), copy.deepcopy(before)):
        assert type(after) is type(before) and after.status is status and str(after) == str(before)


def test_a_subclass_travels_as_itself():
    after = pickle.loads(pickle.dumps(Mine("a sentence", libst.Status.NO_FILE)))
    assert type(after) is Mine and after.status is libst.Status.NO_FILE


class Mine(libst.Error):
    pass


def test_a_status_of_a_newer_library_is_an_error():
    made = error(12345)
    assert type(made) is libst.Error and made.status == 12345


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        libst.open(tmp_path / "nope")
    assert isinstance(caught.value, libst.StorageError)
    assert caught.value.status == libst.Status.NO_FILE
    assert caught.value.os_errno == caught.value.errno == errno.ENOENT
    assert str(tmp_path / "nope") in str(caught.value)


def test_a_folder(tmp_path):
    with refused("NOT_REGULAR"):
        libst.open(tmp_path)


def test_a_forbidden_file(model):
    model.chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(PermissionError) as caught:
            libst.open(model)
    finally:
        os.seteuid(before)
    assert isinstance(caught.value, libst.StorageError) and caught.value.status is libst.Status.PERMISSION
    assert caught.value.errno == caught.value.os_errno == errno.EACCES


def test_a_missing_tensor(model):
    with libst.open(model) as f:
        with pytest.raises(KeyError) as caught:
            f["no\0pe"]
    assert type(caught.value) is libst.NotFoundError
    assert caught.value.tensor == "no\0pe"
    assert not str(caught.value).startswith(("'", '"'))  # a sentence, not KeyError's repr of it


def test_a_bad_tensor_is_named(tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(raw_file([("good", "U8", [1], b"x"), ("bäd", "F32", [2], b"wxyz")]))
    with pytest.raises(libst.FormatError) as caught:
        libst.open(path)
    assert caught.value.status == libst.Status.SIZE_MISMATCH
    assert caught.value.tensor == "bäd"


def test_a_truncated_file_is_told_and_no_signal(model):
    with libst.open(model) as f:
        w = f.slice("w")
        os.truncate(model, f.info("w").file_offset + 4)
        for read in (lambda: f.read("w"), lambda: w[:1], lambda: w[0, 1], lambda: f.read_many([("w", slice(1))])):
            with refused("FILE_CHANGED"):
                read()


def test_errors_travel_between_processes():
    before = libst.BusyError("held", libst.Status.BUSY, os_errno=11, tensor="a\0b", offset=2**40, holder_pid=77)
    for after in (pickle.loads(pickle.dumps(before)), copy.copy(before)):
        assert type(after) is libst.BusyError
        assert str(after) == "held"
        assert (after.status, after.os_errno, after.tensor) == (libst.Status.BUSY, 11, "a\0b")
        assert (after.offset, after.holder_pid, after.errno) == (2**40, 77, 11)


@pytest.mark.parametrize("kind", PUBLIC)
def test_every_class_travels(kind):
    after = pickle.loads(pickle.dumps(kind("a sentence", tensor="w")))
    assert type(after) is kind and str(after) == "a sentence" and after.tensor == "w"
    assert after.status == kind.status


def test_errors_of_threads_do_not_mix(model):
    with libst.open(model) as f:

        def work(i):
            for n in range(300):
                name = f"missing {i} {n}"
                with pytest.raises(libst.NotFoundError, match=name) as caught:
                    f[name]
                assert caught.value.tensor == name

        at_once(work, *range(4))


def test_arrays_that_numpy_cannot_make_are_its_own_errors(model):
    with libst.open(model, "r+") as f, pytest.raises(ValueError):
        f.update("b", [[1, 2], [3]])
    with libst.open(model, "r+") as f, refused("DTYPE_MISMATCH", match="object"):
        f.update("b", np.array([None] * 5))


def test_bytes_that_are_no_utf8_stay_readable(tmp_path, monkeypatch):
    for encoding in (sys.getfilesystemencoding(), "latin-1"):
        monkeypatch.setattr(sys, "getfilesystemencoding", lambda encoding=encoding: encoding)
        with pytest.raises(libst.Error) as caught:
            libst.open(os.fsencode(tmp_path) + b"/caf\xe9")
        assert "/caf\\xe9'" in str(caught.value)


def test_that_a_name_is_there_is_not_denied_where_it_cannot_be_known(tmp_path):
    libst.save(tmp_path / "one", {name: np.zeros(4, np.float32) for name in "abc"})
    libst.reshard(tmp_path / "one", tmp_path / "shards", 1)
    with libst.open(tmp_path / "shards") as f:
        assert f["a"].shape == (4,)
        for shard in (tmp_path / "shards").glob("*-0000[23]-*"):
            shard.unlink()
        assert "a" in f and "none" not in f and 3 not in f
        with pytest.raises(libst.Error) as caught:
            "b" in f  # noqa: B015
        assert caught.value.status == libst.Status.SHARD_MISSING


@pytest.mark.parametrize("of", ["file", "shards", "deltas"])
def test_what_is_not_there_is_told_with_its_place(tmp_path, of):
    path = tmp_path / "model.safetensors"
    libst.save(path, {"w": np.arange(6.0), "v": np.ones(3)}, {"k": "1"})
    deltas = []
    if of == "shards":
        libst.reshard(path, tmp_path / "cut", 48)
        path = next((tmp_path / "cut").glob("*.index.json"))
    elif of == "deltas":
        libst.save(tmp_path / "other", {"w": np.ones(6)}, {"k": "1"})
        deltas = [tmp_path / "delta"]
        libst.diff(path, tmp_path / "other", deltas[0])

    def fails(call, name):
        with pytest.raises(libst.Error, match=f"'{name}'") as told:
            call()
        assert f"'{path}'" in str(told.value) and "; " in str(told.value), told.value

    with libst.open(path, "r" if deltas else "r+", deltas=deltas) as f:
        for read in (f.__getitem__, f.read, f.info, f.slice, lambda name: f.read_many([name])):
            fails(partial(read, "none"), "none")
        if deltas:
            return
        for change in ("update", "delete", "rename"):
            with f.transaction() as t:
                more = {"update": (np.ones(3),), "delete": (), "rename": ("new",)}[change]
                fails(partial(getattr(t, change), "none", *more), "none")
        with f.transaction() as t:
            fails(partial(t.metadata, "none", None), "none")
            fails(partial(t.rename, "w", "v"), "v")
            t.delete("v")
            for change in (partial(t.delete, "v"), partial(t.rename, "v", "u"), partial(t.update, "v", np.ones(3))):
                fails(change, "v")
