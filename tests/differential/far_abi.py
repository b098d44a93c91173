"""libst_abi, with libst on another machine: LIBST_ANSWERS is how answers.c is run there, by an emulator.

This has what the tests use of libst_abi. One file is open at a time.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import contextmanager

from libst_abi import MAP_AUTO, MAP_NONE, Closes, Refused, Tensor, st_h

COMMAND = os.environ.get("LIBST_ANSWERS", "")

_program: subprocess.Popen[bytes] | None = None


@contextmanager
def running():
    global _program
    with subprocess.Popen(shlex.split(COMMAND), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as _program:
        yield


def _ask(word: str, *parts: int | bytes) -> None:
    spelled = [b"%d\n" % p if isinstance(p, int) else b"%d\n%b" % (len(p), p) for p in parts]
    _program.stdin.write(word.encode() + b"\n" + b"".join(spelled))
    _program.stdin.flush()


def _number() -> int:
    line = _program.stdout.readline()
    assert line.endswith(b"\n"), f"{COMMAND} ended: {_program.wait()}"
    return int(line)


def _bytes() -> bytes:
    n = _number()
    found = _program.stdout.read(n)
    assert len(found) == n, f"{COMMAND} ended: {_program.wait()}"
    return found


def _check() -> None:
    status, message = _bytes().decode(), _bytes().decode("utf-8", "replace")
    if status != "ST_OK":
        raise Refused(status, message)


class File(Closes):
    def __init__(
        self,
        path: str | os.PathLike | None = None,
        *,
        memory: bytes | None = None,
        map: int = MAP_AUTO,
        write: bool = False,
    ):
        if memory is not None:
            _ask("memory", memory)
        else:
            _ask("path", map, st_h.ST_OPEN_READ_WRITE if write else 0, os.fsencode(path))
        try:
            _check()
        except Refused:
            self.close()
            raise

    def close(self) -> None:
        _ask("close")

    def tensors(self, *, data: bool = True) -> dict[str, Tensor]:
        _ask("tensors" if data else "descriptions")
        found: dict[str, Tensor] = {}
        previous = 0
        for i in range(_number()):
            _check()
            _check()
            index, name, dtype = _number(), _bytes(), _bytes().decode()
            shape = [_number() for _ in range(_number())]
            file_offset, shard, content = _number(), _number(), _bytes()
            assert index == i, (name, index, i)
            assert name.endswith(b"\0"), "names end in NUL"
            assert file_offset >= previous and shard == 0
            previous = file_offset
            found[name[:-1].decode()] = Tensor(dtype, shape, content, file_offset)
        return found

    def metadata(self) -> dict[str, str]:
        _ask("metadata")
        found = {}
        for _ in range(_number()):
            _check()
            key = _bytes().decode()
            _check()
            found[key] = _bytes().decode()
        return found

    def update(self, name: str, data: bytes) -> None:
        _ask("update", name.encode(), data)
        _check()


def verify(path: str | os.PathLike) -> str:
    _ask("verify", os.fsencode(path))
    try:
        _check()
    except Refused as refused:
        return refused.status
    return "ST_OK"


__all__ = ["MAP_AUTO", "MAP_NONE", "File", "Refused", "Tensor", "verify"]
