"""A new file in the place of a symbolic link. `libst.save` follows links, so the file is made beside the link, as
`.<name>.st-link-<digits>.new`, and then takes its name.

`.<name>.st-link-<digits>` is there before it and goes after it, and is locked while its process lives. If that dies,
the next save at the path finds it without a lock, and removes both: on Linux, where the filesystem has locks. Where the
path leads to no link any more, a save may let both lie for a minute, as a folder of many files takes long to list.
"""

import errno
import math
import os
import re
import secrets
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ._errors import SafetensorError

_DIGITS = 16
_LONGEST = 50  # characters of the name: with what is added they are no more bytes than a name may have
_ATTEMPTS = 100
_MARK = ".st-link-"
_HELD = (errno.EAGAIN, errno.EACCES)  # somebody else has the lock
_CLEAN_FOR = 60.0  # seconds
_MOST_CLEAN = 256  # folders
_F_OFD_GETLK, _F_OFD_SETLK = 36, 37  # of Linux, which not every build of Python names

#: Folders in which nothing was left, by device and inode, and when that was seen. A child of a fork may go by it, too.
_clean: dict[tuple[int, int], float] = {}


@contextmanager
def new_file_beside(path: str) -> Iterator[str]:
    """Where to make the file; then it is to be renamed. It is durable under its name when the block has ended."""
    if sys.platform == "win32":  # which has no such locks, and no sync of a folder
        made = os.path.join(os.path.dirname(path), _begin(path) + secrets.token_hex(_DIGITS // 2) + ".new")
        try:
            yield made
        finally:
            with suppress(OSError):
                os.unlink(made)
        return
    with _told():
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _told():
            guard, name = _guard(folder, _begin(path))
        try:
            yield os.path.join(os.path.dirname(path), name + ".new")
        finally:
            try:
                with suppress(OSError):  # what stays is the next save's to sweep
                    for left in (name + ".new", name):
                        _remove(folder, left)
            finally:
                os.close(guard)
        os.fsync(folder)
    finally:
        os.close(folder)


def sweep(path: str, is_link: bool) -> None:
    """Remove what processes have left that died while they saved at this path."""
    if sys.platform == "win32":
        return
    begin = _begin(path)
    try:
        names = [name for name in _left_in(os.path.dirname(path) or ".", is_link) if begin in name]
    except OSError:  # saving will tell
        return
    if not names:
        return
    guarded = f"({re.escape(begin)}[0-9a-f]{{{_DIGITS}}})"
    left = re.compile(rf"{guarded}(?:\.new)?|\.{guarded}\.new\.st-tmp-[0-9a-f]{{16}}")
    found: dict[str, list[str]] = {}  # by guard
    for match in filter(None, map(left.fullmatch, names)):
        found.setdefault(match[1] or match[2], []).append(match[0])
    with suppress(OSError):
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            for guard, files in found.items():
                with _locked_if_dead(folder, guard) as dead, suppress(OSError):
                    for name in [name for name in files if name != guard] + [guard] if dead else []:
                        _remove(folder, name)
        finally:
            os.close(folder)


def _left_in(folder: str, always: bool) -> list[str]:
    """What saves over links may have left in a folder. None, where it had none within the last minute; unless it is
    always to be looked at."""
    now, found = time.monotonic(), os.stat(folder)
    key = found.st_dev, found.st_ino
    if not always and now - _clean.get(key, -math.inf) < _CLEAN_FOR:
        return []
    left = [name for name in os.listdir(folder) if _MARK in name]
    _clean.pop(key, None)
    if not left:
        while len(_clean) >= _MOST_CLEAN:
            _clean.pop(next(iter(_clean.copy()), key), None)  # the one that was looked at first
        _clean[key] = now
    return left


@contextmanager
def _told() -> Iterator[None]:
    """As stock raises it."""
    try:
        yield
    except OSError as error:
        raise SafetensorError(
            f"Error while serializing: I/O error: {error.strerror} (os error {error.errno})"
        ) from error


def _begin(path: str) -> str:
    return f".{os.path.basename(path)[:_LONGEST]}{_MARK}"


def _remove(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _open(folder: int, name: str, flags: int = 0) -> int:
    return os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o600, dir_fd=folder)


def _guard(folder: int, begin: str) -> tuple[int, str]:
    """Another process may take it for a dead one's until it is locked. Then that has the lock, or has removed it."""
    for _ in range(_ATTEMPTS):
        name = begin + secrets.token_hex(_DIGITS // 2)
        guard = _open(folder, name, os.O_CREAT | os.O_EXCL)
        if _lock(guard) not in _HELD and os.fstat(guard).st_nlink:  # where there are no locks, nobody takes it for dead
            return guard, name
        os.close(guard)
        _remove(folder, name)
    raise SafetensorError(f"new files {begin}... vanish; see what removes them")


@contextmanager
def _locked_if_dead(folder: int, name: str) -> Iterator[bool]:
    """Is its guard gone, or not locked? Then it is locked until the block ends, so that nobody can begin to use it."""
    opened: list[int] = []
    try:
        yield _is_dead(folder, name, opened)
    finally:
        for file in opened:
            os.close(file)


def _is_dead(folder: int, name: str, opened: list[int]) -> bool:
    """Not where the filesystem grants every lock."""
    try:
        opened.append(_open(folder, name))
        if not stat.S_ISREG(os.fstat(opened[0]).st_mode) or _lock(opened[0]):
            return False
        opened.append(_open(folder, name))
        return _lock(opened[1]) in _HELD
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _lock(file: int) -> int:
    """0, or why not. As the C library locks: by the open file, so that threads exclude each other, too."""
    if sys.platform != "linux":
        return errno.ENOLCK
    import fcntl

    whole = struct.pack("@hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock
    try:
        fcntl.fcntl(file, getattr(fcntl, "F_OFD_SETLK", _F_OFD_SETLK), whole)
    except OSError as error:
        # AppArmor and SELinux answer so if they allow no locks, and a client of SMB if somebody else has one.
        if error.errno == errno.EACCES and not _is_held(file, whole):
            return errno.ENOLCK
        return error.errno or errno.ENOLCK
    return 0


def _is_held(file: int, whole: bytes) -> bool:
    import fcntl

    with suppress(OSError):
        found = fcntl.fcntl(file, getattr(fcntl, "F_OFD_GETLK", _F_OFD_GETLK), whole)
        return struct.unpack_from("@h", found) != (fcntl.F_UNLCK,)
    return True
