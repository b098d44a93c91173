package st

/*
#include "bridge.h"
*/
import "C"

import (
	"context"
	"math"
	"time"
)

// How long to wait for other workers' locks, in every LockTimeout. Zero is ten seconds, but the file's in TxOptions and in
// ApplyDeltaOptions of File.ApplyDelta. What is more is as long as it says. Other negative durations are
// ErrInvalidArgument.
const (
	Forever time.Duration = -1 // no end
	NoWait  time.Duration = -2 // a lock that is not free at once is ErrBusy
)

// NoGrace, in every ShardGrace, is no time at all. Zero is one hour.
const NoGrace time.Duration = -1

// Options are for Open. The zero value, or nil, opens for reading.
type Options struct {
	ReadWrite   bool          // allow changes; the file must be writable
	Map         MapMode       // how the data is reached
	LockTimeout time.Duration // of recovery, and of what changes the file without a timeout of its own
	Progress    Progress      // of the file's long calls
	Log         Log           // what a user may want to know
	Deltas      []string      // paths, the oldest first: show, for reading only, what ApplyDelta with each would make

	Prefetch    Prefetch // how Prefetch, ReadMany and Load go about it
	Direct      Direct   // whether bulk reads into memory go past the page cache
	IOThreads   uint32   // readers of a bulk read, at most 64; 0: as the storage asks
	BlockSize   uint32   // bytes of a request of theirs, from 64 KiB to 256 MiB; 0: as the storage asks
	MemoryLimit uint64   // bytes that bulk reads may leave in the page cache; 0: no limit

	// The number of this worker, from 0 on, in a group of workers that share the warming of a file. Prefetch of all
	// tensors then takes this worker's part.
	WorkerIndex uint32
	WorkerCount uint32

	Context context.Context // ends the opening (not the file's later calls: see WithContext)
}

// TxOptions are for Begin. The zero value, or nil, patches what can be patched.
type TxOptions struct {
	Publish     bool          // make a new file also where a patch would do, so that no reader sees a mix
	BreakLinks  bool          // publish a file that has other hard links, which keep the old bytes; else ErrHardLinks
	LockTimeout time.Duration // of Commit; 0: the file's

	// Commit is durable, as ever, but by its journal alone, and takes one sync. The file has the new bytes at once, and
	// they are durable in it later: see File.Sync. On shards, on storage that is not local, and where the commit
	// publishes it changes nothing.
	JournalOnly bool

	Progress Progress // of the transaction's calls; nil: the file's

	// Give shards that are rewritten new names, as in model-00001-of-00004.g1.safetensors. The old shards stay for
	// ShardGrace. So a stock reader of the old index finds all that it names, and the change takes one copy. A File that
	// has the old index must be refreshed before it opens another shard (ErrFileChanged). The first such commit after
	// this time removes the old shards, and so does Recover at any time. Till then a pattern such as *.safetensors
	// matches old and new shards. On one file it is ErrUnsupported.
	NewNames   bool
	ShardGrace time.Duration // 0: one hour; NoGrace

	// How a new file is laid out. Any of them but zero makes the commit publish.
	Layout        Layout // LayoutKeep or LayoutCanonical
	Alignment     uint32 // of the first data byte: a multiple of 8, at most 2^20; 0: what shares most with the old file
	HeaderReserve uint64 // spare bytes in the header, for later growth
}

// CompactOptions are for Compact. The fields are those of TxOptions.
type CompactOptions struct {
	BreakLinks    bool
	NewNames      bool
	ShardGrace    time.Duration
	Alignment     uint32 // 0: 64
	HeaderReserve uint64
	LockTimeout   time.Duration
	Progress      Progress
	Context       context.Context // ends the call
}

// SaveOptions are for what writes new files: Save, NewWriter, Reshard, Join and MergeDeltas.
type SaveOptions struct {
	Metadata      map[string]string // the file's own, of Save and NewWriter; its keys are written in order
	Layout        Layout
	Alignment     uint32 // of the first data byte: a multiple of 8, at most 2^20; 0: 64, or 8 with LayoutStock
	HeaderReserve uint64 // spare bytes in the header, for later growth
	LockTimeout   time.Duration
	Progress      Progress
	Context       context.Context // ends the call; of NewWriter: each call of the writer
}

