"""stctl get: formats, destinations, slices."""

import errno
import io
import itertools
import json
import os
import pty
import shutil
import struct
import subprocess

import numpy as np
import pytest
from cli_files import BITS, IN_NUMPY, NUMPY, sparse, tensor_bytes, write
from safetensors.numpy import save_file


@pytest.fixture
def cube(tmp_path):
    array = np.arange(5 * 4 * 6, dtype=np.int32).reshape(5, 4, 6)
    path = tmp_path / "cube.safetensors"
    save_file({"w": array, "x": np.zeros(3, np.float32)}, path)
    return path, array


# ------------------------------------------------------------------ slices


def python_slice(text):
    """--slice text, as the index that numpy takes."""
    parts = []
    for part in text.split(","):
        if part == "...":
            parts.append(...)
        elif ":" in part:
            parts.append(slice(*[int(n) if n else None for n in part.split(":")]))
        else:
            parts.append(int(part))
    return tuple(parts)


SLICES = [
    "0:2,:,::2", "1:3", ":", ":,:", "0", "-1", "-1,-1,-1", "2,:,3", "::-1", "::-2,::-1,::-3", "...,0", "...,1:3",
    "1,...", "0,...,5", "...", "-3:-1", ":-2", "-2:", "10:20", "3:1", "3:1:-1", "4::-1", "-1:-100:-1", "-100:100",
    "::100", "0:5:3", "5:0:-2,1:3,::-1", "0:9223372036854775807", "2:2", ":, 1:2 ,0",
]  # fmt: skip


@pytest.mark.parametrize("text", SLICES)
def test_slices_are_those_of_numpy(stctl, cube, text):
    path, array = cube
    want = array[python_slice(text)]
    got = stctl.json("get", path, "w", f"--slice={text}")
    assert got["shape"] == list(want.shape)
    assert got["nbytes"] == want.nbytes
    assert got["values"] == (want.tolist() if want.size else [])
    raw = stctl.raw("get", path, "w", "--slice", text, "--format", "raw")
    assert (raw.returncode, raw.stdout) == (0, np.ascontiguousarray(want).tobytes())
    npy = stctl.raw("get", path, "w", "--slice", f"[{text}]", "--format", "npy")
    assert np.array_equal(np.load(io.BytesIO(npy.stdout)), want)


def test_many_slices_of_a_dimension(stctl, tmp_path):
    array = np.arange(4, dtype=np.uint8)
    path = tmp_path / "m.safetensors"
    save_file({"w": array}, path)
    for start, stop, step in itertools.product(
        ["", "0", "2", "-3", "9", "-9"], ["", "1", "-1", "9", "-9"], ["", "2", "-1"]
    ):
        text = f"{start}:{stop}:{step}"
        raw = stctl.raw("get", path, "w", "--slice", text, "-o", "-")
        assert (raw.returncode, raw.stdout) == (0, array[python_slice(text)].tobytes()), text


@pytest.mark.parametrize("text", ["a", "0:1:2:3", "0:x", "::0", "1,,2", "1.5", "0x1", "99999999999999999999"])
def test_what_is_no_slice_is_a_usage_error(stctl, cube, text):
    assert "slice" in stctl("get", cube[0], "w", "--slice", text, code=2)[1]


@pytest.mark.parametrize("text", ["0:99999999999999999999", "-9223372036854775809:", "::9223372036854775808"])
def test_a_number_that_no_slice_holds_is_told_as_such(stctl, cube, text):
    err = stctl("get", cube[0], "w", f"--slice={text}", code=2)[1]
    assert "is too large a number" in err and "no number" not in err


@pytest.mark.parametrize("text", ["5", "-6", "0,0,6", "0,0,0,0", ":,:,:,:", "...,0,0,0,0"])
def test_a_slice_outside_the_tensor_fails(stctl, cube, text):
    assert "slice" in stctl.json("get", cube[0], "w", "--slice", text, code=1)["error"]["message"]


