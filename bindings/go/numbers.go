// Code generated from capi/include/st/st.h by capi/generate.py; DO NOT EDIT.

//go:build cgo

package st

// The call.
const (
	ErrInvalidArgument Status = 1  // a parameter is not what the function takes
	ErrNoMem           Status = 2  // memory could not be had
	ErrInternal        Status = 3  // a bug in libst; please report it
	ErrUnsupported     Status = 4  // an option or struct from a newer version, or a thing this platform cannot do
	ErrCancelled       Status = 5  // a progress callback asked to stop; nothing changed
	ErrInterrupted     Status = 6  // st_interrupt was called; nothing changed
	ErrNotFound        Status = 7  // no tensor, or no metadata key, of that name
	ErrOutOfRange      Status = 8  // an index or a slice lies outside
	ErrBufferSize      Status = 9  // the destination buffer is too small
	ErrReadOnly        Status = 10 // the handle was opened for reading only
	ErrBusy            Status = 11 // another worker holds the lock; try again later
	ErrForked          Status = 12 // this transaction belongs to the parent process
)

// The storage.
const (
	ErrIO              Status = 20 // the operating system failed a call; st_last_error_info has errno
	ErrNoFile          Status = 21 // no such file
	ErrPermission      Status = 22 // the operating system forbids it
	ErrNoSpace         Status = 23 // the disk, or the quota, is full; nothing changed
	ErrNotRegular      Status = 24 // a folder, a device or a pipe, where a plain file is needed
	ErrFileChanged     Status = 25 // the file was truncated or rewritten under an open handle, or its folder moved
	ErrLockUnsupported Status = 26 // the filesystem cannot lock, or grants every lock; changing is refused
	ErrPoisoned        Status = 27 // a sync failed on this handle earlier; close it and open anew
)

// The format.
const (
	ErrHeaderTooSmall  Status = 40 // the file is shorter than its 8-byte length
	ErrHeaderTooLarge  Status = 41 // the header is longer than 100,000,000 bytes
	ErrHeaderTruncated Status = 42 // the file ends inside its header
	ErrHeaderUTF8      Status = 43 // the header is not UTF-8
	ErrHeaderJSON      Status = 44 // the header is not one JSON object
	ErrMetadata        Status = 45 // __metadata__ is not a map from string to string
	ErrTensorInfo      Status = 46 // an entry is not {dtype, shape, data_offsets}, each once and of the right type
	ErrDType           Status = 47 // a dtype that the format does not have
	ErrShapeOverflow   Status = 48 // the product of the shape, in bits, exceeds 2^64
	ErrOffsets         Status = 49 // data_offsets end before they begin
	ErrOverlap         Status = 50 // two tensors share bytes
	ErrHole            Status = 51 // bytes between tensors, or before the first, belong to none
	ErrSizeMismatch    Status = 52 // data_offsets span another size than shape and dtype ask for
	ErrSubByte         Status = 53 // 4- and 6-bit elements that do not fill whole bytes
	ErrTruncated       Status = 54 // the file ends before the last tensor does
	ErrTrailingData    Status = 55 // bytes follow the last tensor
	ErrDuplicateName   Status = 56 // a name stands twice, which would hide a tensor
	ErrShardIndex      Status = 57 // an index of shards is not {"metadata": {}, "weight_map": {name: shard}}
	ErrShardMissing    Status = 58 // a shard that the index names is not there
	ErrShardTensor     Status = 59 // index and shards disagree about where a tensor is
	ErrShardDuplicate  Status = 60 // a tensor stands twice: in the index, or in two shards
	ErrShardPath       Status = 61 // a shard's name leads out of the index's folder
)

// Deltas.
const (
	ErrDelta     Status = 62 // the file is no delta, or one that contradicts itself or was damaged
	ErrDeltaBase Status = 63 // the delta was made for another base, or has been applied already; nothing changed
)

// Changing.
const (
	ErrDTypeMismatch  Status = 70 // an update may not change the dtype
	ErrShapeMismatch  Status = 71 // an update may not change the shape
	ErrNBytesMismatch Status = 72 // the payload has another size than the tensor
	ErrNeedsRecovery  Status = 73 // a committed journal waits: recover from where the file can be written
	ErrJournal        Status = 74 // a journal that is damaged, foreign or planted; it was not applied
	ErrTxnFailed      Status = 75 // an earlier call of this transaction failed; abort it
	ErrHardLinks      Status = 80 // the file has other names, which would keep the old bytes
	ErrIncomplete     Status = 81 // bytes of a declared tensor were not written
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
