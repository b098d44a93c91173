"""Standard output that cannot be written, terminals, and signals."""

import contextlib
import errno
import json
import os
import pathlib
import pty
import resource
import select
import signal
import stat
import subprocess
import time

import numpy as np
import pytest
from cli_files import is_staged, sparse, stock, wait_until
from safetensors.numpy import save_file

EVERY_COMMAND = [
    ["--help"], ["--version"], ["ls", "--help"], ["ls", "MODEL"], ["ls", "--json", "MODEL"], ["view", "MODEL"],
    ["info", "MODEL"], ["info", "MODEL", "half"], ["get", "MODEL", "half"], ["get", "MODEL", "half", "-o", "-"],
    ["get", "--json", "MODEL", "half"], ["verify", "MODEL"], ["verify", "--json", "MODEL"], ["recover", "MODEL"],
    ["io", "MODEL"], ["stats", "MODEL"], ["update", "MODEL", "scalar", "--fill", "1"],
]  # fmt: skip


@pytest.mark.parametrize("args", EVERY_COMMAND, ids=" ".join)
def test_a_full_disk_under_standard_output_is_exit_code_6(stctl, model, args):
    with open("/dev/full", "wb") as full:
        process = stctl.popen(*[model if a == "MODEL" else a for a in args], stdout=full, stderr=subprocess.PIPE)
        err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 6
    assert err == f"stctl: cannot write to standard output: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("args", EVERY_COMMAND, ids=" ".join)
