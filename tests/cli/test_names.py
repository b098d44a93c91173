"""Names and metadata that a stranger chose: shown harmlessly, and still usable."""

import json
import os

import numpy as np
import pytest
from cli_files import write

NAMES = {
    "a\0b": r"a\x00b",
    "line\nbreak\ttab\rreturn": r"line\nbreak\ttab\rreturn",
    "\x1b[31mred\x1b[0m": r"\x1b[31mred\x1b[0m",
    "back\\slash": r"back\\slash",
    r"a\x00b": r"a\\x00b",
    "del\x7f": r"del\x7f",
    "c1\x9b31m": r"c1\u{9b}31m",
    "\u202eesrever": r"\u{202e}esrever",
    "zero\u200bwidth": r"zero\u{200b}width",
    "é 漢字 🙂": "é 漢字 🙂",
    'quote"s': 'quote"s',
    "": "",
    " ": " ",
    "-dash": "-dash",
    "[a,b]": "[a,b]",
    "*": "*",
    "\U000e0041tag": r"\u{e0041}tag",
}


@pytest.fixture
def odd(tmp_path):
    tensors = {name: ("U8", [1], bytes([i])) for i, name in enumerate(NAMES)}
    return write(tmp_path / "odd.safetensors", tensors, {name: name for name in NAMES if name})


def test_json_has_the_names_exactly(stctl, odd):
    assert [t["name"] for t in stctl.json("ls", odd)["tensors"]] == list(NAMES)
    assert stctl.json("info", odd)["metadata"] == {name: name for name in NAMES if name}


def test_text_shows_them_escaped(stctl, odd):
    lines = stctl("ls", odd)[0].splitlines()
    assert [line.partition("  U8 ")[0].rstrip() for line in lines[1:-1]] == [s.rstrip() for s in NAMES.values()]


def test_wide_characters_keep_the_columns(stctl, odd):
    lines = stctl("ls", odd)[0].splitlines()[:-1]
    column = lines[0].index("DTYPE")
    wide = [line.index("U8") for line in lines[1:] if "漢字" in line]
    assert wide == [column - 3]  # three characters take two columns each
    assert all(line.index("U8") == column for line in lines[1:] if "漢字" not in line)


@pytest.mark.parametrize("command", ["ls", "view", "info"])
def test_text_holds_nothing_that_moves_a_cursor(stctl, odd, command):
    out = stctl(command, odd)[0]
    assert all(c == "\n" or c.isprintable() for c in out)


