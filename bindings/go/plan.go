package st

/*
#include "bridge.h"
*/
import "C"

import "math"

// PlanKind is how a commit goes about it.
type PlanKind uint32

// The ways to commit.
const (
	PlanNothing PlanKind = 0
	PlanPatch   PlanKind = 1 // in place, through the journal
	PlanPublish PlanKind = 2 // a new file, which takes the old one's name
)

func (k PlanKind) String() string { return nameOf(k, "nothing", "patch", "publish") }

// Plan is what Tx.Commit does, of one file or of shards. Numbers are bytes. Staged bytes that the kernel takes from a
// journal into a new file count nowhere.
type Plan struct {
	Kind         PlanKind
	FileSize     uint64 // after it; of shards: of all that change
	DataOffset   uint64 // after it: where tensors begin; of shards that change: the largest
	BytesWritten uint64 // from the process: to files, headers, the index, and what journals still lack
	BytesShared  uint64 // with the old files, in blocks of which nothing is copied
	BytesCopied  uint64 // of the old files, by the kernel
	SpaceNeeded  uint64 // free, taken at once, and a little for the filesystem
	SpaceFree    uint64 // now, if HasSpaceFree
	HasSpaceFree bool   // whether that is known
	How          string // one sentence
}

// Plan tells what Commit would do. It touches nothing.
func (tx *Tx) Plan() (Plan, error) {
	c := C.st_plan{struct_size: C.uint32_t(C.sizeof_st_plan)}
	if err := tx.call("plan", func() C.st_status { return C.st_txn_plan(tx.c, &c) }); err != nil {
		return Plan{}, err
	}
	return planOf(&c), nil
}

func planOf(c *C.st_plan) Plan {
	plan := Plan{
		Kind:         PlanKind(c.kind),
		FileSize:     uint64(c.file_size),
		DataOffset:   uint64(c.data_offset),
		BytesWritten: uint64(c.bytes_written),
		BytesShared:  uint64(c.bytes_shared),
		BytesCopied:  uint64(c.bytes_copied),
		SpaceNeeded:  uint64(c.space_needed),
		How:          C.GoString(&c.how[0]),
	}
	if c.space_free != math.MaxUint64 {
		plan.SpaceFree, plan.HasSpaceFree = uint64(c.space_free), true
	}
	return plan
}
