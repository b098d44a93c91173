"""Warn of what would change a file that the Hub's cache names by its content."""

import os
import re
import warnings

_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


def warn_of_blob(path: bytes, stacklevel: int) -> None:
    """`stacklevel` as of `warnings.warn`, counted from who calls this."""
    if not os.path.islink(path) and os.path.basename(os.path.dirname(path)) != b"blobs":
        return
    target = os.path.realpath(os.fsdecode(path))
    folder, name = os.path.split(target)
    if os.path.basename(folder) == "blobs" and _HASH.fullmatch(name):
        warnings.warn(
            f"{os.fsdecode(path)!r} leads to {target!r}, which the Hub's cache names by the hash of its content; "
            "a change shows in every revision that leads there, and makes the name wrong: copy it first",
            stacklevel=stacklevel + 1,
        )