// BulkOptions are for ReadMany, Prefetch and Load.
type BulkOptions struct {
	HugePages     bool     // Load: memory from the system's reserved huge pages, if there are enough
	PastPageCache bool     // Load: as with DirectOn
	FreshMemory   bool     // ReadMany: nobody has touched Dst since mmap, so that libst chooses the size of its pages
	Progress      Progress // nil: the file's
}

// CreateDeltaOptions are for CreateDelta.
type CreateDeltaOptions struct {
	Alignment   uint32        // of the delta's first data byte, as in SaveOptions
	LockTimeout time.Duration // where a delta of this name is replaced
	Progress    Progress      // over the bytes of `to`
	Context     context.Context
}

// ApplyDeltaOptions are for ApplyDelta.
type ApplyDeltaOptions struct {
	Publish     bool          // as in TxOptions
	BreakLinks  bool          // as in TxOptions
	JournalOnly bool          // as in TxOptions; of File.ApplyDelta alone
	Reverse     string        // path: write the delta that undoes this one there, durably, before the change is decided; one of its own for each apply
	LockTimeout time.Duration // 0: ten seconds, or of File.ApplyDelta the file's
	Progress    Progress
	Context     context.Context
}

// VerifyOptions are for Verify.
type VerifyOptions struct {
	Report   func(Report) error // is told each finding; an error stops the work
	Progress Progress           // over the bytes read
	Deltas   []string           // check these too, and that they fit the file and each other, to the last byte
	Context  context.Context
}

// RecoverOptions are for Recover.
type RecoverOptions struct {
	Report      func(Report) error // is told each journal, old shard, and what else went; an error stops the work
	LockTimeout time.Duration
	Progress    Progress        // while it waits for a lock
	Context     context.Context // ends the wait for a lock
}

// given is a caller's options, or the defaults.
func given[T any](opts *T) (options T) {
	if opts != nil {
		options = *opts
	}
	return options
}

