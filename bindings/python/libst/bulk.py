"""Many tensors at once: `libst.load`, and what `File.read_many` and `File.prefetch` do."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import c_void_p
from math import prod
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

import numpy as np

from . import _abi
from . import file as _file
from ._abi import SIZES
from ._arguments import function
from ._callbacks import Progress, is_of_callback
from ._few import Tensor, requests
from ._index import Numbers, Part, cut, cut_rows, outside, picks_rows, ranges_of_rows
from ._names import encoded, index_of, several
from ._pin import BRIEF, Array, Pin
from ._rows import REQUEST, Rows, address, describe_all, describe_each, new_array, new_rows, requests_of, shapes
from ._torch import laid_over, new_tensor, torch_dtype
from ._url import is_url, shown
from ._windows import Pick, Steps, is_worth, read_windows
from .dtypes import BYTES, NAMES, NUMPY, PACKED, WHOLE
from .errors import StorageError, error, refusal
from .status import Status

if TYPE_CHECKING:
    from .file import File, Path
    from .source import BinaryFile

_PAGE = 4096  # what O_DIRECT wants memory and file to agree in
_ALIGNMENT = 64  # of an array that does not follow its neighbour in the file
_HUGE = 4 << 20  # bytes from which on numpy asks for huge pages: a bulk read into fresh memory then takes a sixth less
_FROM_THE_SYSTEM = 32 << 20  # bytes above which malloc always asks for new memory (M_MMAP_THRESHOLD grows up to that)
_LOADS = 20  # of a path whose files are replaced during each
_ONE_BY_ONE = 3  # brief tensors that are read so
_LONG = 1 << 20  # bytes of neighbours that are worth a page's alignment

_brief_read = _abi.bare_read

# By number.
_ITEMSIZE = [1 if dtype is None else dtype.itemsize for dtype in NUMPY]
_ITEMSIZES = np.array(_ITEMSIZE)
_BITS = [int(_abi.st_dtype_bits(number)) for number in range(len(NUMPY))]


def load(
    path: Union[Path, BinaryFile],
    names: Optional[Iterable[str]] = None,
    *,
    framework: str = "numpy",
    device: Any = None,
    progress: Union[bool, Progress, None] = None,
    **options: Any,
) -> dict[str, Any]:
    """Read a whole file, or some of its tensors, into memory: names to writable arrays, in the order of the file, or
    of `names`.

    The arrays are the caller's and do not depend on the file any more; they share one block
    of memory, which lives as long as any of them. In a file of at most three tensors, none above 64 KiB, each may have
    memory of its own.

    Bytes are read without a lock. What a writer patches in place meanwhile may come half old, half new; a change that
    readers are to see as a whole is committed with `publish=True`. `libst.join` and `libst.reshard` copy one state.

    Where others replace the files of a path meanwhile, the load begins anew, up to 19 times. `progress` then begins at
    0 once more.

    Args:
        path: as of `open`; or a binary file object, as of `open_source`.
        names: which tensors; None: all.
        framework: "numpy", "torch" or "jax": whose arrays.
        device: where to, as torch and jax name it; None: the CPU, without another copy (jax: where it needs none).
            Arrays of numpy are always there: ValueError for another device.
        progress: True for a progress bar (of tqdm, if it is installed), or a function as in `open`.
        options: of `open`, or of `open_source`: how to read. With `mapping="copy-on-write"` the arrays are not copies,
            but views of the file that may be written, brought into memory by all its readers: quicker, and workers
            share their pages, but what others patch in place shows in pages that were not written.

    Raises what `open` and `File.read_many` raise.
    """
    if framework not in ("numpy", "torch", "jax"):
        raise ValueError(f"framework is 'numpy', 'torch' or 'jax', not {framework!r}")
    if framework == "numpy" and device is not None and str(device).partition(":")[0] != "cpu":
        raise ValueError(f"arrays of numpy are on the CPU; for device={device!r} give framework='torch' or 'jax'")
    if not isinstance(progress, bool):
        function("progress", progress)
    wanted = None if names is None else several(names)
    as_torch = framework == "torch"
    if isinstance(path, (str, bytes, os.PathLike)):
        if not options and not progress:
            arrays = _while_replaced(path, lambda: read_many(_file.open_pin(path), wanted, None, as_torch=as_torch))
        else:
            options = {"mapping": "none", **options}  # nothing is to be viewed
            arrays = _while_replaced(path, lambda: _loaded(_file.open(path, **options), wanted, progress, as_torch))
    else:
        from .source import open_source

        arrays = _loaded(open_source(path, **options), wanted, progress, as_torch)
    if as_torch and device is not None:
        arrays = {name: tensor.to(device=device) for name, tensor in arrays.items()}
    if framework == "jax":
        import jax

        arrays = {name: jax.device_put(array, device) for name, array in arrays.items()}
    return arrays


def _loaded(
    opened: File, wanted: Optional[list[str]], progress: Union[bool, Progress, None], as_torch: bool
) -> dict[str, Any]:
    with opened as file, _watched(progress, file) as watch:
        if file._pin().may_write:
            _open_files_of(file._pin(), None if wanted is None else [encoded(name) for name in wanted], watch)
            if wanted:  # the first shard may be none of theirs
                file._pin().ask(file._pin().describe(wanted[0]).shard)
        if not file._pin().shows_writable:
            return read_many(file._pin(), wanted, watch, as_torch=as_torch)
        prefetch(file._pin(), wanted, watch)
        return {name: file.torch(name) if as_torch else file[name] for name in (file if wanted is None else wanted)}


def _while_replaced(path: Path, load: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Shards are opened one by one. The index may be replaced meanwhile, and the caller has no handle to refresh."""
    for _ in range(_LOADS - 1):
        try:
            return load()
        except StorageError as problem:
            may_pass = problem.status == Status.FILE_CHANGED and not is_url(os.fsdecode(path))
            if not may_pass or is_of_callback(problem):
                raise
    return load()


