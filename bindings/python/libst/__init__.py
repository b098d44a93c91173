"""libst: open, read, verify and change safetensors files, safely.

import libst

with libst.open("model.safetensors", "r+") as f:
    w = f["w"]                      # a zero-copy, read-only numpy view
    f.update("w", w * 2)            # in place, durable when it returns

with libst.open("model.safetensors", "r+") as f, f.transaction() as t:
    t.update("a", a)                # all of it, or nothing
    t.update("b", b)
"""

from ._library import version
from ._payload import Packed
from .bulk import load
from .check import Finding, recover, verify
from .compact import compact
from .delta import DeltaInfo, delta_info, diff, merge, patch
from .errors import (
    AccessError,
    BufferSizeError,
    BusyError,
    CancelledError,
    ClosedError,
    DeltaBaseError,
    DeltaError,
    DtypeMismatchError,
    Error,
    FileChangedError,
    ForkedError,
    FormatError,
    HardLinksError,
    IncompleteError,
    InternalError,
    InterruptedCallError,
    InvalidArgumentError,
    JournalError,
    LockUnsupportedError,
    NbytesMismatchError,
    NeedsRecoveryError,
    NoFileError,
    NoSpaceError,
    NotFoundError,
    NotRegularError,
    OutOfMemoryError,
    OutOfRangeError,
    PoisonedError,
    ReadOnlyError,
    ShapeMismatchError,
    StorageError,
    TransactionFailedError,
    UnsupportedError,
)
from .file import File, open, open_memory
from .info import IoInfo, Plan, Stats, TensorInfo
from .reshape import join, reshard
from .save import Writer, save, writer
from .slices import TensorSlice
from .status import Status
from .transaction import Transaction

#: The version of the library that runs, and so of this package: "2.0.0".
__version__ = version

__all__ = [
    "AccessError",
    "BufferSizeError",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "DeltaBaseError",
    "DeltaError",
    "DeltaInfo",
    "DtypeMismatchError",
    "Error",
    "File",
    "FileChangedError",
    "Finding",
    "ForkedError",
    "FormatError",
    "HardLinksError",
    "IncompleteError",
    "InternalError",
    "InterruptedCallError",
    "InvalidArgumentError",
    "IoInfo",
    "JournalError",
    "LockUnsupportedError",
    "NbytesMismatchError",
    "NeedsRecoveryError",
    "NoFileError",
    "NoSpaceError",
    "NotFoundError",
    "NotRegularError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "Packed",
    "Plan",
    "PoisonedError",
    "ReadOnlyError",
    "ShapeMismatchError",
    "Stats",
    "Status",
    "StorageError",
    "TensorInfo",
    "TensorSlice",
    "Transaction",
    "TransactionFailedError",
    "UnsupportedError",
    "load",
    "Writer",
    "compact",
    "delta_info",
    "diff",
    "join",
    "merge",
    "open",
    "open_memory",
    "patch",
    "recover",
    "reshard",
    "save",
    "verify",
    "version",
    "writer",
]
