package st

/*
#include "bridge.h"
*/
import "C"

import (
	"math"
	"time"
)

// An OpenOption is for Open, OpenBytes and OpenContext.
type OpenOption interface{ toOpen(*openConfig) }

// A TxOption is for Begin, BeginContext and Compact.
type TxOption interface{ toTx(*txConfig) }

// A VerifyOption is for Verify and VerifyContext.
type VerifyOption interface{ toVerify(*verifyConfig) }

// A RecoverOption is for Recover.
type RecoverOption interface{ toRecover(*recoverConfig) }

// A LoadOption is for Load and LoadContext.
type LoadOption interface{ toLoad(*loadConfig) }

type openConfig struct {
	c      C.st_open_options
	hooks  hooks
	deltas []string
}

type txConfig struct {
	c     C.st_txn_options
	hooks hooks
}

type verifyConfig struct {
	c      C.st_verify_options
	hooks  hooks
	deltas []string
}

type recoverConfig struct {
	c     C.st_recover_options
	hooks hooks
}

type loadConfig struct {
	c     C.st_load_options
	hooks hooks
}

type openOption func(*openConfig)

func (o openOption) toOpen(c *openConfig) { o(c) }

// ReadWrite allows changes; the file must be writable.
func ReadWrite() OpenOption {
	return openOption(func(c *openConfig) { c.c.flags |= C.ST_OPEN_READ_WRITE })
}

// MapMode is how the data of a file is reached.
type MapMode uint32

// The ways to reach data.
const (
	MapAuto        MapMode = 0 // as the storage asks; the environment's ST_MAP overrides
	MapShared      MapMode = 1 // MAP_SHARED; falls back to private, then to none
	MapPrivate     MapMode = 2 // MAP_PRIVATE; falls back to none
	MapNone        MapMode = 3 // no mapping: tensors are read into memory of the file's when first viewed
	MapCopyOnWrite MapMode = 4 // views may be written, and never reach the file; falls back to none
)

func (m MapMode) String() string {
	switch m {
	case MapAuto:
		return "auto"
	case MapShared:
		return "shared"
	case MapPrivate:
		return "private"
	case MapCopyOnWrite:
		return "copy-on-write"
	case MapNone:
		return "none"
	}
	return "unknown"
}

// WithMap chooses how the data is reached.
func WithMap(mode MapMode) OpenOption {
	return openOption(func(c *openConfig) { c.c._map = C.uint32_t(mode) })
}

// Prefetch is how much is read ahead of use.
type Prefetch uint32

// The ways to read ahead.
const (
	PrefetchAuto       Prefetch = 0 // as the storage asks; the environment's ST_PREFETCH overrides
	PrefetchNone       Prefetch = 1 // File.Prefetch does nothing
	PrefetchSequential Prefetch = 2 // one reader, in file order
	PrefetchParallel   Prefetch = 3 // several readers
)

func (p Prefetch) String() string {
	switch p {
	case PrefetchAuto:
		return "auto"
	case PrefetchNone:
		return "none"
	case PrefetchSequential:
		return "sequential"
	case PrefetchParallel:
		return "parallel"
	}
	return "unknown"
}

// Direct is whether bulk reads go past the page cache.
type Direct uint32

// The ways to treat the page cache.
const (
	DirectAuto Direct = 0 // the first load of a file that is not in memory; the environment's ST_DIRECT overrides
	DirectOff  Direct = 1
	DirectOn   Direct = 2 // O_DIRECT, queued; where the filesystem cannot, as DirectOff
)

func (d Direct) String() string {
	switch d {
	case DirectAuto:
		return "auto"
	case DirectOff:
		return "off"
	case DirectOn:
		return "on"
	}
	return "unknown"
}

// WithPrefetch chooses how Prefetch, ReadMany and Load go about it.
func WithPrefetch(mode Prefetch) OpenOption {
	return openOption(func(c *openConfig) { c.c.prefetch = C.uint32_t(mode) })
}

// WithDirect chooses whether bulk reads into memory go past the page cache.
func WithDirect(mode Direct) OpenOption {
	return openOption(func(c *openConfig) { c.c.direct = C.uint32_t(mode) })
}

// WithIOThreads sets the number of readers of a bulk read, at most 64; 0: as the storage asks.
func WithIOThreads(n uint32) OpenOption {
	return openOption(func(c *openConfig) { c.c.io_threads = C.uint32_t(n) })
}

// WithBlockSize sets the bytes of a request of bulk reads, taken between 64 KiB and 256 MiB; 0: as the storage asks.
func WithBlockSize(bytes uint32) OpenOption {
	return openOption(func(c *openConfig) { c.c.block_size = C.uint32_t(bytes) })
}

// WithWorker makes the file one of a group that shares the warming of a file: Prefetch(nil) then takes the part of worker
// `index`, of 0 to count-1.
func WithWorker(index, count uint32) OpenOption {
	return openOption(func(c *openConfig) {
		c.c.worker_index = C.uint32_t(index)
		c.c.worker_count = C.uint32_t(count)
	})
}

// WithMemoryLimit sets how many bytes bulk reads may leave behind in the page cache; 0: no limit.
func WithMemoryLimit(bytes uint64) OpenOption {
	return openOption(func(c *openConfig) { c.c.memory_limit = C.uint64_t(bytes) })
}

// WithLog tells what a user may want to know.
func WithLog(log Log) OpenOption {
	return openOption(func(c *openConfig) { c.hooks.log = log })
}

type txFlag C.uint32_t

func (flag txFlag) toTx(c *txConfig) { c.c.flags |= C.uint32_t(flag) }

