package st

/*
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// CreateDelta writes the delta that makes `to` of `from`: a safetensors file of the tensors that differ. Its metadata says
// what else there is to do, and to which base. Either may be sharded. Both are read in large requests and little memory,
// and others that change them wait until they are read.
func CreateDelta(from, to, delta string, opts *CreateDeltaOptions) error {
	o := given(opts)
	if err := checkTimeout("create delta", o.LockTimeout); err != nil {
		return err
	}
	c := o.c()
	return withPaths(o.Context, "create delta", []string{from, to, delta}, &hooks{progress: o.Progress}, func(p []*C.char) C.st_status {
		return C.st_delta_create(p[0], p[1], p[2], &c)
	})
}

// ApplyDelta applies a delta to its base as one transaction, and answers how that was done: in place if only bytes of
// tensors change, else by a new file. A base of shards changes in all of them or in none. ErrDeltaBase says that the
// delta was made for another base, or has been applied already; nothing has changed then.
func ApplyDelta(base, delta string, opts *ApplyDeltaOptions) (Plan, error) {
	o := given(opts)
	return applyDelta([]string{delta, base}, o, &hooks{progress: o.Progress}, func(p []*C.char, c *C.st_delta_apply_options, done *C.st_plan) C.st_status {
		return C.st_delta_apply(p[1], p[0], c, done)
	})
}

// ApplyDelta is the same through a File that was opened for writing, which shows the result then.
func (f *File) ApplyDelta(delta string, opts *ApplyDeltaOptions) (Plan, error) {
	if !f.h.acquire() {
		return Plan{}, closedError("apply delta")
	}
	defer f.release()
	o := given(opts)
	if o.Context == nil {
		o.Context = f.ctx
	}
	return applyDelta([]string{delta}, o, &f.watchedBy(o.Progress).hooks, func(p []*C.char, c *C.st_delta_apply_options, done *C.st_plan) C.st_status {
		return C.st_apply_delta(f.h.c, p[0], c, done)
	})
}

func applyDelta(paths []string, o ApplyDeltaOptions, h *hooks, call func([]*C.char, *C.st_delta_apply_options, *C.st_plan) C.st_status) (Plan, error) {
	if err := checkTimeout("apply delta", o.LockTimeout); err != nil {
		return Plan{}, err
	}
	c := o.c()
	if o.Reverse != "" {
		paths = append(paths, o.Reverse)
	}
	done := C.st_plan{struct_size: C.uint32_t(C.sizeof_st_plan)}
	err := withPaths(o.Context, "apply delta", paths, h, func(p []*C.char) C.st_status {
		if o.Reverse != "" {
			c.reverse = p[len(p)-1]
		}
		return call(p, &c, &done)
	})
	if err != nil {
		return Plan{}, err
	}
	return planOf(&done), nil
}

// MergeDeltas folds deltas, the oldest first, and their base into a new file. It shares with them what the filesystem lets
// it. The base may be sharded; the result is one file all the same. SaveOptions.Metadata is not used.
func MergeDeltas(base string, deltas []string, to string, opts *SaveOptions) error {
	o := given(opts)
	if err := checkTimeout("merge deltas", o.LockTimeout); err != nil {
		return err
	}
	c, paths := o.c(), append([]string{base, to}, deltas...)
	return withPaths(o.Context, "merge deltas", paths, &hooks{progress: o.Progress}, func(p []*C.char) C.st_status {
		layers := newPaths(p[2:])
		defer layers.free()
		return C.st_delta_merge(p[0], layers.c, C.size_t(layers.n), p[1], &c)
	})
}

// DeltaInfo is what a delta says of itself. An identity is a hash of names, dtypes, shapes and metadata, not of bytes: it is
// equal if only bytes change.
type DeltaInfo struct {
	Changed         uint64 // tensors replaced
	Added           uint64 // tensors
	Deleted         uint64 // tensors
	MetadataSet     uint64 // keys
	MetadataRemoved uint64 // keys
	DataBytes       uint64 // of the tensors in it
	Base            string // identity of its base: 32 hexadecimal digits
	Result          string // identity of what it makes of that
	FileSize        uint64 // of the delta itself, with its header
}

// DescribeDelta reads the header of a delta. ErrDelta if the file is none.
func DescribeDelta(delta string) (DeltaInfo, error) {
	c := C.st_delta_info{struct_size: C.uint32_t(C.sizeof_st_delta_info)}
	if err := withPath(context.Background(), "describe delta", delta, &hooks{}, func(p *C.char) C.st_status {
		return C.st_delta_describe(p, &c)
	}); err != nil {
		return DeltaInfo{}, err
	}
	return DeltaInfo{
		Changed:         uint64(c.changed),
		Added:           uint64(c.added),
		Deleted:         uint64(c.deleted),
		MetadataSet:     uint64(c.metadata_set),
		MetadataRemoved: uint64(c.metadata_removed),
		DataBytes:       uint64(c.data_bytes),
		Base:            C.GoString(&c.base[0]),
		Result:          C.GoString(&c.result[0]),
		FileSize:        uint64(c.file_size),
	}, nil
}

// cPaths is a list of paths in C's memory; the strings are somebody else's.
type cPaths struct {
	c **C.char
	n int
}

func newPaths(all []*C.char) cPaths {
	if len(all) == 0 {
		return cPaths{}
	}
	c := (**C.char)(C.malloc(C.size_t(len(all)) * C.size_t(unsafe.Sizeof(all[0]))))
	copy(unsafe.Slice(c, len(all)), all)
	return cPaths{c, len(all)}
}

func (p cPaths) free() { C.free(unsafe.Pointer(p.c)) }
