"""What bash tests/dist.sh has made, and bare systems to try it on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", ROOT / "build"))
CACHE = ROOT / "build" / "cache"  # downloads

long = pytest.mark.skipif(os.environ.get("ST_DIST") != "all", reason="takes minutes: bash tests/run.sh dist-all")


def run(*command: object, **options) -> str:
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    assert done.returncode == 0, f"{command} answered {done.returncode}:\n{done.stdout}"
    return done.stdout


def block(page: str, language: str, number: int = 0) -> str:
    """A code block of a page, counted among those of its language."""
    return re.findall(rf"^```{language}\b.*\n((?:.*\n)*?)```$", (ROOT / page).read_text(), re.M)[number]


def sources_of_zstd() -> set[str]:
    """Those that the wrap compiles: what is carried beside them is headers."""
    wrap = (ROOT / "core/subprojects/packagefiles/zstd/meson.build").read_text()
    return set(re.findall(r"'lib/(.*\.c)'", wrap))


def made(name: str) -> Path:
    found = sorted((ROOT / "dist").glob(name))
    if not found:
        pytest.skip(f"dist/ has no {name}: bash tests/dist.sh makes it")
    assert len(found) == 1, found
    return found[0]


def wheel(platform: str) -> Path:
    return made(f"libst-*-py3-none-{platform}.whl")


def source_package() -> Path:
    return made("libst-[0-9]*.tar.gz")


def library(platform: str, folder: Path) -> Path:
    run("python3", "-m", "zipfile", "-e", wheel(platform), folder)
    return folder / "libst" / "libst.so.2"
