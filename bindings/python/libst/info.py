"""What a file tells about itself: plain values, no handle behind them."""

from dataclasses import dataclass
from typing import Any, NoReturn, Optional

from . import _abi

_KINDS = {_abi.ST_PLAN_NOTHING: "nothing", _abi.ST_PLAN_PATCH: "patch", _abi.ST_PLAN_PUBLISH: "publish"}
_MAPS = ("auto", "shared", "private", "none", "copy-on-write")
_PREFETCHES = ("auto", "none", "sequential", "parallel")
_STORAGES = ("unknown", "local", "memory", "network", "parallel", "fuse", "object store")


def _refuse_to_change(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("the metadata of an open file is read-only: change it in a transaction, or a dict() of it")


_refuse: Any = _refuse_to_change


class Metadata(dict[str, str]):
    """Pairs of `__metadata__`, read-only: a transaction changes those of the file. Copies of them are plain dicts."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def copy(self) -> dict[str, str]:
        return dict(self)

    __copy__ = copy

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's place and form."""

    name: str
    dtype: str  #: as in the header: "BF16"
    shape: tuple[int, ...]  #: in elements, slowest first; () for a scalar
    nbytes: int
    file_offset: int  #: of the first byte, from the start of the file
    shard: int  #: number of the file in a sharded checkpoint; else 0


@dataclass(frozen=True)
class IoInfo:
    """What storage lies behind a file, how its data is reached, and why."""

    storage: str  #: "local", "memory", "network", "parallel", "fuse", "object store", "unknown"
    mapping: str  #: the one in use: "shared", "private", "copy-on-write" or "none"
    map_fallbacks: int  #: steps down from the mapping first tried
    file_size: int  #: bytes
    header_size: int  #: bytes of JSON with padding
    data_offset: int  #: where tensors begin, in bytes
    filesystem: str  #: its type as in the mount table: "ext4", "fuse.gcsfuse"
    reason: str  #: one sentence: why this mapping
    prefetch: str  #: how bulk reads go: "none", "sequential" or "parallel"
    #: Whether bulk reads into memory go past the page cache; None: the first load of what is not in memory does.
    direct: Optional[bool]
    io_threads: int  #: readers of a bulk read
    block_size: int  #: bytes of a request of theirs
    prefetch_reason: str  #: one sentence: how bulk reads go, and why


@dataclass(frozen=True)
class Plan:
    """What a transaction's commit does, on one file or on shards. Bytes, but for the first and the last."""

    kind: str  #: "nothing", "patch" (in place, through the journal) or "publish" (a new file)
    file_size: int  #: afterwards
    data_offset: int  #: afterwards: where tensors begin
    bytes_written: int  #: from the process: to files, headers, the index, and what journals still lack
    bytes_shared: int  #: with the old files, in blocks of which nothing is copied
    bytes_copied: int  #: of the old files, by the kernel
    space_needed: int  #: free, taken at once, and a little for the filesystem
    space_free: Optional[int]  #: now; None if not known
    how: str  #: one sentence


@dataclass(frozen=True)
class Stats:
    """What a handle has cost so far. Bytes, but for the counts."""

    map_fallbacks: int  #: count: steps down from the mapping first tried
    bytes_read: int  #: by libst's own reads
    bytes_mapped: int  #: address space
    bytes_resident: int  #: of the mapping, in memory now
    bytes_private_dirty: int  #: of a copy-on-write mapping: pages that are this process's own
    bytes_owned: int  #: filled in memory that the handle owns
    index_bytes: int  #: names, shapes, offsets, hash table
    bytes_written: int  #: into the file
    journal_bytes: int  #: into journals
    commits: int  #: count: transactions committed
    recoveries: int  #: count: journals applied or dropped
    lock_waits: int  #: count: times that a lock was not free at once
    read_requests: int  #: count: of bulk reads
    bytes_prefetched: int  #: into the page cache
    reopens: int  #: count: by this handle, in forked children


def plan_of(plan: _abi.Plan) -> Plan:
    return Plan(
        kind=_KINDS[plan.kind],
        file_size=plan.file_size,
        data_offset=plan.data_offset,
        bytes_written=plan.bytes_written,
        bytes_shared=plan.bytes_shared,
        bytes_copied=plan.bytes_copied,
        space_needed=plan.space_needed,
        space_free=None if plan.space_free == 2**64 - 1 else plan.space_free,
        how=plan.how.decode("utf-8", "replace"),
    )


def map_name(number: int) -> str:
    return _MAPS[number] if number < len(_MAPS) else str(number)


def storage_name(number: int) -> str:
    return _STORAGES[number] if number < len(_STORAGES) else _STORAGES[0]


def prefetch_name(number: int) -> str:
    return _PREFETCHES[number] if number < len(_PREFETCHES) else str(number)


def map_number(name: str) -> int:
    return _number("mapping", _MAPS, name)


def prefetch_number(name: str) -> int:
    return _number("prefetch", _PREFETCHES, name)


def _number(what: str, names: tuple[str, ...], name: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        raise ValueError(f"{what} is one of {', '.join(map(repr, names))}, not {name!r}") from None
