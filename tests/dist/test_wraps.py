"""Where the system lacks the dependencies, Meson takes those that the wraps name."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from conftest import ROOT, run

WRAPS = ROOT / "core" / "subprojects"


def field(wrap: str, name: str) -> str:
    (value,) = re.findall(rf"^{name} = (.*)$", (WRAPS / f"{wrap}.wrap").read_text(), re.M)
    return value


def test_every_dependency_has_a_wrap_with_its_build_file_and_hash():
    wraps = sorted(path.stem for path in WRAPS.glob("*.wrap"))
    assert wraps == ["cli11", "fmt", "gtest", "simdjson", "tl-expected", "xxhash", "zstd"]
    for wrap in wraps:
        assert (WRAPS / "packagefiles" / field(wrap, "patch_directory") / "meson.build").is_file()
        assert re.fullmatch("[0-9a-f]{64}", field(wrap, "source_hash"))
        assert field(wrap, "source_url").startswith("https://github.com/")


def test_a_system_with_none_of_them_takes_all_from_the_wraps(tmp_path):
    if not shutil.which("apt-get"):
        pytest.skip("the sources come from Debian's mirror here")
    run("bash", WRAPS / "fetch.sh")
    run("meson", "setup", tmp_path / "build", ROOT, "--wrap-mode=forcefallback", "--buildtype=release")
    info = json.loads(run("meson", "introspect", "--projectinfo", tmp_path / "build"))
    assert {p["name"] for p in info["subprojects"]} == {"cli11", "fmt", "simdjson", "tl-expected", "xxhash", "zstd"}


def test_git_sees_no_source_of_theirs():
    run("git", "-C", ROOT, "check-ignore", *(WRAPS / field(p.stem, "directory") / "x" for p in WRAPS.glob("*.wrap")))
    tracked = run("git", "-C", ROOT, "ls-files", WRAPS).split()
    assert not [
        name for name in tracked if not re.search(r"\.wrap$|/meson\.build$|/fetch\.sh$|/README\.md$|/NOTICES$", name)
    ]
