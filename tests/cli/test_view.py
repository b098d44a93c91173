"""stctl view: modules, folding, the picture."""

import os
import pty
import re
import subprocess

import pytest
from cli_files import write


def f32(n):
    return ("F32", [n], bytes(4 * n))


@pytest.fixture
def transformer(tmp_path):
    """Twelve blocks, the fifth of another form, between an embedding and a head that is half of it all."""
    tensors = {"embed.weight": ("BF16", [1024], bytes(2048))}
    for i in range(12):
        tensors[f"layers.{i}.attn.q"] = f32(16)
        tensors[f"layers.{i}.attn.k"] = f32(16)
        tensors[f"layers.{i}.norm"] = f32(32 if i == 5 else 16)
    tensors["head.weight"] = ("U8", [4096 + 2048 + 128 * 12], bytes(4096 + 2048 + 128 * 12))
    return write(tmp_path / "m.safetensors", tensors)


def rows(out):
    """{first word of a row, with its indentation: the row}"""
    lines = out.splitlines()
    return {re.match(r" *\S+", line)[0]: line for line in lines[lines.index("") + 2 :]}


def modules(stctl, path, *args):
    return {m["name"]: m for m in stctl.json("view", path, *args)["modules"]}


def test_numbered_modules_of_one_form_are_one_row(stctl, transformer):
    found = modules(stctl, transformer)
    assert list(found) == ["embed.weight", "layers", "head.weight"]
    inner = {m["name"]: m for m in found["layers"]["modules"]}
    assert list(inner) == ["layers.0…11 (11 of them)", "layers.5"]
    assert inner["layers.0…11 (11 of them)"]["copies"] == 11
    assert inner["layers.0…11 (11 of them)"]["tensors"] == 33
    assert inner["layers.0…11 (11 of them)"]["nbytes"] == 11 * 192
    assert inner["layers.5"]["copies"] == 1


def test_a_run_of_all_numbers_joins_the_name_before_it(stctl, tmp_path):
    path = write(
        tmp_path / "m.safetensors", {f"h.{i}.{n}.w": f32(i + 1 if n == "z" else 2) for i in range(3) for n in "ab"}
    )
    assert [m["name"] for m in stctl.json("view", path)["modules"]] == ["h.0…2"]
    [whole] = stctl.json("view", path, "--depth", "0")["modules"]
    assert [(m["name"], m["copies"], m["tensors"]) for m in whole["modules"]] == [
        ("h.0…2.a.w", 1, 3),
        ("h.0…2.b.w", 1, 3),
    ]


def test_dtypes_offsets_and_sizes_are_those_of_the_file(stctl, transformer):
    found = modules(stctl, transformer)
    listed = stctl.json("ls", transformer)["tensors"]
    inside = [t for t in listed if t["name"].startswith("layers.")]
    [place] = found["layers"]["places"]
    assert place["shard"] == str(transformer)
    assert place["begin"] == min(t["offset"] for t in inside)
    assert place["end"] == max(t["offset"] + t["nbytes"] for t in inside)
    assert found["layers"]["dtypes"] == {"F32": {"tensors": 36, "nbytes": sum(t["nbytes"] for t in inside)}}
    result = stctl.json("view", transformer)
    assert result["nbytes"] == sum(m["nbytes"] for m in result["modules"]) == sum(t["nbytes"] for t in listed)
    assert result["tensors"] == len(listed)


@pytest.mark.parametrize("depth", ["x", "-1", "1.5", "99999999999", "[1"])
def test_a_depth_that_is_no_number(stctl, transformer, depth):
    _, err = stctl("view", transformer, f"--depth={depth}", code=2)
    assert err == f"stctl: --depth takes a whole number in range, not '{depth}'; see stctl view --help\n"


def test_depth_limits_the_levels(stctl, transformer):
    assert all("modules" not in m for m in modules(stctl, transformer, "--depth", "1").values())
    assert set(rows(stctl("view", transformer, "--depth", "1")[0])) == {"embed.weight", "layers", "head.weight"}
    assert "      q" in rows(stctl("view", transformer, "--depth", "0")[0])
    assert "      q" not in rows(stctl("view", transformer, "--depth", "3")[0])


def test_the_picture_is_as_full_as_the_share_and_in_its_place(stctl, transformer):
    out = stctl("view", transformer, "--depth", "1", env={**os.environ, "COLUMNS": "120"})[0]
    begin = out.splitlines()[2].index("PLACE IN FILE")
    pictures = {name: row[begin:] for name, row in rows(out).items()}
    columns = len(pictures["head.weight"])
    assert begin + columns == 120
    full = {name: sum(" ·░▒▓█".index(c) for c in picture) / 5 for name, picture in pictures.items()}
    for name, module in modules(stctl, transformer).items():
        share = module["nbytes"] / stctl.json("view", transformer)["nbytes"]
        assert abs(full[name] / columns - share) < 1.5 / columns
        assert f" {100 * share:.1f}% " in rows(out)[name]
    assert pictures["embed.weight"][0] == "█" and pictures["head.weight"][-1] == "█"
    assert pictures["head.weight"].index("█") >= len(pictures["layers"].rstrip()) - 1


