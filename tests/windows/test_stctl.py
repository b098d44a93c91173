"""stctl.exe and libst-2.dll under wine. What stctl prints on Linux of the same files is right."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "differential"))
from corpus import CASES  # noqa: E402

TREE = Path(os.environ["BUILD"]) / "windows" / "x86_64"
DLL = TREE / "capi" / "libst-2.dll"
NAMES = ("w", "layer.0.bias", "größe €")


@pytest.fixture(scope="session")
def stctl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a folder as a user has them."""
    folder = tmp_path_factory.mktemp("programs")
    shutil.copy(DLL, folder)
    return Path(shutil.copy(TREE / "bindings" / "cli" / "stctl.exe", folder))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    data = b"".join(struct.pack("<4f", *range(i, i + 4)) for i in range(len(NAMES)))
    header: dict[str, object] = {"__metadata__": {"format": "pt", "größe": "€"}}
    for i, name in enumerate(NAMES):
        header[name] = {"dtype": "F32", "shape": [2, 2], "data_offsets": [16 * i, 16 * i + 16]}
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    folder = tmp_path / "modèles €"
    folder.mkdir()
    for name in ("model.safetensors", "größe €.safetensors"):
        (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


WINE = "/usr/lib/wine/wine64"


def run(program: list[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*program, *arguments], cwd=folder, capture_output=True, timeout=120)


def wine(stctl: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return run([WINE, str(stctl)], folder, *arguments)


@pytest.mark.parametrize("file", ["model.safetensors", "größe €.safetensors"])
@pytest.mark.parametrize(
    "command",
    [
        ("ls", "FILE"),
        ("ls", "--json", "FILE", "*"),
        ("get", "FILE", "w"),
        ("get", "--json", "FILE", "größe €", "--slice", "1,:"),
        ("meta", "FILE"),
        ("verify", "FILE"),
        ("verify", "--json", "FILE"),
        ("ls", "none.safetensors"),
    ],
    ids=" ".join,
)
def test_it_prints_what_it_prints_on_linux(stctl: Path, models: Path, file: str, command: tuple[str, ...]) -> None:
    arguments = [file if a == "FILE" else a for a in command]
    here, there = run([os.environ["STCTL"]], models, *arguments), wine(stctl, models, *arguments)
    for said, right in ((there.stdout, here.stdout), (there.stderr, here.stderr)):
        assert said.decode().replace("Z:/", "/") == right.decode()  # wine's name of the root
    assert there.returncode == here.returncode


def test_bytes_are_written_to_a_file_as_they_are(stctl: Path, models: Path) -> None:
    answer = wine(stctl, models, "get", "model.safetensors", "w", "-o", "w.npy")
    assert answer.returncode == 0, answer.stderr
    assert (models / "w.npy").read_bytes().endswith(struct.pack("<4f", 0, 1, 2, 3))
    assert sorted(p.name for p in models.iterdir()) == ["größe €.safetensors", "model.safetensors", "w.npy"]


STEPS = [
    ("update", "model.safetensors", "w", "--fill", "7"),
    ("update", "model.safetensors", "größe €", "--slice", "1,:", "--fill", "-1"),
    ("put", "model.safetensors", "--from", "größe €.safetensors", "w"),
    ("put", "model.safetensors", "new", "--from-raw", "raw", "--dtype", "U8", "--shape", "3"),
    ("mv", "model.safetensors", "layer.*", "block.*"),
    ("rm", "model.safetensors", "new"),
    ("meta", "model.safetensors", "größe=klein", "author=me"),
    ("compact", "model.safetensors"),
    ("edit", "model.safetensors", "--rm", "w", "--mv", "block.*", "layer.*", "--meta", "a=b"),
    ("diff", "model.safetensors", "größe €.safetensors", "-o", "delta"),
    ("patch", "model.safetensors", "delta", "--reverse", "back"),
    ("patch", "model.safetensors", "back", "--atomic"),
    ("merge", "model.safetensors", "delta", "merged.safetensors"),
    ("shard", "model.safetensors", "sharded", "--max-size", "16"),
    ("update", "sharded", "größe €", "--fill", "3"),
    ("edit", "sharded", "--mv", "größe €", "ü", "--meta", "a=c"),
    ("put", "sharded", "--from", "größe €.safetensors", "w"),
    ("recover", "sharded"),
    ("join", "sharded", "joined.safetensors"),
    ("rm", "model.safetensors", "no such tensor"),
    ("verify", "model.safetensors", "merged.safetensors", "joined.safetensors", "sharded"),
]


def all_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def test_it_changes_files_as_on_linux_to_the_last_byte(stctl: Path, models: Path) -> None:
    (models / "raw").write_bytes(b"abc")
    linux = models.parent / "linux" / models.name
    shutil.copytree(models, linux)
    for step in STEPS:
        here, there = run([os.environ["STCTL"]], linux, *step), wine(stctl, models, *step)
        right = (here.returncode, here.stdout.decode(), here.stderr.decode().replace(str(linux), str(models)))
        said = (there.returncode, there.stdout.decode(), there.stderr.decode().replace("Z:/", "/"))
        assert said == right, step
        assert all_of(models) == all_of(linux), step


def test_it_gives_each_file_of_the_corpus_its_verdict(stctl: Path, tmp_path: Path) -> None:
    """Stock's are held against these in tests/differential. Two files of 100 MB are left to Linux."""
    wanted = {}
    for case in CASES.values():
        if len(content := case.bytes()) < 100_000_000:
            (tmp_path / case.name).write_bytes(content)
            wanted[case.name] = case.status
    files = sorted(wanted)
    here = run([os.environ["STCTL"]], tmp_path, "verify", "--json", *files)
    there = wine(stctl, tmp_path, "verify", "--json", *files)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout)
    said = {
        file["file"]: file.get("error", {"status": "ST_OK"})["status"] for file in json.loads(there.stdout)["files"]
    }
    assert said == wanted and len(said) > 300


# ----------------------------------------------------------------- the console


def sparse(path: Path, nbytes: int) -> Path:
    """Has two tensors: v, of 4 bytes, and w, of all the rest."""
    header = json.dumps({
        "v": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
        "w": {"dtype": "U8", "shape": [nbytes - 4], "data_offsets": [4, nbytes]},
    }).encode()  # fmt: skip
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(file.tell() + nbytes)
    return path


class Console:
    """A program on a pseudo-terminal, of which wine makes a console; standard error is a pipe if it is not `shown`."""

    def __init__(self, program: list[str], folder: Path, *arguments: str, shown: bool = False) -> None:
        self.mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
        self.text = b""
        self.process = subprocess.Popen(
            [*program, *arguments], cwd=folder, stdin=theirs, stdout=theirs,
            stderr=theirs if shown else subprocess.PIPE,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.mine)

    def read(self, seconds: float) -> bool:
        """What comes within that time; false when nobody writes any more."""
        if select.select([self.mine], [], [], seconds)[0]:
            try:
                self.text += os.read(self.mine, 4096)
            except OSError:  # EIO: nobody has it open
                return False
        return True

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """It must not end before."""
        deadline = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None, (self.process.returncode, self.text)
            assert time.monotonic() < deadline, self.text
            self.read(0.002)

    def press_ctrl_c(self) -> None:
        os.write(self.mine, b"\x03")

    def end(self) -> tuple[int, str]:
        """Its exit status, and what it showed without how the cursor was hidden for that."""
        while self.process.poll() is None or select.select([self.mine], [], [], 0)[0]:
            if not self.read(0.1):
                break
        return self.process.wait(60), re.sub(r"\x1b\[\?25[lh]", "", self.text.decode())


def writes_without_a_name(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """To a file of that folder, as Linux has them."""
    try:
        return any(os.readlink(fd).startswith(f"{folder}/#") for fd in Path(f"/proc/{process.pid}/fd").iterdir())
    except FileNotFoundError:  # it was closed meanwhile
        return False


BAR = r"reading \[#*\.*\] +[0-9]+% of 4.00 GiB, "


def test_progress_is_drawn_on_a_console_and_wiped(stctl: Path, tmp_path: Path) -> None:
    sparse(tmp_path / "m.safetensors", 1 << 32)
    with Console([WINE, str(stctl)], tmp_path, "verify", "m.safetensors", shown=True) as console:
        status, shown = console.end()
    assert status == 0
    assert re.search(BAR, shown)
    assert re.search(r"/s\x1b\[K\r\x1b\[Km.safetensors: ok", shown)


def test_quiet_silences_progress(stctl: Path, tmp_path: Path) -> None:
    path = sparse(tmp_path / "m.safetensors", 1 << 32)
    with Console([WINE, str(stctl)], tmp_path, "verify", path.name, "--quiet", shown=True) as console:
        status, shown = console.end()
    assert (status, shown.replace("\r", "")) == (0, f"{path.name}: ok (2 tensors, {path.stat().st_size:,} bytes)\n")


def test_ctrl_c_stops_verify_and_its_bar_is_wiped(stctl: Path, tmp_path: Path) -> None:
    sparse(tmp_path / "m.safetensors", 1 << 40)
    with Console([WINE, str(stctl)], tmp_path, "verify", "m.safetensors", shown=True) as console:
        console.wait_until(lambda: b"%" in console.text)
        console.press_ctrl_c()
        status, shown = console.end()
    assert status == 130
    assert re.search(r"\r\x1b\[Kstctl: interrupted[\r\n]+$", shown)


@pytest.mark.parametrize(
    ("nbytes", "made", "command"),
    [
        (1 << 36, "w.bin.*.part", ("get", "m.safetensors", "w", "-o", "w.bin")),
        (1 << 36, ".delta.st-tmp-*", ("diff", "m.safetensors", "m.safetensors", "-o", "delta")),
        (1 << 30, ".m.safetensors.st-tmp-*", ("edit", "m.safetensors", "--rm", "v")),
        (1 << 30, "m.safetensors.st-journal/*", ("update", "m.safetensors", "w", "--fill", "1")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_ctrl_c_stops_a_change_with_nothing_changed(
    stctl: Path, tmp_path: Path, nbytes: int, made: str, command: tuple[str, ...]
) -> None:
    """When that file has been made. What is said, and what is left, is as on Linux."""
    path = sparse(tmp_path / "m.safetensors", nbytes)
    before = path.stat()
    said = []
    for program in ([os.environ["STCTL"]], [WINE, str(stctl)]):
        with Console(program, tmp_path, *command) as console:
            console.wait_until(lambda: any(tmp_path.glob(made)) or writes_without_a_name(console.process, tmp_path))
            console.press_ctrl_c()
            err = console.process.communicate(timeout=60)[1]
            said.append((console.process.returncode, err.decode()))
        assert list(tmp_path.iterdir()) == [path]
        assert [path.stat().st_ino, path.stat().st_mtime_ns] == [before.st_ino, before.st_mtime_ns]
    if command[0] != "get":
        # Two statuses are right: it depends on whether the key or the next look at it comes first.
        assert [re.sub(r"ST_E_\w+", "", sentence) for _, sentence in said] == 2 * [re.sub(r"ST_E_\w+", "", said[0][1])]
    for status, sentence in said:
        assert status == 130
        # Libst stops the reading, or stctl does between two pieces.
        assert re.fullmatch(r"stctl: (the call was )?interrupted(; nothing was changed \(ST_E_\w+\))?\n", sentence)


def test_nul_is_no_terminal(stctl: Path, models: Path) -> None:
    """It is a device of characters, as a console is. Raw bytes are refused to a console alone."""
    arguments = ["get", "model.safetensors", "w", "-o", "-"]
    with Console([WINE, str(stctl)], models, *arguments) as console:
        assert b"terminal" in console.process.communicate(timeout=60)[1]
        assert console.process.returncode == 2
    with open(os.devnull, "wb") as nul:
        assert subprocess.run([WINE, str(stctl), *arguments], cwd=models, stdout=nul, timeout=60).returncode == 0


def objdump() -> str:
    return subprocess.run(["x86_64-w64-mingw32-objdump", "-p", DLL], check=True, capture_output=True, text=True).stdout


def test_the_dll_exports_the_names_of_the_map_and_no_others() -> None:
    wanted = re.findall(r"^ +(st_\w+);", (ROOT / "capi" / "st.map").read_text(), re.MULTILINE)
    table = objdump().split("[Ordinal/Name Pointer] Table")[1].split("\n\n")[0]
    assert sorted(re.findall(r"\s(\w+)$", table, re.MULTILINE)) == sorted(wanted)


def test_the_dll_needs_nothing_but_the_system() -> None:
    """Debian's mingw-w64 links this C library, and not UCRT: core/os/README.md says why that matters little."""
    assert set(re.findall(r"DLL Name: (\S+)", objdump())) == {"KERNEL32.dll", "msvcrt.dll", "ntdll.dll", "bcrypt.dll"}
