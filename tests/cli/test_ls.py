"""stctl ls"""

import json
import os
import subprocess

import numpy as np
import pytest
from cli_files import write


def by_offset(stctl, model, *args):
    return [tensor["name"] for tensor in stctl.json("ls", model, *args)["tensors"]]


def test_json_describes_every_tensor(stctl, model, arrays):
    result = stctl.json("ls", model)
    assert result["file"] == str(model)
    assert result["count"] == len(arrays)
    assert result["nbytes"] == sum(a.nbytes for a in arrays.values())
    assert {t["name"] for t in result["tensors"]} == set(arrays)
    content = model.read_bytes()
    for tensor in result["tensors"]:
        array = arrays[tensor["name"]]
        assert tensor["shape"] == list(array.shape)
        assert tensor["nbytes"] == array.nbytes
        assert content[tensor["offset"] : tensor["offset"] + array.nbytes] == array.tobytes()
    offsets = [t["offset"] for t in result["tensors"]]
    assert offsets == sorted(offsets)


def test_table_has_a_line_for_each_tensor_and_totals(stctl, model, arrays):
    out, err = stctl("ls", model)
    assert err == ""
    lines = out.splitlines()
    assert lines[0].split() == ["NAME", "DTYPE", "SHAPE", "SIZE", "OFFSET"]
    rows = {line.split()[0]: line for line in lines[1:-1]}
    assert set(rows) == set(arrays)
    assert rows["layer.1.weight"].split()[1:-1] == ["I64", "[2,", "3,", "4]", "192", "B"]
    assert rows["scalar"].split()[1:-1] == ["U8", "[]", "1", "B"]
    assert lines[-1] == "6 tensors, 265 B"
    assert not any(line != line.rstrip() for line in lines)


def test_columns_are_aligned(stctl, model):
    lines = stctl("ls", model)[0].splitlines()[:-1]
    column = lines[0].index("DTYPE")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)
    assert len({len(line) for line in lines}) == 1  # the last column is right-aligned


def test_bytes_are_exact(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {"w": ("U8", [1537], bytes(1537))})
    assert "1.50 KiB" in stctl("ls", path)[0]
    exact = stctl("ls", "--bytes", path)[0].splitlines()
    assert exact[0].split()[3] == "BYTES"
    assert exact[1].split()[3] == "1537"
    assert exact[2] == "1 tensor, 1,537 bytes"


@pytest.mark.parametrize(
    "patterns, expected",
    [
        (["*"], ["layer.1.weight", "layer.0.bias", "layer.0.weight", "half", "scalar", "empty"]),
        (["layer.*"], ["layer.1.weight", "layer.0.bias", "layer.0.weight"]),
        (["*.weight"], ["layer.1.weight", "layer.0.weight"]),
        (["layer.[0-0].*"], ["layer.0.bias", "layer.0.weight"]),
        (["layer.[!0].*"], ["layer.1.weight"]),
        (["layer.?.bias", "half"], ["layer.0.bias", "half"]),
        (["[hs]*"], ["half", "scalar"]),
        (["h[]a]lf"], ["half"]),
        (["*a*a*"], ["scalar", "layer.0.bias"]),
        (["half"], ["half"]),
        ([r"hal\f*"], ["half"]),
    ],
)
def test_patterns_choose(stctl, model, patterns, expected):
    assert sorted(by_offset(stctl, model, *patterns)) == sorted(expected)


def test_a_pattern_in_brackets_is_not_taken_apart(stctl, tmp_path):
    one = np.zeros(1, np.uint8).tobytes()
    path = write(tmp_path / "m.safetensors", {name: ("U8", [1], one) for name in ["a", "b", "ab", "a,b", ","]})
    assert by_offset(stctl, path, "[ab]") == ["a", "b"]
    assert by_offset(stctl, path, "[a,b]") == ["a", "b", ","]


def test_a_pattern_in_brackets_is_told_once_where_the_look_begins_anew(stctl, tmp_path, changer):
    path = write(tmp_path / "m.safetensors", {name: ("U8", [1], b"x") for name in "ab"})
    told = stctl("ls", path, "[ab]")
    assert told[1].count("so it is taken as a pattern") == 1
    assert stctl("ls", path, "[ab]", env={**os.environ, "LD_PRELOAD": str(changer)}) == told


def test_question_mark_is_one_character_of_utf8(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {"é": ("U8", [1], b"x"), "ée": ("U8", [1], b"x")})
    assert by_offset(stctl, path, "?") == ["é"]
    assert by_offset(stctl, path, "[à-ï]e") == ["ée"]


def test_a_pattern_that_matches_nothing_fails(stctl, model):
    result = stctl.json("ls", model, "nothing*", code=1)
    assert "matches" in result["error"]["message"] and result["tensors"] == []
    assert stctl("ls", model, "nothing*", code=1)[0] == ""


def test_what_matches_nothing_is_told_beside_what_matches(stctl, model):
    words = [model, "half", "no\nsuch", "zz*"]
    sentence = f"stctl: no tensor of '{model}' matches 'no\\nsuch', 'zz*' (ST_E_NOT_FOUND)\n"
    out, err = stctl("ls", *words, code=1)
    assert out == stctl("ls", model, "half")[0] and err == sentence
    assert stctl("ls", "--names", *words, code=1) == ("half\n", sentence)
    result, err = stctl("ls", "--json", *words, code=1)
    result = json.loads(result)
    assert err == sentence and [tensor["name"] for tensor in result["tensors"]] == ["half"]
    error = result["error"]
    assert error["status"] == "ST_E_NOT_FOUND" and error["exit_code"] == 1 and f"stctl: {error['message']} (" in err


@pytest.mark.parametrize("options", [[], ["--names"], ["--json"]], ids=" ".join)
def test_what_matches_nothing_is_told_after_the_list(stctl, model, options):
    """Where both are read as one: on a terminal, or after 2>&1."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": 60}
    told = subprocess.run([stctl.path, "ls", *options, model, "half", "zz*"], **both).stdout.decode()
    out, err = stctl("ls", *options, model, "half", "zz*", code=1)
    assert told == out + err


def test_an_empty_file_has_no_tensors(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {})
    assert stctl.json("ls", path)["tensors"] == []
    assert stctl("ls", path)[0].splitlines()[-1] == "0 tensors, 0 B"


def test_a_pipe_is_no_plain_file_however_it_is_named(stctl, model, tmp_path):
    read, write = os.pipe()
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", f"/dev/fd/{read}", f"/proc/self/fd/{write}"):
        for command in (["ls"], ["verify"], ["recover"], ["meta", "k=v"]):
            answer = stctl.json(command[0], name, *command[1:], code=1, pass_fds=[read, write])
            error = answer.get("files", [answer])[0]["error"]
            assert error["status"] == "ST_E_NOT_REGULAR", (name, command)
    os.close(read)
    os.close(write)
    with open(model) as file:
        assert "half" in stctl("ls", f"/dev/fd/{file.fileno()}", pass_fds=[file.fileno()])[0]