def read(pin: Pin, name: str, out: Optional[Array]) -> Array:
    try:
        number, shape = pin.forms.get(name) or pin.form(name)
        dtype = WHOLE[number]
        if dtype is None:
            dtype, shape = BYTES, (pin.describe(name).nbytes,)
        if out is None:
            out, place = new_array(shape, dtype)
        else:
            check_fits(out, name, dtype, shape)
            place = address(out)
        _read_to(pin, name.encode(), place, out.nbytes)
        return out
    finally:
        del pin


def read_torch(pin: Pin, name: str) -> Any:
    """A tensor of torch, in memory of its own."""
    try:
        number, shape = pin.forms.get(name) or pin.form(name)
        tensor, place, nbytes = new_tensor(NAMES[number], shape)
        _read_to(pin, name.encode(), place, nbytes)
        return tensor
    finally:
        del pin


def _read_to(pin: Pin, raw: bytes, place: int, nbytes: int) -> None:
    try:
        if nbytes <= BRIEF and pin.alone:
            status = _brief_read(pin.handle, raw, SIZES[len(raw)], c_void_p(place), SIZES[nbytes], None)
            if status:
                raise error(status)
        else:
            pin.call(_abi.st_read, raw, len(raw), place, nbytes, None)
    finally:
        del pin


