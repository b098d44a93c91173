"""stctl shard and join, and the other commands on an index."""

import numpy as np
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


def test_sizes_are_those_of_hugging_face(stctl, model, tmp_path):
    for i, size in enumerate(("5GB", "4GiB", "500MB", "5000000")):
        assert stctl.json("shard", model, tmp_path / str(i), "--max-size", size)["shards"] == 1
    for size in ("0", "GB", "5 parsecs", "-1GB"):
        stctl.json("shard", model, tmp_path / "x", f"--max-size={size}", code=2)