def test_a_reader_that_left_is_exit_code_6_and_silent(stctl, model, args):
    read, write = os.pipe()
    os.close(read)
    process = stctl.popen(*[model if a == "MODEL" else a for a in args], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 6


def test_a_change_that_could_not_be_told_is_made_as_the_help_says(stctl, model):
    with open("/dev/full", "wb") as full:
        process = stctl.popen("update", model, "scalar", "--fill", "7", stdout=full, stderr=subprocess.PIPE)
        process.communicate(timeout=60)
    assert process.returncode == 6 and stctl.json("get", model, "scalar")["values"] == 7
    told = " ".join(stctl("update", "--help")[0].split())
    assert "after 6 the change may have been made" in told
    assert "6 standard output could not be written: disk full, or the reader left; a change may have been made" in told


def test_a_reader_that_leaves_in_the_middle(stctl, tmp_path):
    path = sparse(tmp_path / "m.safetensors", "w", 64 << 20)
    with stctl.popen("get", path, "w", "-o", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(10) == bytes(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 6


def test_a_failure_and_a_full_disk(stctl, tmp_path):
    with open("/dev/full", "wb") as full:
        process = stctl.popen("ls", "--json", tmp_path / "none", stdout=full, stderr=subprocess.PIPE)
        err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 6
    assert "ST_E_NO_FILE" in err and "standard output" in err


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1 2"])
def test_closed_descriptors_never_become_the_model(stctl, model, closed):
    before = model.read_bytes()
    redirections = " ".join(f"{fd}>&-" for fd in closed.split())
    for args in ["ls", "ls --json", "verify", "ls --bad-option"]:
        result = subprocess.run(["sh", "-c", f'"$0" {args} "$1" {redirections}', stctl.path, model], timeout=60)
        bad = "bad" in args
        assert result.returncode == (2 if bad else 6 if "1" in closed else 0)
    result = subprocess.run(["sh", "-c", f'"$0" update "$1" scalar --fill 42 {redirections}', stctl.path, model])
    assert result.returncode == (6 if "1" in closed else 0)
    assert model.read_bytes() == before  # 42 is what it was


# --------------------------------------------------------------- terminals


class Terminal:
    """A pseudo-terminal that collects what is written to it."""

    def __enter__(self):
        self.mine, self.theirs = pty.openpty()
        self.text = b""
        return self

    def __exit__(self, *_):
        os.close(self.mine)
        if self.theirs is not None:
            os.close(self.theirs)

    def handed_over(self):
        os.close(self.theirs)
        self.theirs = None

    def read(self, seconds):
        """What comes within that time; False when the other side has closed."""
        if select.select([self.mine], [], [], seconds)[0]:
            try:
                got = os.read(self.mine, 4096)
            except OSError:  # EIO: nobody has it open any more
                return False
            self.text += got
        return True


def slow_read(stctl, path, *more, seconds):
    """`get` into a pipe that nobody empties before a bar is there, for that long at most. With a terminal as standard
    error: what that showed."""
    with Terminal() as terminal:
        args = ["get", path, "w", "-o", "-", *more]
        with stctl.popen(*args, stdout=subprocess.PIPE, stderr=terminal.theirs) as process:
            terminal.handed_over()
            start, pipe = time.monotonic(), process.stdout.fileno()
            while os.read(pipe, 1 << 16):
                while b"%" not in terminal.text and time.monotonic() < start + seconds and terminal.read(0.05):
                    pass
            assert process.wait(60) == 0
        while terminal.read(1):
            pass
        return terminal.text.decode()


def test_progress_is_drawn_on_a_terminal_and_wiped(stctl, tmp_path):
    shown = slow_read(stctl, sparse(tmp_path / "m.safetensors", "w", 160 << 20), seconds=60)
    assert "\rreading [" in shown
    assert "% of 160.00 MiB" in shown
    assert shown.endswith("\r\x1b[K")


def test_quiet_silences_progress(stctl, tmp_path):
    path = sparse(tmp_path / "m.safetensors", "w", 160 << 20)
    assert slow_read(stctl, path, "--quiet", seconds=0.5) == ""


def test_raw_bytes_are_not_for_a_terminal(stctl, model):
    with Terminal() as terminal:
        process = stctl.popen("get", model, "half", "-o", "-", stdout=terminal.theirs, stderr=subprocess.PIPE)
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert b"terminal" in err


# ----------------------------------------------------------------- signals


def has_open(pid, path):
    folder = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(f"{folder}/{fd}") == str(path) for fd in os.listdir(folder))
    except OSError:
        return False


def has_written(process, output):
    """Has it a file open, without a name or beside the output, with something in it?"""

    def is_written(fd):
        try:
            found, name = os.stat(fd), os.readlink(fd)
        except OSError:  # it is closed by now
            return False
        is_output = found.st_nlink == 0 or name.startswith(f"{output}.")
        return stat.S_ISREG(found.st_mode) and found.st_size > 0 and is_output

    try:
        return any(is_written(fd) for fd in pathlib.Path(f"/proc/{process.pid}/fd").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_writing_to_a_pipe(stctl, tmp_path, number):
    path = sparse(tmp_path / "m.safetensors", "w", 256 << 20)
    with stctl.popen("get", path, "w", "-o", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(1) == b"\0"
        process.send_signal(number)
        assert process.wait(60) == -number
        assert process.stderr.read() == b"stctl: interrupted\n"


def test_ctrl_c_leaves_no_half_file(stctl, tmp_path):
    path = sparse(tmp_path / "m.safetensors", "w", 1 << 36)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with stctl.popen("get", path, "w", "-o", tmp_path / "w.bin", **pipes) as process:
        wait_until(lambda: has_written(process, tmp_path / "w.bin"), process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        assert b"interrupted" in process.stderr.read().lower()
    assert list(tmp_path.iterdir()) == [path]


def needs_files_without_a_name(folder):
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE))
    except OSError:
        pytest.skip("the filesystem has no files without a name")


def test_a_killed_process_leaves_no_half_file_where_files_need_no_name(stctl, tmp_path):
    needs_files_without_a_name(tmp_path)
    path = sparse(tmp_path / "m.safetensors", "w", 1 << 36)
    with stctl.popen("get", path, "w", "-o", tmp_path / "w.bin", stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: has_written(process, tmp_path / "w.bin"), process)
        process.kill()
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_no_name_before_its_own(stctl, model, tmp_path, killer):
    needs_files_without_a_name(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(killer), "KILL_RENAME": "1"}
    stctl("get", model, "half", "-o", out / "half.bin", env=environment)
    assert [path.name for path in out.iterdir()] == ["half.bin"]
    assert (out / "half.bin").read_bytes() == stock(model)["half"].tobytes()
    # The old file is there until its successor has a name.
    result = stctl.raw("get", model, "scalar", "-o", out / "half.bin", env=environment)
    assert result.returncode == -signal.SIGKILL
    assert (out / "half.bin").stat().st_size == 8


@pytest.mark.parametrize("name", ["n" * 251 + ".npy", "ü" * 125 + ".npy"], ids=["ascii", "utf8"])
def test_a_name_as_long_as_names_may_be(stctl, model, tmp_path, name):
    for tensor in ("half", "scalar"):  # the second one takes the place of the first
        stctl("get", model, tensor, "-o", name, cwd=tmp_path)
    assert np.load(tmp_path / name) == 42
    assert sorted(os.listdir(tmp_path)) == sorted([model.name, name])


def test_what_another_left_is_not_in_the_way(stctl, model, tmp_path):
    """The number of a process comes again: in a container each time."""
    script = """: > "$1.$$.part"; exec "$0" get "$2" half -o "$1" """
    subprocess.run(["sh", "-c", script, stctl.path, tmp_path / "half.bin", model], check=True)
    assert (tmp_path / "half.bin").stat().st_size == 8


def test_ctrl_c_while_nobody_reads_a_pipe(stctl, model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with stctl.popen("get", model, "half", "-o", tmp_path / "pipe", stderr=subprocess.PIPE) as process:
        asleep = pathlib.Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: has_open(process.pid, model) and ") S " in asleep.read_text(), process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        assert process.stderr.read() == b"stctl: interrupted\n"


def sleeps(pid):
    return ") S " in pathlib.Path(f"/proc/{pid}/stat").read_text()


def catches(pid, number):
    """Has it a handler for the signal? While it is being loaded it has none, and may sleep, too."""
    caught = pathlib.Path(f"/proc/{pid}/status").read_text().split("SigCgt:")[1].split()[0]
    return int(caught, 16) >> (number - 1) & 1 == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "args",
    [["update", "--from-raw"], ["update", "--npy"], ["update", "--cast", "--npy"], ["put", "--npy"],
     ["put", "--dtype", "U8", "--shape", "", "--from-raw"]],
    ids=" ".join,
)  # fmt: skip
def test_a_signal_while_nobody_writes_to_a_named_pipe(stctl, model, tmp_path, args, number):
    os.mkfifo(tmp_path / "pipe")
    command, *options = args
    process = stctl.popen(command, model, "scalar", *options, tmp_path / "pipe", stderr=subprocess.PIPE)
    try:
        at_work = (lambda: catches(process.pid, number)) if command == "put" else lambda: has_open(process.pid, model)
        wait_until(lambda: at_work() and sleeps(process.pid), process)
        process.send_signal(number)
        assert process.communicate(timeout=60)[1] == b"stctl: interrupted\n"
        assert process.returncode == -number
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("waits", [True, False], ids=["where it waits", "while it works"])
def test_ctrl_c_ends_the_loop_of_a_script_too(stctl, model, tmp_path, waits):
    """bash ends by a Ctrl-C if its command did. The exit code 130 tells it that the command has dealt with it."""
    os.mkfifo(tmp_path / "pipe")
    large = sparse(tmp_path / "large.safetensors", "w", 1 << 38)
    command = ["update", model, "scalar", "--from-raw", tmp_path / "pipe"] if waits else ["verify", large]
    script = 'for i in 1 2; do "$@"; echo "went on after $?"; exit; done'
    arguments = ["bash", "-c", script, "bash", stctl.path, *command]
    shell = subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True)
    try:
        children = pathlib.Path(f"/proc/{shell.pid}/task/{shell.pid}/children")

        def is_at_work():
            return any(
                has_open(child, command[1]) and (not waits or sleeps(child)) for child in children.read_text().split()
            )

        wait_until(is_at_work, shell)
        os.killpg(shell.pid, signal.SIGINT)
        assert shell.communicate(timeout=60)[0] == b""
        assert shell.returncode == -signal.SIGINT
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_an_interrupted_command_has_the_exit_code_of_its_signal_in_a_shell(stctl, model, tmp_path, interrupter):
    environment = interrupted_at("journal", interrupter, tmp_path)
    script = '"$0" recover "$1" "$1" > said; echo $?'
    result = subprocess.run(
        ["sh", "-c", script, stctl.path, model], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert result.stdout == "130\n"


def test_ctrl_c_stops_verify(stctl, tmp_path):
    path = sparse(tmp_path / "m.safetensors", "w", 1 << 38)
    with stctl.popen("verify", path) as process:
        wait_until(lambda: has_open(process.pid, path), process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


def test_ctrl_c_stops_a_comparison(stctl, tmp_path):
    a, b = (sparse(tmp_path / f"{name}.safetensors", "w", 1 << 38) for name in "ab")
    with stctl.popen("diff", a, b, stderr=subprocess.PIPE) as process:
        wait_until(lambda: has_open(process.pid, b), process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        assert process.stderr.read() == b"stctl: interrupted; nothing was changed (ST_E_CANCELLED)\n"


def test_ctrl_c_while_a_delta_is_written_leaves_none(stctl, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    rng = np.random.default_rng(1)
    for name in "ab":
        save_file({"w": rng.integers(0, 256, 4 << 20, np.uint8)}, tmp_path / name)
    args = ["diff", tmp_path / "a", tmp_path / "b"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with stctl.popen(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert len(process.stdout.read(1)) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    assert list(scratch.iterdir()) == []


def test_ctrl_c_stops_touching(stctl, tmp_path):
    path = sparse(tmp_path / "m.safetensors", "w", 1 << 38)
    with stctl.popen("stats", "--touch", path) as process:
        wait_until(lambda: has_open(process.pid, path), process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


@pytest.mark.parametrize("path_then", ["stays", "names another", "is gone"])
def test_touching_a_file_that_is_cut_meanwhile_is_a_sentence(stctl, tmp_path, path_then):
    path, other = (sparse(tmp_path / f"{name}.safetensors", "w", 1 << 38) for name in "mo")
    with (
        open(path, "r+b") as opened,
        stctl.popen("stats", "--touch", path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        status = pathlib.Path(f"/proc/{process.pid}/status")
        wait_until(lambda: int(status.read_text().split("VmRSS:")[1].split()[0]) > 64 << 10, process)
        if path_then == "names another":
            other.replace(path)
        elif path_then == "is gone":
            path.unlink()
        opened.truncate(4096)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert err.decode() == f"stctl: cannot read '{path}': it was truncated or replaced meanwhile (ST_E_FILE_CHANGED)\n"


@pytest.mark.parametrize("json", [False, True])
def test_ctrl_c_while_waiting_for_a_lock_changes_nothing(stctl, model, arrays, json):
    import fcntl

    with open(model, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        args = ["update", model, "scalar", "--fill", "1", "--lock-timeout", "-1"] + ["--json"] * json
        with stctl.popen(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_until(lambda: is_staged(model), process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            assert process.returncode == -signal.SIGINT
        assert err.startswith(b"stctl: ") and err.count(b"\n") == 1
        assert (b'"exit_code":130' in out) if json else out == b""
    assert stock(model)["scalar"] == arrays["scalar"]
    assert stctl("recover", model)[0] == f"{model}: nothing to recover\n"


def test_ctrl_c_while_reading_standard_input(stctl, model):
    before = model.read_bytes()
    args = ["update", model, "scalar", "--from-raw", "-"]
    with stctl.popen(*args, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: has_open(process.pid, model), process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    assert model.read_bytes() == before


CHANGES = [
    ["update", "MODEL", "scalar", "--fill", "1"], ["put", "MODEL", "h", "--npy", "NPY"], ["rm", "MODEL", "half"],
    ["mv", "MODEL", "half", "h"], ["meta", "MODEL", "k=v"], ["compact", "MODEL"], ["edit", "MODEL", "--rm", "half"],
    ["shard", "MODEL", "NEW", "--max-size", "100"], ["join", "MODEL", "NEW"], ["diff", "MODEL", "B", "-o", "NEW"],
    ["patch", "MODEL", "DELTA"], ["merge", "MODEL", "DELTA", "-o", "NEW"], ["get", "MODEL", "half", "-o", "NEW"],
]  # fmt: skip


def interrupted_at(point, interrupter, folder):
    """The environment of a process that gets SIGINT there, and leaves a mark in the folder."""
    variables = {"LD_PRELOAD": str(interrupter), "INTERRUPT_AT": point, "INTERRUPT_MARK": str(folder / "interrupted")}
    return {**os.environ, **variables}


@pytest.mark.parametrize("at", ["change", "write"])
@pytest.mark.parametrize("args", CHANGES, ids=lambda args: args[0])
def test_ctrl_c_after_the_change_is_too_late(stctl, model, tmp_path, interrupter, args, at):
    """Once the change is durable: as soon as it is, and when the answer is written."""
    paths = {"MODEL": model, **{name: tmp_path / name for name in ["NEW", "B", "DELTA", "NPY"]}}
    save_file({"x": np.ones(3)}, paths["B"])
    with open(paths["NPY"], "wb") as file:
        np.save(file, np.ones(3))
    stctl("diff", model, paths["B"], "-o", paths["DELTA"])
    args = [paths.get(arg, arg) for arg in args]
    out, err = stctl(args[0], "--json", *args[1:], env=interrupted_at(at, interrupter, tmp_path))
    assert "error" not in json.loads(out) and err == ""
    assert (tmp_path / "interrupted").exists()


def test_ctrl_c_after_the_recovery_is_too_late(stctl, model, tmp_path, interrupter):
    """It comes while a journal is looked for. What was found is told, though the model is not opened any more."""
    out, err = stctl("recover", model, env=interrupted_at("journal", interrupter, tmp_path))
    assert (out, err) == (f"{model}: nothing to recover\n", "")
    assert (tmp_path / "interrupted").exists()
    stctl("recover", model, model, env=interrupted_at("journal", interrupter, tmp_path), code=-signal.SIGINT)


def test_an_ignored_signal_stays_ignored(stctl, tmp_path):
    """nohup, or a background job of a shell without job control."""
    path = tmp_path / "m.safetensors"
    save_file({"w": np.zeros(1 << 20, np.uint8)}, path)
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    with stctl.popen("get", path, "w", "-o", "-", stdout=subprocess.PIPE, preexec_fn=ignore) as process:
        assert process.stdout.read(1) == b"\0"
        process.send_signal(signal.SIGINT)
        assert len(process.stdout.read()) == (1 << 20) - 1
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    "args",
    [["rm", "MODEL", "big"], ["mv", "MODEL", "big", "b"], ["meta", "MODEL", "x=y"], ["compact", "MODEL"],
     ["update", "MODEL", "big", "--fill", "1"], ["shard", "MODEL", "OUT", "--max-size", "1GB"],
     ["join", "MODEL", "OUT"]],
    ids=lambda args: args[0],
)  # fmt: skip
@pytest.mark.parametrize("limit", [0, 5000])
def test_a_limit_on_the_length_of_files_is_told_in_a_sentence(stctl, tmp_path, args, limit):
    """No signal ends it, and nothing lies beside the file."""
    model, out = tmp_path / "m.safetensors", tmp_path / "out"
    save_file({"big": np.ones(10_000, np.float32), "other": np.ones(10_000, np.float32)}, model)
    before = model.read_bytes()
    command, *rest = [{"MODEL": model, "OUT": out}.get(a, a) for a in args]

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    answer = stctl.json(command, *rest, code=1, preexec_fn=limited)
    assert "RLIMIT_FSIZE" in answer["error"]["message"]
    assert answer["error"]["errno"] == errno.EFBIG
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [model.name]
    assert model.read_bytes() == before