def read_many(
    pin: Pin,
    names: Union[Iterable[str], Mapping[str, Array], None],
    progress: Optional[Progress],
    *,
    as_torch: bool = False,
) -> dict[str, Any]:
    """None: all of them, in the order of the file. as_torch: tensors of torch instead of arrays."""
    try:
        if isinstance(names, Mapping):
            return _fill(pin, names, progress)
        few = pin.few() if names is None else None
        if few is not None:
            brief = len(few) <= _ONE_BY_ONE and all([nbytes <= BRIEF for _, _, _, nbytes, _ in few])
            if brief and pin.is_near(0) and progress is None:
                return _read_one_by_one(pin, few, as_torch)
            if all([offset % _ITEMSIZE[dtype] == 0 for _, dtype, _, _, offset in few]):
                return _read_few(pin, few, progress, as_torch)
        wanted: Iterable[str]
        if names is None:
            _open_files_of(pin, None, progress)
            wanted = pin.names()
            rows = describe_all(pin.answer, _abi.st_count(pin.handle))
        else:
            wanted = list(dict.fromkeys(several(names)))
            rows = _describe(pin, wanted, progress)
        of_one_file = _abi.st_shard_count(pin.handle) == 1
        places, size = _places(rows, names is None and of_one_file)
        block, start = _block(size)
        requests, where = requests_of(rows, places + (address(block) + start), rows["nbytes"])
        if as_torch:
            dtypes = [NAMES[number] for number in rows["dtype"].tolist()]
            for dtype in set(dtypes):
                torch_dtype(dtype)  # refused before anything is read
            known: dict[tuple[int, ...], tuple[int, ...]] = {}
            each = [known.setdefault(shape, shape) for shape in shapes(rows, of_one_file)]
            pin.call_bulk(_abi.st_read_many, where, len(requests), progress=progress, flags=_pages(block))
            memory, begin = block.data, address(block)
            return {
                name: laid_over(memory, begin + place, place, nbytes, dtype, shape)
                for name, place, nbytes, dtype, shape in zip(
                    wanted, (places + start).tolist(), rows["nbytes"].tolist(), dtypes, each
                )
            }
        arrays = dict(zip(wanted, _laid_out(_forms(rows, of_one_file), block, places + start)))
        del rows, places, wanted  # which take memory, and reading takes its own
        pin.call_bulk(_abi.st_read_many, where, len(requests), progress=progress, flags=_pages(block))
        return arrays
    finally:
        del pin


def _read_one_by_one(pin: Pin, few: list[Tensor], as_torch: bool) -> dict[str, Any]:
    """All tensors of one file, each in memory of its own: so few, and so brief, that a read of all together takes
    longer."""
    try:
        if as_torch:
            _refuse_what_torch_has_not(few)
        found: dict[str, Any] = {}
        for name, dtype, shape, nbytes, _ in few:
            if as_torch:
                found[name], place, _ = new_tensor(NAMES[dtype], shape)
            else:
                found[name], place = new_array((nbytes,) if dtype in PACKED else shape, NUMPY[dtype])
            _read_to(pin, name.encode(), place, nbytes)
        return found
    finally:
        del pin


def _read_few(pin: Pin, few: list[Tensor], progress: Optional[Progress], as_torch: bool) -> dict[str, Any]:
    """All tensors of one file, which are few, and of which each begins where its dtype allows; in one block."""
    try:
        if as_torch:
            _refuse_what_torch_has_not(few)
        # The first has its file offset's place in a page, and the others follow as they do in the file.
        begin = few[0][4] // _PAGE * _PAGE if few else 0
        block, start = _block(few[-1][4] + few[-1][3] - begin if few else 0)
        memory, start = block.data, start - begin
        there = address(block) + start
        wanted = requests([(there + place, nbytes) for _, _, _, nbytes, place in few])
        pin.call_bulk(_abi.st_read_many, wanted, len(few), progress=progress, flags=_pages(block))
        if as_torch:
            return {
                name: laid_over(memory, there + place, start + place, nbytes, NAMES[dtype], shape)
                for name, dtype, shape, nbytes, place in few
            }
        return {
            name: np.ndarray((nbytes,) if dtype in PACKED else shape, NUMPY[dtype], memory, start + place)
            for name, dtype, shape, nbytes, place in few
        }
    finally:
        del pin


def _read_few_apart(pin: Pin, few: list[Tensor]) -> dict[str, Any]:
    """All tensors of torch of one file, which are few, each in memory of its own."""
    try:
        _refuse_what_torch_has_not(few)
        made = [new_tensor(NAMES[dtype], shape) for _, dtype, shape, _, _ in few]
        wanted = requests([(place, nbytes) for _, place, nbytes in made])
        pin.call_bulk(_abi.st_read_many, wanted, len(few), progress=None)
        return {few[i][0]: tensor for i, (tensor, _, _) in enumerate(made)}
    finally:
        del pin


def _refuse_what_torch_has_not(few: list[Tensor]) -> None:
    """Before memory is taken, and anything read."""
    for _, dtype, _, _, _ in few:
        torch_dtype(NAMES[dtype])