@pytest.mark.parametrize("command", ["ls", "info"])
def test_json_holds_no_raw_control_characters(stctl, odd, command):
    out = stctl(command, "--json", odd)[0]
    assert all(c >= " " and c != "\x7f" for c in out[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_names_the_tensor(stctl, odd, name):
    got = stctl.json("get", odd, "--", NAMES[name])
    assert (got["name"], got["values"]) == (name, [list(NAMES).index(name)])
    if name:
        assert stctl.json("info", odd, "--", NAMES[name])["name"] == name


@pytest.mark.parametrize("name", [n for n in NAMES if "\0" not in n and n != r"a\x00b"])
def test_the_name_itself_does_too(stctl, odd, name):
    assert stctl.json("get", odd, "--", name)["name"] == name


def test_update_takes_the_shown_name(stctl, odd):
    stctl("update", odd, r"a\x00b", "--fill", "99")
    stctl("update", odd, r"a\\x00b", "--fill", "98")
    assert stctl.json("get", odd, r"a\x00b")["values"] == [99]
    data = odd.read_bytes()[-len(NAMES) :]
    want = bytearray(range(len(NAMES)))
    want[list(NAMES).index("a\0b")] = 99
    want[list(NAMES).index(r"a\x00b")] = 98
    assert data == bytes(want)


def test_errors_show_names_escaped(stctl, odd):
    for name in ["no\x1b[31m", "no\nsuch"]:
        err = stctl("get", odd, name, code=1)[1]
        assert err.count("\n") == 1
        assert all(c == "\n" or c.isprintable() for c in err)
        assert stctl.json("get", odd, name, code=1)["error"]["tensor"] == name


def test_patterns_see_the_names_themselves(stctl, odd):
    names = [t["name"] for t in stctl.json("ls", odd, "?????")["tensors"]]
    assert names == [n for n in NAMES if len(n) == 5]
    assert [t["name"] for t in stctl.json("ls", odd, r"\*")["tensors"]] == ["*"]
    assert [t["name"] for t in stctl.json("ls", odd, "a?b")["tensors"]] == ["a\0b"]


@pytest.mark.parametrize("name", [n for n in NAMES if n])
def test_ls_finds_a_name_as_it_prints_it(stctl, odd, name):
    assert name in [t["name"] for t in stctl.json("ls", odd, "--", NAMES[name])["tensors"]]


def words(stctl, path, word):
    """What ls, rm and mv take that word for."""
    found = [t["name"] for t in stctl.json("ls", path, "--", word)["tensors"]]
    assert stctl.json("plan", path, f"--rm={word}")["removed"] == found
    return found


def of_names(tmp_path, *names):
    return write(tmp_path / "m.safetensors", {name: ("U8", [1], b"x") for name in names})


def test_an_escape_is_never_another_name(stctl, tmp_path):
    path = of_names(tmp_path, "anb", "half", "x")
    before = path.read_bytes()
    for word in [r"a\nb", r"a\nb*", r"hal\f"]:
        stctl("ls", path, word, code=1)
        for command in [["rm", path, word], ["mv", path, word, "y"], ["plan", path, "--rm", word]]:
            assert stctl.json(*command, code=1)["error"]["status"] == "ST_E_NOT_FOUND"
    assert path.read_bytes() == before


def test_patterns_hold_names_as_ls_prints_them(stctl, tmp_path):
    path = of_names(tmp_path, "nl\nx", "nlnx", "\u202e.0", "back\\slash", "tab\t1", "tab\t2", "tab3")
    assert words(stctl, path, r"nl\n*") == ["nl\nx"]
    assert words(stctl, path, r"nl\n?") == ["nl\nx"]
    assert words(stctl, path, r"\u{202e}.[0-9]") == ["\u202e.0"]
    assert words(stctl, path, r"back\\*") == ["back\\slash"]
    assert words(stctl, path, r"tab[\t3]*") == ["tab\t1", "tab\t2", "tab3"]
    assert words(stctl, path, r"tab[\x00-\t]?") == ["tab\t1", "tab\t2"]
    assert stctl.json("mv", path, r"tab\t*", r"t\n*")["renamed"] == [
        {"from": "tab\t1", "to": "t\n1"}, {"from": "tab\t2", "to": "t\n2"}
    ]  # fmt: skip


def test_a_word_is_a_name_before_it_is_a_pattern(stctl, tmp_path):
    path = of_names(tmp_path, "layer[0].w", "layer0.w", "layer[1].w", "layer1.w", r"raw\n")
    assert words(stctl, path, "layer[0].w") == ["layer[0].w"]
    assert words(stctl, path, r"layer\[1].w") == ["layer[1].w"]
    assert words(stctl, path, r"raw\n") == [r"raw\n"]
    assert words(stctl, path, "layer[01].w") == ["layer0.w", "layer1.w"]
    assert words(stctl, path, "layer*") == ["layer[0].w", "layer0.w", "layer[1].w", "layer1.w"]
    assert stctl.json("rm", path, r"raw\n")["removed"] == [r"raw\n"]
    assert stctl.json("rm", path, "layer[0].w")["removed"] == ["layer[0].w"]


def test_brackets_that_are_taken_as_a_pattern_are_told(stctl, tmp_path):
    path = of_names(tmp_path, "layer0.w", "a[0]", "layer1.b")
    for command in [["ls", path, "layer[0].w"], ["plan", path, "--rm", "layer[0].w"],
                    ["plan", path, "--mv", "layer[0].w", "x"]]:  # fmt: skip
        err = stctl(*command)[1]
        assert "'layer[0].w'" in err and "pattern" in err and err.count("\n") == 1
        assert stctl(*command, "-q")[1] == ""
    assert stctl("ls", path, "a[0]", "layer[01].*")[1] == ""
    assert "pattern" in stctl("rm", path, "layer[0].w")[1]


def test_a_new_name_is_spelled_as_ls_prints_it(stctl, tmp_path):
    path = of_names(tmp_path, "w", "v")
    before = path.read_bytes()
    np.save(tmp_path / "n.npy", np.zeros(1, np.uint8))
    for name in [r"enc\dec", r"\x4", r"\u{110000}", "end\\"]:
        assert "escape" in stctl("mv", path, "w", name, code=2)[1]
        assert "escape" in stctl("put", path, name, "--npy", tmp_path / "n.npy", code=2)[1]
    assert "star" in stctl("mv", path, "w", "model.*", code=2)[1]
    assert path.read_bytes() == before
    stctl("mv", path, "w", r"star\*\\\n")
    stctl("mv", path, "v", r"\*")
    stctl("put", path, r"put\*", "--npy", tmp_path / "n.npy")
    stctl("put", path, "*", "--npy", tmp_path / "n.npy")
    assert [t["name"] for t in stctl.json("ls", path)["tensors"]] == ["star*\\\n", "*", "put*"]


def test_a_tensor_is_removed_once_however_many_patterns_match(stctl, tmp_path):
    path = of_names(tmp_path, *(f"t{i}" for i in range(100)))
    plan = stctl.json("plan", path, "--rm", "t7", "--rm", "t*", "--rm", "t?*", "--rm", "t8")
    assert sorted(plan["removed"]) == sorted(f"t{i}" for i in range(100))


def test_a_very_long_name_does_not_widen_the_other_rows(stctl, tmp_path):
    names = ["n" * 20000, *(f"t{i}" for i in range(200))]
    path = write(tmp_path / "m.safetensors", {name: ("U8", [1], b"x") for name in names})
    out = stctl("ls", path)[0]
    assert len(out) < 20000 + 201 * 400 and "n" * 20000 in out
    assert len({len(line) for line in out.splitlines()[2:-1]}) == 1


def test_a_path_that_is_not_utf8(stctl, tmp_path):
    path = os.fsdecode(bytes(tmp_path) + b"/m\xff\x1b.safetensors")
    os.rename(write(tmp_path / "m.safetensors", {"w": ("U8", [1], b"x")}), path)
    assert stctl.json("ls", path)["file"] == str(tmp_path) + "/m\ufffd\x1b.safetensors"
    assert rb"/m\xff\x1b.safetensors: ok" in stctl.raw("verify", path).stdout


def test_many_tensors(stctl, tmp_path):
    count = 20000
    header = {f"t{i:05}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(count)}
    text = json.dumps(header).encode()
    path = tmp_path / "many.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + (np.arange(count) % 251).astype(np.uint8).tobytes())
    result = stctl.json("ls", path)
    assert result["count"] == len(result["tensors"]) == count
    assert stctl("ls", path)[0].count("\n") == count + 2


@pytest.mark.parametrize("name", ["\x1b[31mred\nmodel: recovered", "c1\x9b31m", "\u202eesrever"])
@pytest.mark.parametrize("command", [["recover"], ["get", "--verbose"]])
def test_what_lies_beside_a_file_is_told_harmlessly(stctl, tmp_path, name, command):
    """By a recovery, and by an open that recovers first."""
    model = write(tmp_path / (name + ".safetensors"), {"t": ("U8", [1], b"x")}, {})
    folder = model.with_name(model.name + ".st-journal")
    folder.mkdir(mode=0o700)
    (folder / name).write_bytes(b"no record" * 100)
    (tmp_path / f".{model.name}.st-tmp-0123456789abcdef").write_bytes(b"half")
    result = stctl.raw(*command, model, *(["t"] if command[0] == "get" else []))
    told = (result.stdout + result.stderr).decode()
    assert "was not applied" in told and "it never took its place" in told
    assert all(c == "\n" or c.isprintable() for c in told)
    assert "\nmodel: recovered" not in told
