"""Deltas: `libst.diff`, `libst.patch`, `libst.merge`, `libst.delta_info`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from . import _abi
from ._arguments import number
from ._callbacks import Progress, callbacks_for
from ._hub import warn_of_blob
from ._layout import save_options
from ._sized import sized
from ._waiting import timeout_ms
from .errors import check
from .file import Path, c_paths, fs_path
from .info import Plan, plan_of
from .transaction import apply_options


@dataclass(frozen=True)
class DeltaInfo:
    """What a delta says of itself.

    An identity is a hash of names, dtypes, shapes and metadata. Two files that differ in bytes alone have the same.

    changed: count: tensors replaced.
    added: count: tensors.
    deleted: count: tensors.
    metadata_set: count: keys.
    metadata_removed: count: keys.
    data_bytes: bytes of the tensors in it.
    base: identity of its base, 32 hexadecimal digits.
    result: identity of what it makes of that.
    file_size: bytes of the delta itself, with its header.
    """

    changed: int
    added: int
    deleted: int
    metadata_set: int
    metadata_removed: int
    data_bytes: int
    base: str
    result: str
    file_size: int


def diff(
    from_: Path,
    to: Path,
    delta: Path,
    *,
    alignment: int = 0,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> None:
    """Write the delta that makes `to` of `from_`: a safetensors file of the tensors that differ, durably.

    Either may be sharded: its index, or the folder that holds it. Both are read in large blocks and little memory.
    The delta is of one state of both, as a copy by `libst.reshard`: a program that changes one waits until both are
    read. Raises what `libst.open` of them and `libst.save` of the delta raise, and StorageError
    (`Status.FILE_CHANGED`) if one is replaced again and again, or changed without a lock.
    """
    callbacks = callbacks_for(progress)
    options = sized(
        _abi.DeltaCreateOptions,
        alignment=number("alignment", alignment),
        lock_timeout_ms=timeout_ms(lock_timeout),
        progress=callbacks.progress,
    )
    paths = fs_path(from_), fs_path(to), fs_path(delta)
    check(callbacks.call(_abi.st_delta_create, *paths, options))


def patch(
    base: Path,
    delta: Path,
    *,
    reverse: Optional[Path] = None,
    publish: bool = False,
    break_links: bool = False,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> Plan:
    """Apply a delta to its base, as one transaction; answers how that was done.

    In place if only bytes of tensors change, else by a new file. Its tensors get the order of the result that the delta
    was made of, and are not aligned. With `reverse` the delta that undoes this one is durable at that path before the
    change is decided; a file there is replaced. Readers may see new bytes earlier, where the storage shares blocks
    between files. Give each apply a reverse name of its own: an earlier one may be the only way back. A base
    of shards is changed in all of them or in none.

    Raises DeltaError if it is no delta, or damaged; if it was made for another base, or has been applied already, with
    `Status.DELTA_BASE`; and what `libst.open` and `Transaction.commit` raise.
    """
    callbacks = callbacks_for(progress)
    options = apply_options(
        None if reverse is None else fs_path(reverse), publish, break_links, False, timeout_ms(lock_timeout), callbacks
    )
    done = sized(_abi.Plan)
    paths = fs_path(base), fs_path(delta)
    warn_of_blob(paths[0], stacklevel=2)
    check(callbacks.call(_abi.st_delta_apply, *paths, options, done))
    return plan_of(done)


def merge(
    base: Path,
    deltas: Sequence[Path],
    to: Path,
    *,
    layout: str = "keep",
    alignment: int = 0,
    header_reserve: int = 0,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> None:
    """Fold deltas, the oldest first, and their base into a new file, which shares blocks with them where it can. The
    base may be sharded; what is made of it is one file all the same (see `libst.reshard`). It is of one state of them,
    as there.

    Arguments and exceptions as `libst.save`; DeltaError (`Status.DELTA_BASE`) if a delta was not made for what lies
    below it.
    """
    callbacks = callbacks_for(progress)
    options = save_options(layout, alignment, header_reserve, timeout_ms(lock_timeout), callbacks)
    below, above = fs_path(base), fs_path(to)
    paths = c_paths(deltas)
    check(callbacks.call(_abi.st_delta_merge, below, paths, len(paths), above, options))


def delta_info(delta: Path) -> DeltaInfo:
    """What a delta says of itself; reads its header alone. Raises DeltaError if it is none."""
    info = sized(_abi.DeltaInfo)
    check(_abi.st_delta_describe(fs_path(delta), info))
    numbers = {
        name: getattr(info, name)
        for name in ("changed", "added", "deleted", "metadata_set", "metadata_removed", "data_bytes", "file_size")
    }
    return DeltaInfo(**numbers, base=info.base.decode(), result=info.result.decode())
