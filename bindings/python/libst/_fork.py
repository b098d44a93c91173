"""Which process this is. A child of a fork by Python is another one, also where it has the process id of its parent: as
the first of a container that makes a container has."""

import os

_count = 0  # of forks by Python that led here


def process() -> tuple[int, int]:
    """Equal in the same process. A fork by C runs none of Python's hooks: so in its child this is equal as well, where
    the child has its parent's process id."""
    return os.getpid(), _count


def _begin_anew() -> None:
    global _count
    _count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
