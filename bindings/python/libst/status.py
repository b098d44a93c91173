"""What a call of libst answers: the numbers of st.h, fixed for ever."""

from enum import IntEnum


class Status(IntEnum):
    """`ST_E_BUSY` of st.h is `Status.BUSY`. Members are ints and compare as such."""

    OK = 0

    # The call.
    INVALID_ARGUMENT = 1
    NOMEM = 2
    INTERNAL = 3
    UNSUPPORTED = 4
    CANCELLED = 5
    INTERRUPTED = 6
    NOT_FOUND = 7
    OUT_OF_RANGE = 8
    BUFFER_SIZE = 9
    READ_ONLY = 10
    BUSY = 11
    FORKED = 12

    # The storage.
    IO = 20
    NO_FILE = 21
    PERMISSION = 22
    NO_SPACE = 23
    NOT_REGULAR = 24
    FILE_CHANGED = 25
    LOCK_UNSUPPORTED = 26
    POISONED = 27

    # The format.
    HEADER_TOO_SMALL = 40
    HEADER_TOO_LARGE = 41
    HEADER_TRUNCATED = 42
    HEADER_UTF8 = 43
    HEADER_JSON = 44
    METADATA = 45
    TENSOR_INFO = 46
    DTYPE = 47
    SHAPE_OVERFLOW = 48
    OFFSETS = 49
    OVERLAP = 50
    HOLE = 51
    SIZE_MISMATCH = 52
    SUBBYTE = 53
    TRUNCATED = 54
    TRAILING_DATA = 55
    DUPLICATE_NAME = 56
    SHARD_INDEX = 57
    SHARD_MISSING = 58
    SHARD_TENSOR = 59
    SHARD_DUPLICATE = 60
    SHARD_PATH = 61

    # Deltas.
    DELTA = 62
    DELTA_BASE = 63

    # Changing.
    DTYPE_MISMATCH = 70
    SHAPE_MISMATCH = 71
    NBYTES_MISMATCH = 72
    NEEDS_RECOVERY = 73
    JOURNAL = 74
    TXN_FAILED = 75
    HARD_LINKS = 80
    INCOMPLETE = 81
