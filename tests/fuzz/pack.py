"""What fuzzing has found worth keeping.

An archive a target, with the name that OSS-Fuzz knows: corpus/TARGET_seed_corpus.zip.

    pack.py unpack FOLDER          makes FOLDER/TARGET of each archive
    pack.py pack FOLDER TARGET     makes the archive from FOLDER, the same bytes of the same inputs
"""

import shutil
import sys
import zipfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
SUFFIX = "_seed_corpus.zip"


def unpack(folder: Path) -> None:
    for archive in CORPUS.glob("*" + SUFFIX):
        target = folder / archive.name.removesuffix(SUFFIX)
        shutil.rmtree(target, ignore_errors=True)
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(target)


def pack(folder: Path, target: str) -> None:
    CORPUS.mkdir(exist_ok=True)
    # Not compressed, which git does anyway: what zlib makes of an input depends on its version.
    with zipfile.ZipFile(CORPUS / (target + SUFFIX), "w", zipfile.ZIP_STORED) as packed:
        for file in sorted(folder.iterdir()):
            packed.writestr(zipfile.ZipInfo(file.name), file.read_bytes())


if __name__ == "__main__":
    command, folder, *target = sys.argv[1:]
    {"unpack": unpack, "pack": pack}[command](Path(folder), *target)
