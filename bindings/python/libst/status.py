"""Generated from capi/include/st/st.h by capi/generate.py; do not edit.

What a call of libst answers: the numbers of st.h, fixed for ever.
"""

from enum import IntEnum


class Status(IntEnum):
    """`ST_E_BUSY` of st.h is `Status.BUSY`. Members are ints and compare as such."""

    OK = 0

    # The call.
    INVALID_ARGUMENT = 1  # fix: a parameter is not what the call takes
    NOMEM = 2  # space: memory could not be had
    INTERNAL = 3  # report: an error inside libst
    UNSUPPORTED = 4  # move: an option or struct of a newer version, or a thing this platform cannot do
    CANCELLED = 5  # end: a progress callback asked to stop
    INTERRUPTED = 6  # end: st_interrupt was called
    NOT_FOUND = 7  # fix: no tensor, or no key, of that name
    OUT_OF_RANGE = 8  # fix: an index or a slice lies outside
    BUFFER_SIZE = 9  # fix: the destination buffer is too small
    READ_ONLY = 10  # fix: the handle was opened for reading only
    BUSY = 11  # retry: another worker holds the lock
    FORKED = 12  # end: this transaction, or this call, is the parent process's

    # The storage.
    IO = 20  # retry: the system failed a call; st_last_error_info has errno
    NO_FILE = 21  # fix: no such file
    PERMISSION = 22  # fix: the operating system forbids it
    NO_SPACE = 23  # space: the disk, or the quota, is full
    NOT_REGULAR = 24  # fix: a folder, a device or a pipe, where a plain file is needed
    FILE_CHANGED = 25  # reopen: the file was truncated or replaced under an open handle, or its folder moved
    LOCK_UNSUPPORTED = 26  # move: the filesystem cannot lock, or grants every lock; changing is refused
    POISONED = 27  # reopen: a write or a sync failed on this handle
    CHECKSUM = 28  # retry: the bytes that came are not those that were stored

    # The format, one status a rule: capi/README.md has them with examples.
    HEADER_TOO_SMALL = 40  # fix: the file is shorter than its 8-byte length
    HEADER_TOO_LARGE = 41  # fix: the header has more than 100,000,000 bytes
    HEADER_TRUNCATED = 42  # fix: the file ends inside its header
    HEADER_UTF8 = 43  # fix: the header is not UTF-8
    HEADER_JSON = 44  # fix: the header is not one JSON object
    METADATA = 45  # fix: __metadata__ is not a map from string to string
    TENSOR_INFO = 46  # fix: an entry is not {dtype, shape, data_offsets}, each once and of its type
    DTYPE = 47  # fix: a dtype that the format does not have
    SHAPE_OVERFLOW = 48  # fix: the product of the shape, in bits, exceeds 2^64
    OFFSETS = 49  # fix: data_offsets end before they begin
    OVERLAP = 50  # fix: two tensors share bytes
    HOLE = 51  # fix: bytes between tensors, or before the first, belong to none
    SIZE_MISMATCH = 52  # fix: data_offsets span another size than shape and dtype ask for
    SUBBYTE = 53  # fix: 4- and 6-bit elements that do not fill whole bytes
    TRUNCATED = 54  # fix: the file ends before the last tensor
    TRAILING_DATA = 55  # fix: bytes follow the last tensor
    DUPLICATE_NAME = 56  # fix: a name stands twice, which would hide a tensor
    SHARD_INDEX = 57  # fix: an index of shards is not {"metadata": {}, "weight_map": {name: shard}}
    SHARD_MISSING = 58  # fix: a shard that the index names is not there
    SHARD_TENSOR = 59  # fix: index and shards disagree about where a tensor is
    SHARD_DUPLICATE = 60  # fix: a tensor stands twice: in the index, or in two shards
    SHARD_PATH = 61  # fix: a shard's name leads out of the index's folder

    # Deltas.
    DELTA = 62  # fix: the file is no delta, or a damaged one
    DELTA_BASE = 63  # fix: the delta was made for another base, or has been applied already

    # Changing.
    DTYPE_MISMATCH = 70  # fix: an update may not change the dtype
    SHAPE_MISMATCH = 71  # fix: an update may not change the shape
    NBYTES_MISMATCH = 72  # fix: the payload has another size than the tensor
    NEEDS_RECOVERY = 73  # reopen: the next open, where the file can be written, finishes the change or undoes it
    JOURNAL = 74  # reopen: a journal is damaged or foreign; it was not applied
    TXN_FAILED = 75  # end: this transaction, or writer, has ended, or an earlier call of it failed; free it
    HARD_LINKS = 80  # fix: the file has other names, which would keep the old bytes; see ST_TXN_BREAK_LINKS
    INCOMPLETE = 81  # fix: bytes of a declared tensor are missing
