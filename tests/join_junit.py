"""Join reports of several runners into the one of a stage.

    join_junit.py REPORT PART...    JUnit XML, all of them

Called by stages that run two trees or two kinds of runner.
"""

import sys
import xml.etree.ElementTree as ET


def main() -> None:
    report, *parts = sys.argv[1:]
    together = ET.Element("testsuites")
    for part in parts:
        together.extend(ET.parse(part).getroot())
    ET.ElementTree(together).write(report)


if __name__ == "__main__":
    main()
