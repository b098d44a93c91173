"""libst: open, read, verify and change safetensors files, safely.

import libst

with libst.open("model.safetensors", "r+") as f:
    w = f["w"]                      # a zero-copy, read-only numpy view
    f.update("w", w * 2)            # in place, durable when it returns

with libst.open("model.safetensors", "r+") as f, f.transaction() as t:
    t.update("a", a)                # all of it, or nothing
    t.update("b", b)
"""

from . import _dynamo
from ._library import version
from ._payload import Packed
from .bulk import load
from .check import Finding, recover, verify
from .compact import compact
from .config import show_config
from .delta import DeltaInfo, delta_info, diff, merge, patch
from .errors import (
    BusyError,
    ClosedError,
    DeltaError,
    Error,
    FormatError,
    NeedsRecoveryError,
    NotFoundError,
    StorageError,
)
from .file import File, open_memory
from .file import open as open  # noqa: PLC0414
from .info import IoInfo, Plan, Stats, TensorInfo
from .reshape import join, reshard
from .save import Writer, save, writer
from .slices import TensorSlice
from .source import open_source
from .status import Status
from .transaction import Transaction

#: The version of the library that runs, and so of this package: "2.0.0".
__version__ = version

_dynamo.keep_out()

# Not `open`: `from libst import *` must leave Python's own. It is `libst.open`.
__all__ = [
    "BusyError",
    "ClosedError",
    "DeltaError",
    "DeltaInfo",
    "Error",
    "File",
    "Finding",
    "FormatError",
    "IoInfo",
    "NeedsRecoveryError",
    "NotFoundError",
    "Packed",
    "Plan",
    "Stats",
    "Status",
    "StorageError",
    "TensorInfo",
    "TensorSlice",
    "Transaction",
    "Writer",
    "compact",
    "delta_info",
    "diff",
    "join",
    "load",
    "merge",
    "open_memory",
    "open_source",
    "patch",
    "recover",
    "reshard",
    "save",
    "show_config",
    "verify",
    "version",
    "writer",
]
