"""Where fuzzing begins: the headers of the differential corpus, and for the programs that read their input as a
sequence of choices a handful of arbitrary sequences, long enough to get somewhere.

    seeds.py FOLDER      makes FOLDER/TARGET for each target
"""

import sys
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "differential"))

from corpus import CASES  # noqa: E402

CHOICES = {"journal": 60, "operations": 60, "slices": 20}


def header_of(content: bytes) -> bytes:
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def main(folder: Path) -> None:
    headers = folder / "header"
    headers.mkdir(parents=True)
    for case in CASES.values():
        header = header_of(case.bytes())
        if 0 < len(header) <= 2048:
            (headers / case.name).write_bytes(header)
    for target, count in CHOICES.items():
        (folder / target).mkdir()
        for i in range(count):
            r = Random(f"{target}/{i}")
            (folder / target / f"choices-{i}").write_bytes(r.randbytes(r.choice([40, 100, 200, 400])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
