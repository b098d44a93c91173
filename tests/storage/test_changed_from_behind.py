"""Files that somebody else changes under an open handle, and memory that vanishes under a transaction."""

import ctypes
import mmap
import os

import model
import pytest
import st_abi
from model import OLD, SIZES, new, put_model
from st_abi import refused


@pytest.mark.parametrize("map", [st_abi.MAP_AUTO, st_abi.MAP_NONE])
def test_truncated_under_open_handle(map, any_disk):
    """An error, and no SIGBUS: were there one, this process would die of it."""
    path = put_model(any_disk)
    for size in (len(model.file_bytes()) - 1, 70000, 100, 4, 0):
        path.write_bytes(model.file_bytes())
        with st_abi.File(path, map=map) as f:
            whole_from = f.describe("t5").file_offset
            os.truncate(path, size)
            for t in range(len(SIZES)):
                end = f.describe(f"t{t}").file_offset + SIZES[t]
                if end <= size:
                    assert f.read(f"t{t}") == new(t, 0)
                    continue
                with refused("ST_E_FILE_CHANGED"):
                    f.read(f"t{t}")
                if map == st_abi.MAP_NONE:
                    with refused("ST_E_FILE_CHANGED"):
                        f.view(f"t{t}")
            assert size <= whole_from
            left = path.read_bytes()
            with refused("ST_E_FILE_CHANGED", "ST_E_TRUNCATED", "ST_E_HEADER_TRUNCATED", "ST_E_HEADER_TOO_SMALL"):
                f.update("t1", new(1))
            assert path.read_bytes() == left
        assert model.journals(path) is None


def test_grown_under_open_handle(any_disk):
    path = put_model(any_disk)
    with st_abi.File(path) as f:
        with open(path, "ab") as file:
            file.write(b"more")
        assert f.read("t1") == new(1, 0)
        with refused("ST_E_FILE_CHANGED", "ST_E_TRAILING_DATA"):
            f.update("t1", new(1))
    assert path.read_bytes() == model.file_bytes() + b"more"


def test_replaced_under_open_handle(any_disk):
    """As save_file does it: by a rename. What is open stays readable; a change goes to the file of that name."""
    path = put_model(any_disk)
    with st_abi.File(path) as f:
        kept = os.open(path, os.O_RDONLY)
        os.replace(put_model(any_disk, "new", versions=[9] * len(SIZES)), path)
        assert f.read("t1") == f.view("t1") == new(1, 0)
        f.update("t1", new(1, 1))
        assert os.pread(kept, 1 << 20, 0) == model.file_bytes(), "the old file was changed"
        os.close(kept)
    model.check_file(path, {(9, 1, 9, 9, 9, 9)})


def test_replaced_by_one_of_another_form_under_open_handle(any_disk):
    path = put_model(any_disk)
    other = model.file_bytes([("U8", [70000])], [5])
    with st_abi.File(path) as f:
        (any_disk / "new").write_bytes(other)
        os.replace(any_disk / "new", path)
        with refused("ST_E_FILE_CHANGED"):
            f.update("t1", new(1))
        assert f.read("t1") == new(1, 0)
    assert path.read_bytes() == other
    assert model.journals(path) is None


def test_removed_under_open_handle(any_disk):
    path = put_model(any_disk)
    with st_abi.File(path) as f:
        path.unlink()
        assert f.read("t1") == new(1, 0)
        with refused("ST_E_NO_FILE", "ST_E_FILE_CHANGED"):
            f.update("t1", new(1))
        assert not path.exists()
    assert list(any_disk.glob("m.safetensors*")) == []


def test_payload_that_vanishes_during_commit(tmp_path):
    """The new bytes lie in a mapped file, and somebody truncates that between staging and commit. The journal has
    them: the change is made, or refused before anything is written; never left half made for good."""
    path = put_model(tmp_path)
    source = tmp_path / "source"
    source.write_bytes(b"x" * 4096 * 3 + new(4))
    with open(source, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + 4096 * 3
        f = st_abi.File(path)
        t = f.describe("t4")
        t.data = address
        txn = ctypes.c_void_p()
        st_abi.check(st_abi.lib.st_txn_begin(f._handle, None, ctypes.byref(txn)))
        st_abi.check(st_abi.lib.st_txn_update(txn, b"t4", 2, ctypes.byref(t)))
        os.truncate(source, 4096 * 40)
        answer = st_abi.STATUS[st_abi.lib.st_txn_commit(txn)]
        f.close()
        st_abi.lib.st_txn_free(txn)
    after = (0, 0, 0, 0, 1, 0)
    if answer == "ST_OK":
        allowed = {after}
    elif answer == "ST_E_NEEDS_RECOVERY":
        allowed = {OLD, after}
    else:
        allowed = {OLD}
    model.check_file(path, allowed)
