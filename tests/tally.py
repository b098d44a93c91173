"""Sum what the runners of tests/run.sh counted, and say it in one plain line.

    tally.py STAGES    a file of lines: name, exit status, seconds, seconds of all processors, JUnit XML or nothing, and
                       tabs between

A stage with JUnit XML counts its test cases; one without is a case of its own (exit status 77: skipped).
A stage that failed with no failing case to show for it counts as one failure more, so nothing that
went wrong can be lost. Exits 1 if anything failed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

SKIPPED = 77  # Automake's and Meson's exit status for it


def outcome(case: ET.Element) -> str:
    tags = {child.tag for child in case}
    if tags & {"failure", "error"}:
        return "failed"
    if "skipped" in tags or case.get("status") == "notrun" or case.get("result") in ("skipped", "suppressed"):
        return "skipped"
    return "passed"


def count_junit(path: Path) -> Counter:
    return Counter(outcome(case) for case in ET.parse(path).getroot().iter("testcase"))


def count_stage(exit_status: int, junit: str) -> Counter:
    counts: Counter = Counter()
    if junit:
        try:
            counts = count_junit(Path(junit))
        except (OSError, ET.ParseError):
            counts["failed"] += 1  # a runner that left no report did not run to its end
    elif exit_status in (0, SKIPPED):
        counts["passed" if exit_status == 0 else "skipped"] += 1
    if exit_status not in (0, SKIPPED) and not counts["failed"]:
        counts["failed"] += 1
    return counts


def main() -> int:
    total: Counter = Counter()
    print(f"\n{'':34}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}{'of CPU':>9}")
    for line in Path(sys.argv[1]).read_text().splitlines():
        name, exit_status, seconds, cpu, junit = line.split("\t")
        counts = count_stage(int(exit_status), junit)
        total += counts
        print(
            f"{name:34}{counts['passed']:8}{counts['failed']:8}{counts['skipped']:8}{float(seconds):9.1f}{float(cpu):9.1f}"
        )
    print(f"\n{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