@pytest.mark.parametrize("columns", [100, 200])
def test_the_widest_row_is_as_wide_as_the_output(stctl, transformer, columns):
    lines = stctl("view", transformer, env={**os.environ, "COLUMNS": str(columns)})[0].splitlines()[2:]
    assert max(map(len, lines)) == columns


def test_a_line_is_no_wider_than_80_columns(stctl, tmp_path):
    dtypes = ["F32", "BF16", "F16", "I64", "U8", "F8_E4M3"]
    tensors = {f"a.rather.long.name.{d}": (d, [1] * 30, bytes(size)) for d, size in zip(dtypes, [4, 2, 2, 8, 1, 1])}
    tensors["x" * 100] = ("U8", [3000000], bytes(3000000))
    path = write(tmp_path / "m.safetensors", tensors)
    for columns in [80, 100, 132]:
        for depth in ["1", "0"]:
            out = stctl("view", path, "--depth", depth, env={**os.environ, "COLUMNS": str(columns)})[0]
            assert max(map(len, out.splitlines()[2:])) == columns
            assert "PLACE IN FILE" in out


def test_shards_are_drawn_one_behind_the_other(stctl, tmp_path):
    """The shares of the picture are those of the sizes, wherever in the shards the tensors lie."""
    sizes = {"a": 1000, "b": 64000, "c": 4000, "d": 31000}
    path = write(tmp_path / "m.safetensors", {name: ("U8", [n], bytes(n)) for name, n in sizes.items()})
    stctl("shard", path, tmp_path / "s", "--max-size", "5000")
    out = stctl("view", tmp_path / "s", env={**os.environ, "COLUMNS": "160"})[0]
    begin = out.splitlines()[2].index("PLACE IN ALL")
    pictures = {name: row[begin:] for name, row in rows(out).items()}
    columns, at = 160 - begin, 0
    for shard, (name, n) in enumerate(sizes.items(), 1):
        full = sum(" ·░▒▓█".index(c) for c in pictures[name]) / 5
        assert abs(full - n / 100000 * columns) < 1.5
        drawn = len(pictures[name]) - len(pictures[name].lstrip())
        assert abs(drawn - at * columns) < 1
        assert f"  {shard}  " in rows(out)[name]
        at += n / 100000
    [place] = modules(stctl, tmp_path / "s")["c"]["places"]
    assert place["shard"] == str(tmp_path / "s/model-00003-of-00004.safetensors")


def test_long_names_are_cut(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {"x" * 200: f32(1)})
    assert re.search(r"^x{31}…  ", stctl("view", path, env={**os.environ, "COLUMNS": "80"})[0], re.MULTILINE)


def on_a_terminal(stctl, path, **env):
    mine, theirs = pty.openpty()
    with stctl.popen("view", path, stdout=theirs, env={**os.environ, "TERM": "xterm", **env}) as process:
        os.close(theirs)
        text = b""
        try:
            while got := os.read(mine, 4096):
                text += got
        except OSError:  # EIO: it has closed
            pass
        os.close(mine)
        assert process.wait(60) == 0
    return text.decode()


def test_colour_is_for_terminals_that_want_it(stctl, transformer):
    assert "\x1b[" in on_a_terminal(stctl, transformer, NO_COLOR="")
    assert "\x1b" not in on_a_terminal(stctl, transformer, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(stctl, transformer, TERM="dumb", NO_COLOR="")
    assert "\x1b" not in stctl("view", transformer)[0]


def test_odd_names_make_modules_too(stctl, tmp_path):
    names = ["a", "a.b", "", ".", "..", "x..y", "n.01", "n.1", "n.99999999999999999999", "\x1b[31m.w", "." * 300]
    path = write(tmp_path / "m.safetensors", {name: f32(1) for name in names})
    result = stctl.json("view", path, "--depth", "0")
    assert result["tensors"] == len(names)
    assert {m["name"] for m in result["modules"]} >= {"a", "n", "\x1b[31m.w"}
    [a] = [m for m in result["modules"] if m["name"] == "a"]
    assert [m["name"] for m in a["modules"]] == ["a.(itself)", "a.b"]
    assert all(c == "\n" or c.isprintable() for c in stctl("view", path, "--depth", "0")[0])


def test_files_without_data(stctl, tmp_path):
    path = write(tmp_path / "none.safetensors", {})
    assert stctl("view", path)[0] == f"{path}: 0 tensors, 0 B\n"
    assert stctl.json("view", path)["modules"] == []
    path = write(tmp_path / "empty.safetensors", {"e": ("F32", [0, 3], b"")})
    assert "F32 [0, 3]" in stctl("view", path)[0]


def test_a_large_catalogue_is_drawn(stctl, tmp_path):
    path = write(
        tmp_path / "m.safetensors", {f"m.{i}.{j}.w": ("U8", [1], b"x") for i in range(300) for j in range(100)}
    )
    [module] = stctl.json("view", path)["modules"]
    assert (module["name"], module["copies"], module["tensors"]) == ("m.0…299.0…99.w", 30000, 30000)


def test_without_utf8_in_the_locale_it_is_the_same(stctl, model):
    first = subprocess.run([stctl.path, "view", model], capture_output=True, check=True, env={"LC_ALL": "C"})
    assert first.stdout == stctl("view", model)[0].encode()