def read_all_torch(pin: Pin) -> dict[str, Any]:
    """All tensors of torch, in the order of the file. Each of more than 64 KiB is in memory of its own, which goes with
    it; the others share a block, or are in memory of their own, too."""
    try:
        few = pin.few()
        if few is not None:
            long = any(nbytes > BRIEF for _, _, _, nbytes, _ in few)
            return _read_few_apart(pin, few) if long else read_many(pin, None, None, as_torch=True)
        rows = describe_all(pin.answer, _abi.st_count(pin.handle))
        if not (rows["nbytes"] > BRIEF).any():
            return read_many(pin, None, None, as_torch=True)
        dtypes = [NAMES[number] for number in rows["dtype"].tolist()]
        forms = list(zip(dtypes, shapes(rows, _abi.st_shard_count(pin.handle) == 1)))
        sizes = rows["nbytes"]
        for dtype in set(dtypes):
            torch_dtype(dtype)  # refused before memory is taken
        together = sizes <= BRIEF
        places, size = _places(rows[together], False)
        block, start = _block(size)
        begin = address(block)
        addresses = np.empty(len(rows), np.int64)
        addresses[together] = places + (begin + start)
        tensors: list[Any] = [None] * len(rows)
        for i in np.flatnonzero(~together).tolist():
            tensors[i], addresses[i], _ = new_tensor(*forms[i])
        requests, where = requests_of(rows, addresses, sizes)
        pin.call_bulk(_abi.st_read_many, where, len(requests), progress=None)
        small = np.flatnonzero(together)
        for i, place, nbytes in zip(small.tolist(), addresses[small].tolist(), sizes[small].tolist()):
            tensors[i] = laid_over(block.data, place, place - begin, nbytes, *forms[i])
        return dict(zip(pin.names(), tensors))
    finally:
        del pin


def _fill(pin: Pin, given: Mapping[str, Array], progress: Optional[Progress]) -> dict[str, Array]:
    try:
        arrays = dict(given)
        rows = _describe(pin, arrays, progress)
        for (name, out), (shape, dtype) in zip(arrays.items(), _forms(rows)):
            check_fits(out, name, dtype, shape)
        places = np.array([address(out) for out in arrays.values()], np.int64)
        requests, where = requests_of(rows, places, rows["nbytes"])
        pin.call_bulk(_abi.st_read_many, where, len(requests), progress=progress)
        return arrays
    finally:
        del pin


def read_parts(pin: Pin, parts: list[tuple[str, Any]], progress: Optional[Progress]) -> list[Array]:
    """Each a name and an index, as a slice takes it: one request, or one for each row that an array picks. Many short
    rows are read by windows, in the order of the file, after all else."""
    try:
        if not all(isinstance(part, tuple) and len(part) == 2 for part in parts):
            raise TypeError("give pairs of a name and an index alone, such as ('w', slice(None)), or names alone")
        names = list(dict.fromkeys([name for name, _ in parts]))
        rows = _describe(pin, names, progress)
        forms = zip(names, range(len(names)), rows["dtype"].tolist(), shapes(rows))
        known: dict[str, Any] = {name: (i, shape, dtype, {}) for name, i, dtype, shape in forms}
        is_near = bool(parts) and pin.is_near(int(rows["shard"][0]))
        of: list[int] = []  # numbers of names
        ranges, counts, sizes, found, asked = [], [], [], [], []
        picked: list[tuple[int, Part]] = []  # numbers of parts, and their many rows
        for name, index in parts:
            i, shape, dtype, seen = known[name]  # most parts of a tensor have the same shape
            try:
                if picks_rows(index):
                    part = cut_rows(index, shape)
                    by_windows = _is_for_windows(part, dtype, is_near)
                    if by_windows:
                        picked.append((len(of), part))
                    packed, count, shape = b"" if by_windows else ranges_of_rows(part), 1 + part.range_count, part.shape
                    asked.append(0 if by_windows else part.shape[0])
                else:
                    packed, count, shape, _ = cut(index, shape)
                    asked.append(1)
            except IndexError as problem:
                raise outside(problem, name, known[name][1]) from None
            nbytes, form = seen.get(shape) or seen.setdefault(shape, _part(shape, dtype))
            of.append(i)
            ranges.append(packed)
            counts.append(count)
            sizes.append(nbytes)
            found.append(form)
        lengths = np.array(sizes, np.int64)
        padded = lengths + -lengths % _ALIGNMENT
        places = np.cumsum(padded) - padded
        block, start = _block(int(padded.sum()))
        steps = Steps(progress, pin.callbacks, sum(sizes))
        if len(picked) < len(parts):
            together = np.frombuffer(b"".join(ranges), BYTES)
            addresses = places + (address(block) + start)
            requests, where = _requests_of_parts(rows.take(of), addresses, lengths, asked, counts, address(together))
            if picked:
                progress = steps.next(sum(sizes) - sum([sizes[number] for number, _ in picked]))
            pin.call_bulk(_abi.st_read_many, where, len(requests), progress=progress, flags=_pages(block))
        picked.sort(key=lambda each: rows[["shard", "file_offset"]][of[each[0]]].item())
        begins = places + start
        picks = [Pick(of[i], part, block[begins[i] : begins[i] + sizes[i]]) for i, part in picked]
        if picks:
            read_windows(pin, rows, picks, steps)
        return _laid_out(found, block, begins)
    finally:
        del pin


