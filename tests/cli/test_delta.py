"""stctl diff, patch, merge, and --delta: stock reads what they made, and --json says what was done."""

import os
import resource
import shutil
import subprocess

import numpy as np
import pytest
from cli_files import sparse, stock
from safetensors.numpy import save_file


@pytest.fixture
def other(tmp_path, arrays):
    """model, with a tensor changed, one gone, one new, and other metadata."""
    arrays = dict(arrays)
    arrays["layer.0.weight"] = arrays["layer.0.weight"] * 2
    arrays["new"] = np.arange(7, dtype=np.uint16)
    del arrays["half"]
    path = tmp_path / "other.safetensors"
    save_file(arrays, path, metadata={"format": "np"})
    return path


def bytes_of(path):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in stock(path).items()}


def test_diff_patch_and_back(stctl, model, other, tmp_path):
    delta, back = tmp_path / "d.safetensors", tmp_path / "r.safetensors"
    made = stctl.json("diff", model, other, "-o", delta)
    assert (made["changed"], made["added"], made["deleted"]) == (1, 1, 1)
    assert (made["metadata_set"], made["metadata_removed"], made["data_bytes"]) == (0, 1, 48 + 14)
    before, after = bytes_of(model), bytes_of(other)
    done = stctl.json("patch", model, delta, "--reverse", back)
    assert done["kind"] == "publish" and done["reverse"] == str(back) and done["result"] == made["result"]
    assert bytes_of(model) == after
    out, err = stctl("patch", model, delta, code=1)
    assert out == "" and "(ST_E_DELTA_BASE)" in err
    out, err = stctl("patch", model, back)
    assert "1 tensor changed, 1 added, 1 deleted" in out and err == ""
    assert bytes_of(model) == before


def test_a_reverse_delta_without_a_name_is_refused(stctl, model, other, tmp_path):
    stctl("diff", model, other, "-o", tmp_path / "d")
    before = model.read_bytes()
    for reverse in (["--reverse", ""], ["--reverse="]):
        assert "--reverse" in stctl("patch", model, tmp_path / "d", *reverse, code=2)[1]
    assert model.read_bytes() == before


def test_a_change_of_bytes_is_patched_in_place(stctl, model, arrays, tmp_path):
    arrays["scalar"] = np.array(43, dtype=np.uint8)
    save_file(arrays, tmp_path / "other", metadata={"format": "np", "note": "a\nb"})
    stctl("diff", model, tmp_path / "other", "-o", tmp_path / "d")
    inode = os.stat(model).st_ino
    assert stctl.json("patch", model, tmp_path / "d")["kind"] == "patch"
    assert os.stat(model).st_ino == inode and stock(model)["scalar"] == 43
    save_file(
        {**arrays, "scalar": np.array(44, np.uint8)}, tmp_path / "other", metadata={"format": "np", "note": "a\nb"}
    )
    stctl("diff", model, tmp_path / "other", "-o", tmp_path / "d")
    assert stctl.json("patch", model, tmp_path / "d", "--atomic")["kind"] == "publish"


def test_the_name_of_an_index_is_refused(stctl, model, other, tmp_path):
    delta, index = tmp_path / "d.safetensors", tmp_path / "d.safetensors.index.json"
    before = model.read_bytes()
    out, err = stctl("diff", model, other, "-o", index, code=1)
    assert out == "" and "(ST_E_INVALID_ARGUMENT)" in err
    stctl("diff", model, other, "-o", delta)
    out, err = stctl("patch", model, delta, "--reverse", index, code=1)
    assert out == "" and "(ST_E_INVALID_ARGUMENT)" in err
    assert not index.exists() and model.read_bytes() == before


def test_diff_to_standard_output_is_the_delta(stctl, model, other, tmp_path):
    stctl("diff", model, other, "-o", tmp_path / "d")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for arguments in ([], ["-o", "-"]):
        result = stctl.raw("diff", model, other, *arguments, env={**os.environ, "TMPDIR": str(scratch)})
        assert (result.returncode, result.stderr) == (0, b"")
        assert result.stdout == (tmp_path / "d").read_bytes()
    assert list(scratch.iterdir()) == []
    out, err = stctl("diff", model, other, "--json", code=2)
    assert "can't both be standard output" in err


def test_diff_is_not_written_to_a_terminal(stctl, model, other):
    master, slave = os.openpty()
    result = subprocess.run([stctl.path, "diff", model, other], stdout=slave, stderr=subprocess.PIPE, timeout=60)
    os.close(slave)
    os.close(master)
    assert result.returncode == 2 and b"not for a terminal" in result.stderr


