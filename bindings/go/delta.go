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

// A DiffOption is for Diff.
type DiffOption interface{ toDiff(*diffConfig) }

// A PatchOption is for Patch.
type PatchOption interface{ toPatch(*patchConfig) }

type diffConfig struct {
	c     C.st_diff_options
	hooks hooks
}

type patchConfig struct {
	c       C.st_patch_options
	hooks   hooks
	reverse string
}

func (a alignment) toDiff(c *diffConfig)     { c.c.alignment = C.uint32_t(a) }
func (t lockTimeout) toDiff(c *diffConfig)   { c.c.lock_timeout_ms = C.int32_t(t) }
func (p progress) toDiff(c *diffConfig)      { c.hooks.progress = p.fn }
func (flag txFlag) toPatch(c *patchConfig)   { c.c.flags |= C.uint32_t(flag) }
func (t lockTimeout) toPatch(c *patchConfig) { c.c.lock_timeout_ms = C.int32_t(t) }
func (p progress) toPatch(c *patchConfig)    { c.hooks.progress = p.fn }

type reverse string

func (r reverse) toPatch(c *patchConfig) { c.reverse = string(r) }

// WithReverse writes the delta that undoes this one to that path, durably, before the base is changed.
func WithReverse(path string) PatchOption { return reverse(path) }

// Diff writes the delta that makes `to` of `from`: a safetensors file of the tensors that differ, whose metadata says what
// else there is to do, and to which base. Either may be sharded. Both are read in large requests and little memory.
func Diff(from, to, delta string, opts ...DiffOption) error {
	return DiffContext(context.Background(), from, to, delta, opts...)
}

// DiffContext is Diff that ends with the context.
func DiffContext(ctx context.Context, from, to, delta string, opts ...DiffOption) error {
	config := diffConfig{}
	C.st_diff_options_init(&config.c, C.sizeof_st_diff_options)
	for _, o := range opts {
		o.toDiff(&config)
	}
	C.stgo_hook_diff(&config.c)
	return withPaths(ctx, "diff", []string{from, to, delta}, &config.hooks, func(p []*C.char) C.st_status {
		return C.st_diff(p[0], p[1], p[2], &config.c)
	})
}

// Patch applies a delta to its base as one transaction, and answers how that was done: in place if only bytes of tensors
// change, else by a new file; a base of shards in all of them or in none. ErrDeltaBase says that the delta was made for
// another base, or has been applied already; nothing has changed then. Publish and BreakLinks are as for Begin; other
// options of transactions are refused.
func Patch(base, delta string, opts ...PatchOption) (Plan, error) {
	return PatchContext(context.Background(), base, delta, opts...)
}

// PatchContext is Patch that ends with the context.
func PatchContext(ctx context.Context, base, delta string, opts ...PatchOption) (Plan, error) {
	config := patchConfig{}
	C.st_patch_options_init(&config.c, C.sizeof_st_patch_options)
	for _, o := range opts {
		o.toPatch(&config)
	}
	C.stgo_hook_patch(&config.c)
	paths := []string{base, delta}
	if config.reverse != "" {
		paths = append(paths, config.reverse)
	}
	var plan C.st_plan
	C.st_plan_init(&plan, C.sizeof_st_plan)
	err := withPaths(ctx, "patch", paths, &config.hooks, func(p []*C.char) C.st_status {
		var reverse *C.char
		if len(p) > 2 {
			reverse = p[2]
		}
		return C.stgo_patch(p[0], p[1], &config.c, reverse, &plan)
	})
	if err != nil {
		return Plan{}, err
	}
	return planOf(&plan), nil
}

// Merge folds deltas, the oldest first, and their base into a new file, which shares with them what the filesystem lets it.
// The base may be sharded; what is made of it is one file all the same.
// Options are those of Save, but for metadata.
func Merge(base string, deltas []string, to string, opts ...SaveOption) error {
	return MergeContext(context.Background(), base, deltas, to, opts...)
}

// MergeContext is Merge that ends with the context.
func MergeContext(ctx context.Context, base string, deltas []string, to string, opts ...SaveOption) error {
	config := newSaveConfig(opts)
	paths := append([]string{base, to}, deltas...)
	return withPaths(ctx, "merge", paths, &config.hooks, func(p []*C.char) C.st_status {
		layers := newPaths(p[2:])
		defer layers.free()
		return C.st_merge(p[0], layers.c, C.size_t(layers.n), p[1], &config.c)
	})
}

// DeltaInfo is what a delta says of itself.
type DeltaInfo struct {
	Changed         uint64 // tensors replaced
	Added           uint64 // tensors
	Deleted         uint64 // tensors
	MetadataSet     uint64 // keys
	MetadataRemoved uint64 // keys
	DataBytes       uint64 // of the tensors in it
	Base            string // identity of its base: 32 hexadecimal digits
	Result          string // and of what it makes of that
}

// ReadDeltaInfo reads the header of a delta. ErrDelta if the file is none.
func ReadDeltaInfo(delta string) (DeltaInfo, error) {
	var c C.st_delta_info
	C.st_delta_info_init(&c, C.sizeof_st_delta_info)
	err := withPaths(context.Background(), "read delta", []string{delta}, &hooks{}, func(p []*C.char) C.st_status {
		return C.st_get_delta_info(p[0], &c)
	})
	if err != nil {
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
	}, nil
}

type deltas []string

func (d deltas) toOpen(c *openConfig)     { c.deltas = d }
func (d deltas) toVerify(c *verifyConfig) { c.deltas = d }

// WithDeltas puts deltas, the oldest first, on the file or the shards. Given to Open, what is shown, for reading only, is
// what Patch with each of them in turn would make of it. Given to Verify, they are checked too, and that they fit it and
// each other, to the last byte.
func WithDeltas(paths ...string) interface {
	OpenOption
	VerifyOption
} {
	return deltas(paths)
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
