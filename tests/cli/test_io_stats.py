"""stctl io and stctl stats"""

import os

import pytest
from cli_files import sparse, write

MAPS = ["shared", "private", "none"]


def test_io_says_seven_sentences(stctl, model):
    out, err = stctl("io", model)
    assert err == ""
    lines = out.splitlines()
    names = ["Storage", "Filesystem", "Mapping", "Why", "Bulk reads", "Why", "Other hosts"]
    assert [line.split(":")[0] for line in lines] == names
    assert lines[6].endswith(".")
    assert all(line.endswith(".") for line in lines[:3])
    assert len(lines[3]) > len("Why: .")


def test_io_json(stctl, model):
    info = stctl.json("io", model)
    assert info["file"] == str(model)
    assert info["storage"] in ("local", "memory", "network", "parallel", "fuse", "object-store", "unknown")
    assert info["map"] in MAPS
    assert info["map_fallbacks"] == 0
    assert info["file_size"] == model.stat().st_size
    assert info["data_offset"] == 8 + info["header_size"]
    assert info["filesystem"] and info["reason"] and info["prefetch_reason"] and info["other_hosts"]
    assert info["prefetch"] in ("none", "sequential", "parallel")
    assert info["direct"] is (None if info["storage"] == "local" else False)  # null: a first load does
    assert info["io_threads"] >= 1 and info["block_size"] >= 1 << 20


@pytest.mark.parametrize("setting", [False, True])
def test_io_tells_whether_reads_go_past_the_page_cache(stctl, model, setting):
    assert stctl.json("io", model, env={**os.environ, "ST_DIRECT": str(int(setting))})["direct"] is setting


@pytest.mark.parametrize("map", MAPS)
def test_io_takes_the_mapping_asked_for(stctl, model, map):
    assert stctl.json("io", model, "--map", map)["map"] == map
    assert stctl.json("io", model, env={**os.environ, "ST_MAP": map})["map"] == map
    assert f"Mapping: {map}" in stctl("io", model, "--map", map)[0]


def test_io_maps_copy_on_write_where_it_is_told(stctl, model):
    assert stctl.json("io", model, "--map", "copy-on-write")["map"] == "copy-on-write"
    assert "Mapping: copy-on-write: what is written" in stctl("io", model, "--map", "copy-on-write")[0]


def test_stats_without_touching_reads_little(stctl, model):
    stats = stctl.json("stats", model)
    assert stats["file"] == str(model)
    assert stats["bytes_owned"] == stats["bytes_written"] == stats["commits"] == stats["recoveries"] == 0
    assert stats["index_bytes"] > 0


def test_stats_touch_brings_all_in(stctl, tmp_path):
    size = 32 << 20
    path = sparse(tmp_path / "m.safetensors", "w", size)
    touched = stctl.json("stats", "--touch", "--map", "shared", path)
    assert touched["bytes_mapped"] >= size
    assert touched["bytes_resident"] >= size
    owned = stctl.json("stats", "--touch", "--map", "none", path)
    assert (owned["bytes_mapped"], owned["bytes_owned"]) == (0, size)
    assert stctl.json("stats", "--map", "none", path)["bytes_owned"] == 0


@pytest.mark.parametrize("map", ["shared", "private"])
def test_stats_of_shards_are_those_of_all(stctl, tmp_path, map):
    size = 1 << 20
    path = write(tmp_path / "m.safetensors", {name: ("U8", [size], bytes(size)) for name in "abc"})
    shards = tmp_path / "shards"
    assert stctl.json("shard", path, shards, "--max-size", "1MiB")["shards"] == 3
    mapped = sum(shard.stat().st_size for shard in shards.glob("*.safetensors"))
    # They were written a moment ago, so every process finds them in the page cache.
    for touch in ([], ["--touch"]):
        stats = stctl.json("stats", "--map", map, *touch, shards)
        assert (stats["bytes_mapped"], stats["bytes_resident"]) == (mapped, mapped)


def test_stats_touch_takes_empty_tensors(stctl, model):
    assert stctl.json("stats", "--touch", model)["bytes_mapped"] >= 265


def test_stats_text_has_a_line_for_each_counter(stctl, model):
    lines = stctl("stats", model)[0].splitlines()
    counters = stctl.json("stats", model)
    assert [line.split()[0] for line in lines] == [key for key in counters if key != "file"]
