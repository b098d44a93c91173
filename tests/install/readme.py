"""The code blocks of the READMEs, and what there is to run each kind with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PAGES = ["README.md", "capi/README.md"] + sorted(
    str(page.relative_to(ROOT))
    for folder in ("core", "bindings")
    for page in (ROOT / folder).rglob("README.md")
    if "subprojects" not in page.parts  # of others
)
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.M)


@dataclass(frozen=True)
class Block:
    page: str
    language: str  # what stands behind the fence; nothing for pictures
    number: int  # among those of its language on the page
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.language}{self.number or ''}"


def blocks_of(page: str) -> list[Block]:
    found: list[Block] = []
    for language, text in FENCE.findall((ROOT / page).read_text()):
        language = language.split(",")[0]  # rustdoc's `no_run` follows a comma
        found.append(Block(page, language, sum(b.language == language for b in found), text))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def block(page: str, language: str, number: int = 0) -> Block:
    (found,) = (b for b in BLOCKS if (b.page, b.language, b.number) == (page, language, number))
    return found


def text_beside_blocks(page: str) -> str:
    return FENCE.sub("", (ROOT / page).read_text())


def steps(console: str) -> list[tuple[str, str]]:
    """The commands of a console block, and what it says that each prints."""
    parts = re.split(r"^\$ (.*)\n", console, flags=re.M)
    assert parts[0] == "", "a console block begins with a command"
    return list(zip(parts[1::2], parts[2::2]))
