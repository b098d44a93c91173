"""Warn of what would change a file that the Hub's cache names by its content."""

import os
import re
import stat
import warnings
from collections.abc import Iterator

_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SHARD, _INDEX = b".safetensors", b".safetensors.index.json"


def warn_of_blob(path: bytes, stacklevel: int) -> None:
    """`stacklevel` as of `warnings.warn`, counted from who calls this. A change of shards warns once."""
    for file in _changed(path):
        folder, name = os.path.split(os.path.realpath(os.fsdecode(file)))
        if os.path.basename(folder) == "blobs" and _HASH.fullmatch(name):
            warnings.warn(
                f"{os.fsdecode(file)!r} leads to {os.path.join(folder, name)!r}, which the Hub's cache names by the "
                "hash of its content; a change shows in every revision that leads there, and makes the name wrong: "
                "copy it first",
                stacklevel=stacklevel + 1,
            )
            return


def _changed(path: bytes) -> Iterator[bytes]:
    """The files that may be blobs, of those that a change of `path` may change. For a folder or an index they are also
    the shards in it or beside it."""
    folder, name = os.path.split(path)
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode) or os.path.basename(folder) == b"blobs":
            yield path
        if not stat.S_ISREG(mode) and os.path.isdir(path):
            folder = path
        elif not name.endswith(_INDEX):
            return
        for name in sorted(os.listdir(folder or b".")):
            beside = os.path.join(folder, name)
            if name.endswith((_SHARD, _INDEX)) and os.path.islink(beside):
                yield beside
    except OSError:
        return  # the change itself tells
