"""Generated from capi/include/st/st.h by capi/generate.py; do not edit.

What a call of libst answers: the numbers of st.h, fixed for ever.
"""

from enum import IntEnum


class Status(IntEnum):
    """`ST_E_BUSY` of st.h is `Status.BUSY`. Members are ints and compare as such."""

    OK = 0

    # The call.
    INVALID_ARGUMENT = 1  # a parameter is not what the function takes
    NOMEM = 2  # memory could not be had
    INTERNAL = 3  # a bug in libst; please report it
    UNSUPPORTED = 4  # an option or struct from a newer version, or a thing this platform cannot do
    CANCELLED = 5  # a progress callback asked to stop; nothing changed
    INTERRUPTED = 6  # st_interrupt was called; nothing changed
    NOT_FOUND = 7  # no tensor, or no metadata key, of that name
    OUT_OF_RANGE = 8  # an index or a slice lies outside
    BUFFER_SIZE = 9  # the destination buffer is too small
    READ_ONLY = 10  # the handle was opened for reading only
    BUSY = 11  # another worker holds the lock; try again later
    FORKED = 12  # this transaction belongs to the parent process

    # The storage.
    IO = 20  # the operating system failed a call; st_last_error_info has errno
    NO_FILE = 21  # no such file
    PERMISSION = 22  # the operating system forbids it
    NO_SPACE = 23  # the disk, or the quota, is full; nothing changed
    NOT_REGULAR = 24  # a folder, a device or a pipe, where a plain file is needed
    FILE_CHANGED = 25  # the file was truncated or rewritten under an open handle, or its folder moved
    LOCK_UNSUPPORTED = 26  # the filesystem cannot lock, or grants every lock; changing is refused
    POISONED = 27  # a sync failed on this handle earlier; close it and open anew

    # The format.
    HEADER_TOO_SMALL = 40  # the file is shorter than its 8-byte length
    HEADER_TOO_LARGE = 41  # the header is longer than 100,000,000 bytes
    HEADER_TRUNCATED = 42  # the file ends inside its header
    HEADER_UTF8 = 43  # the header is not UTF-8
    HEADER_JSON = 44  # the header is not one JSON object
    METADATA = 45  # __metadata__ is not a map from string to string
    TENSOR_INFO = 46  # an entry is not {dtype, shape, data_offsets}, each once and of the right type
    DTYPE = 47  # a dtype that the format does not have
    SHAPE_OVERFLOW = 48  # the product of the shape, in bits, exceeds 2^64
    OFFSETS = 49  # data_offsets end before they begin
    OVERLAP = 50  # two tensors share bytes
    HOLE = 51  # bytes between tensors, or before the first, belong to none
    SIZE_MISMATCH = 52  # data_offsets span another size than shape and dtype ask for
    SUBBYTE = 53  # 4- and 6-bit elements that do not fill whole bytes
    TRUNCATED = 54  # the file ends before the last tensor does
    TRAILING_DATA = 55  # bytes follow the last tensor
    DUPLICATE_NAME = 56  # a name stands twice, which would hide a tensor
    SHARD_INDEX = 57  # an index of shards is not {"metadata": {}, "weight_map": {name: shard}}
    SHARD_MISSING = 58  # a shard that the index names is not there
    SHARD_TENSOR = 59  # index and shards disagree about where a tensor is
    SHARD_DUPLICATE = 60  # a tensor stands twice: in the index, or in two shards
    SHARD_PATH = 61  # a shard's name leads out of the index's folder

    # Deltas.
    DELTA = 62  # the file is no delta, or one that contradicts itself or was damaged
    DELTA_BASE = 63  # the delta was made for another base, or has been applied already; nothing changed

    # Changing.
    DTYPE_MISMATCH = 70  # an update may not change the dtype
    SHAPE_MISMATCH = 71  # an update may not change the shape
    NBYTES_MISMATCH = 72  # the payload has another size than the tensor
    NEEDS_RECOVERY = 73  # a committed journal waits: recover from where the file can be written
    JOURNAL = 74  # a journal that is damaged, foreign or planted; it was not applied
    TXN_FAILED = 75  # an earlier call of this transaction failed; abort it
    HARD_LINKS = 80  # the file has other names, which would keep the old bytes
    INCOMPLETE = 81  # bytes of a declared tensor were not written
