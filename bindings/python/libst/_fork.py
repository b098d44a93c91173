"""Which process this is. A child of a fork is another one, also where it has the process id of its parent: as the first
of a container that makes a container has."""

import os

_count = 0  # of forks that led here


def process() -> tuple[int, int]:
    """Equal only in the same process."""
    return os.getpid(), _count


def _begin_anew() -> None:
    global _count
    _count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
