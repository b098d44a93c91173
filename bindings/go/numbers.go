// Code generated from capi/include/st/st.h by capi/generate.py; DO NOT EDIT.

//go:build cgo

package st

// The call.
const (
	ErrInvalidArgument Status = 1  // fix: a parameter is not what the call takes
	ErrNoMem           Status = 2  // space: memory could not be had
	ErrInternal        Status = 3  // report: an error inside libst
	ErrUnsupported     Status = 4  // move: an option or struct of a newer version, or a thing this platform cannot do
	ErrCancelled       Status = 5  // end: a progress callback asked to stop
	ErrInterrupted     Status = 6  // end: st_interrupt was called
	ErrNotFound        Status = 7  // fix: no tensor, or no key, of that name
	ErrOutOfRange      Status = 8  // fix: an index or a slice lies outside
	ErrBufferSize      Status = 9  // fix: the destination buffer is too small
	ErrReadOnly        Status = 10 // fix: the handle was opened for reading only
	ErrBusy            Status = 11 // retry: another worker holds the lock
	ErrForked          Status = 12 // end: this transaction, or this call, is the parent process's
)

// The storage.
const (
	ErrIO              Status = 20 // retry: the system failed a call; st_last_error_info has errno
	ErrNoFile          Status = 21 // fix: no such file
	ErrPermission      Status = 22 // fix: the operating system forbids it
	ErrNoSpace         Status = 23 // space: the disk, or the quota, is full
	ErrNotRegular      Status = 24 // fix: a folder, a device or a pipe, where a plain file is needed
	ErrFileChanged     Status = 25 // reopen: the file was truncated or replaced under an open handle, or its folder moved
	ErrLockUnsupported Status = 26 // move: the filesystem cannot lock, or grants every lock; changing is refused
	ErrPoisoned        Status = 27 // reopen: a write or a sync failed on this handle
	ErrChecksum        Status = 28 // retry: the bytes that came are not those that were stored
)

// The format, one status a rule: capi/README.md has them with examples.
const (
	ErrHeaderTooSmall  Status = 40 // fix: the file is shorter than its 8-byte length
	ErrHeaderTooLarge  Status = 41 // fix: the header has more than 100,000,000 bytes
	ErrHeaderTruncated Status = 42 // fix: the file ends inside its header
	ErrHeaderUTF8      Status = 43 // fix: the header is not UTF-8
	ErrHeaderJSON      Status = 44 // fix: the header is not one JSON object
	ErrMetadata        Status = 45 // fix: __metadata__ is not a map from string to string
	ErrTensorInfo      Status = 46 // fix: an entry is not {dtype, shape, data_offsets}, each once and of its type
	ErrDType           Status = 47 // fix: a dtype that the format does not have
	ErrShapeOverflow   Status = 48 // fix: the product of the shape, in bits, exceeds 2^64
	ErrOffsets         Status = 49 // fix: data_offsets end before they begin
	ErrOverlap         Status = 50 // fix: two tensors share bytes
	ErrHole            Status = 51 // fix: bytes between tensors, or before the first, belong to none
	ErrSizeMismatch    Status = 52 // fix: data_offsets span another size than shape and dtype ask for
	ErrSubByte         Status = 53 // fix: 4- and 6-bit elements that do not fill whole bytes
	ErrTruncated       Status = 54 // fix: the file ends before the last tensor
	ErrTrailingData    Status = 55 // fix: bytes follow the last tensor
	ErrDuplicateName   Status = 56 // fix: a name stands twice, which would hide a tensor
	ErrShardIndex      Status = 57 // fix: an index of shards is not {"metadata": {}, "weight_map": {name: shard}}
	ErrShardMissing    Status = 58 // fix: a shard that the index names is not there
	ErrShardTensor     Status = 59 // fix: index and shards disagree about where a tensor is
	ErrShardDuplicate  Status = 60 // fix: a tensor stands twice: in the index, or in two shards
	ErrShardPath       Status = 61 // fix: a shard's name leads out of the index's folder
)

// Deltas.
const (
	ErrDelta     Status = 62 // fix: the file is no delta, or a damaged one
	ErrDeltaBase Status = 63 // fix: the delta was made for another base, or has been applied already
)

// Changing.
const (
	ErrDTypeMismatch  Status = 70 // fix: an update may not change the dtype
	ErrShapeMismatch  Status = 71 // fix: an update may not change the shape
	ErrNBytesMismatch Status = 72 // fix: the payload has another size than the tensor
	ErrNeedsRecovery  Status = 73 // reopen: the next open, where the file can be written, finishes the change or undoes it
	ErrJournal        Status = 74 // reopen: a journal is damaged or foreign; it was not applied
	ErrTxnFailed      Status = 75 // end: this transaction, or writer, has ended, or an earlier call of it failed; free it
	ErrHardLinks      Status = 80 // fix: the file has other names, which would keep the old bytes; see ST_TXN_BREAK_LINKS
	ErrIncomplete     Status = 81 // fix: bytes of a declared tensor are missing
)

// The element types.
const (
	Bool       DType = 1
	F4         DType = 2 // two elements a byte
	F6E2M3     DType = 3
	F6E3M2     DType = 4
	U8         DType = 5
	I8         DType = 6
	F8E5M2     DType = 7
	F8E4M3     DType = 8
	F8E8M0     DType = 9
	F8E4M3FNUZ DType = 10
	F8E5M2FNUZ DType = 11
	I16        DType = 12
	U16        DType = 13
	F16        DType = 14
	BF16       DType = 15
	I32        DType = 16
	U32        DType = 17
	F32        DType = 18
	C64        DType = 19
	F64        DType = 20
	I64        DType = 21
	U64        DType = 22
)