func contextOf(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// checkTimeout refuses what the library would refuse as a number of milliseconds that nobody gave.
func checkTimeout(op string, d time.Duration) error {
	if d >= 0 || d == Forever || d == NoWait {
		return nil
	}
	return argumentError(op, "LockTimeout is "+d.String()+"; it takes a duration of 0 or more, st.Forever or st.NoWait")
}

// timeoutOf is of what checkTimeout lets pass.
func timeoutOf(d time.Duration) C.int32_t {
	switch d {
	case Forever:
		return C.ST_TIMEOUT_FOREVER
	case NoWait:
		return C.ST_TIMEOUT_NONE
	}
	return C.int32_t(min(roundUp(d, time.Millisecond), math.MaxInt32))
}

func graceOf(d time.Duration) C.uint32_t {
	if d < 0 {
		return C.ST_GRACE_NONE
	}
	return C.uint32_t(min(roundUp(d, time.Second), math.MaxUint32-1)) // the greatest of all is ST_GRACE_NONE
}

// roundUp counts units: a short wait is still a wait, since none is the default.
func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

func flag(set bool, bits C.uint32_t) C.uint32_t {
	if set {
		return bits
	}
	return 0
}

func (o *Options) c() C.st_open_options {
	return C.st_open_options{
		struct_size:     C.uint32_t(C.sizeof_st_open_options),
		flags:           flag(o.ReadWrite, C.ST_OPEN_READ_WRITE),
		_map:            C.uint32_t(o.Map),
		lock_timeout_ms: timeoutOf(o.LockTimeout),
		progress:        C.st_progress_fn(C.stgo_on_progress),
		log:             C.st_log_fn(C.stgo_on_log),
		prefetch:        C.uint32_t(o.Prefetch),
		direct:          C.uint32_t(o.Direct),
		io_threads:      C.uint32_t(o.IOThreads),
		block_size:      C.uint32_t(o.BlockSize),
		worker_index:    C.uint32_t(o.WorkerIndex),
		worker_count:    C.uint32_t(o.WorkerCount),
		memory_limit:    C.uint64_t(o.MemoryLimit),
	}
}

func (o *TxOptions) c() C.st_txn_options {
	return C.st_txn_options{
		struct_size: C.uint32_t(C.sizeof_st_txn_options),
		flags: flag(o.Publish, C.ST_TXN_PUBLISH) | flag(o.BreakLinks, C.ST_TXN_BREAK_LINKS) |
			flag(o.NewNames, C.ST_TXN_NEW_NAMES) | flag(o.JournalOnly, C.ST_TXN_JOURNAL_ONLY),
		lock_timeout_ms: timeoutOf(o.LockTimeout),
		shard_grace_s:   graceOf(o.ShardGrace),
		progress:        C.st_progress_fn(C.stgo_on_progress),
		layout:          C.uint32_t(o.Layout),
		alignment:       C.uint32_t(o.Alignment),
		header_reserve:  C.uint64_t(o.HeaderReserve),
	}
}

func (o *CompactOptions) c() C.st_txn_options {
	tx := TxOptions{
		BreakLinks: o.BreakLinks, NewNames: o.NewNames, ShardGrace: o.ShardGrace, Alignment: o.Alignment,
		HeaderReserve: o.HeaderReserve, LockTimeout: o.LockTimeout,
	}
	return tx.c()
}

func (o *SaveOptions) c() C.st_save_options {
	return C.st_save_options{
		struct_size:     C.uint32_t(C.sizeof_st_save_options),
		layout:          C.uint32_t(o.Layout),
		alignment:       C.uint32_t(o.Alignment),
		header_reserve:  C.uint64_t(o.HeaderReserve),
		lock_timeout_ms: timeoutOf(o.LockTimeout),
		progress:        C.st_progress_fn(C.stgo_on_progress),
	}
}

func (o *BulkOptions) c() C.st_bulk_options {
	return C.st_bulk_options{
		struct_size: C.uint32_t(C.sizeof_st_bulk_options),
		flags: flag(o.HugePages, C.ST_BULK_HUGE_PAGES) | flag(o.PastPageCache, C.ST_BULK_DIRECT) |
			flag(o.FreshMemory, C.ST_BULK_FRESH_MEMORY),
		progress: C.st_progress_fn(C.stgo_on_progress),
	}
}

func (o *CreateDeltaOptions) c() C.st_delta_create_options {
	return C.st_delta_create_options{
		struct_size:     C.uint32_t(C.sizeof_st_delta_create_options),
		alignment:       C.uint32_t(o.Alignment),
		lock_timeout_ms: timeoutOf(o.LockTimeout),
		progress:        C.st_progress_fn(C.stgo_on_progress),
	}
}

func (o *ApplyDeltaOptions) c() C.st_delta_apply_options {
	return C.st_delta_apply_options{
		struct_size: C.uint32_t(C.sizeof_st_delta_apply_options),
		flags: flag(o.Publish, C.ST_TXN_PUBLISH) | flag(o.BreakLinks, C.ST_TXN_BREAK_LINKS) |
			flag(o.JournalOnly, C.ST_TXN_JOURNAL_ONLY),
		lock_timeout_ms: timeoutOf(o.LockTimeout),
		progress:        C.st_progress_fn(C.stgo_on_progress),
	}
}

func (o *VerifyOptions) c() C.st_verify_options {
	return C.st_verify_options{
		struct_size: C.uint32_t(C.sizeof_st_verify_options),
		report:      C.st_report_fn(C.stgo_on_report),
		progress:    C.st_progress_fn(C.stgo_on_progress),
	}
}

func (o *RecoverOptions) c() C.st_recover_options {
	return C.st_recover_options{
		struct_size:     C.uint32_t(C.sizeof_st_recover_options),
		lock_timeout_ms: timeoutOf(o.LockTimeout),
		report:          C.st_report_fn(C.stgo_on_report),
		progress:        C.st_progress_fn(C.stgo_on_progress),
	}
}
