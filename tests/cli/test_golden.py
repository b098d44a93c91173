"""What every command says, to the letter, of a file, of shards, and under a delta: golden/*.txt.

After a change that is meant, write them anew and read the difference:

    STCTL_GOLDEN=write build/venv/bin/python -m pytest tests/cli/test_golden.py && git diff tests/cli/golden
"""

import difflib
import os
import pathlib
import re
import shlex
import shutil
import tempfile

import numpy as np
import pytest
from cli_files import tensor_bytes, write
from test_help import COMMANDS

GOLDEN = pathlib.Path(__file__).parent / "golden"

# Commands on everything that has a MODEL: the file, or the folder of the shards.
ON_A_MODEL = """
ls MODEL
ls MODEL --bytes 'layers.*'
ls MODEL --names
view MODEL
view MODEL --depth 0
info MODEL
info MODEL head
get MODEL head --slice 0:2
get MODEL head --slice 0:2 -o head.npy
update MODEL head --fill 1
update MODEL --from tuned.safetensors head
put MODEL more --npy more.npy
put MODEL --from tuned.safetensors
rm MODEL 'layers.*'
mv MODEL head tail
meta MODEL
meta MODEL author=me
meta MODEL --remove note
compact MODEL
mv MODEL 'layers.*.weight' 'h.*.w'
edit MODEL --rm head --mv 'layers.*' 'h.*' --put-from tuned.safetensors --meta author=me
plan MODEL
plan MODEL --rm head --mv embed wte --put-from tuned.safetensors --meta author=me
shard MODEL new --max-size 1KB
join MODEL new.safetensors
diff MODEL tuned.safetensors -o new.delta
patch MODEL tuned.delta --reverse back.delta
merge MODEL tuned.delta -o new.safetensors
verify MODEL
recover MODEL
journal MODEL
io MODEL
stats MODEL
"""

UNDER_A_DELTA = """
ls MODEL --delta tuned.delta
view MODEL --delta tuned.delta
info MODEL --delta tuned.delta
info MODEL head --delta tuned.delta
get MODEL head --slice 0:2 --delta tuned.delta
verify MODEL --delta tuned.delta
ls tuned.delta
info tuned.delta
verify tuned.delta
"""

SCENES = {
    "file": (ON_A_MODEL, "model.safetensors"),
    "shards": (ON_A_MODEL, "sharded"),
    "delta": (UNDER_A_DELTA, "model.safetensors"),
    "delta_on_shards": (UNDER_A_DELTA, "sharded"),
}


def tensor(dtype, *shape):
    array = np.linspace(-3, 3, int(np.prod(shape)))
    return (dtype, shape, tensor_bytes(dtype, array))


@pytest.fixture(scope="module")
def template(stctl):
    """In memory: where nothing is shared by blocks, and storage is the same everywhere."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("needs /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name) / "template"
        folder.mkdir()
        base = {"embed": tensor("BF16", 40, 16)}
        base |= {f"layers.{i}.weight": tensor("F32", 16, 16) for i in range(3)}
        base |= {"layers.2.bias": tensor("F16", 16), "head": tensor("F32", 8, 16)}
        write(folder / "model.safetensors", base, {"note": "a\nb"})
        tuned = base | {"head": tensor("F32", 8, 16)[:2] + (bytes(512),), "extra": tensor("I64", 5)}
        del tuned["layers.2.bias"]
        write(folder / "tuned.safetensors", tuned, {"note": "a\nb"})
        np.save(folder / "more.npy", np.arange(6, dtype=np.int16).reshape(2, 3))
        stctl("diff", "model.safetensors", "tuned.safetensors", "-o", "tuned.delta", cwd=folder)
        stctl("shard", "model.safetensors", "sharded", "--max-size", "1500", cwd=folder)
        yield folder


def said(stctl, template, line):
    """What comes of a command in a folder of its own, as a shell shows it; without what no two machines
    share, and how long a journal is."""
    folder = template.with_name("folder")
    shutil.copytree(template, folder)
    try:
        result = stctl.raw(*shlex.split(line), cwd=folder, env={"COLUMNS": "80"})
    finally:
        shutil.rmtree(folder)
    text = (
        result.stdout.decode() + result.stderr.decode() + (f"exit {result.returncode}\n" if result.returncode else "")
    )
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"free [\d.]+ .iB", "free …", text)
    text = re.sub(r"[\d.]+ .iB journalled", "… journalled", text)
    text = re.sub(r'("space_free"|"io_threads"|"journal_bytes"):\d+', r"\1:…", text)
    return f"$ stctl {line}\n{re.sub(r'[0-9]+ readers?', '… readers', text)}\n"


@pytest.mark.parametrize("scene", SCENES)
def test_every_command_says_what_it_said(stctl, template, scene):
    lines, model = SCENES[scene]
    lines = [line.replace("MODEL", model) for line in lines.split("\n") if line]
    now = "".join(said(stctl, template, line) + said(stctl, template, line + " --json") for line in lines)
    path = GOLDEN / f"{scene}.txt"
    if os.environ.get("STCTL_GOLDEN") == "write":
        path.write_text(now)
    then = path.read_text()
    assert now == then, "".join(difflib.unified_diff(then.splitlines(True), now.splitlines(True), str(path), "now"))


def test_every_command_is_there():
    assert {line.split()[0] for line in ON_A_MODEL.split("\n") if line} >= set(COMMANDS)