def _is_for_windows(part: Part, dtype: int, is_near: bool) -> bool:
    """A packed row may begin in a byte, where others of its window do not."""
    return dtype not in PACKED and is_worth(part.shape[0], _part(part.shape[1:], dtype)[0], is_near)


def _requests_of_parts(
    rows: Rows, addresses: Numbers, sizes: Numbers, asked: list[int], counts: list[int], ranges: int
) -> tuple[Rows, int]:
    """asked: how many requests each part has. counts: how many st_ranges each of them has. ranges: where these lie."""
    each = np.array(counts, np.int64)
    if asked.count(1) != len(asked):
        many = np.array(asked, np.int64)
        of_part = np.repeat(np.arange(len(many)), many)
        row: Numbers = np.arange(len(of_part)) - (np.cumsum(many) - many)[of_part]
        rows, sizes, each = rows.take(of_part), np.floor_divide(sizes, np.maximum(many, 1))[of_part], each[of_part]
        addresses = addresses[of_part] + row * sizes
    requests, where = requests_of(rows, addresses, sizes)
    requests["range_count"] = each
    requests["ranges"] = ranges + (np.cumsum(each) - each) * ctypes.sizeof(_abi.Range)
    return requests, where


def _describe(pin: Pin, names: Iterable[str], progress: Optional[Progress]) -> Rows:
    try:
        raw = [encoded(name) for name in names]
        _open_files_of(pin, raw, progress)
        return describe_each(pin.answer, raw)
    finally:
        del pin


def _open_files_of(pin: Pin, raw: Optional[list[bytes]], progress: Optional[Progress]) -> None:
    """Opens the shards that have these tensors, or all, side by side, unless they are near. Calls for one tensor would
    wait one by one, and those for all ask no progress but the file's."""
    try:
        if _abi.st_shard_count(pin.handle) == 1 or not pin.may_be_far:
            return
        n = _abi.st_count(pin.handle) if raw is None else len(raw)
        requests, where = new_rows(n, REQUEST)
        requests[:] = 0  # no room
        if raw is None:
            requests["index"] = np.arange(n)
        else:
            lengths = np.fromiter(map(len, raw), np.int64, n)
            together = np.frombuffer(b"".join([*raw, b"\0"]), BYTES)
            requests["name"] = address(together) + np.cumsum(lengths) - lengths
            requests["name_len"] = lengths
        status = pin.answer_bulk(_abi.st_read_many, where, n, progress=progress)
        if status not in (Status.OK, Status.BUFFER_SIZE):  # nothing is read for want of room
            raise error(status)
    finally:
        del pin


def _part(shape: tuple[int, ...], dtype: int) -> tuple[int, tuple[tuple[int, ...], Any]]:
    """How many bytes a part of this shape has, and the shape and dtype of its array."""
    nbytes = prod(shape) * _BITS[dtype] // 8  # where that cuts a byte the library will not read
    return nbytes, ((nbytes,) if dtype in PACKED else shape, NUMPY[dtype])


def prefetch(pin: Pin, names: Optional[Iterable[str]], progress: Optional[Progress]) -> None:
    try:
        if names is None:
            pin.call_bulk(_abi.st_prefetch, None, 0, progress=progress)
            return
        raw = [encoded(name) for name in several(names)]
        _open_files_of(pin, raw, progress)
        indices = [index_of(pin.handle, name) for name in raw]
        if not indices:
            return
        array = (ctypes.c_size_t * len(indices))(*indices)
        pin.call_bulk(_abi.st_prefetch, array, len(indices), progress=progress)
    finally:
        del pin


