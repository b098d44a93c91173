"""Turn what `go test -json` says into JUnit XML, and tell a person what failed or was skipped.

go test -json ./... | junit.py REPORT    exits 1 if anything failed, or if nothing ran
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict


def main() -> int:
    output: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    suite = ET.Element("testsuite", name="go")
    count: Counter[str] = Counter()
    broken = False
    for line in sys.stdin:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:  # of the build
            print(line, end="")
            continue
        key = (event.get("Package") or event.get("ImportPath", ""), event.get("Test", ""))
        action = event["Action"]
        if action in ("output", "build-output"):
            output[key].append(event["Output"])
        elif action == "build-fail" or (action == "fail" and not key[1]):
            broken = True
            print("".join(output[key]), end="")
        elif action in ("pass", "fail", "skip") and key[1]:
            count[action] += 1
            case = ET.SubElement(suite, "testcase", classname=key[0], name=key[1], time=str(event.get("Elapsed", 0)))
            if action != "pass":
                text = "".join(output[key])
                print(text, end="")
                ET.SubElement(case, {"fail": "failure", "skip": "skipped"}[action]).text = text
    # XML has no place for most control characters, which tests of odd names print.
    for element in suite.iter():
        element.text = element.text and "".join(c if c in "\n\t" or c >= " " else "?" for c in element.text)
    ET.ElementTree(suite).write(sys.argv[1], encoding="unicode")
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped")
    return 1 if broken or count["fail"] or not count["pass"] else 0


if __name__ == "__main__":
    sys.exit(main())