def test_a_scalar_and_an_empty_tensor(stctl, model):
    assert stctl.json("get", model, "scalar")["values"] == 42
    assert stctl.json("get", model, "scalar", "--slice", "...")["values"] == 42
    assert stctl("get", model, "scalar")[0] == "42\n"
    empty = stctl.json("get", model, "empty")
    assert (empty["shape"], empty["values"]) == ([0, 3], [])
    assert stctl("get", model, "empty")[0] == "[]\n"
    assert stctl.raw("get", model, "empty", "-o", "-").stdout == b""
    assert "slice" in stctl("get", model, "scalar", "--slice", "0", code=1)[1]


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F6_E3M2"])
def test_packed_elements_are_sliced_at_whole_bytes(stctl, tmp_path, dtype):
    kind = NUMPY[dtype]
    array = np.arange(24, dtype=np.uint8).reshape(3, 8).astype(np.uint8) % 16
    array = array.view(kind)
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [3, 8], tensor_bytes(dtype, array))})
    got = stctl.json("get", path, "w", "--slice", "1:,0:4")
    assert got["values"] == array[1:, 0:4].astype(float).tolist()
    assert stctl.json("get", path, "w", "--slice", ":,1:2", code=1)["error"]["status"] == "ST_E_SUBBYTE"


# -------------------------------------------------------------------- text


def test_rows_and_brackets(stctl, cube):
    text, err = stctl("get", cube[0], "w", "--slice", "0:2,0:2")
    assert err == ""
    assert text == "[[[ 0  1  2  3  4  5]\n  [ 6  7  8  9 10 11]]\n\n [[24 25 26 27 28 29]\n  [30 31 32 33 34 35]]]\n"


def test_a_tensor_of_a_hundred_thousand_dimensions(stctl, tmp_path):
    n = 100_000
    path = write(tmp_path / "m.safetensors", {"w": ("U8", [1] * n, b"\7")})
    assert stctl("get", path, "w")[0] == "[" * n + "7" + "]" * n + "\n"


def test_the_middle_of_a_large_tensor_is_left_out(stctl, tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"w": np.arange(10000, dtype=np.int32).reshape(100, 100), "v": np.arange(2000, dtype=np.int16)}, path)
    assert stctl("get", path, "v")[0] == "[   0    1    2 … 1997 1998 1999]\n"
    assert stctl("get", path, "w")[0].splitlines() == [
        "[[   0    1    2 …   97   98   99]",
        " [ 100  101  102 …  197  198  199]",
        " [ 200  201  202 …  297  298  299]",
        " …",
        " [9700 9701 9702 … 9797 9798 9799]",
        " [9800 9801 9802 … 9897 9898 9899]",
        " [9900 9901 9902 … 9997 9998 9999]]",
    ]
    part = stctl("get", path, "w", "--slice", "::-2,5", "--limit", "10")[0]
    assert part == "[9905 9705 9505 …  505  305  105]\n"
    everything = stctl("get", path, "w", "--limit", "0")[0]
    assert "…" not in everything
    assert [int(n) for n in everything.replace("[", " ").replace("]", " ").split()] == list(range(10000))
    assert max(len(line) for line in everything.splitlines()) <= 82
    assert "…" not in stctl("get", path, "v", "--limit", "2000")[0]
    assert "…" in stctl("get", path, "v", "--limit", "1999")[0]


@pytest.mark.parametrize("dtype", BITS)
def test_the_edges_are_right_in_every_dtype(stctl, tmp_path, dtype):
    rng = np.random.default_rng(3)
    kind = NUMPY[dtype]
    codes = rng.integers(
        0, 2 if dtype == "BOOL" else 2 ** min(BITS[dtype], 8), (9, 4, 16 * max(BITS[dtype], 8) // 8), np.uint8
    )
    array = codes.view(kind)[..., :16]
    path = write(tmp_path / "m.safetensors", {"w": (dtype, array.shape, tensor_bytes(dtype, array))})
    words = stctl("get", path, "w", "--limit", "1")[0].replace("[", " ").replace("]", " ").split()
    assert words.count("…") == 1 + 6 * 4
    edges = np.r_[0:3, -3:0]
    all_words = stctl("get", path, "w", "--limit", "0")[0].replace("[", " ").replace("]", " ").split()
    want = np.array(all_words).reshape(9, 4, 16)[edges][:, :, edges].ravel().tolist()
    assert [w for w in words if w != "…"] == want


def test_text_reads_only_what_it_shows(stctl, tmp_path):
    path = sparse(tmp_path / "big.safetensors", "w", 1 << 36)  # more than memory
    assert stctl("get", path, "w")[0] == "[0 0 0 … 0 0 0]\n"


def test_text_of_all_elements_is_not_in_memory(stctl, tmp_path):
    path = sparse(tmp_path / "m.safetensors", "w", 4 << 20)
    assert stctl.peak("get", path, "w", "--limit", "0") < 64 << 10  # a string of each element would take twice that


# ------------------------------------------------------------ destinations


@pytest.mark.parametrize("dtype", BITS)
def test_raw_bytes_are_those_of_the_file(stctl, tmp_path, dtype):
    payload = np.random.default_rng(1).integers(0, 2, 4 * BITS[dtype], np.uint8).tobytes()
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [8, 4], payload)})
    assert stctl.raw("get", path, "w", "-o", "-").stdout == payload
    out, err = stctl("get", path, "w", "-o", tmp_path / "w.bin")
    assert (out, err) == ("", "")
    assert (tmp_path / "w.bin").read_bytes() == payload


