"""stctl update: what it writes, as stock safetensors reads it, and what it refuses."""

import contextlib
import ctypes
import errno
import fcntl
import io
import json
import os
import resource
import signal
import subprocess

import ml_dtypes
import numpy as np
import pytest
from cli_files import BITS, IN_NUMPY, NUMPY, header_and_data, is_staged, sleeps, sparse, stock, wait_until, write
from safetensors.numpy import save_file

NEW = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def assert_changed_only(model, arrays, changed):
    """Stock reads the new values of `changed` and the old ones of all else; nothing lies beside the file."""
    now = stock(model)
    assert set(now) == set(arrays)
    for name, array in (arrays | changed).items():
        assert now[name].dtype == array.dtype
        assert now[name].tobytes() == array.tobytes(), name


@pytest.fixture
def unchanged(model):
    """The file is byte by byte the same after the test, and the same inode."""
    before, inode = model.read_bytes(), model.stat().st_ino
    yield
    assert model.read_bytes() == before
    assert model.stat().st_ino == inode


def test_from_raw_file(stctl, model, arrays, tmp_path):
    (tmp_path / "new.bin").write_bytes(NEW.tobytes())
    inode, mode = model.stat().st_ino, model.stat().st_mode
    out, err = stctl("update", model, "layer.0.weight", "--from-raw", tmp_path / "new.bin")
    assert err == ""
    assert out.splitlines()[0].split() == ["layer.0.weight", "F32", "[3,", "4]", "48", "B"]
    assert out.splitlines()[1].startswith("updated 1 tensor, 48 bytes (")
    assert_changed_only(model, arrays, {"layer.0.weight": NEW})
    assert (model.stat().st_ino, model.stat().st_mode) == (inode, mode)


def test_from_standard_input(stctl, model, arrays):
    stctl("update", model, "layer.0.weight", "--from-raw", "-", input=NEW.tobytes())
    assert_changed_only(model, arrays, {"layer.0.weight": NEW})


def test_from_a_pipe(stctl, model, arrays):
    read, write_end = os.pipe()
    os.write(write_end, NEW.tobytes())
    os.close(write_end)
    stctl("update", model, "layer.0.weight", "--from-raw", f"/dev/fd/{read}", pass_fds=[read])
    os.close(read)
    assert_changed_only(model, arrays, {"layer.0.weight": NEW})


@pytest.mark.parametrize(
    "args",
    [["update", "--from-raw"], ["update", "--npy"], ["update", "--cast", "--npy"], ["put", "--npy"],
     ["put", "--dtype", "F32", "--shape", "3,4", "--from-raw"]],
    ids=" ".join,
)  # fmt: skip
def test_from_a_named_pipe_whose_writer_writes_once(stctl, model, arrays, tmp_path, args):
    pipe, content = tmp_path / "pipe", io.BytesIO()
    os.mkfifo(pipe)
    np.save(content, NEW)
    command, *options = args
    process = stctl.popen(command, model, "layer.0.weight", *options, pipe)
    try:
        with open(pipe, "wb") as writer:
            writer.write(content.getvalue() if "--npy" in args else NEW.tobytes())
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert_changed_only(model, arrays, {"layer.0.weight": NEW})


def test_json_tells_what_changed(stctl, model, tmp_path):
    (tmp_path / "new.bin").write_bytes(NEW.tobytes())
    result = stctl.json("update", model, "layer.0.weight", "--from-raw", tmp_path / "new.bin")
    assert result["file"] == str(model)
    assert [t["name"] for t in result["tensors"]] == ["layer.0.weight"]
    assert (result["count"], result["nbytes"], result["bytes_written"]) == (1, 48, 48)
    assert result["journal_bytes"] >= 48


@pytest.mark.parametrize("dtype", IN_NUMPY)
def test_npy_of_every_dtype(stctl, tmp_path, dtype):
    new = np.array([[0, 1, 1], [1, 0, 1]]).astype(NUMPY[dtype])
    size = BITS[dtype] // 8
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [2, 3], bytes(6 * size)), "s": (dtype, [], bytes(size))})
    np.save(tmp_path / "new.npy", new)
    np.save(tmp_path / "scalar.npy", new[0, 1])
    stctl("update", path, "w", "--npy", tmp_path / "new.npy")
    stctl("update", path, "s", "--npy", tmp_path / "scalar.npy")
    assert np.array_equal(stock(path)["w"], new)
    assert stock(path)["s"] == new[0, 1]


