"""What the READMEs say of the benchmark is what its report says, and the report names the disk as the system does."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
from readme import ROOT

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
TIME = re.compile(r"(?<![\d.,])(\d+(?:\.\d+)?) (s|ms|us|ns)\b")
REPORT = (ROOT / "tests" / "bench" / "REPORT.md").read_text()


def times(text: str) -> list[tuple[float, float]]:
    """Those that a text names, in seconds, and half of their last digit."""
    found = TIME.findall(text)
    return [(float(n) * SECONDS[u], 0.5 * 10.0 ** -len(n.partition(".")[2]) * SECONDS[u]) for n, u in found]


LINES = [[seconds for seconds, _ in times(line)] for line in REPORT.splitlines()]


def stand_in_one_line(said: list[tuple[float, float]]) -> bool:
    def has(line: list[float], seconds: float, half: float) -> bool:
        return any(abs(seconds - measured) <= half * 1.001 for measured in line)

    return any(all(has(line, *figure) for figure in said) for line in LINES)


def claims() -> list[str]:
    """What is compared, a text each: rows of the first page's table, and points of other pages that name the report."""
    first = (ROOT / "README.md").read_text().partition("\n## How fast\n")[2].partition("\n## ")[0]
    rows = [" | ".join(row.split(" | ")[1:3]) for row in re.findall(r"^\| (?!---|\| ).*\|$", first, re.M)]
    pages = [page for page in (ROOT / "bindings").rglob("README.md") if "node_modules" not in page.parts]
    points = [point for page in pages for point in re.split(r"\n(?=- |\n)", page.read_text())]
    return rows + [point for point in points if "bench/REPORT.md" in point]


@pytest.mark.parametrize("claim", claims())
def test_the_times_of_a_claim_stand_in_one_line_of_the_report(claim):
    assert times(claim), "a claim has figures"
    assert stand_in_one_line(times(claim)), "tests/bench/REPORT.md has other figures: take those"


def test_a_claim_of_the_readmes_is_found():
    assert len(claims()) > 10


def test_the_shares_of_a_warm_load_are_those_of_the_report():
    rows = re.findall(r"^\| ((?:from_pretrained|load) .*, warm) \| stock \| (.*?) \(.*?\| (.*?) \(", REPORT, re.M)
    shares = {name: 100 * times(ours)[0][0] / times(stocks)[0][0] for name, stocks, ours in rows}
    converted = shares.pop("from_pretrained of 1024 MiB, bf16 converted to fp32, warm")
    sentence = r"loads in (\d+) to (\d+) % of stock's time; if\ntorch .*, in (\d+) %"
    said = re.findall(sentence, (ROOT / "README.md").read_text())
    assert said == [tuple(f"{share:.0f}" for share in (min(shares.values()), max(shares.values()), converted))]


def test_what_several_hosts_cost_is_what_the_report_says():
    """An update's and the workers' ratio, and a reader's load."""
    measured = re.findall(r"^\| (?:an update of 4 MiB|four workers|a bulk load).*? \| ([\d.]+)× \|", REPORT, re.M)
    sentences = r"takes\n([\d.]+) times as long as a write .*make ([\d.]+) times as many .*is ([\d.]+) times as fast as"
    said = re.findall(sentences, (ROOT / "README.md").read_text(), re.S)
    assert said == [tuple(measured[:3])]


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["test", str(ROOT)])
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "bench"))
    yield importlib.import_module("table")
    sys.modules.pop("table", None)


def test_the_report_names_a_filesystem_as_the_mount_table_does(table):
    place = ROOT.resolve()
    kinds: dict[Path, str] = {}  # of what is mounted over another the last counts
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        kinds[Path(where)] = kind
    holds = next(folder for folder in [place, *place.parents] if folder in kinds)
    assert table.filesystem(place) == kinds[holds]