// Publish makes a new file of the commit even where it could patch the old one, so that no reader sees a mix.
func Publish() FlagOption { return txFlag(C.ST_COMMIT_PUBLISH) }

// BreakLinks publishes a file that has other hard links, which keep the old bytes. Without it that is ErrHardLinks.
func BreakLinks() FlagOption { return txFlag(C.ST_TXN_BREAK_LINKS) }

type shardGrace C.uint32_t

func (g shardGrace) toTx(c *txConfig) {
	c.c.flags |= C.ST_TXN_NEW_NAMES
	c.c.shard_grace_s = C.uint32_t(g)
}

// NewNames gives shards that are rewritten new names, as in model-00001-of-00004.g1.safetensors, and leaves the old ones
// for so long: whoever has read the old index then finds all that it names, and the change takes one copy. The first such
// commit after that time removes them, or Recover at any time. Until then, what takes files by a pattern such as
// *.safetensors, and not by the index, takes old and new ones. On one file it is ErrUnsupported.
func NewNames(grace time.Duration) TxOption {
	seconds := (max(grace, 0) + time.Second - 1) / time.Second
	return shardGrace(min(seconds, math.MaxUint32))
}

// A PublishOption is for new files, of transactions and of Save.
type PublishOption interface {
	TxOption
	SaveOption
}

// A FlagOption is for transactions and for Patch.
type FlagOption interface {
	TxOption
	PatchOption
}

type layout Layout

func (l layout) toTx(c *txConfig)     { c.c.layout = C.uint32_t(l) }
func (l layout) toSave(c *saveConfig) { c.c.layout = C.uint32_t(l) }

// WithLayout chooses the order of the tensors. Given to Begin, what is not LayoutKeep makes a new file of the commit.
func WithLayout(order Layout) PublishOption { return layout(order) }

type alignment uint32

func (a alignment) toTx(c *txConfig)     { c.c.alignment = C.uint32_t(a) }
func (a alignment) toSave(c *saveConfig) { c.c.alignment = C.uint32_t(a) }

// WithAlignment places the first data byte of a new file: a multiple of 8, at most 2^20; 0 is 64, or where an old file is
// replaced what lets most bytes be shared with it. Given to Begin, what is not 0 makes a new file of the commit.
func WithAlignment(bytes uint32) interface {
	PublishOption
	DiffOption
} {
	return alignment(bytes)
}

type headerReserve uint64

func (r headerReserve) toTx(c *txConfig)     { c.c.header_reserve = C.uint64_t(r) }
func (r headerReserve) toSave(c *saveConfig) { c.c.header_reserve = C.uint64_t(r) }

// WithHeaderReserve leaves spare room in the header of a new file, for later growth. Given to Begin, what is not 0 makes a
// new file of the commit.
func WithHeaderReserve(bytes uint64) PublishOption { return headerReserve(bytes) }

type lockTimeout C.int32_t

func (t lockTimeout) toOpen(c *openConfig)       { c.c.lock_timeout_ms = C.int32_t(t) }
func (t lockTimeout) toTx(c *txConfig)           { c.c.lock_timeout_ms = C.int32_t(t) }
func (t lockTimeout) toSave(c *saveConfig)       { c.c.lock_timeout_ms = C.int32_t(t) }
func (t lockTimeout) toRecover(c *recoverConfig) { c.c.lock_timeout_ms = C.int32_t(t) }

// WithLockTimeout says how long to wait for other workers' locks: 0 not at all, less than 0 for ever; the default is
// ten seconds. Given to Open it is for recovery and for File.Update; given to Begin, for that transaction's commit; given to
// Save and NewWriter, for replacing a file.
func WithLockTimeout(d time.Duration) interface {
	OpenOption
	TxOption
	SaveOption
	RecoverOption
	DiffOption
	PatchOption
} {
	if d < 0 {
		return lockTimeout(C.ST_TIMEOUT_FOREVER)
	}
	ms := (d + time.Millisecond - 1) / time.Millisecond // a short wait is still a wait
	return lockTimeout(min(ms, math.MaxInt32))
}

type progress struct{ fn Progress }

func (p progress) toOpen(c *openConfig)     { c.hooks.progress = p.fn }
func (p progress) toTx(c *txConfig)         { c.hooks.progress = p.fn }
func (p progress) toSave(c *saveConfig)     { c.hooks.progress = p.fn }
func (p progress) toVerify(c *verifyConfig) { c.hooks.progress = p.fn }
func (p progress) toLoad(c *loadConfig)     { c.hooks.progress = p.fn }

// WithProgress watches long calls: given to Open, those of the file; given to Begin, those of the
// transaction.
func WithProgress(fn Progress) interface {
	OpenOption
	TxOption
	SaveOption
	VerifyOption
	LoadOption
	DiffOption
	PatchOption
} {
	return progress{fn}
}

type loadFlag C.uint32_t

func (flag loadFlag) toLoad(c *loadConfig) { c.c.flags |= C.uint32_t(flag) }

// HugePages takes the memory from the system's reserved huge pages, if there are enough.
func HugePages() LoadOption { return loadFlag(C.ST_LOAD_HUGE_PAGES) }

// PastPageCache loads as DirectOn does.
func PastPageCache() LoadOption { return loadFlag(C.ST_LOAD_DIRECT) }

type report struct{ fn func(Report) error }

func (r report) toVerify(c *verifyConfig)   { c.hooks.report = r.fn }
func (r report) toRecover(c *recoverConfig) { c.hooks.report = r.fn }

// WithReport is told each finding; an error stops the work.
func WithReport(fn func(Report) error) interface {
	VerifyOption
	RecoverOption
} {
	return report{fn}
}