def test_npy_of_other_versions(stctl, model, arrays, tmp_path):
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(tmp_path / "new.npy", "wb") as file:
            np.lib.format.write_array(file, NEW + version[0], version=version)
        stctl("update", model, "layer.0.weight", "--npy", tmp_path / "new.npy")
        assert_changed_only(model, arrays, {"layer.0.weight": NEW + version[0]})


@pytest.mark.parametrize(
    "array, status, word",
    [
        (NEW.astype(np.float64), "ST_E_DTYPE_MISMATCH", "F64"),
        (NEW.reshape(4, 3), "ST_E_SHAPE_MISMATCH", ""),
        (NEW.ravel(), "ST_E_SHAPE_MISMATCH", ""),
        (NEW.astype(">f4"), None, ">f4"),
        (np.asfortranarray(NEW), None, "Fortran"),
        (np.array(["a"]), None, "<U1"),
        (np.zeros(3, [("a", "f4")]), None, "structure"),
        (NEW.astype(ml_dtypes.bfloat16), "ST_E_DTYPE_MISMATCH", "BF16"),
        (NEW.astype(ml_dtypes.float8_e4m3fn), None, "does not name"),
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_npy_of_another_kind_is_refused(stctl, model, tmp_path, array, status, word):
    np.save(tmp_path / "new.npy", array)
    error = stctl.json("update", model, "layer.0.weight", "--npy", tmp_path / "new.npy", code=1)["error"]
    assert error["status"] == status
    assert word in error["message"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{}", b"\x93NUMPY\x09\x00\x02\x00{}", b"x" * 200,
     b"\x93NUMPY\x01\x00\x02\x00{}", b"\x93NUMPY\x01\x00\x2a\x00{'descr': '<f4', 'fortran_order': False, }"],
)  # fmt: skip
@pytest.mark.usefixtures("unchanged")
def test_what_is_no_npy_file_is_refused(stctl, model, tmp_path, content):
    (tmp_path / "new.npy").write_bytes(content)
    assert "npy" in stctl("update", model, "layer.0.weight", "--npy", tmp_path / "new.npy", code=1)[1]


def test_a_cut_npy_file_is_refused(stctl, model, arrays, tmp_path):
    np.save(tmp_path / "new.npy", NEW)
    whole = (tmp_path / "new.npy").read_bytes()
    (tmp_path / "new.npy").write_bytes(whole[:-1])
    error = stctl.json("update", model, "layer.0.weight", "--npy", tmp_path / "new.npy", code=1)["error"]
    assert error["status"] == "ST_E_NBYTES_MISMATCH"
    assert_changed_only(model, arrays, {})


def test_fill(stctl, model, arrays):
    stctl("update", model, "layer.0.weight", "--fill", "-1.5")
    assert_changed_only(model, arrays, {"layer.0.weight": np.full((3, 4), -1.5, np.float32)})
    stctl("update", model, "empty", "--fill", "1")
    assert_changed_only(model, arrays, {"layer.0.weight": np.full((3, 4), -1.5, np.float32)})


@pytest.mark.parametrize("size", [0, 47, 49])
@pytest.mark.usefixtures("unchanged")
def test_raw_bytes_of_another_size_are_refused(stctl, model, size):
    error = stctl.json("update", model, "layer.0.weight", "--from-raw", "-", input=bytes(size), code=1)["error"]
    assert error["status"] == "ST_E_NBYTES_MISMATCH"


def at_most_a_gigabyte():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


@pytest.mark.parametrize("what", ["raw", "npy", "put raw", "put npy", "no npy", "empty npy", "huge npy"])
@pytest.mark.parametrize("cast", [[], ["--cast"]], ids=["", "cast"])
@pytest.mark.usefixtures("unchanged")
def test_input_without_an_end_is_read_as_far_as_needed(stctl, model, tmp_path, what, cast):
    np.save(tmp_path / "new.npy", NEW.astype(np.float64) if cast else NEW)
    shape = {"empty npy": (1 << 40, 1 << 40, 0), "huge npy": (1 << 40, 1 << 40)}.get(what)
    if shape:
        with open(tmp_path / "new.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    start = "cat new.npy; " if "npy" in what and what != "no npy" else ""
    change = {
        "raw": ["update", model, "layer.0.weight", "--from-raw", "-"],
        "npy": ["update", model, "layer.0.weight", "--npy", "-"],
        "no npy": ["update", model, "layer.0.weight", "--npy", "-"],
        "put raw": ["put", model, "new", "--dtype", "F32", "--shape", "3,4", "--from-raw", "-"],
    }.get(what, ["put", model, "new", "--npy", "-"])
    change += cast + ["I16"] if cast and change[0] == "put" else cast
    endless = subprocess.Popen(
        ["sh", "-c", start + "exec cat /dev/zero"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    pipes = {"stdin": endless.stdout, "stdout": subprocess.PIPE}
    process = stctl.popen(*change, "--json", **pipes, preexec_fn=at_most_a_gigabyte)
    endless.stdout.close()
    error = json.loads(process.communicate(timeout=60)[0])["error"]
    endless.wait(60)
    assert process.returncode == 1
    if what == "no npy":
        assert "is no .npy file" in error["message"]
    elif what in ("empty npy", "huge npy"):
        assert error["status"] == "ST_E_SHAPE_OVERFLOW"
    else:
        assert error["status"] == "ST_E_NBYTES_MISMATCH"


@pytest.mark.parametrize("size", [44, 47, 49, 4000])
@pytest.mark.parametrize("what", ["put raw", "put npy", "update npy"])
@pytest.mark.usefixtures("unchanged")
def test_a_file_of_another_size_is_not_cast(stctl, model, tmp_path, what, size):
    """Its shape says 48 bytes; what is no whole element, and more elements, must not get lost."""
    np.save(tmp_path / "new.npy", np.ones((3, 4), np.int32))
    header = (tmp_path / "new.npy").read_bytes()[:-48]
    (tmp_path / "new.npy").write_bytes(header + bytes(size))
    raw = tmp_path / "new.raw"
    raw.write_bytes(bytes(size))
    command = {
        "put raw": ["put", "new", "--from-raw", raw, "--dtype", "F32", "--shape", "3,4", "--cast", "I16"],
        "put npy": ["put", "new", "--npy", tmp_path / "new.npy", "--cast", "I16"],
        "update npy": ["update", "layer.0.weight", "--npy", tmp_path / "new.npy", "--cast"],
    }[what]
    error = stctl.json(command[0], model, *command[1:], code=1)["error"]
    assert error["status"] == "ST_E_NBYTES_MISMATCH"


def test_input_from_a_pipe_is_in_memory_once(stctl, tmp_path):
    path = sparse(tmp_path / "m.safetensors", "w", 136 << 20)
    feed = subprocess.Popen(["head", "-c", str(136 << 20), "/dev/zero"], stdout=subprocess.PIPE)
    assert stctl.peak("update", path, "w", "--from-raw", "-", stdin=feed.stdout) < 190 << 10
    feed.stdout.close()
    assert feed.wait(60) == 0


def test_fill_is_not_in_memory_as_a_whole(stctl, tmp_path):
    shape = [3, (64 << 20) + 4096]  # a row is more than one part
    nbytes = shape[0] * shape[1]
    header = json.dumps({"w": {"dtype": "U8", "shape": shape, "data_offsets": [0, nbytes]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(header_and_data(header))
    os.truncate(path, 8 + len(header) + nbytes)
    assert stctl.peak("update", path, "w", "--fill", "3") < 150 << 10
    result = stctl.json("update", path, "w", "--slice", "1:", "--fill", "5")
    assert (result["count"], result["nbytes"]) == (1, 2 * shape[1])
    now = np.memmap(path, np.uint8, "r", 8 + len(header), tuple(shape))
    assert (now[0] == 3).all() and (now[1:] == 5).all()
    stctl("update", path, "w", "--fill", "256", code=2)


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_it_does_not_go_through_the_pages_of_the_file(stctl, model, pageless, how):
    environment = {**os.environ, "LD_PRELOAD": str(pageless)}
    assert stctl.raw("stats", model, env=environment).returncode == -signal.SIGABRT
    stctl("update", *how, model, "layer.0.weight", "--fill", "7", env=environment)


@pytest.fixture
def small_disk(tmp_path, may_mount):
    if not may_mount:
        pytest.skip("needs root, who may mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("command", [["update", "--fill", "7"], ["get", "-o", "w.npy"]], ids=lambda c: c[0])
def test_on_a_full_disk_it_tells_that_nothing_was_changed(stctl, small_disk, command):
    arrays = {"w": np.arange(600_000, dtype=np.uint32).astype(np.uint8)}
    path = small_disk / "m.safetensors"
    save_file(arrays, path)
    error = stctl.json(command[0], path, "w", *command[1:], code=1, cwd=small_disk)["error"]
    assert error["message"].endswith(f"{os.strerror(errno.ENOSPC)}; nothing was changed; free some room")
    assert error["errno"] == errno.ENOSPC
    assert os.listdir(small_disk) == [path.name]
    assert_changed_only(path, arrays, {})


def test_a_patch_on_a_full_disk_tells_that_nothing_was_changed(stctl, small_disk, tmp_path):
    path, delta = small_disk / "m.safetensors", tmp_path / "delta"
    arrays = {"w": np.arange(600_000, dtype=np.uint32).astype(np.uint8)}
    save_file(arrays, path)
    save_file({"w": arrays["w"] + 1}, tmp_path / "other")
    stctl("diff", path, tmp_path / "other", "-o", delta)
    error = stctl.json("patch", path, delta, code=1)["error"]
    assert error["message"].endswith(f"{os.strerror(errno.ENOSPC)}; nothing was changed; free some room")
    assert_changed_only(path, arrays, {})


@pytest.mark.parametrize(
    "command",
    [
        "update MODEL scalar --fill 7",
        "put MODEL new --npy new.npy",
        "get MODEL scalar -o made.npy",
        "get MODEL scalar -o made.safetensors",
        "join MODEL made.safetensors",
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_over_a_quota_it_tells_what_to_do(stctl, model, overquota, command):
    np.save(model.with_name("new.npy"), NEW)
    entries = os.listdir(model.parent)
    words = [model if word == "MODEL" else word for word in command.split()]
    error = stctl.json(*words, code=1, cwd=model.parent, env={**os.environ, "LD_PRELOAD": str(overquota)})["error"]
    told = f"': {os.strerror(errno.EDQUOT)}; nothing was changed; free some room, or have the quota raised"
    assert error["message"].endswith(told), error
    assert error["errno"] == errno.EDQUOT
    assert os.listdir(model.parent) == entries


@pytest.mark.parametrize("command, option", [("update", "--fill"), ("put", "--from-raw")])
@pytest.mark.usefixtures("unchanged")
def test_one_source_is_wanted(stctl, model, command, option):
    _, err = stctl(command, model, "scalar", code=2)
    assert "one of --" in err and err.endswith(" is needed\n")
    _, err = stctl(command, model, "scalar", option, "1", "--npy", "x", code=2)
    assert "only one of --" in err and err.endswith(" is taken, but 2 were given\n")


# ------------------------------------------------------------------ --from


@pytest.fixture
def tuned(tmp_path):
    arrays = {"layer.0.weight": NEW, "half": np.array([1, 2, 3, 4], np.float16), "scalar": np.array(7, np.uint8)}
    save_file(arrays, tmp_path / "tuned.safetensors")
    return tmp_path / "tuned.safetensors", arrays


def test_from_takes_all_tensors_in_one_transaction(stctl, model, arrays, tuned):
    result = stctl.json("update", model, "--from", tuned[0])
    assert {t["name"] for t in result["tensors"]} == set(tuned[1])
    assert (result["count"], result["nbytes"]) == (3, 48 + 8 + 1)
    assert_changed_only(model, arrays, tuned[1])
    assert_changed_only(tuned[0], tuned[1], {})


def test_from_takes_named_tensors(stctl, model, arrays, tuned):
    out = stctl("update", model, "scalar", "half", "--from", tuned[0])[0]
    assert out.splitlines()[-1].startswith("updated 2 tensors, 9 bytes (")
    assert_changed_only(model, arrays, {n: tuned[1][n] for n in ["scalar", "half"]})


def test_from_counts_a_tensor_named_twice_once(stctl, model, arrays, tuned):
    result = stctl.json("update", model, "scalar", "scalar", "--from", tuned[0])
    assert (result["count"], result["nbytes"]) == (1, 1)
    assert_changed_only(model, arrays, {"scalar": tuned[1]["scalar"]})


@pytest.mark.usefixtures("unchanged")
def test_from_is_all_or_nothing(stctl, model, tmp_path):
    good = np.array([1, 2, 3, 4], np.float16)
    for name, bad, status in [
        ("scalar", np.array(7, np.int8), "ST_E_DTYPE_MISMATCH"),
        ("scalar", np.zeros(1, np.uint8), "ST_E_SHAPE_MISMATCH"),
        ("no such", np.zeros(1, np.uint8), "ST_E_NOT_FOUND"),
    ]:
        save_file({"half": good, name: bad}, tmp_path / "bad.safetensors")
        error = stctl.json("update", model, "--from", tmp_path / "bad.safetensors", code=1)["error"]
        assert (error["status"], error["tensor"]) == (status, name)


@pytest.mark.usefixtures("unchanged")
def test_names_that_are_not_there(stctl, model, tuned):
    assert stctl.json("update", model, "x", "--fill", "1", code=1)["error"]["status"] == "ST_E_NOT_FOUND"
    assert stctl.json("update", model, "empty", "--from", tuned[0], code=1)["error"]["tensor"] == "empty"
    assert stctl.json("update", model, "--from", "/no/file", code=1)["error"]["status"] == "ST_E_NO_FILE"
    assert "'/no/file'" in stctl("update", model, "half", "--from-raw", "/no/file", code=1)[1]


def test_update_through_a_symbolic_link(stctl, model, arrays, tmp_path):
    (tmp_path / "link.safetensors").symlink_to(model)
    stctl("update", tmp_path / "link.safetensors", "scalar", "--fill", "9")
    assert (tmp_path / "link.safetensors").is_symlink()
    assert_changed_only(model, arrays, {"scalar": np.array(9, np.uint8)})


# ------------------------------------------------------------------- locks


@contextlib.contextmanager
def locked(path):
    """The whole file, held exclusively by another process than stctl: this one."""
    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("unchanged")
def test_a_locked_file_is_busy(stctl, model):
    with locked(model):
        result = stctl.json("update", model, "scalar", "--fill", "1", "--lock-timeout", "0", code=3)
        assert result["error"]["status"] == "ST_E_BUSY"
        assert result["error"]["exit_code"] == 3
        out, err = stctl("update", model, "scalar", "--fill", "1", "--lock-timeout", "50", code=3)
        assert out == "" and err.startswith("stctl: ") and err.endswith("(ST_E_BUSY)\n")
    assert stctl.json("verify", model)["ok"]


def test_it_waits_for_the_lock(stctl, model, arrays):
    before = model.read_bytes()
    with locked(model):
        waiting = stctl.popen("update", model, "scalar", "--fill", "5", "--lock-timeout", "-1", "--quiet")
        wait_until(lambda: is_staged(model), waiting)
        slept = sleeps(waiting)
        wait_until(lambda: sleeps(waiting) > slept + 40, waiting)
        assert model.read_bytes() == before
    assert waiting.wait(60) == 0
    assert_changed_only(model, arrays, {"scalar": np.array(5, np.uint8)})


def without_override():
    """Root may write to any file; without CAP_DAC_OVERRIDE it is as others are."""
    pr_capbset_drop, cap_dac_override = 24, 1
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(pr_capbset_drop, cap_dac_override) != 0:
        raise OSError("prctl")


@pytest.mark.usefixtures("unchanged")
def test_a_read_only_file_is_refused(stctl, model):
    model.chmod(0o444)
    result = stctl.json("update", model, "scalar", "--fill", "1", code=1, preexec_fn=without_override)
    assert result["error"]["status"] == "ST_E_PERMISSION"
    assert stctl.json("get", model, "scalar", preexec_fn=without_override)["values"] == 42


@pytest.mark.usefixtures("unchanged")
def test_a_read_only_medium_is_refused(stctl, model, read_only_mount):
    there = read_only_mount / model.name
    error = stctl.json("update", there, "scalar", "--fill", "1", code=1)["error"]
    assert error["status"] in ("ST_E_PERMISSION", "ST_E_READ_ONLY", "ST_E_IO")
    assert stctl.json("get", there, "scalar")["values"] == 42


@pytest.mark.parametrize("how", ["npy", "raw"])
@pytest.mark.parametrize(
    "text, at",
    [
        ("1:3", np.s_[1:3]),
        ("-1", np.s_[-1]),
        ("::-2,1", np.s_[::-2, 1]),
        ("[..., 0]", np.s_[..., 0]),
        ("2,3", np.s_[2, 3]),
        ("5:", np.s_[5:]),
    ],
)
def test_a_slice_is_numpys(stctl, model, arrays, tmp_path, text, at, how):
    expected = arrays["layer.0.weight"].copy()
    new = -(expected[at] + 1)
    expected[at] = new
    if how == "npy":
        np.save(tmp_path / "new", new)
        source = ["--npy", tmp_path / "new.npy"]
    else:
        (tmp_path / "new.bin").write_bytes(new.tobytes())
        source = ["--from-raw", tmp_path / "new.bin"]
    stctl("update", model, "layer.0.weight", f"--slice={text}", *source)
    assert_changed_only(model, arrays, {"layer.0.weight": expected})


def test_a_slice_is_filled_and_told(stctl, model, arrays):
    result = stctl.json("update", model, "layer.0.weight", "--slice", "1", "--fill", "7")
    assert (result["count"], result["nbytes"], result["bytes_written"]) == (1, 16, 16)
    expected = arrays["layer.0.weight"].copy()
    expected[1] = 7
    assert_changed_only(model, arrays, {"layer.0.weight": expected})


def test_a_slice_is_cast(stctl, model, arrays, tmp_path):
    np.save(tmp_path / "new.npy", np.array([0.5, 2, -1, 1e-9]))
    _, err = stctl("update", model, "layer.0.weight", "--slice=0", "--cast", "--npy", tmp_path / "new.npy")
    assert "F64" in err
    expected = arrays["layer.0.weight"].copy()
    expected[0] = [0.5, 2, -1, 1e-9]
    assert_changed_only(model, arrays, {"layer.0.weight": expected})


def test_a_slice_of_less_than_bytes(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {"w": ("F4", [2, 4], bytes([1, 2, 3, 4]))})
    stctl("update", path, "w", "--slice=:,2:", "--from-raw", "-", input=b"xy")
    assert path.read_bytes()[-4:] == b"\1x\3y"
    _, err = stctl("update", path, "w", "--slice=:,1:3", "--from-raw", "-", input=b"xy", code=1)
    assert "ST_E_SUBBYTE" in err


@pytest.mark.parametrize("text", ["0:2", "3", "0,0,0", "::0", "a:b"])
def test_a_slice_that_does_not_fit_is_refused(stctl, model, unchanged, tmp_path, text):
    np.save(tmp_path / "new.npy", np.zeros((3, 4), np.float32))
    result = stctl.raw("update", model, "layer.0.weight", f"--slice={text}", "--npy", tmp_path / "new.npy")
    assert result.returncode in (1, 2) and result.stderr
    _, err = stctl("update", model, "layer.0.weight", "--slice=0", "--from", model, code=2)
    assert "--slice" in err


@pytest.mark.parametrize("empty", [["--slice", ""], ["--slice", " "], ["--slice", "[]"]])
def test_an_empty_slice_is_not_the_whole_tensor(stctl, model, unchanged, empty):
    for command in [["update", model, "layer.0.weight", *empty, "--fill", "7"], ["get", model, "half", *empty]]:
        assert "slice" in stctl(*command, code=2)[1]
    stctl("update", model, "layer.0.weight", "--fill", "7", "--slice=", code=2)
