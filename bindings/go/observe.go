package st

/*
#include <st/st.h>
*/
import "C"

// Storage is what kind of storage lies behind a path.
type Storage uint32

// The kinds of storage.
const (
	StorageUnknown     Storage = 0
	StorageLocal       Storage = 1
	StorageMemory      Storage = 2
	StorageNetwork     Storage = 3
	StorageParallel    Storage = 4
	StorageFUSE        Storage = 5
	StorageObjectStore Storage = 6 // a FUSE filesystem over an object store; also a source, as of a URL
)

func (s Storage) String() string {
	return nameOf(s, "unknown", "local", "memory", "network", "parallel", "fuse", "object store")
}

// IOInfo is how a file is reached, and why.
type IOInfo struct {
	Storage      Storage
	Map          MapMode // in use
	MapFallbacks int     // how many steps down from the one first tried
	FileSize     uint64
	HeaderSize   uint64 // bytes of JSON with padding
	DataOffset   uint64 // where tensors begin
	Filesystem   string // its type, as in the mount table
	Reason       string // one sentence: why this mapping
	Prefetch     Prefetch
	Direct       Direct // of bulk reads into memory
	IOThreads    int    // readers of a bulk read
	BlockSize    uint64 // of a request of theirs, at most

	PrefetchReason string // one sentence: how bulk reads go, and why
}

// IOInfo tells how the file is reached, and why.
func (f *File) IOInfo() (IOInfo, error) {
	c := C.st_io_info{struct_size: C.uint32_t(C.sizeof_st_io_info)}
	if err := f.call("io info", func() C.st_status { return C.st_file_io_info(f.h.c, &c) }); err != nil {
		return IOInfo{}, err
	}
	return IOInfo{
		Storage:      Storage(c.storage),
		Map:          MapMode(c._map),
		MapFallbacks: int(c.map_fallbacks),
		FileSize:     uint64(c.file_size),
		HeaderSize:   uint64(c.header_size),
		DataOffset:   uint64(c.data_offset),
		Filesystem:   C.GoString(&c.filesystem[0]),
		Reason:       C.GoString(&c.reason[0]),
		Prefetch:     Prefetch(c.prefetch),
		Direct:       Direct(c.direct),
		IOThreads:    int(c.io_threads),
		BlockSize:    uint64(c.block_size),

		PrefetchReason: C.GoString(&c.prefetch_reason[0]),
	}, nil
}

// Stats counts what a file has cost. Numbers are bytes but where they are said to count.
type Stats struct {
	MapFallbacks      uint64 // count
	BytesRead         uint64 // by the library's own reads, of this file
	BytesMapped       uint64 // address space
	BytesResident     uint64 // of the mapping, in memory now
	BytesPrivateDirty uint64 // of the mapping, copied on write
	BytesOwned        uint64 // in memory that the file owns
	IndexBytes        uint64 // names, shapes, offsets, hash table
	BytesWritten      uint64 // into the file
	JournalBytes      uint64 // into journals
	Commits           uint64 // count of transactions
	Recoveries        uint64 // count of journals applied or dropped
	LockWaits         uint64 // count of locks that were not free at once
	ReadRequests      uint64 // count, of bulk reads
	BytesPrefetched   uint64 // by Prefetch, into the page cache
	Reopens           uint64 // count, in forked children
}

// Stats tells what the file has cost so far.
func (f *File) Stats() (Stats, error) {
	c := C.st_stats{struct_size: C.uint32_t(C.sizeof_st_stats)}
	if err := f.call("stats", func() C.st_status { return C.st_file_stats(f.h.c, &c) }); err != nil {
		return Stats{}, err
	}
	return Stats{
		MapFallbacks:      uint64(c.map_fallbacks),
		BytesRead:         uint64(c.bytes_read),
		BytesMapped:       uint64(c.bytes_mapped),
		BytesResident:     uint64(c.bytes_resident),
		BytesPrivateDirty: uint64(c.bytes_private_dirty),
		BytesOwned:        uint64(c.bytes_owned),
		IndexBytes:        uint64(c.index_bytes),
		BytesWritten:      uint64(c.bytes_written),
		JournalBytes:      uint64(c.journal_bytes),
		Commits:           uint64(c.commits),
		Recoveries:        uint64(c.recoveries),
		LockWaits:         uint64(c.lock_waits),
		ReadRequests:      uint64(c.read_requests),
		BytesPrefetched:   uint64(c.bytes_prefetched),
		Reopens:           uint64(c.reopens),
	}, nil
}
