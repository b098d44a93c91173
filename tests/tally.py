"""Sum what the runners of tests/run.sh counted, name what failed, and say it all in one plain line.

    tally.py STAGES    a file of lines: name, exit status, seconds, seconds of all processors, JUnit XML or nothing, and
                       tabs between

A stage with JUnit XML counts its test cases; one without is a case of its own (exit status 77: skipped).
A stage that failed with no failing case to show for it counts as one failure more, so nothing that
went wrong can be lost. Exits 1 if anything failed.

A program of Meson's that ended before it wrote its cases has its name in testlog.json. A runner that is killed leaves
no report; pytest leaves the name of the test that was running in REPORT.running (tests/conftest.py).
"""

from __future__ import annotations

import json
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


def say(case: ET.Element) -> str:
    """One line on a case that failed: its name, and the first line of why."""
    why = next(child for child in case if child.tag in ("failure", "error"))
    words = (why.get("message") or why.text or "").strip().splitlines()
    return f"{case.get('classname', '')}.{case.get('name')}: {words[0][:200] if words else 'no reason given'}"


def bad_programs(junit: Path) -> list[str]:
    """A line on each program of Meson's that did not end well."""
    log = junit.with_name("testlog.json")
    if not log.exists():
        return []
    programs = map(json.loads, log.read_text().split("\n")[:-1])  # the last line may be cut
    return [f"{p['name']}: {p['result']}" for p in programs if p["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")]


def count_stage(exit_status: int, junit: str, failures: list[str]) -> Counter:
    """How many cases had which outcome; each that failed is added to `failures`, as a line."""
    counts: Counter = Counter()
    if junit:
        try:
            cases = list(ET.parse(junit).getroot().iter("testcase"))
            counts.update(map(outcome, cases))
            failures += [say(case) for case in cases if outcome(case) == "failed"]
        except (OSError, ET.ParseError):
            counts["failed"] += 1  # a runner that left no report did not run to its end
            running = Path(junit + ".running")
            failures.append(f"{running.read_text()}: killed in this test" if running.exists() else f"no {junit}")
        failures += bad_programs(Path(junit))
    elif exit_status in (0, SKIPPED):
        counts["passed" if exit_status == 0 else "skipped"] += 1
    if exit_status not in (0, SKIPPED) and not counts["failed"]:
        counts["failed"] += 1
    return counts


def main() -> int:
    total: Counter = Counter()
    failures: list[str] = []
    print(f"\n{'':34}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}{'of CPU':>9}")
    for line in Path(sys.argv[1]).read_text().splitlines():
        name, exit_status, seconds, cpu, junit = line.split("\t")
        counts = count_stage(int(exit_status), junit, failures)
        total += counts
        print(
            f"{name:34}{counts['passed']:8}{counts['failed']:8}{counts['skipped']:8}{float(seconds):9.1f}{float(cpu):9.1f}"
        )
    if failures:
        print("\nfailed:", *failures, sep="\n  ")
    print(f"\n{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
