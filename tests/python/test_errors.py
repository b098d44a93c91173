"""Exceptions: their classes, what they carry, and that they travel."""

import copy
import errno
import os
import pickle

import libst
import numpy as np
import pytest
from conftest import raw_file
from libst.errors import error

NATURAL = {
    libst.NotFoundError: KeyError,
    libst.OutOfRangeError: IndexError,
    libst.OutOfMemoryError: MemoryError,
    libst.InvalidArgumentError: ValueError,
    libst.ClosedError: ValueError,
    libst.FormatError: ValueError,
    libst.ReadOnlyError: OSError,
    libst.BusyError: TimeoutError,
    libst.StorageError: OSError,
    libst.NoFileError: FileNotFoundError,
    libst.AccessError: PermissionError,
    libst.DtypeMismatchError: TypeError,
    libst.ShapeMismatchError: ValueError,
}


@pytest.mark.parametrize("kind", NATURAL, ids=lambda kind: kind.__name__)
def test_classes_are_what_python_calls_them(kind):
    assert issubclass(kind, NATURAL[kind]) and issubclass(kind, libst.Error)
    assert str(kind("a sentence")) == "a sentence"


@pytest.mark.parametrize("status", [s for s in libst.Status if s])
def test_every_status_has_a_class(status):
    made = error(status)
    assert made.status is status
    assert type(made) is not libst.Error
    assert isinstance(made, libst.FormatError) == (40 <= status <= 61)
    assert made.status_name == f"ST_E_{status.name}"


def test_a_status_of_a_newer_library_is_an_error():
    made = error(12345)
    assert type(made) is libst.Error and made.status == 12345


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        libst.open(tmp_path / "nope")
    assert isinstance(caught.value, libst.NoFileError)
    assert caught.value.status == libst.Status.NO_FILE
    assert caught.value.os_errno == caught.value.errno == errno.ENOENT
    assert str(tmp_path / "nope") in str(caught.value)


def test_a_folder(tmp_path):
    with pytest.raises(libst.NotRegularError):
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
    assert type(caught.value) is libst.AccessError
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
        os.truncate(model, f.info("w").file_offset + 4)
        with pytest.raises(libst.FileChangedError):
            f.read("w")


def test_errors_travel_between_processes():
    before = libst.BusyError("held", libst.Status.BUSY, os_errno=11, tensor="a\0b", offset=2**40, holder_pid=77)
    for after in (pickle.loads(pickle.dumps(before)), copy.copy(before)):
        assert type(after) is libst.BusyError
        assert str(after) == "held"
        assert (after.status, after.os_errno, after.tensor) == (libst.Status.BUSY, 11, "a\0b")
        assert (after.offset, after.holder_pid, after.errno) == (2**40, 77, 11)


@pytest.mark.parametrize(
    "kind", [k for k in vars(libst).values() if isinstance(k, type) and issubclass(k, libst.Error)]
)
def test_every_class_travels(kind):
    after = pickle.loads(pickle.dumps(kind("a sentence", tensor="w")))
    assert type(after) is kind and str(after) == "a sentence" and after.tensor == "w"
    assert after.status == kind.status


def test_errors_of_threads_do_not_mix(model):
    import threading

    with libst.open(model) as f:
        wrong = []

        def work(i):
            for n in range(300):
                name = f"missing {i} {n}"
                try:
                    f[name]
                    wrong.append(name)
                except libst.NotFoundError as caught:
                    if caught.tensor != name or name not in str(caught):
                        wrong.append(name)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_arrays_that_numpy_cannot_make_are_its_own_errors(model):
    with libst.open(model, "r+") as f, pytest.raises(ValueError):
        f.update("b", [[1, 2], [3]])
    with libst.open(model, "r+") as f, pytest.raises(libst.DtypeMismatchError, match="object"):
        f.update("b", np.array([None] * 5))
