"""What `cargo test` printed, or a script in its words, as JUnit XML; exits 1 if a test failed, or none ran.

cargo_junit.py OUTPUT [REPORT]
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

SUITE = re.compile(r"^ *(?:Running (?:unittests )?(\S+) \(|Doc-tests (\S+))")
CASE = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:, (.*))?$")
DETAILS = re.compile(r"^---- (.+) stdout ----$")


def parse(text: str) -> ET.Element:
    suite, cases, details, current = "cargo", [], {}, None
    for line in text.splitlines():
        if found := SUITE.match(line):
            suite = found[1] or f"doc-tests of {found[2]}"
        elif found := CASE.match(line):
            cases.append((suite, *found.groups()))
        if found := DETAILS.match(line):
            current = details.setdefault((suite, found[1]), [])
        elif line.startswith(("failures:", "test result:")):
            current = None
        elif current is not None:
            current.append(line)
    root = ET.Element("testsuite")
    for suite, name, outcome, reason in cases:
        case = ET.SubElement(root, "testcase", classname=suite, name=name)
        if outcome == "FAILED":
            said = "\n".join(details.get((suite, name), ["see above"]))
            printable = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in said)
            ET.SubElement(case, "failure", message=f"{name} failed").text = printable
        elif outcome == "ignored":
            ET.SubElement(case, "skipped", message=reason or "ignored")
    return root


def main() -> int:
    root = parse(Path(sys.argv[1]).read_text(errors="replace"))
    count = {tag: len(root.findall(f"testcase/{tag}")) for tag in ("failure", "skipped")}
    passed = len(root) - sum(count.values())
    if len(sys.argv) > 2 and sys.argv[2]:
        ET.ElementTree(root).write(sys.argv[2], encoding="utf-8", xml_declaration=True)
    print(f"{passed} passed, {count['failure']} failed, {count['skipped']} skipped")
    return 1 if count["failure"] or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
