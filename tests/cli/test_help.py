"""--help, --version, and command lines that are none."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

COMMANDS = ["ls", "view", "info", "get", "update", "put", "rm", "mv", "meta", "compact", "edit", "plan"]
COMMANDS += ["shard", "join", "verify", "recover", "journal", "io", "stats"]

WITHOUT_SETTINGS = {name: value for name, value in os.environ.items() if not name.startswith("ST_")}


def test_version_names_stctl_and_libst(stctl):
    out, err = stctl("--version")
    assert re.fullmatch(r"stctl \d+\.\d+\.\d+ \(libst \d+\.\d+\.\d+\)\n", out)
    assert err == ""


@pytest.mark.parametrize("verbose", ["-v", "--verbose"])
def test_the_verbose_version_tells_what_libst_is_made_of_and_finds(stctl, verbose):
    out, err = stctl("--version", verbose)
    assert (out, err) == stctl(verbose, "--version") and err == ""
    first, *lines = out.splitlines()
    assert first + "\n" == stctl("--version")[0]
    told = dict(line.split(": ", 1) for line in lines)
    assert re.fullmatch(r"Linux \d\S* \w+, (glibc \d.*|a libc that is not glibc)", told["platform"])
    assert re.fullmatch(r"simdjson \d\S*, \w+; xxhash \d\S*; tl::expected \d\S*; zstd \d\S*", told["libraries"])
    assert re.search(r"\d+\.\d+", told["compiler"]) and told["version"] in first
    has_avx2 = " avx2 " in Path("/proc/cpuinfo").read_text()
    assert told["hashes"] == ("by AVX2" if has_avx2 else "by what every such processor has")
    for call in ["openat2", "statx", "OFD locks", "copy_file_range", "/proc", "URLs"]:
        assert told[call] == "yes" or told[call].startswith("no; ")


def test_the_verbose_version_tells_what_the_environment_changes(stctl):
    assert "\nenvironment: nothing is set\n" in stctl("--version", "-v", env=WITHOUT_SETTINGS)[0]
    changed = WITHOUT_SETTINGS | {"ST_JOURNAL": "redo", "ST_IO_THREADS": "2"}
    assert "\nenvironment: ST_JOURNAL='redo' ST_IO_THREADS='2'\n" in stctl("--version", "-v", env=changed)[0]


def test_help_lists_every_command_on_one_line(stctl):
    out, _ = stctl("--help")
    assert all(len(line) <= 100 for line in out.splitlines())
    for command in COMMANDS:
        assert len(re.findall(rf"^  {command} +[A-Z].*$", out, re.M)) == 1, command
    assert "Exit codes:" in out


def test_help_may_be_asked_for_as_of_git(stctl):
    assert stctl("help") == stctl("--help")
    for command in COMMANDS:
        assert stctl("help", command) == stctl(command, "--help")
    assert stctl("help", "help") == stctl("--help")
    assert stctl("-q", "help", "get") == stctl("get", "--help")
    assert stctl("help", "none such", code=2)[1].startswith("stctl: no command is named 'none such'")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_teaches(stctl, command):
    out, err = stctl(command, "--help")
    assert err == ""
    purpose, _, rest = out.partition("Usage:")
    assert len(purpose.splitlines()) >= 4
    assert f"stctl {command}" in rest.splitlines()[0]
    for option in ["--json", "--quiet", "--verbose", "--help"]:
        assert option in rest
    examples = rest.partition("Examples:")[2].partition("Exit codes:")
    assert f"stctl {command} " in examples[0]
    for code in ["0", "1", "2", "3", "4", "5", "6", "130"]:
        assert re.search(rf"^ +{code}  ", examples[2], re.M), code
    assert all(len(line) <= 100 for line in out.splitlines())


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["frobnicate"],
        ["ls"],
        ["ls", "--no-such-option", "x"],
        ["get", "x"],
        ["get", "x", "y", "--format", "png"],
        ["get", "x", "y", "--limit", "-1"],
        ["update", "x", "y"],
        ["update", "x", "y", "--fill", "1", "--from-raw", "z"],
        ["update", "x", "--fill", "1"],
        ["update", "x", "y", "z", "--fill", "1"],
        ["update", "x", "y", "--fill", "1", "--lock-timeout", "soon"],
        ["update", "x", "y", "--fill", "1", "--lock-timeout", "-2"],
        ["verify"],
        ["recover"],
        ["io", "x", "--map", "sideways"],
        ["io", "x", "y"],
        ["put", "x", "y"],
        ["put", "x", "y", "--from-raw", "z"],
        ["put", "x", "y", "z", "--npy", "n"],
        ["put", "x", "y", "--npy", "n", "--from", "z"],
        ["rm", "x"],
        ["mv", "x", "y"],
        ["mv", "x", "y", "z", "--new-names", "--shard-grace", "4294967295"],
        ["plan", "x", "--mv", "y"],
    ],
)
def test_usage_errors_exit_2_with_one_sentence(stctl, args):
    out, err = stctl(*args, code=2)
    assert out == ""
    assert re.fullmatch(r"stctl: .+\n", err)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["nosuch"], "no command is named 'nosuch'"),
        (["lss", "x"], "no command is named 'lss'"),
        (["[a,b]"], "no command is named '[a,b]'"),
        (["--nosuch"], "no option is named '--nosuch'"),
        (["-q"], "a command is required"),
    ],
)
def test_what_stands_where_a_command_should_is_told(stctl, args, sentence):
    assert stctl(*args, code=2) == ("", f"stctl: {sentence}; see stctl --help\n")


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["get", "MODEL", "-x"], "-x"),
        (["get", "MODEL", "half", "--nosuch=3"], "--nosuch=3"),
        (["ls", "-m.st"], "-m.st"),
        (["ls", "-vx"], "-x"),
    ],
)
def test_an_unknown_option_is_named(stctl, model, args, word):
    sentence = (
        f"no option is named '{word}'; a name that begins with '-' stands behind '--'; see stctl {args[0]} --help"
    )
    assert stctl(*[model if arg == "MODEL" else arg for arg in args], code=2) == ("", f"stctl: {sentence}\n")


def test_standard_output_where_no_argument_stands_is_no_option(stctl, model):
    assert "not expected: -; see stctl diff" in stctl("diff", model, model, "-", code=2)[1]


def test_behind_two_dashes_there_are_no_options(stctl, model):
    assert "required" in stctl("get", "--", "-m.st", code=2)[1]
    assert "not expected: y" in stctl("mv", model, "--", "-a", "-b", "y", code=2)[1]
    assert "-m.st" in stctl("ls", "--", "-m.st", code=1)[1]


REPEATED = [["ls", "--delta", "d"], ["edit", "--rm", "a"], ["edit", "--mv", "a", "b"], ["meta", "--remove", "a"]]


@pytest.mark.parametrize("command", REPEATED)
def test_two_dashes_count_behind_an_option_that_may_come_again(stctl, command):
    assert "-m.st'" in stctl(*command, "--", "-m.st", code=1)[1]
    assert "--json'" in stctl(*command, *command[1:], "--", "--json", code=1)[1]


@pytest.mark.parametrize("command", [["ls", "--delta", "d"], ["meta", "--remove", "a"]])
def test_an_option_that_may_come_again_takes_its_own_words_and_no_more(stctl, command):
    assert "/first'" in stctl(*command, *command[1:], "first", "second=", code=1)[1]


@pytest.mark.parametrize("next_word", ["--json", "-q", "--rm", "--", "-x"])
def test_an_option_is_no_new_name(stctl, model, next_word):
    before = model.read_bytes()
    for command in "edit", "plan":
        err = stctl(command, model, "--mv", "half", next_word, code=2)[1]
        assert f"--mv takes a name and a new name, not '{next_word}'" in err
    assert model.read_bytes() == before
    stctl("edit", model, "--mv", "half", r"\x2dx")
    assert "-x" in stctl("ls", model)[0]


def test_what_an_option_does_not_take_is_told_as_it_was_given(stctl, model):
    err = stctl("io", model, "--map", "bogus", code=2)[1]
    assert "bogus" in err and "copy-on-write" in err and "->" not in err
    for command in [["rm", model, "x"], ["compact", model], ["merge", model, model, "-o", "x"]]:
        assert "-5" in stctl(*command, "--reserve", "-5", code=2)[1]


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (["get", "MODEL", "half", "-o"], "--output"),
        (["get", "MODEL", "half", "--cast"], "--cast"),
        (["get", "MODEL", "half", "--format"], "--format"),
        (["get", "MODEL", "half", "--slice"], "--slice"),
        (["ls", "MODEL", "--delta"], "--delta"),
        (["diff", "MODEL", "MODEL", "-o"], "--output"),
        (["merge", "MODEL", "MODEL", "-o"], "--output"),
        (["patch", "MODEL", "MODEL", "--reverse"], "--reverse"),
        (["put", "MODEL", "half", "--npy"], "--npy"),
        (["put", "MODEL", "half", "--from-raw"], "--from-raw"),
        (["put", "MODEL", "half", "--from"], "--from"),
        (["put", "MODEL", "half", "--from", "MODEL", "--cast"], "--cast"),
        (["put", "MODEL", "half", "--npy", "NPY", "--dtype"], "--dtype"),
        (["update", "MODEL", "half", "--npy"], "--npy"),
        (["update", "MODEL", "half", "--from-raw"], "--from-raw"),
        (["update", "MODEL", "half", "--from"], "--from"),
        (["edit", "MODEL", "--put-from"], "--put-from"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_empty_value_is_not_the_same_as_none(stctl, model, tmp_path, args, option):
    before = model.read_bytes()
    np.save(tmp_path / "NPY.npy", np.zeros(4, np.float16))
    paths = {"MODEL": model, "NPY": tmp_path / "NPY.npy"}
    out, err = stctl(*[paths.get(arg, arg) for arg in args], "", code=2)
    assert out == "" and option in err
    assert model.read_bytes() == before


def test_common_options_may_stand_before_the_command(stctl, model):
    for option in ["--json", "-q", "--quiet", "-v", "--verbose"]:
        assert stctl(option, "ls", model) == stctl("ls", option, model)
    error = json.loads(stctl("--json", "ls", model.with_name("none"), code=1)[0])["error"]
    assert error["status"] == "ST_E_NO_FILE"


def test_usage_error_with_json_is_an_object(stctl):
    result = stctl.json("ls", code=2)
    assert result["error"]["exit_code"] == 2
    assert result["error"]["status"] is None
    assert "FILE" in result["error"]["message"]


@pytest.mark.parametrize("command", ["ls", "view", "info", "meta", "compact", "plan", "io", "stats"])
def test_missing_file_is_a_sentence_and_an_object(stctl, command, tmp_path):
    missing = tmp_path / "none.safetensors"
    out, err = stctl(command, missing, code=1)
    assert out == ""
    assert re.fullmatch(r"stctl: .*none\.safetensors.* \(ST_E_NO_FILE\)\n", err)
    out, err = stctl(command, "--json", missing, code=1)
    error = json.loads(out)["error"]
    assert error["status"] == "ST_E_NO_FILE"
    assert error["exit_code"] == 1
    assert error["errno"] == 2
    assert f"stctl: {error['message']} (ST_E_NO_FILE)\n" == err


# A line of each command that does something; what it is for is tested elsewhere.
LINES = {
    "ls": [], "view": [], "info": [], "get": ["half"], "update": ["scalar", "--fill", "1"],
    "put": ["--from", "MODEL", "half"], "rm": ["half"], "mv": ["half", "whole"], "meta": ["k=v"], "compact": [],
    "shard": ["NEW", "--max-size", "5GB"], "join": ["NEW"], "plan": ["--rm", "half"], "edit": ["--rm", "half"],
    "verify": [], "recover": [], "journal": [], "io": [], "stats": [],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_speaks_json(stctl, model, command):
    assert set(LINES) == set(COMMANDS)
    places = {"MODEL": model, "NEW": model.with_name("new")}
    result = stctl.json(command, model, *[places.get(word, word) for word in LINES[command]])
    assert "error" not in result
    files = [entry["file"] for entry in result["files"]] if "files" in result else [result["file"]]
    assert files == [str(model)]
    missing = stctl.json(command, model.with_name("none"), *[places.get(word, word) for word in LINES[command]], code=1)
    assert missing.get("files", [missing])[0]["error"]["status"] == "ST_E_NO_FILE"


def test_a_folder_is_no_file(stctl, tmp_path):
    assert stctl.json("ls", tmp_path, code=1)["error"]["status"] == "ST_E_NOT_REGULAR"
