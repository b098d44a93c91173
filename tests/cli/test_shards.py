"""stctl shard and join, and the other commands on an index."""

import json
import os
import re

import numpy as np
import pytest
from cli_files import write
from safetensors.numpy import load_file


def test_shard_and_join_give_the_model_back(stctl, model, arrays, tmp_path):
    out = tmp_path / "sharded"
    answer = stctl.json("shard", model, out, "--max-size", "100B")
    assert answer["shards"] == len(list(out.glob("*-of-*.safetensors"))) > 1
    assert all(name in stctl("ls", out)[0] for name in arrays)
    stctl("verify", out)
    joined = tmp_path / "joined.safetensors"
    assert "1 file" in stctl("join", out, joined)[0]
    back = load_file(joined)
    assert back.keys() == load_file(model).keys()
    for name, array in load_file(model).items():
        np.testing.assert_array_equal(back[name], array)


def test_an_empty_model_is_one_shard(stctl, tmp_path):
    model, out = write(tmp_path / "m.safetensors", {}), tmp_path / "sharded"
    assert stctl("shard", model, out, "--max-size", "100")[0] == f"sharded into {out}: 1 file\n"
    assert [path.name for path in out.glob("*.safetensors")] == ["model-00001-of-00001.safetensors"]


def test_commands_work_on_an_index(stctl, model, tmp_path):
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100")
    index = out / "model.safetensors.index.json"
    stctl("mv", index, "half", "renamed")
    assert "renamed" in stctl("ls", index)[0]
    stctl("rm", index, "renamed")
    stctl("verify", index)
    stctl("recover", index)
    assert "renamed" not in index.read_text()


@pytest.mark.parametrize(
    "command",
    [("ls",), ("ls", "a"), ("ls", "[a]"), ("view",), ("info",), ("info", "a"), ("get", "a"), ("stats",), ("io",)],
    ids=" ".join,
)
def test_who_looks_at_shards_goes_on_where_their_index_is_replaced(stctl, tmp_path, committer, command):
    model = write(tmp_path / "m.safetensors", {name: ("U8", [100], bytes(100)) for name in "abc"})
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100B")
    name, *words = command
    index = (out / "model.safetensors.index.json").read_text()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(committer),
        "COMMIT_BEFORE": "model-00001",
        "COMMIT": f"LD_PRELOAD= '{stctl.path}' meta '{out}' step=1 > /dev/null",
    }
    found, _ = stctl(name, out, *words, env=environment)
    assert (out / "model.safetensors.index.json").read_text() != index
    if name != "stats":  # which counts what the second look took
        assert found == stctl(name, out, *words)[0]


def test_sizes_are_those_of_hugging_face_and_of_coreutils(stctl, model, tmp_path):
    for i, size in enumerate(("5GB", "4GiB", "500MB", "5000000", "5G", "1T")):
        assert stctl.json("shard", model, tmp_path / str(i), "--max-size", size)["shards"] == 1
    for size in ("0", "GB", "5 parsecs", "-1GB"):
        stctl.json("shard", model, tmp_path / "x", f"--max-size={size}", code=2)


def test_a_letter_alone_counts_by_1024(stctl, tmp_path):
    model = write(tmp_path / "m.safetensors", {name: ("U8", [512], bytes(512)) for name in "ab"})
    shards = {size: stctl.json("shard", model, tmp_path / size, "--max-size", size)["shards"] for size in ("1K", "1KB")}
    assert shards == {"1K": 1, "1KB": 2}


def test_new_names_tell_what_is_new_and_until_when_the_old_stay(stctl, model, tmp_path):
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100")
    index = out / "model.safetensors.index.json"
    before = json.loads(index.read_text())["weight_map"]
    said = stctl("plan", index, "--mv", "half", "renamed", "--new-names", "--shard-grace", "60")[0]
    assert "1 shard is written under new names" in said and "stays 60 s" in said
    assert json.loads(index.read_text())["weight_map"] == before
    old, new = before["half"], before["half"].replace(".safetensors", ".g1.safetensors")
    said = stctl("mv", index, "half", "renamed", "--new-names", "--shard-grace", "60")[0].splitlines()
    assert f"new shard {new}" in said
    stays = rf"old shard {old} stays until \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert any(re.fullmatch(stays, line) for line in said)
    assert json.loads(index.read_text())["weight_map"]["renamed"] == new
    assert (out / old).exists()
    assert f"{old}' is an old shard of " in stctl("verify", "-v", index)[0]
    again = ["renamed", "half", "--new-names", "--shard-grace", "0"]
    assert "stays 0 s" in stctl("plan", index, "--mv", *again)[0]
    answer = stctl.json("mv", index, *again)
    assert answer["new_shards"] == [new.replace(".g1.", ".g2.")] and answer["old_shards"] == [new]
    answer = stctl.json("compact", index, "--new-names")
    assert sorted(set(answer["new_shards"])) == sorted(set(json.loads(index.read_text())["weight_map"].values()))
    said = stctl("recover", index)[0]
    assert f"old shard '{out / old}' was removed" in said
    assert {p.name for p in out.iterdir()} == {index.name, *answer["new_shards"]}
    stctl("verify", index)


