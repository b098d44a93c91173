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
    """A tensor's place and form.

    name: of the tensor.
    dtype: as in the header: "BF16".
    shape: in elements, slowest first; () for a scalar.
    nbytes: its size in bytes.
    file_offset: of the first byte, from the start of its file, in bytes; for a tensor that steps of a delta lead to:
        from the start of memory that looks like a file.
    shard: number of its file among `File.shards`: 0 in one file; else among an index's shards, or the base's files and
        then the deltas.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file_offset: int
    shard: int


@dataclass(frozen=True)
class IoInfo:
    """What storage lies behind a file, how its data is reached, and why.

    storage: "local", "memory", "network", "parallel", "fuse", "object store" or "unknown".
    mapping: the one in use: "shared", "private", "copy-on-write" or "none".
    map_fallbacks: count: steps down from the mapping first tried.
    file_size: bytes.
    header_size: bytes of JSON with padding.
    data_offset: where tensors begin, in bytes.
    filesystem: its type as in the mount table: "ext4", "fuse.gcsfuse"; "memory" of bytes, "source" of what has none.
    reason: one sentence: why this mapping.
    prefetch: how bulk reads go: "none", "sequential" or "parallel".
    direct: whether bulk reads into memory go past the page cache; None: the first load of what is not in memory does.
    io_threads: count: readers of a bulk read.
    block_size: bytes of a request of theirs, at most.
    prefetch_reason: one sentence: how bulk reads go, and why.
    """

    storage: str
    mapping: str
    map_fallbacks: int
    file_size: int
    header_size: int
    data_offset: int
    filesystem: str
    reason: str
    prefetch: str
    direct: Optional[bool]
    io_threads: int
    block_size: int
    prefetch_reason: str


@dataclass(frozen=True)
class Plan:
    """What a transaction's commit does, on one file or on shards.

    Staged bytes that the kernel takes from a journal into a new file count nowhere.

    kind: "nothing", "patch" (in place, through the journal) or "publish" (a new file).
    file_size: bytes, afterwards; of shards: of all that change.
    data_offset: where tensors begin afterwards, in bytes; of shards that change: the largest.
    bytes_written: from the process: to files, headers, the index, and what journals still lack.
    bytes_shared: with the old files, in blocks of which nothing is copied.
    bytes_copied: of the old files, by the kernel.
    space_needed: free bytes, taken at once, and a little for the filesystem.
    space_free: free bytes now; None if not known.
    how: one sentence.
    """

    kind: str
    file_size: int
    data_offset: int
    bytes_written: int
    bytes_shared: int
    bytes_copied: int
    space_needed: int
    space_free: Optional[int]
    how: str


@dataclass(frozen=True)
class Stats:
    """What a handle has cost so far.

    map_fallbacks: count: steps down from the mapping first tried.
    bytes_read: by libst's own reads.
    bytes_mapped: bytes of address space.
    bytes_resident: of the mapping, in memory now.
    bytes_private_dirty: of a copy-on-write mapping: pages that are this process's own.
    bytes_owned: filled in memory that the handle owns.
    index_bytes: names, shapes, offsets, hash table.
    bytes_written: into the file.
    journal_bytes: into journals; blocks shared with them are not written.
    commits: count: transactions committed.
    recoveries: count: journals applied, rolled back or dropped.
    lock_waits: count: times that a lock was not free at once.
    read_requests: count: requests of bulk reads.
    bytes_prefetched: into the page cache.
    reopens: count: by this handle, in forked children.
    """

    map_fallbacks: int
    bytes_read: int
    bytes_mapped: int
    bytes_resident: int
    bytes_private_dirty: int
    bytes_owned: int
    index_bytes: int
    bytes_written: int
    journal_bytes: int
    commits: int
    recoveries: int
    lock_waits: int
    read_requests: int
    bytes_prefetched: int
    reopens: int


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
