"""Every code block of every README runs as it stands there, in a folder beside a clone, on a small real model."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, shell
from readme import BLOCKS, PAGES, Block, block, steps, text_beside_blocks
from safetensors.numpy import load_file

# Blocks that cannot be run, by how they begin, and why. A new one needs a reason, and a look at the number below.
NOT_RUN = {
    "bash tests/demo.sh": "they are all the tests there are; the demo is a stage of its own",
    "sudo apt-get install g++ meson": "it installs as root, for the whole machine; `prefix` is what it leads to",
    "sudo apt-get install g++ pkg-config": "it installs as root, for the whole machine",
    '[dependencies]\nlibst = { path = "../libst-2.0.0" }': "tests/dist/test_crates.py runs it, on what dist.sh packs",
    "cargo update jobserver": "it is for an older Rust, in a project of the reader's own",
}
COUNT_OF_NOT_RUN = 5

# What the examples say that they change in the model: by name, what is changed, new or gone.
CHANGES = {
    "README.md:python": {"final_conv.bias", "conv1.bias", "conv1.mean", "lstm_cell.weight_ih"},
    "README.md:rust": {"conv1.bias", "head", "final_conv.bias", "output.bias"},
    "README.md:go": {"head", "final_conv.bias", "output.bias"},
    "README.md:sh4": {
        "conv1.weight", "conv1.bias", "stem.weight", "stem.bias", "conv4.weight", "stft_conv.weight", "final_conv.bias",
        "output.bias",
    },
    "README.md:c": {"final_conv.bias"},
    "README.md:sh5": {"final_conv.bias"},
    "capi/README.md:cmake": {"final_conv.bias"},
    "capi/README.md:meson": {"final_conv.bias"},
    "bindings/go/README.md:go": {"head", "conv1.bias", "b1"},
    "bindings/python/README.md:python": {
        "conv1.weight", "conv1.bias", "conv2.bias", "conv1.mean", "stft_conv.weight", "final_conv.bias", "output.bias",
    },
    "bindings/rust/README.md:rust": {"rows", "final_conv.bias", "output.bias"},
    "bindings/rust/libst/README.md:rust": {
        "conv1.bias", "conv4.bias", "lstm_cell.bias_ih", "stft_conv.weight", "final_conv.bias", "output.bias",
    },
}  # fmt: skip

# Programs of a reader's own that blocks speak of.
TRAIN = """
import sys
import safetensors.numpy
assert sys.argv[1:] == ["--epochs", "3"] and "libst" in safetensors.numpy.load_file.__module__
safetensors.numpy.load_file("model.safetensors")
"""


class Runner:
    """One method a language; each runs a block in a folder that holds the model."""

    def __init__(self, request, folder: Path):
        self.request = request
        self.folder = folder

    def fixture(self, name: str) -> dict[str, str]:
        return self.request.getfixturevalue(name)

    def sh(self, block_: Block) -> None:
        if block_.text.startswith("pip download"):
            self.fixture("model_of_the_readme")
        elif block_.text == block("README.md", "sh", 3).text:
            self.fixture("python")
        elif block_.text.startswith("go mod"):
            shell(block_.text, self.folder, self.fixture("go"))
        elif block_.text.startswith("python -m"):
            (self.folder / "train.py").write_text(TRAIN)
            shell(block_.text, self.folder, self.fixture("python"))
        else:
            (self.folder / "program.c").write_text(block("README.md", "c").text)
            shell(block_.text, self.folder, self.fixture("environment"))

    def console(self, block_: Block) -> None:
        for command, printed in steps(block_.text):
            assert shell(command, self.folder, self.fixture("environment")) == printed

    def python(self, block_: Block) -> None:
        (self.folder / "program.py").write_text(block_.text)
        shell("python program.py", self.folder, self.fixture("python"))

    def toml(self, block_: Block) -> None:
        self.rust(block("README.md", "rust"))

    def rust(self, block_: Block) -> None:
        if not shutil.which("cargo"):
            pytest.skip("there is no cargo")
        package = '[package]\nname = "program"\nedition = "2021"\n'
        (self.folder / "Cargo.toml").write_text(package + block("bindings/rust/libst/README.md", "toml", 1).text)
        shutil.copy(ROOT / "bindings/rust/Cargo.lock", self.folder)  # the versions that are tested
        (self.folder / "src").mkdir()
        (self.folder / "src" / "main.rs").write_text(block_.text)
        shell("cargo run --quiet", self.folder, self.fixture("environment") | {"RUSTFLAGS": "-Dwarnings"})

    def go(self, block_: Block) -> None:
        self.sh(block("bindings/go/README.md", "sh", 1))
        (self.folder / "main.go").write_text(block_.text)
        assert shell("gofmt -l .", self.folder, self.fixture("go")) == ""
        shell("go vet . && go run .", self.folder, self.fixture("go"))

    def c(self, block_: Block) -> None:
        (self.folder / "program.c").write_text(block_.text)
        environment = self.fixture("environment")
        strict = "cc -std=c99 -Wall -Wextra -Wconversion -pedantic -Werror -fsyntax-only program.c"
        shell(f"{strict} $(pkg-config --cflags libst)", self.folder, environment)
        shell(block("README.md", "sh", 5).text, self.folder, environment)

    def cmake(self, block_: Block) -> None:
        (self.folder / "program.c").write_text(block("README.md", "c").text)
        (self.folder / "CMakeLists.txt").write_text(block_.text)
        prefix = self.request.getfixturevalue("prefix")
        build = f"cmake -B build -DCMAKE_PREFIX_PATH={prefix.path} && cmake --build build && build/program"
        shell(build, self.folder, self.fixture("environment"))

    def meson(self, block_: Block) -> None:
        (self.folder / "program.c").write_text(block("README.md", "c").text)
        (self.folder / "meson.build").write_text(block_.text)
        shell("meson setup build && ninja -C build && build/program", self.folder, self.fixture("environment"))


def reason_not_to_run(block_: Block) -> str | None:
    return next((why for begin, why in NOT_RUN.items() if block_.text.startswith(begin)), None)


RUN = [b for b in BLOCKS if b.language and not reason_not_to_run(b)]


def changes(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    def same(name: str) -> bool:
        return name in before and name in after and before[name].tobytes() == after[name].tobytes()

    return {name for name in before | after if not same(name)}


@pytest.mark.parametrize("block_", RUN, ids=str)
def test_a_block_runs_as_it_stands(block_, request, folder, model_of_the_readme):
    getattr(Runner(request, folder), block_.language)(block_)
    after = load_file(folder / "model.safetensors")  # stock still reads it
    if str(block_) in CHANGES:
        assert changes(load_file(model_of_the_readme), after) == CHANGES[str(block_)]


def test_what_is_not_run_has_a_reason_and_does_not_grow():
    not_run = [b for b in BLOCKS if b.language and reason_not_to_run(b)]
    assert len(not_run) == len(NOT_RUN) == COUNT_OF_NOT_RUN


def test_the_changes_are_of_blocks():
    assert CHANGES.keys() <= {str(b) for b in RUN}


@pytest.mark.parametrize("page", PAGES)
def test_code_stands_in_blocks_that_name_its_language(page):
    assert not re.search(r"^ {4}(?! *[-*|\d])", text_beside_blocks(page), re.M), "an indented block would not be run"
    for picture in (b.text for b in BLOCKS if b.page == page and not b.language):
        assert not re.search(r"^(\$|#include|import|stctl|cc|cargo|go|pip|bash) ", picture, re.M), picture


# A page that has a table of its folder's sources, these, and those that need no word.
SOURCES = [
    ("bindings/python/README.md", "bindings/python/libst", "*.py", {"__init__.py"}),
    ("bindings/rust/README.md", "bindings/rust/libst/src", "*.rs", {"lib.rs"}),
    ("bindings/cli/README.md", "bindings/cli", "*.h", set()),
]


@pytest.mark.parametrize("page, folder, pattern, without", SOURCES, ids=[page for page, *_ in SOURCES])
def test_a_page_names_each_source_of_its_folder(page, folder, pattern, without):
    named = set(re.findall(r"`([^`\s]+)`", (ROOT / page).read_text()))
    assert {source.name for source in (ROOT / folder).glob(pattern)} - without - named == set()


def test_the_packages_of_the_readmes_are_those_that_the_build_takes():
    listed = re.search(r"^TO_BUILD=\((.*?)\)", (ROOT / "tests" / "setup.sh").read_text(), re.M | re.S)
    to_build = set(listed[1].split())
    for begin, not_needed in [
        ("sudo apt-get install g++ meson", set()),
        # pip brings Meson; no stctl
        ("sudo apt-get install g++ pkg-config", {"meson", "libcli11-dev", "libfmt-dev"}),
    ]:
        (text,) = (b.text for b in BLOCKS if b.text.startswith(begin))
        said = set(text.splitlines()[0].split()[3:]) - {"python3-venv"}
        assert said == to_build - not_needed


# What a bare Debian 12 lacks, by the command that says so.
PACKAGES = {"pip ": "python3-pip", "python3 -m venv": "python3-venv", "unzip ": "unzip"}


@pytest.mark.parametrize("command", PACKAGES)
def test_a_command_of_the_readme_has_its_package_named_before(command):
    text = (ROOT / "README.md").read_text()
    lines = text[text.index("## Installing it") :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(command))
    named = {word for line in lines[:first] for word in re.findall(r"[\w-]+", line)}
    assert PACKAGES[command] in named