@pytest.mark.parametrize("dtype", IN_NUMPY)
def test_npy_files_load(stctl, tmp_path, dtype):
    array = np.arange(12).reshape(3, 4).astype(NUMPY[dtype])
    tensors = {"w": (dtype, [3, 4], array.tobytes()), "v": (dtype, [12], array.tobytes())}
    tensors["s"] = (dtype, [], array.tobytes()[: array.itemsize])
    path = write(tmp_path / "m.safetensors", tensors)
    for name, want in [("w", array), ("v", array.ravel()), ("s", array[0, 0])]:
        stctl("get", path, name, "-o", tmp_path / "w.npy")
        got = np.load(tmp_path / "w.npy")
        assert got.dtype == want.dtype and got.shape == want.shape and np.array_equal(got, want)


def test_large_tensors_stream_in_pieces(stctl, tmp_path):
    """Cut along the first, the second and the third dimension."""
    array = np.random.default_rng(5).integers(0, 2**63, (3, 3, 1 << 20), np.int64)
    path = tmp_path / "m.safetensors"
    save_file({"rows": array.reshape(3 << 10, -1), "planes": array, "flat": array.reshape(1, 1, -1)}, path)
    for name in ["rows", "planes", "flat"]:
        assert stctl.raw("get", path, name, "-o", "-").stdout == array.tobytes(), name
    want = array[::-1, 1:, ::-1]
    assert stctl.raw("get", path, "planes", "--slice", "::-1,1:,::-1", "-o", "-").stdout == want.tobytes()


def test_output_hands_on_owner_attributes_and_acl(stctl, model, tmp_path):
    out = tmp_path / "w.bin"
    out.write_bytes(b"old")
    acl = b"\2\0\0\0" + b"".join(
        struct.pack("<HHI", tag, rights, who)
        for tag, rights, who in [
            (1, 6, 2**32 - 1),
            (2, 4, 4242),
            (4, 4, 2**32 - 1),
            (16, 4, 2**32 - 1),
            (32, 0, 2**32 - 1),
        ]
    )
    attributes = {"user.origin": b"by hand", "system.posix_acl_access": acl}
    try:
        for name, value in attributes.items():
            os.setxattr(out, name, value)
    except OSError as e:
        pytest.skip(f"no attributes here: {e}")
    if os.geteuid() == 0:
        os.chown(out, 4243, 4244)
    before = out.stat()
    stctl("get", model, "scalar", "-o", out)
    after = out.stat()
    assert out.read_bytes() != b"old"
    assert [after.st_uid, after.st_gid, after.st_mode] == [before.st_uid, before.st_gid, before.st_mode]
    assert {name: os.getxattr(out, name) for name in attributes} == attributes


