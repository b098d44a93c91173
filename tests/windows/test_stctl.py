"""stctl.exe and libst-2.dll under wine. What stctl prints on Linux of the same files is right."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
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


def run(program: list[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*program, *arguments], cwd=folder, capture_output=True, timeout=120)


def wine(stctl: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return run(["/usr/lib/wine/wine64", str(stctl)], folder, *arguments)


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


def objdump() -> str:
    return subprocess.run(["x86_64-w64-mingw32-objdump", "-p", DLL], check=True, capture_output=True, text=True).stdout


def test_the_dll_exports_the_names_of_the_map_and_no_others() -> None:
    wanted = re.findall(r"^ +(st_\w+);", (ROOT / "capi" / "st.map").read_text(), re.MULTILINE)
    table = objdump().split("[Ordinal/Name Pointer] Table")[1].split("\n\n")[0]
    assert sorted(re.findall(r"\s(\w+)$", table, re.MULTILINE)) == sorted(wanted)


def test_the_dll_needs_nothing_but_the_system() -> None:
    assert set(re.findall(r"DLL Name: (\S+)", objdump())) <= {"KERNEL32.dll", "msvcrt.dll", "ntdll.dll", "bcrypt.dll"}