def test_the_totals_of_the_index_follow(stctl, model, arrays, tmp_path):
    """total_parameters is what transformers writes: the number of elements, beside the bytes."""
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100")
    index = out / "model.safetensors.index.json"

    def metadata():
        return json.loads(index.read_text())["metadata"]

    assert "total_parameters" not in metadata()
    stctl("rm", index, "scalar")
    assert "total_parameters" not in metadata()
    text = json.loads(index.read_text())
    text["metadata"]["total_parameters"] = sum(a.size for n, a in arrays.items() if n != "scalar")
    index.write_text(json.dumps(text))
    stctl("put", index, "scalar", "--from", model, "--new-names")
    stctl("edit", index, "--rm", "layer.1.weight", "--mv", "half", "h", "--put-from", model)
    put = [*arrays.values(), arrays["half"]]
    assert metadata() == {"total_parameters": sum(a.size for a in put), "total_size": sum(a.nbytes for a in put)}


def test_a_total_that_is_spelled_in_another_way_follows_and_one_that_is_no_number_is_told(
    stctl, model, arrays, tmp_path
):
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100")
    index = out / "model.safetensors.index.json"
    text = json.loads(index.read_text())
    total = text["metadata"]["total_size"]
    for spelled in (float(total), f"{total}.0", f"{total}e0"):
        text["metadata"] = {"total_size": spelled, "total_parameters": sum(a.size for a in arrays.values())}
        index.write_text(json.dumps(text))
        assert "warning" not in stctl("verify", index)[0]
        stctl("rm", index, "half")
        now = json.loads(index.read_text())["metadata"]["total_size"]
        assert isinstance(now, int) and 0 < now < total
        assert "warning" not in stctl("verify", index)[0]
        stctl("put", index, "half", "--from", model)
        text = json.loads(index.read_text())
    text["metadata"] = {"total_size": "much", "total_parameters": 1e30}
    index.write_text(json.dumps(text))
    stctl("rm", index, "half")
    assert json.loads(index.read_text())["metadata"] == text["metadata"]
    said = stctl("verify", index)[0]
    assert "total_size of 'much', which is no whole number" in said
    assert "total_parameters of '1e+30', which is no whole number" in said


def test_changes_name_the_shards_that_changed(stctl, model, arrays, tmp_path):
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100")
    index = out / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]

    def changed(*args):
        """The files that are others now, and those that stctl names: --json of one run."""
        before = {p.name: p.stat().st_ino for p in out.glob("*.safetensors")}
        named = stctl.json(*args)["changed_shards"]
        assert named == sorted(n for n, inode in before.items() if (out / n).stat().st_ino != inode)
        return named

    assert changed("mv", index, "half", "h") == [places["half"]]
    assert changed("edit", index, "--mv", "h", "half", "--rm", "scalar") == sorted({places["half"], places["scalar"]})
    assert changed("put", index, "layer.0.weight", "--from", model) == [places["layer.0.weight"]]
    assert changed("meta", index, "author=me") == []
    said = stctl("rm", index, "layer.*")[0].splitlines()
    lines = [line for line in said if line.startswith("changed shard ")]
    assert lines == [f"changed shard {name}" for name in sorted({places[n] for n in arrays if n.startswith("layer")})]
    np.save(tmp_path / "half.npy", arrays["half"][::-1])
    assert stctl.json("update", index, "half", "--npy", tmp_path / "half.npy")["changed_shards"] == [places["half"]]
    assert "changed_shards" not in stctl.json("plan", index, "--rm", "half")
    assert "changed shard" not in stctl("mv", model, "half", "h")[0]


def test_new_names_of_one_file_are_refused(stctl, model):
    assert "is one file" in stctl("mv", model, "half", "renamed", "--new-names", code=1)[1]


def test_a_model_without_tensors_is_a_model(stctl, model, tmp_path):
    empty, out = write(tmp_path / "m.safetensors", {}), tmp_path / "sharded"
    stctl("shard", empty, out, "--max-size", "5")
    info = stctl.json("info", out)
    assert (info["tensors"], info["shards"], info["map"]) == (0, [], "none")
    assert "Tensors     0" in stctl("info", out)[0]
    io = stctl.json("io", out)
    assert (io["shards"], io["shard"], io["map"]) == (0, None, "none")
    assert stctl("io", out)[0] == "No shards, as there are no tensors.\n"
    for command in ("ls", "verify", "view", "stats", "recover", "compact"):
        stctl(command, out)
    error = stctl.json("put", out, "--from", model, code=1)["error"]
    assert (error["status"], "into a single file" in error["message"]) == ("ST_E_UNSUPPORTED", True)
    # And that is a way.
    stctl("put", empty, "--from", model)
    stctl("shard", empty, tmp_path / "again", "--max-size", "5")
    assert stctl.json("ls", tmp_path / "again")["count"] == stctl.json("ls", model)["count"]


def test_a_plan_refuses_hard_links_as_its_change_does(stctl, model, tmp_path):
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100")
    for shard in out.glob("*.safetensors"):
        os.link(shard, tmp_path / shard.name)
    change = ["--mv", "half", "renamed"]
    for command in ("plan", "edit"):
        assert stctl.json(command, out, *change, code=1)["error"]["status"] == "ST_E_HARD_LINKS"
    for also in ("--break-links", "--new-names"):
        stctl("plan", out, *change, also)
    stctl("edit", out, *change, "--new-names")
