"""stctl put, rm, mv, meta, compact and plan: stock reads what they made, and --json says what was done."""

import os

import numpy as np
import pytest
from cli_files import stock, write
from safetensors import safe_open
from safetensors.numpy import save_file


def metadata(path):
    with safe_open(path, framework="numpy") as file:
        return file.metadata() or {}


def same(path, arrays):
    read = stock(path)
    assert set(read) == set(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape
        assert read[name].tobytes() == array.tobytes()


def test_put_adds_and_replaces_from_npy(stctl, model, arrays, tmp_path):
    for name in ["new", "half"]:
        arrays[name] = np.arange(300, dtype=np.int16).reshape(3, 100)
        np.save(tmp_path / "new.npy", arrays[name])
        out, err = stctl("put", model, name, "--npy", tmp_path / "new.npy")
        assert f"put {name} I16 [3, 100]" in out and "publish: " in out and err == ""
    same(model, arrays)
    assert metadata(model) == {"format": "np", "note": "a\nb"}


def test_put_takes_raw_bytes_from_standard_input(stctl, model, arrays):
    stctl(
        "put",
        model,
        "raw",
        "--from-raw",
        "-",
        "--dtype",
        "F32",
        "--shape",
        "2,3",
        input=np.ones(6, np.float32).tobytes(),
    )
    stctl("put", model, "one", "--from-raw", "-", "--dtype", "U8", "--shape", "", input=b"\x07")
    same(model, {**arrays, "raw": np.ones((2, 3), np.float32), "one": np.array(7, np.uint8)})
    out, err = stctl("put", model, "bad", "--from-raw", "-", "--dtype", "F32", "--shape", "2", input=b"1234567", code=1)
    assert "(ST_E_NBYTES_MISMATCH)" in err


def test_put_refuses_a_form_that_its_source_has_already(stctl, model, tmp_path):
    np.save(tmp_path / "n.npy", np.ones(3, np.float32))
    before = model.read_bytes()
    err = stctl("put", model, "n", "--npy", tmp_path / "n.npy", "--dtype", "F16", code=1)[1]
    assert "F32" in err and "--cast" in err
    assert "--shape" in stctl("put", model, "n", "--npy", tmp_path / "n.npy", "--shape", "3", code=2)[1]
    assert "--shape" in stctl("put", model, "half", "--from", model, "--shape", "4", code=2)[1]
    assert "--dtype" in stctl("put", model, "half", "--from", model, "--dtype", "F32", code=2)[1]
    assert model.read_bytes() == before
    stctl("put", model, "n", "--npy", tmp_path / "n.npy", "--dtype", "F32")
    assert stock(model)["n"].dtype == np.float32


def test_put_takes_tensors_of_another_file(stctl, model, arrays, tmp_path):
    more = {"half": np.zeros(9), "x": np.ones((2, 2), np.float16), "y": np.ones(0, np.int8)}
    save_file(more, tmp_path / "more.safetensors")
    result = stctl.json("put", model, "x", "--from", tmp_path / "more.safetensors")
    assert result["put"] == ["x"] and result["kind"] == "publish"
    same(model, {**arrays, "x": more["x"]})
    stctl("put", model, "--from", tmp_path / "more.safetensors")
    same(model, {**arrays, **more})


def test_rm_takes_names_and_patterns(stctl, model, arrays):
    result = stctl.json("rm", model, "layer.0.*", "scalar")
    assert sorted(result["removed"]) == ["layer.0.bias", "layer.0.weight", "scalar"]
    same(model, {name: a for name, a in arrays.items() if name not in result["removed"]})
    before = model.read_bytes()
    assert stctl.json("rm", model, "half", "nothing.*", code=1)["error"]["status"] == "ST_E_NOT_FOUND"
    assert model.read_bytes() == before


@pytest.mark.parametrize("form", [["--rm=[a,b]"], ["--rm", "[a,b]"]])
def test_names_in_brackets_stay_whole_in_options_too(stctl, tmp_path, form):
    names = ["a", "b", "[a,b]", "a]\x01b", "[a]\x01"]
    path = write(tmp_path / "m.safetensors", {name: ("U8", [1], b"x") for name in names})
    assert stctl.json("plan", path, *form)["removed"] == ["[a,b]"]
    assert stctl.json("plan", path, "--rm=a]\x01b", "--rm=[a]\x01")["removed"] == ["a]\x01b", "[a]\x01"]
    assert stctl.json("edit", path, "--meta=[a=1,b=2]")["metadata"] == ["[a"]
    assert metadata(path) == {"[a": "1,b=2]"}
    assert stctl.json("rm", path, "--", "a]\x01b", "[a]\x01")["removed"] == ["a]\x01b", "[a]\x01"]


def test_mv_renames(stctl, model, arrays):
    assert stctl.json("mv", model, "half", r"new\nname")["renamed"] == [{"from": "half", "to": "new\nname"}]
    arrays["new\nname"] = arrays.pop("half")
    same(model, arrays)
    assert stctl.json("mv", model, "scalar", "empty", code=1)["error"]["status"] == "ST_E_DUPLICATE_NAME"
    same(model, arrays)


def test_names_that_no_word_shows_are_told_in_quotes(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {name: ("U8", [1], b"x") for name in ["w", "a to b", " ", "it's"]})
    assert stctl("mv", path, "w", "")[0].startswith("renamed w to ''\n")
    assert stctl("mv", path, "a to b", r"c\nd")[0].startswith("renamed 'a to b' to c\\nd\n")
    edits = ["--mv", "", "w", "--rm", " ", "--rm", "it's", "--meta", "a key=1"]
    assert stctl("plan", path, *edits)[0].splitlines()[:4] == [
        "would remove ' '", "would remove 'it's'", "would rename '' to w", "metadata 'a key' would be set"
    ]  # fmt: skip
    raw = ["--from-raw", "-", "--dtype", "F32", "--shape", "1", "--cast", "F16"]
    put = stctl("put", path, "two words", *raw, input=bytes(4))[0].splitlines()
    assert put[0].startswith("put 'two words' F16 [1], ") and put[1].startswith("'two words': ")


def test_mv_renames_all_that_match_a_pattern(stctl, model, arrays):
    stctl("mv", model, "layer.*.weight", r"h\*.*.w")
    for i in "01":
        arrays[f"h*.{i}.w"] = arrays.pop(f"layer.{i}.weight")
    same(model, arrays)
    assert len(stctl.json("mv", model, "*", "model.*")["renamed"]) == len(arrays)
    arrays = {f"model.{name}": array for name, array in arrays.items()}
    same(model, arrays)
    stctl("mv", model, "*.*.*", "*_*_*")  # the first stars match as little as they can
    assert "model_h*_0.w" in stock(model) and "model_layer_0.bias" in stock(model)
    before = model.read_bytes()
    assert "as many" in stctl("mv", model, "model*", "x", code=2)[1]
    assert stctl.json("mv", model, "none.*", "x.*", code=1)["error"]["status"] == "ST_E_NOT_FOUND"
    assert stctl.json("mv", model, "model_h*_[01].w", "x*", code=1)["error"]["status"] == "ST_E_DUPLICATE_NAME"
    assert model.read_bytes() == before


def test_edit_renames_what_is_there_by_then(stctl, model, arrays):
    """Not what was removed, and under the names that earlier renames gave."""
    edits = ["--rm", "layer.1.*", "--mv", "layer.*", "h.*", "--mv", "h.0.*", "g.*"]
    edits += ["--mv", "half", "tmp", "--mv", "scalar", "half", "--mv", "tmp", "scalar"]
    renamed = [(pair["from"], pair["to"]) for pair in stctl.json("plan", model, *edits)["renamed"]]
    assert sorted(renamed[:4]) == [(f"{a}.{n}", f"{b}.{n}") for a, b, n in [
        ("h.0", "g", "bias"), ("h.0", "g", "weight"), ("layer", "h", "0.bias"), ("layer", "h", "0.weight")
    ]]  # fmt: skip
    stctl("edit", model, *edits)
    want = {"g.weight": arrays["layer.0.weight"], "g.bias": arrays["layer.0.bias"], "empty": arrays["empty"]}
    same(model, want | {"scalar": arrays["half"], "half": arrays["scalar"]})
    before = model.read_bytes()
    for gone in [["--rm", "half", "--mv", "half", "x"], ["--rm", "g.*", "--mv", "g.*", "x.*"],
                 ["--mv", "half", "x", "--mv", "half", "y"]]:  # fmt: skip
        assert stctl.json("edit", model, *gone, code=1)["error"]["status"] == "ST_E_NOT_FOUND"
        assert model.read_bytes() == before


@pytest.mark.parametrize("sharded", [False, True])
def test_edit_is_one_transaction_and_plan_its_dry_run(stctl, model, arrays, tmp_path, sharded):
    if sharded:
        stctl("shard", model, tmp_path / "s", "--max-size", "100")
    target = tmp_path / "s" if sharded else model
    save_file({"x": np.ones(5000)}, tmp_path / "more")
    arguments = ["--rm", "half", "--mv", "layer.*", "h.*", "--put-from", tmp_path / "more", "--meta", "k=v"]
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plan = stctl.json("plan", target, *arguments)
    told = stctl("plan", target, *arguments)[0]
    assert {"would remove half", "would rename layer.0.bias to h.0.bias"} <= set(told.splitlines())
    assert all("would" in line or "dry run" in line or "space needed" in line for line in told.splitlines())
    for wrong in [["--rm", "none"], ["--mv", "scalar", "h.0.bias"], ["--remove-meta", "none"]]:
        assert "error" in stctl.json("edit", target, *arguments, *wrong, code=1)
    assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = stctl.json("edit", target, *arguments)
    assert ("changed_shards" in done) == sharded and "changed_shards" not in plan  # which the disk says afterwards
    volatile = ["dry_run", "space_free", "changed_shards"]
    assert {k: v for k, v in done.items() if k not in volatile} == {k: v for k, v in plan.items() if k not in volatile}
    del arrays["half"]
    arrays = {name.replace("layer.", "h."): array for name, array in arrays.items()} | {"x": np.ones(5000)}
    if sharded:
        stctl("join", target, model)
    same(model, arrays)
    assert metadata(model)["k"] == "v"


@pytest.mark.parametrize("sharded", [False, True])
def test_edit_renames_what_is_left_one_after_the_other(stctl, model, arrays, tmp_path, sharded):
    if sharded:
        stctl("shard", model, tmp_path / "s", "--max-size", "100")
    target = tmp_path / "s" if sharded else model
    swap = ["--mv", "half", "tmp", "--mv", "scalar", "half", "--mv", "tmp", "scalar"]
    chain = ["--rm", "*.1.*", "--mv", "layer.*", "h.*", "--mv", "h.0.*", "first.*"]
    chain += ["--mv", "empty", "e", "--mv", "e", "f"]
    for gone in ["layer.1.weight", "layer.1.*"]:
        error = stctl.json("plan", target, *chain, "--mv", gone, "x", code=1)["error"]
        assert error["status"] == "ST_E_NOT_FOUND"
    assert stctl.json("plan", target, *swap, *chain, "--mv", "tmp", "x", code=1)["error"]["status"] == "ST_E_NOT_FOUND"
    assert len(stctl.json("plan", target, *swap, *chain)["renamed"]) == 3 + 2 + 2 + 2
    stctl("edit", target, *swap, *chain)
    if sharded:
        stctl("join", target, model)
    del arrays["layer.1.weight"]
    arrays["half"], arrays["scalar"], arrays["f"] = arrays["scalar"], arrays["half"], arrays.pop("empty")
    same(model, {name.replace("layer.0.", "first."): array for name, array in arrays.items()})


def test_meta_shows_sets_and_removes(stctl, model, arrays):
    assert sorted(stctl("meta", model)[0].splitlines()) == ["format=np", "note=a\\nb"]
    assert stctl.json("meta", model)["metadata"] == {"format": "np", "note": "a\nb"}
    result = stctl.json("meta", model, "format=pt", "a=b=c", "--remove", "note")
    assert result["metadata"] == ["format", "a", "note"]
    assert metadata(model) == {"format": "pt", "a": "b=c"}
    same(model, arrays)
    assert stctl.json("meta", model, "--remove", "note", code=1)["error"]["status"] == "ST_E_NOT_FOUND"


@pytest.mark.parametrize(
    "option", [["--canonical"], ["--align", "128"], ["--reserve", "100"], ["--break-links"], ["--new-names"]]
)
def test_meta_takes_no_layout_where_it_changes_nothing(stctl, model, option):
    out, err = stctl("meta", model, *option, code=2)
    assert out == "" and "KEY=VALUE" in err
    if option != ["--new-names"]:  # of which one file has none
        stctl("meta", model, "k=v", *option)


def test_a_key_is_not_set_and_removed_at_once(stctl, model):
    before = model.read_bytes()
    for key in ["note", r"n\x6fte", "new"]:
        assert "not both" in stctl("edit", model, "--meta", f"{key}=1", "--remove-meta", key, code=2)[1]
        assert "not both" in stctl("meta", model, f"{key}=1", "--remove", key, code=2)[1]
    assert model.read_bytes() == before


def test_a_name_is_put_from_one_file_only(stctl, model, tmp_path):
    save_file({"x": np.ones(1), "y": np.ones(2)}, tmp_path / "a")
    save_file({"x": np.zeros(1)}, tmp_path / "b")
    before = model.read_bytes()
    for command in ["edit", "plan"]:
        err = stctl(command, model, "--put-from", tmp_path / "a", "--put-from", tmp_path / "b", code=1)[1]
        assert "'x'" in err and str(tmp_path / "a") in err and str(tmp_path / "b") in err
    assert model.read_bytes() == before
    assert stctl.json("put", model, "--from", tmp_path / "a", "x", "x")["put"] == ["x"]


def test_plan_touches_nothing_and_tells_the_truth(stctl, model, tmp_path):
    more = tmp_path / "more.safetensors"
    save_file({"x": np.ones(5000)}, more)
    before, names = model.read_bytes(), sorted(os.listdir(tmp_path))
    arguments = ["--rm", "half", "--mv", "scalar", "s", "--put-from", more, "--meta", "k=v", "--remove-meta", "note"]
    plan = stctl.json("plan", model, *arguments)
    assert plan["dry_run"] and plan["kind"] == "publish" and plan["removed"] == ["half"] and plan["put"] == ["x"]
    out, _ = stctl("plan", model, *arguments)
    assert "dry run, nothing was changed" in out and "space needed" in out
    assert model.read_bytes() == before and sorted(os.listdir(tmp_path)) == names
    stctl("rm", model, "half")
    stctl("mv", model, "scalar", "s")
    stctl("put", model, "--from", more)
    done = stctl.json("meta", model, "k=v", "--remove", "note")
    assert done["file_size"] == plan["file_size"] == model.stat().st_size
    assert stctl.json("plan", model)["kind"] == "nothing"


def test_compact_orders_as_stock_does(stctl, model, arrays, tmp_path):
    stctl("mv", model, "half", "zzz", "--reserve", "9000")
    arrays["zzz"] = arrays.pop("half")
    result = stctl.json("compact", model)
    assert result["size_before"] - result["file_size"] > 8000
    save_file(arrays, tmp_path / "stock")
    same(model, arrays)
    with open(tmp_path / "stock", "rb") as file:  # the data, as stock orders it
        data = file.read()
    n = sum(a.nbytes for a in arrays.values())
    assert model.read_bytes()[-n:] == data[-n:]


def test_hard_links_are_refused_unless_told(stctl, model, tmp_path):
    os.link(model, tmp_path / "other")
    before = model.read_bytes()
    for change in (["rm", model, "half"], ["plan", model, "--rm", "half"]):
        error = stctl.json(*change, code=1)["error"]
        assert error["status"] == "ST_E_HARD_LINKS" and error["message"].endswith("with --break-links")
    assert model.read_bytes() == before
    stctl("plan", model, "--rm", "half", "--break-links")
    stctl("rm", model, "half", "--break-links")
    assert (tmp_path / "other").read_bytes() == before and "half" not in stock(model)


@pytest.mark.parametrize("command", [["rm", "half"], ["mv", "half", "h"], ["meta", "k=v"], ["compact"]])
def test_a_lock_held_elsewhere_is_busy(stctl, model, command):
    import fcntl
    import struct

    with open(model, "r+b") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 100, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        name, *rest = command
        error = stctl.json(name, model, *rest, "--lock-timeout", "0", code=3)["error"]
        assert error["status"] == "ST_E_BUSY"
    stctl(name, model, *rest)
