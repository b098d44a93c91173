package st

/*
#include "bridge.h"
*/
import "C"

import (
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"unsafe"
)

// Save writes a file of tensors, durably: until it answers nil the path leads to the old file, or to none; then to the
// new one. Readers of an old file keep it. A file that is replaced hands on its mode, owner, ACL and extended attributes,
// and a symbolic link is followed. A path with the name of an index of shards, *.safetensors.index.json or
// *.safetensors.index.VARIANT.json, is ErrInvalidArgument. So is a tensor named __metadata__.
func Save(path string, tensors []Tensor, opts *SaveOptions) error {
	o := given(opts)
	if err := checkTimeout("save", o.LockTimeout); err != nil {
		return err
	}
	c := o.c()
	var pin runtime.Pinner
	defer pin.Unpin()
	all := make([]C.st_tensor, len(tensors))
	for i := range tensors {
		fill(&all[i], &pin, tensors[i].Name, &tensors[i])
	}
	pairs := pairsOf(o.Metadata, &pin)
	return withPath(o.Context, "save", path, &hooks{progress: o.Progress}, func(p *C.char) C.st_status {
		return C.st_save(p, unsafe.SliceData(all), C.size_t(len(all)), unsafe.SliceData(pairs), C.size_t(len(pairs)), &c)
	})
}

// fill fills a C struct with a tensor, under a name, which both are pinned for the call.
func fill(c *C.st_tensor, pin *runtime.Pinner, name string, t *Tensor) {
	describe(c, pin, name, t.DType, t.Shape)
	c.data, c.nbytes = unsafe.Pointer(first(t.Data)), C.uint64_t(len(t.Data))
	pin.Pin(c.data)
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
