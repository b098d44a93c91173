"""The man page and the shells' completions, which stctl makes from its own options."""

import re
import shutil
import subprocess

import pytest
from cli_files import write
from test_help import COMMANDS


def needs(tool):
    if not shutil.which(tool):
        pytest.skip(f"there is no {tool}")


def options_of(stctl, command):
    """Those that --help lists."""
    listed = stctl(command, "--help")[0].partition("Options:")[2].partition("Examples:")[0]
    return set(re.findall(r"(?<=[ ,])--?[a-z][a-z-]*", listed))


@pytest.fixture(scope="module")
def page(stctl, tmp_path_factory):
    path = tmp_path_factory.mktemp("man") / "stctl.1"
    path.write_text(stctl("generate", "man")[0])
    return path


def test_the_man_page_is_good_roff(page):
    needs("mandoc")
    said = subprocess.run(["mandoc", "-T", "lint", "-W", "warning,stop", page], capture_output=True, text=True)
    worse = [line for line in said.stdout.splitlines() if "missing date" not in line]  # it would change with each build
    assert worse == [] and said.stderr == ""
    needs("man")
    said = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, env={"MANPAGER": "cat"})
    # groff 1.22 says this of its own macros, of pages that end just where a screenful does.
    worse = [line for line in said.stderr.splitlines() if "automatically ending diversion 'an-div' on exit" not in line]
    assert (said.returncode, worse) == (0, [])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_in_the_man_page(stctl, page, command):
    section = re.search(rf"^\.SS {command}\n(.*?)(?=^\.S[SH] )", page.read_text(), re.DOTALL | re.MULTILINE)[1]
    options = options_of(stctl, command)
    assert {"--json", "--help", "-v"} <= options
    for option in options:
        assert option.replace("-", r"\-") in section
    assert f"stctl {command} " in section


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_in_the_shells_language_and_name_every_option(stctl, shell, tmp_path):
    script = tmp_path / "script"
    script.write_text(stctl("generate", shell)[0])
    for command in COMMANDS:
        for option in options_of(stctl, command):
            name = option.lstrip("-") if shell == "fish" else option
            assert re.search(rf"(?<=[ ']){name}(?=[ \[])", script.read_text()), (command, option)
    needs(shell)
    subprocess.run([shell, "-n", script], check=True)


@pytest.fixture
def in_bash(stctl, tmp_path):
    """What bash offers for a line that ends at the cursor."""
    script = tmp_path / "stctl.bash"
    script.write_text(stctl("generate", "bash")[0])

    def complete(*words):
        text = f"""source {script}; PATH={stctl.path.rpartition("/")[0]}:$PATH; COMP_WORDS=(stctl "$@"); COMP_CWORD=$#
                   _stctl; printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "-c", text, "bash", *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.stderr == ""
        return done.stdout.split("\n")[:-1]

    return complete


def test_bash_completes_commands_and_options(in_bash):
    assert set(in_bash("")) >= {*COMMANDS, "--help", "--version"}
    assert in_bash("ver") == ["verify"]
    assert set(in_bash("ls", "--")) == {"--json", "--quiet", "--verbose", "--help", "--bytes", "--delta", "--names"}
    assert in_bash("nonsense", "") == [""]


def test_bash_completes_files_and_tensors(in_bash, tmp_path):
    names = ["a.weight", "a.bias", "with space", "é", "new\nline"]
    write(tmp_path / "m.safetensors", {name: ("U8", [1], b"x") for name in names})
    assert in_bash("get", "m.") == ["m.safetensors"]
    assert sorted(in_bash("get", "m.safetensors", "")) == sorted(
        ["a.weight", "a.bias", "with space", "é", r"new\nline"]
    )
    assert in_bash("get", "m.safetensors", "a.w") == ["a.weight"]
    assert in_bash("get", "--json", "m.safetensors", "w") == ["with space"]
    assert in_bash("rm", "m.safetensors", "é", "a.b") == ["a.bias"]
    assert in_bash("update", "--lock-timeout", "3", "m.safetensors", "a.b") == ["a.bias"]
    assert in_bash("plan", "m.safetensors", "--rm", "a.b") == ["a.bias"]
    assert in_bash("update", "m.safetensors", "a.bias", "--from", "m.") == ["m.safetensors"]
    assert in_bash("get", "no-such-file", "") == [""]


@pytest.mark.parametrize("command", ["diff", "patch", "merge", "shard", "join"])
def test_files_are_completed_whatever_they_are_called(stctl, in_bash, tmp_path, command):
    write(tmp_path / "m.safetensors", {})
    assert in_bash(command, "m.") == ["m.safetensors"]
    assert in_bash(command, "m.safetensors", "m.") == ["m.safetensors"]
    section = re.search(rf"^    {command}\)\n(.*?)^      ;;", stctl("generate", "zsh")[0], re.DOTALL | re.MULTILINE)[1]
    assert len(re.findall(r"'\*?:[A-Z]+:_files'", section)) == 2


def test_fish_completes_tensors(stctl, tmp_path):
    needs("fish")
    write(tmp_path / "m.safetensors", {"a.weight": ("U8", [1], b"x"), "b": ("U8", [1], b"x")})
    (tmp_path / "stctl.fish").write_text(stctl("generate", "fish")[0])
    text = f"set PATH {stctl.path.rpartition('/')[0]} $PATH; source stctl.fish; complete -C 'stctl get m.safetensors '"
    said = subprocess.run(["fish", "--no-config", "-c", text], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert {"a.weight", "b"} <= set(said.stdout.split("\n"))


def test_names_are_listed_one_a_line_as_commands_take_them(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {"a\nb": ("U8", [1], b"x"), "c": ("U8", [1], b"x")})
    assert stctl("ls", "--names", path)[0] == "a\\nb\nc\n"
    assert stctl("ls", "--names", path, "c")[0] == "c\n"