def check_fits(out: Any, name: str, dtype: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(out, np.ndarray):
        kind = type(out).__name__
        raise TypeError(f"out must be an array of numpy's, not {kind}; of a tensor of torch give t.numpy()")
    if out.dtype != dtype:
        text = f"out has dtype {out.dtype}, the tensor {name!r} {dtype}; give one of that dtype"
        raise refusal(Status.DTYPE_MISMATCH, text, tensor=name)
    if out.shape != shape:
        text = f"out has shape {out.shape}, the tensor {name!r} {shape}; give one of that shape"
        raise refusal(Status.SHAPE_MISMATCH, text, tensor=name)
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"out must be writable and C-contiguous, for the tensor {name!r}; give a new array")


def _laid_out(
    forms: Iterable[tuple[tuple[int, ...], Any]], block: Array, places: np.ndarray[Any, np.dtype[np.int64]]
) -> list[Array]:
    """Arrays of these shapes and dtypes, there in the block."""
    memory, array = block.data, np.ndarray
    return [array(shape, dtype, memory, place) for (shape, dtype), place in zip(forms, places.tolist())]


def _forms(rows: Rows, of_one_file: bool = False) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The shape and dtype of an array that holds each."""
    numbers, each = rows["dtype"].tolist(), shapes(rows, of_one_file)
    if not PACKED.isdisjoint(numbers):
        sizes = rows["nbytes"].tolist()
        each = ((n,) if number in PACKED else shape for shape, number, n in zip(each, numbers, sizes))
    return zip(each, map(NUMPY.__getitem__, numbers))


def _places(rows: Rows, whole: bool) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Where each goes in one block, and how large that is. Neighbours in the file are neighbours in it, and each has
    its file offset's place in a page where its dtype allows, so that long runs are read in one go.

    whole: these are all tensors of one file, between which nothing lies."""
    if not len(rows):
        return np.empty(0, np.int64), 0
    offsets = rows["file_offset"].astype(np.int64)
    odd = offsets % _ITEMSIZES[rows["dtype"]] != 0  # as a file may begin its data anywhere
    if whole and not odd.any():
        begin = int(offsets[0])
        begin -= begin % _PAGE
        return offsets - begin, int(offsets[-1]) - begin + int(rows["nbytes"][-1])
    sizes = rows["nbytes"].astype(np.int64)
    shards = rows["shard"]
    order = np.lexsort((offsets, shards))
    shards, offsets, sizes, odd = shards[order], offsets[order], sizes[order], odd[order]
    begins = np.ones(len(order), bool)  # a run
    begins[1:] = (offsets[1:] != (offsets + sizes)[:-1]) | (shards[1:] != shards[:-1]) | odd[1:] | odd[:-1]
    first = np.flatnonzero(begins)
    within = np.where(odd[first], 0, offsets[first])
    starts: list[int] = []
    end = 0
    for length, offset in zip(np.add.reduceat(sizes, first).tolist(), within.tolist()):
        unit = _PAGE if not starts or length >= _LONG else _ALIGNMENT
        starts.append(end + -end % unit + offset % unit)
        end = starts[-1] + length
    run = np.cumsum(begins) - 1
    places = np.empty(len(order), np.int64)
    places[order] = np.array(starts)[run] + offsets - offsets[first][run]
    return places, end


def _block(size: int) -> tuple[Array, int]:
    """Memory, and where in it a page begins."""
    size += _PAGE
    block = np.empty(max(size, _HUGE) if size > _HUGE // 2 else size, BYTES)
    return block, -address(block) % _PAGE


def _pages(block: Array) -> int:
    """What a bulk read is told of a new block's memory. Below 32 MiB malloc may give memory that was used before."""
    return _abi.ST_BULK_FRESH_MEMORY if block.nbytes > _FROM_THE_SYSTEM else 0


@contextmanager
def _watched(progress: Union[bool, Progress, None], file: File) -> Iterator[Optional[Progress]]:
    if not progress or callable(progress):
        yield progress or None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    with tqdm(unit="B", unit_scale=True, unit_divisor=1024, desc=shown(file.path) if file.path else None) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