def test_a_reverse_delta_through_a_link_that_leads_to_nothing_yet(stctl, model, other, tmp_path):
    before = bytes_of(model)
    stctl("diff", model, other, "-o", tmp_path / "d")
    (tmp_path / "link").symlink_to("back")
    stctl("patch", model, tmp_path / "d", "--reverse", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    stctl("patch", model, tmp_path / "back")
    assert bytes_of(model) == before


def test_merge_folds_deltas(stctl, model, other, tmp_path):
    delta, merged = tmp_path / "d", tmp_path / "m.safetensors"
    stctl("diff", model, other, "-o", delta)
    before = model.read_bytes()
    assert stctl.json("merge", model, delta, "-o", merged)["count"] == 6
    assert bytes_of(merged) == bytes_of(other) and model.read_bytes() == before
    stctl("merge", model, delta, "-o", merged, "--canonical", "--align", "4096")
    assert stctl.json("info", merged)["data_offset"] % 4096 == 0
    out, err = stctl("merge", other, delta, "-o", merged, code=1)
    assert "(ST_E_DELTA_BASE)" in err
    out, err = stctl("merge", model, delta, "-o", model, code=1)
    assert "(ST_E_INVALID_ARGUMENT)" in err


@pytest.mark.parametrize("of_shards", [False, True])
def test_reading_commands_look_through_deltas(stctl, model, other, tmp_path, of_shards):
    delta, base, wrong = tmp_path / "d", model, other
    stctl("diff", model, other, "-o", delta)
    if of_shards:
        base, wrong = tmp_path / "base", tmp_path / "wrong"
        stctl("shard", model, base, "--max-size", "20")
        stctl("shard", other, wrong, "--max-size", "20")
    names = {t["name"] for t in stctl.json("ls", base, "--delta", delta)["tensors"]}
    assert names == set(stock(other))
    assert stctl.json("get", base, "new", "--delta", delta)["values"] == list(range(7))
    assert stctl.json("info", base, "--delta", delta)["metadata"] == {"format": "np"}
    stctl("get", base, "half", "--delta", delta, code=1)
    out, err = stctl("verify", base, "--delta", delta)
    assert out.splitlines()[-1].startswith(f"{base}: ok")
    assert stctl.json("verify", wrong, "--delta", delta, code=5)["files"][0]["error"]["status"] == "ST_E_DELTA_BASE"
    out, err = stctl("verify", base, wrong, "--delta", delta, code=2)
    assert "lies on one file" in err


def test_verify_counts_what_deltas_make_and_holds_no_tensor_of_it(stctl, model, other, tmp_path):
    deltas = [tmp_path / "d", tmp_path / "e"]
    stctl("diff", model, other, "-o", deltas[0])
    stctl("diff", other, model, "-o", deltas[1])
    args = [word for delta in deltas for word in ("--delta", delta)]
    size = sum(path.stat().st_size for path in [model, *deltas])
    assert stctl("verify", model, *args)[0].splitlines()[-1] == f"{model}: ok (3 files, 6 tensors, {size:,} bytes)"
    counts = {"shards": 2, "tensors": len(stock(other)), "bytes": model.stat().st_size + deltas[0].stat().st_size}
    (file,) = stctl.json("verify", model, *args[:2])["files"]
    assert {key: file[key] for key in counts} == counts

    large, changed, delta = sparse(tmp_path / "large", "w", 256 << 20), tmp_path / "changed", tmp_path / "elements"
    shutil.copy(large, changed)
    with open(changed, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    stctl("diff", large, changed, "-o", delta)
    assert delta.stat().st_size < 1 << 20
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (128 << 20, 128 << 20))  # noqa: E731
    assert "ok (2 files, 1 tensor, " in stctl("verify", large, "--delta", delta, preexec_fn=limit)[0]


@pytest.fixture
def sharded(stctl, model, tmp_path):
    """model as shards: the folder."""
    stctl("shard", model, tmp_path / "sharded", "--max-size", "20")
    return tmp_path / "sharded"


def test_a_delta_of_shards_fits_the_file_that_they_make(stctl, model, other, sharded, tmp_path):
    delta = tmp_path / "d"
    of_file = stctl.json("diff", model, other, "-o", delta)
    of_shards = stctl.json("diff", sharded / "model.safetensors.index.json", other, "-o", delta)
    assert {**of_shards, "from": None} == {**of_file, "from": None}
    stctl("patch", model, delta)
    assert bytes_of(model) == bytes_of(other)


def test_merge_folds_shards_and_deltas_into_one_file(stctl, model, other, sharded, tmp_path):
    delta, merged = tmp_path / "d", tmp_path / "m.safetensors"
    stctl("diff", model, other, "-o", delta)
    before = {path.name: path.read_bytes() for path in sharded.iterdir()}
    assert stctl.json("merge", sharded, delta, "-o", merged)["count"] == 6
    assert bytes_of(merged) == bytes_of(other)
    out, err = stctl("merge", sharded, delta, "-o", sharded, code=1)
    assert "(ST_E_NOT_REGULAR)" in err
    out, err = stctl("merge", sharded, delta, "-o", tmp_path / "m.safetensors.index.json", code=1)
    assert "(ST_E_INVALID_ARGUMENT)" in err
    assert {path.name: path.read_bytes() for path in sharded.iterdir()} == before


def test_shards_are_patched_and_back(stctl, model, other, sharded, tmp_path):
    delta, back, joined = (tmp_path / name for name in ("d", "r", "joined.safetensors"))
    stctl("diff", model, other, "-o", delta)
    before = bytes_of(model)
    done = stctl.json("patch", sharded, delta, "--reverse", back)
    assert done["kind"] == "publish" and done["reverse"] == str(back)
    stctl("verify", sharded)
    stctl("join", sharded, joined)
    assert bytes_of(joined) == bytes_of(other)
    out, err = stctl("patch", sharded, delta, code=1)
    assert out == "" and "(ST_E_DELTA_BASE)" in err
    stctl("patch", sharded / "model.safetensors.index.json", back)
    stctl("join", sharded, joined)
    assert bytes_of(joined) == before
    assert stctl.json("info", joined)["metadata"] == stctl.json("info", model)["metadata"]
