"""stctl verify"""

import json
import struct

import numpy as np
import pytest
from cli_files import header_and_data, write


def entry(begin, end, shape=(2,), dtype="U8"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


BAD = {
    "ST_E_HEADER_TOO_SMALL": b"1234567",
    "ST_E_HEADER_TOO_LARGE": struct.pack("<Q", 100_000_001) + b"{}",
    "ST_E_HEADER_TRUNCATED": struct.pack("<Q", 3) + b"{}",
    "ST_E_HEADER_UTF8": header_and_data(b'{"\xff":1}'),
    "ST_E_HEADER_JSON": header_and_data(b'{"a":'),
    "ST_E_METADATA": header_and_data({"__metadata__": {"a": 1}}),
    "ST_E_TENSOR_INFO": header_and_data({"a": {}}),
    "ST_E_DTYPE": header_and_data({"a": entry(0, 2, dtype="F7")}, b"ab"),
    "ST_E_SHAPE_OVERFLOW": header_and_data({"a": entry(0, 2, shape=(2**40, 2**40))}, b"ab"),
    "ST_E_HOLE": header_and_data({"a": entry(1, 3)}, b"abc"),
    "ST_E_OVERLAP": header_and_data({"a": entry(0, 2), "b": entry(1, 3)}, b"abc"),
    "ST_E_SIZE_MISMATCH": header_and_data({"a": entry(0, 3)}, b"abc"),
    "ST_E_SUBBYTE": header_and_data({"a": entry(0, 2, shape=(3,), dtype="F4")}, b"ab"),
    "ST_E_TRUNCATED": header_and_data({"a": entry(0, 2)}, b"a"),
    "ST_E_TRAILING_DATA": header_and_data({"a": entry(0, 2)}, b"abc"),
    "ST_E_DUPLICATE_NAME": header_and_data(
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
        b"ab",
    ),
}


def test_a_good_file(stctl, model):
    size = model.stat().st_size
    out, err = stctl("verify", model)
    assert err == ""
    assert out.splitlines()[-1] == f"{model}: ok (6 tensors, {size} bytes)"
    result = stctl.json("verify", model)
    assert result["ok"] is True
    (file,) = result["files"]
    assert (file["file"], file["ok"], file["tensors"], file["bytes"]) == (str(model), True, 6, size)
    assert "error" not in file


@pytest.mark.parametrize("status", BAD)
def test_every_broken_rule_is_exit_code_5(stctl, tmp_path, status):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(BAD[status])
    out, err = stctl("verify", path, code=5)
    assert err == ""
    assert out.splitlines()[-1].startswith(f"{path}: ")
    assert out.splitlines()[-1].endswith(f"({status})")
    result = stctl.json("verify", path, code=5)
    (file,) = result["files"]
    assert (result["ok"], file["ok"]) == (False, False)
    assert (file["error"]["status"], file["error"]["exit_code"]) == (status, 5)
    assert status in [finding["status"] for finding in file["findings"]]
    assert path.read_bytes() == BAD[status]


def test_shards_that_disagree_with_their_index_are_exit_code_5(stctl, model, tmp_path):
    folder = tmp_path / "shards"
    stctl("shard", model, folder, "--max-size", "100")
    index = folder / "model.safetensors.index.json"
    good = index.read_text()
    weight_map = json.loads(good)["weight_map"]
    moved = {**weight_map, "half": next(shard for shard in weight_map.values() if shard != weight_map["half"])}

    def verdict(text, status):
        index.write_text(text)
        out, err = stctl("verify", folder, code=5)
        assert err == "" and out.splitlines()[-1].startswith(f"{folder}: ")
        assert out.splitlines()[-1].endswith(f"({status})")

    verdict("{", "ST_E_SHARD_INDEX")
    verdict(json.dumps({"metadata": {}, "weight_map": moved}), "ST_E_SHARD_TENSOR")
    verdict(json.dumps({"metadata": {}, "weight_map": {**weight_map, "half": "../up"}}), "ST_E_SHARD_PATH")
    verdict(good[: good.rindex("}", 0, good.rindex("}"))] + ', "half": "x"}}', "ST_E_SHARD_DUPLICATE")
    (folder / weight_map["half"]).unlink()
    verdict(good, "ST_E_SHARD_MISSING")


def test_every_file_is_checked_and_the_first_failure_decides(stctl, model, tmp_path):
    bad, missing = tmp_path / "bad.safetensors", tmp_path / "missing.safetensors"
    bad.write_bytes(b"x")
    out, err = stctl("verify", bad, model, missing, code=5)
    assert f"\n{model}: ok (" in out and out.startswith(f"{bad}: ")
    assert "missing.safetensors" not in out
    assert "missing.safetensors" in err and err.endswith("(ST_E_NO_FILE)\n")
    result, err = stctl("verify", "--json", missing, bad, model, code=1)
    files = json.loads(result)["files"]
    assert [f["ok"] for f in files] == [False, False, True]
    assert [f.get("error", {}).get("exit_code") for f in files] == [1, 5, None]


def test_an_empty_model_is_a_good_file(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {})
    assert "ok (0 tensors, 64 bytes)" in stctl("verify", path)[0]


def test_data_may_be_anything(stctl, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8).tobytes()
    path = write(tmp_path / "m.safetensors", {"w": ("U8", [1 << 20], noise)})
    assert stctl.json("verify", path)["ok"]
