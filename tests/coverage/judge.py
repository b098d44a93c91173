"""What gcovr counted, judged: prints coverage by part of the tree, and every branch of the strict parts that no test
takes and that nobody has explained. Exit status 1 if a part is below its floor, or an explanation explains nothing.

    judge.py COVERAGE.json EXPLAINED.txt

A line of EXPLAINED.txt is `file :: source text :: reason`; the text is a part of the line whose branches it is about,
so that the list stays true while lines move. An explained line does not count. Whether a line is taken may depend on
chance: then its reason begins with "perhaps:", and the line explains something as long as it is there.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WRITE_PATH = (
    "core/newfile/",
    "core/journal/",
    *(
        f"core/file/{f}"
        for f in ("transaction", "staged", "staging", "pending_catalogue", "commit_lock", "commit_plan")
    ),
    *(
        f"core/file/{f}"
        for f in ("patch_commit", "rewrite_commit", "participant", "replace_file", "slices", "slice_map", "writer")
    ),
    *(f"core/shards/{f}" for f in ("shard_transaction", "old_list")),
    "core/os/named_lock",
)
# Name, files, floor of branches in percent: raised when more is measured, never lowered. The aim of both parts is 95.
PARTS = (
    ("format", ("core/format/",), 98.0),
    ("write path", WRITE_PATH, 98.0),
    ("all of core and capi", ("core/", "capi/"), 85.0),
)


def read_explained(path):
    """{(file, text): reason}"""
    explained = {}
    for line in Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            file, text, reason = (part.strip() for part in line.split(" ::"))
            assert reason, f"no reason is given for {text}"
            explained[file, text] = reason
    return explained


def main(report, explained_path):
    explained = read_explained(explained_path)
    used = set()
    lines, open_branches = [], []  # (file, covered?, branches taken, branches)
    for file in json.loads(Path(report).read_text())["files"]:
        # A header of core is found by way of a link in the build tree.
        name = (ROOT / file["file"]).resolve().relative_to(ROOT).as_posix()
        source = (ROOT / name).read_text().splitlines()
        for line in file["lines"]:
            if line.get("gcovr/excluded"):
                continue
            text = source[line["line_number"] - 1]
            branches = [b["count"] > 0 for b in line.get("branches", []) if not b.get("gcovr/excluded")]
            reasons = [key for key in explained if key[0] == name and key[1] in text]
            by_chance = [key for key in reasons if explained[key].startswith("perhaps:")]
            if by_chance or (reasons and not all(branches + [line["count"] > 0])):
                used.update(reasons)
                continue
            lines.append((name, line["count"] > 0, sum(branches), len(branches)))
            if not all(branches) and name.startswith(("core/format/", *WRITE_PATH)):
                where = f"{name}:{line['line_number']}"
                open_branches.append(f"{where}: {sum(branches)} of {len(branches)}: {text.strip()}")

    failed = False
    print("branches of the format and the write path that no test takes, and that are not explained:")
    print("\n".join(open_branches) or "none")
    print(f"\n{'':24}{'lines':>16}{'branches':>18}{'floor':>8}")
    for name, prefixes, floor in PARTS:
        of_it = [line for line in lines if line[0].startswith(prefixes)]
        covered, taken, all_branches = (sum(line[i] for line in of_it) for i in (1, 2, 3))
        percent = 100 * taken / all_branches
        failed |= percent < floor
        print(
            f"{name:24}{covered:>6} of {len(of_it):<5}{100 * covered / len(of_it):4.0f} %"
            f"{taken:>6} of {all_branches:<5}{percent:5.1f} %{floor:6.1f} %{'  BELOW' if percent < floor else ''}"
        )
    for file, text in explained.keys() - used:
        print(f"explained, but taken or gone: {file}: {text}")
        failed = True
    print(f"explained lines left out: {len(used)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
