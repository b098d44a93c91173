"""`libst.reshard` and `libst.join`: a checkpoint as shards, or as one file."""

from typing import Optional

from . import _abi
from ._arguments import number
from ._callbacks import Progress, callbacks_for
from ._layout import save_options
from ._waiting import timeout_ms
from .errors import check
from .file import Path, fs_path


def reshard(
    source: Path,
    folder: Path,
    max_shard_size: int,
    *,
    layout: str = "keep",
    alignment: int = 0,
    header_reserve: int = 0,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> None:
    """Write a checkpoint into a folder as shards of at most `max_shard_size` bytes, with their index, named as
    Hugging Face names them: `model-00001-of-00003.safetensors`, `model.safetensors.index.json`.

    The source (anything that `libst.open` takes) is not changed; its bytes do not pass through memory. The index
    comes last; on failure what was written is removed, and by the next call for the same folder if this process
    dies. Other arguments as `libst.save`.

    The copy is of one state of the source: whoever changes it meanwhile waits, and raises `BusyError` after its
    `lock_timeout`; so does this call, for a change that is under way. Readers go on.

    Raises what `libst.open` and `libst.save` raise; `ValueError` (`Status.INVALID_ARGUMENT`) if the folder holds a
    checkpoint already, or a shard; BusyError while another process writes shards into it.
    """
    callbacks = callbacks_for(progress)
    options = save_options(layout, alignment, header_reserve, timeout_ms(lock_timeout), callbacks)
    raw, to, most = fs_path(source), fs_path(folder), number("max_shard_size", max_shard_size, 2**64 - 1)
    check(callbacks.call(_abi.st_reshard, raw, to, most, options))


def join(
    source: Path,
    path: Path,
    *,
    layout: str = "keep",
    alignment: int = 0,
    header_reserve: int = 0,
    lock_timeout: Optional[float] = 10.0,
    progress: Optional[Progress] = None,
) -> None:
    """Write a checkpoint, sharded or not, as one file, of one state as `libst.reshard`. Arguments and errors as
    `libst.save`; `ValueError` (`Status.INVALID_ARGUMENT`) if `path` is the source, a shard of it or its index."""
    callbacks = callbacks_for(progress)
    options = save_options(layout, alignment, header_reserve, timeout_ms(lock_timeout), callbacks)
    raw, to = fs_path(source), fs_path(path)
    check(callbacks.call(_abi.st_join, raw, to, options))