def test_output_replaces_a_file_and_keeps_its_mode(stctl, model, tmp_path, arrays):
    out = tmp_path / "out.bin"
    out.write_bytes(b"old")
    out.chmod(0o640)
    (tmp_path / "link").symlink_to(out)
    stctl("get", model, "layer.0.weight", "-o", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert out.read_bytes() == arrays["layer.0.weight"].tobytes()
    assert out.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "path", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/3", "log", "a link", "/proc/thread-self/fd/1"]
)
def test_output_that_is_a_descriptor_goes_through_it(stctl, model, tmp_path, path):
    """A new file in its place would take away what others have written there, and will."""
    (tmp_path / "a link").symlink_to("/dev/stdout")
    script = """{ echo head; "$0" get "$1" scalar -o "$2" --format text 3>&1; echo tail; } > log"""
    subprocess.run(["sh", "-c", script, stctl.path, model, path], cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_text() == "head\n42\ntail\n"
    script = """exec >> log; rm log; "$0" get "$1" scalar -o "$2" --format text 3>&1"""
    if path != "log":
        subprocess.run(["sh", "-c", script, stctl.path, model, path], cwd=tmp_path, check=True)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a link", model.name]


WRITES_A_FILE = pytest.mark.parametrize(
    "args",
    [["get", "M", "half", "--format", "safetensors", "-o"], ["diff", "M", "M", "-o"], ["merge", "M", "M", "-o"],
     ["join", "M"], ["patch", "M", "M", "--reverse"]],
    ids=lambda args: args[0],
)  # fmt: skip


@pytest.fixture
def made(stctl, model, tmp_path):
    """{a command that makes a safetensors file: what it writes to a file}"""
    stctl("update", shutil.copy(model, tmp_path / "other"), "scalar", "--fill", "7")
    stctl("diff", model, tmp_path / "other", "-o", tmp_path / "delta")
    commands = {
        "get": ["get", model, "half", "--format", "safetensors", "-o"],
        "diff": ["diff", model, tmp_path / "other", "-o"],
        "merge": ["merge", model, tmp_path / "delta", "-o"],
        "join": ["join", model],
    }
    out = tmp_path / "out"
    return {name: (args, stctl(*args, out) and out.read_bytes()) for name, args in commands.items()}


MAKES_A_FILE = pytest.mark.parametrize("command", ["get", "diff", "merge", "join"])


@MAKES_A_FILE
@pytest.mark.parametrize("to", ["-", "/dev/stdout", "/dev/fd/3", "log", "pipe", ">(cat)"])
def test_a_safetensors_file_in_a_stream(stctl, made, tmp_path, command, to):
    """What stands there stays, and what others write later follows."""
    args, wanted = made[command]
    os.mkfifo(tmp_path / "pipe")
    if to == "pipe":
        script = """echo head > log; cat pipe >> log & "$@" pipe > said || : > pipe; wait; echo tail >> log"""
    elif to == ">(cat)":
        script = """echo head > log; "$@" >(cat >> log; echo > done) > said; cat < done > said; echo tail >> log"""
    else:
        script = f"""{{ echo head; "$@" {to} 3>&1; echo tail; }} >> log"""
    os.mkfifo(tmp_path / "done")
    subprocess.run(["bash", "-c", script, "bash", stctl.path, *args], cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_bytes() == b"head\n" + wanted + b"tail\n"


@MAKES_A_FILE
def test_a_stream_has_nothing_of_a_safetensors_file_that_fails(stctl, made, tmp_path, command):
    args = list(made[command][0])
    args[1] = tmp_path / "none"
    assert stctl(*args, "-", code=1)[0] == ""


@MAKES_A_FILE
def test_a_named_pipe_is_opened_when_the_safetensors_file_is_made(stctl, made, tmp_path, command):
    """Nobody reads it."""
    args = list(made[command][0])
    args[1] = tmp_path / "none"
    os.mkfifo(tmp_path / "pipe")
    with stctl.popen(*args, tmp_path / "pipe", stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(60) == 1 and b"none" in process.stderr.read()
        finally:
            process.kill()


@MAKES_A_FILE
@pytest.mark.parametrize("to", ["-", "/dev/stdout", "/dev/fd/1"])
def test_a_reader_of_a_safetensors_file_that_leaves_knows_why(stctl, made, command, to):
    read, write = os.pipe()
    os.close(read)
    with stctl.popen(*made[command][0], to, stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        assert (process.stderr.read(), process.wait(60)) == (b"", 6)


@MAKES_A_FILE
def test_standard_output_is_for_a_safetensors_file_or_for_json(stctl, made, tmp_path, command):
    args = made[command][0]
    for to in ["-", "/dev/stdout"]:
        out, err = stctl(args[0], "--json", *args[1:], to, code=2)
        assert "both be standard output" in err and json.loads(out)["error"]["exit_code"] == 2
    read, write = os.pipe()
    out = stctl(args[0], "--json", *args[1:], f"/dev/fd/{write}", pass_fds=[write])[0]
    os.close(write)
    assert json.loads(out)
    with open(read, "rb") as pipe:
        assert pipe.read() == made[command][1]


@MAKES_A_FILE
def test_a_safetensors_file_is_not_for_a_terminal(stctl, made, command):
    master, terminal = pty.openpty()
    for to in ["-", "/dev/stdout"]:
        with stctl.popen(*made[command][0], to, stdout=terminal, stderr=subprocess.PIPE) as process:
            assert b"not for a terminal" in process.stderr.read() and process.wait(60) == 2
    os.close(master)
    os.close(terminal)


# It is durable before the change is decided.
@pytest.mark.parametrize("to", ["-", "/dev/stdout", "/dev/null", "pipe"])
def test_a_reverse_delta_is_in_no_stream(stctl, model, made, tmp_path, to):
    os.mkfifo(tmp_path / "pipe")
    before = model.read_bytes()
    out, err = stctl("patch", model, tmp_path / "delta", "--reverse", to, code=2, cwd=tmp_path)
    assert out == "" and "stream" in err and model.read_bytes() == before


def test_a_name_that_only_begins_with_a_number_is_no_descriptor(stctl, model):
    """Nothing can be made in that folder."""
    out, err = stctl("get", model, "scalar", "-o", "/dev/fd/1x", "--format", "text", code=1)
    assert out == "" and "/dev/fd/1x" in err


@WRITES_A_FILE
def test_a_safetensors_file_does_not_replace_what_another_process_has_open(stctl, model, tmp_path, args):
    with open(tmp_path / "log", "w+b") as log:
        log.write(b"head\n")
        log.flush()
        inode = os.fstat(log.fileno()).st_ino
        args = [model if word == "M" else word for word in args]
        err = stctl(*args, f"/proc/{os.getpid()}/fd/{log.fileno()}", code=1)[1]
    assert "cannot write" in err and os.strerror(errno.EOPNOTSUPP) in err
    assert (tmp_path / "log").read_bytes() == b"head\n" and (tmp_path / "log").stat().st_ino == inode


@pytest.mark.parametrize("fd", [1, 2])
def test_a_file_that_is_only_read_by_a_descriptor_is_replaced(stctl, model, tmp_path, fd):
    (tmp_path / "out").write_text("old")
    script = f"""exec "$0" get "$1" scalar -o out --format text {fd}< out"""
    subprocess.run(["sh", "-c", script, stctl.path, model], cwd=tmp_path, check=True)
    assert (tmp_path / "out").read_text() == "42\n"


def test_output_through_links_that_lead_to_nothing_yet(stctl, model, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/second")
    (tmp_path / "folder/second").symlink_to("out.txt")
    stctl("get", model, "scalar", "-o", tmp_path / "link", "--format", "text")
    assert (tmp_path / "folder/out.txt").read_text() == "42\n"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "folder/second").is_symlink()
    (tmp_path / "round").symlink_to("round")
    assert "symbolic links" in stctl("get", model, "scalar", "-o", tmp_path / "round", code=1)[1]


@MAKES_A_FILE
def test_a_safetensors_file_through_links_that_lead_to_nothing_yet(stctl, made, tmp_path, command):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/second")
    (tmp_path / "folder/second").symlink_to("out")
    for _ in range(2):  # also when it leads to something
        stctl(*made[command][0], tmp_path / "link")
        assert (tmp_path / "folder/out").read_bytes() == made[command][1]
        assert (tmp_path / "link").is_symlink() and (tmp_path / "folder/second").is_symlink()


def test_output_follows_the_umask(stctl, model, tmp_path):
    stctl("get", model, "half", "-o", tmp_path / "out.bin", preexec_fn=lambda: os.umask(0o027))
    assert (tmp_path / "out.bin").stat().st_mode & 0o777 == 0o640


def test_output_beside_a_folder_that_cannot_be_listed(stctl, model, tmp_path, unlister):
    """Its index is looked for there. Whichever call fails, the answer is libst's, or the output is there."""
    stctl("shard", model, tmp_path / "shards", "--max-size", "100")
    done = 0
    for call in range(1, 200):
        environment = {**os.environ, "LD_PRELOAD": str(unlister), "FAIL_READDIR_AT": str(call)}
        result = stctl.raw("get", tmp_path / "shards", "half", "-o", tmp_path / "out", env=environment)
        if result.returncode == 1:
            assert b"cannot list" in result.stderr
        else:
            assert (result.returncode, result.stderr) == (0, b"")
            done += 1
        if done > 20:
            break
    assert done > 20 and (tmp_path / "out").stat().st_size == 8


def test_output_never_replaces_the_model(stctl, model):
    before = model.read_bytes()
    assert "replace" in stctl("get", model, "half", "-o", model, code=2)[1]
    assert model.read_bytes() == before


def test_output_never_replaces_a_part_of_the_model(stctl, model, tmp_path):
    save_file({"x": np.ones(3)}, tmp_path / "other")
    stctl("diff", model, tmp_path / "other", "-o", tmp_path / "delta")
    stctl("shard", model, tmp_path / "shards", "--max-size", "100")
    (tmp_path / "link").symlink_to("shards/model.safetensors.index.json")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    index = tmp_path / "shards/model.safetensors.index.json"
    for out in [*(tmp_path / "shards").iterdir(), tmp_path / "link"]:
        for given in [tmp_path / "shards", index]:
            assert "replace" in stctl("get", given, "half", "-o", out, code=2)[1]
    for form in ["raw", "safetensors"]:
        args = ["x", "--delta", tmp_path / "delta", "-o", tmp_path / "delta", "--format", form]
        assert "replace" in stctl("get", model, *args, code=2)[1]
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    stctl("get", tmp_path / "shards", "half", "-o", tmp_path / "shards/half.json")


def test_a_failure_leaves_no_output(stctl, model, tmp_path):
    stctl("get", model, "nothing", "-o", tmp_path / "out.bin", code=1)
    for name in ["out.bin", "1"]:
        stctl("get", model, "half", "-o", tmp_path / "no" / name, code=1)
    assert list(tmp_path.iterdir()) == [model]


def test_json_of_a_written_file_is_a_summary(stctl, model, tmp_path):
    out = tmp_path / "half.npy"
    got = stctl.json("get", model, "half", "-o", out)
    assert got == {"file": str(model), "name": "half", "dtype": "F16", "shape": [4], "nbytes": 8, "output": str(out)}
    assert np.load(out).shape == (4,)


def test_json_and_raw_bytes_do_not_mix(stctl, model):
    assert stctl.json("get", model, "half", "-o", "-", code=2)["error"]["exit_code"] == 2


@pytest.mark.parametrize("form", ["raw", "npy", "text"])
@pytest.mark.parametrize("to", ["/dev/stdout", "/dev/fd/1", "log"])
def test_json_and_values_do_not_mix_by_another_name(stctl, model, tmp_path, form, to):
    with open(tmp_path / "log", "w+b") as log:
        args = ["get", "--json", model, "half", "--format", form, "-o", to]
        with stctl.popen(*args, stdout=log, stderr=subprocess.PIPE, cwd=tmp_path) as process:
            assert b"both be standard output" in process.stderr.read() and process.wait(60) == 2
    assert json.loads((tmp_path / "log").read_bytes())["error"]["exit_code"] == 2


def test_raw_bytes_are_not_for_a_terminal_by_another_name(stctl, model):
    master, terminal = pty.openpty()
    for to in ["/dev/stdout", "/dev/fd/1", os.ttyname(terminal)]:
        args = ["get", model, "half", "--format", "raw", "-o", to]
        with stctl.popen(*args, stdout=terminal, stderr=subprocess.PIPE) as process:
            assert b"not for a terminal" in process.stderr.read() and process.wait(60) == 2
    os.close(master)
    os.close(terminal)


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("form", ["raw", "npy", "text"])
def test_values_are_on_the_disk_before_they_have_their_name(stctl, model, tmp_path, syncless, form, exists):
    if exists:
        (tmp_path / "out").write_text("old")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    environment = {**os.environ, "LD_PRELOAD": str(syncless)}
    err = stctl("get", model, "half", "--format", form, "-o", tmp_path / "out", env=environment, code=1)[1]
    assert os.strerror(errno.EIO) in err
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert stctl.raw("get", model, "half", "-o", "/dev/stdout", env=environment).returncode == 0  # a pipe has none


@pytest.mark.parametrize("exists", [False, True])
def test_values_go_where_their_folder_was(stctl, model, tmp_path, exchanger, exists):
    """Its owner moves it, and puts a link to another in its place."""
    for folder in ("out", "other"):
        (tmp_path / folder).mkdir()
        if exists or folder == "other":
            (tmp_path / folder / "x").write_text("old")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(exchanger),
        "EXCHANGE": str(tmp_path / "out"),
        "EXCHANGE_FOR": str(tmp_path / "other"),
    }
    stctl("get", model, "scalar", "--format", "text", "-o", tmp_path / "out" / "x", env=environment)
    assert (tmp_path / "out").is_symlink()
    assert [(p.name, p.read_text()) for p in (tmp_path / "other").iterdir()] == [("x", "old")]
    assert [(p.name, p.read_text()) for p in (tmp_path / "out.moved").iterdir()] == [("x", "42\n")]


def test_text_to_a_file(stctl, model, tmp_path):
    stctl("get", model, "scalar", "--format", "text", "-o", tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_text() == "42\n"
