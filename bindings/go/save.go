package st

/*
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"context"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"unsafe"
)

// A SaveOption is for Save and NewWriter.
type SaveOption interface{ toSave(*saveConfig) }

type saveConfig struct {
	c        C.st_save_options
	hooks    hooks
	metadata map[string]string
}

type metadata map[string]string

func (m metadata) toSave(c *saveConfig) { c.metadata = m }

// WithMetadata sets the file's own map from string to string; its keys are written in order.
func WithMetadata(pairs map[string]string) SaveOption { return metadata(maps.Clone(pairs)) }

func newSaveConfig(opts []SaveOption) *saveConfig {
	config := &saveConfig{}
	C.st_save_options_init(&config.c, C.sizeof_st_save_options)
	for _, o := range opts {
		o.toSave(config)
	}
	C.stgo_hook_save(&config.c)
	return config
}

// Save writes a file of tensors, durably: until it answers nil the path leads to the old file, or to none; then to the
// new one. Readers of an old file keep it. A file that is replaced hands on its mode, owner, ACL and extended attributes,
// and a symbolic link is followed.
func Save(path string, tensors []Tensor, opts ...SaveOption) error {
	return SaveContext(context.Background(), path, tensors, opts...)
}

// SaveContext is Save that ends with the context.
func SaveContext(ctx context.Context, path string, tensors []Tensor, opts ...SaveOption) error {
	config := newSaveConfig(opts)
	var pin runtime.Pinner
	defer pin.Unpin()
	all := make([]C.st_tensor, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		describe(&all[i], &pin, t.Name, t.DType, t.Shape)
		all[i].data, all[i].nbytes = first(t.Data), C.uint64_t(len(t.Data))
		pin.Pin(all[i].data)
	}
	pairs := pairsOf(config.metadata, &pin)
	return withPath(ctx, "save", path, &config.hooks, func(p *C.char) C.st_status {
		return C.st_save(p, unsafe.SliceData(all), C.size_t(len(all)), unsafe.SliceData(pairs), C.size_t(len(pairs)), &config.c)
	})
}

// describe fills a C struct with what points to Go's memory, which is pinned for the call.
func describe(c *C.st_tensor, pin *runtime.Pinner, name string, dtype DType, shape []uint64) {
	c.name, c.name_len = chars(name)
	pin.Pin(c.name)
	c.dtype, c.rank = C.st_dtype(dtype), C.uint32_t(len(shape))
	if len(shape) > 0 {
		c.shape = (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(shape)))
		pin.Pin(c.shape)
	}
}

func pairsOf(metadata map[string]string, pin *runtime.Pinner) []C.st_metadata {
	pairs := make([]C.st_metadata, 0, len(metadata))
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		var c C.st_metadata
		c.key, c.key_len = chars(key)
		c.value, c.value_len = chars(metadata[key])
		pin.Pin(c.key)
		pin.Pin(c.value)
		pairs = append(pairs, c)
	}
	return pairs
}

// sizeOf is the bytes that a dtype and a shape ask for; for those that ask for none that can be, a size that the library
// compares with its own, and refuses.
func sizeOf(dtype DType, shape []uint64) uint64 {
	size := uint64(dtype.Bits())
	for _, n := range shape {
		high, low := bits.Mul64(size, n)
		if high != 0 {
			return 0
		}
		size = low
	}
	return size / 8
}
