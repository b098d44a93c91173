package st

/*
#cgo noescape stgo_describe
#cgo nocallback stgo_describe
#include "bridge.h"
*/
import "C"

import (
	"context"
	"iter"
	"strings"
	"unsafe"
)

// Info describes a tensor.
type Info struct {
	Name   string
	DType  DType
	Shape  []uint64 // slowest dimension first; empty for a scalar
	Size   uint64   // in bytes
	Offset uint64   // of its first byte, from the start of the file
	Shard  uint32   // number of the file in a sharded checkpoint; else 0
}

func infoOf(t *C.st_tensor) Info {
	return Info{
		Name:   text(t.name, t.name_len),
		DType:  DType(t.dtype),
		Shape:  shapeOf(t),
		Size:   uint64(t.nbytes),
		Offset: uint64(t.file_offset),
		Shard:  uint32(t.shard),
	}
}

func shapeOf(t *C.st_tensor) []uint64 {
	return append(make([]uint64, 0, t.rank), shapeHere(t)...)
}

// shapeHere is the shape in C's memory, which lives until the file is closed.
func shapeHere(t *C.st_tensor) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(t.shape)), int(t.rank))
}

// Len is the number of tensors; 0 when the file is closed.
func (f *File) Len() int {
	if !f.h.acquire() {
		return 0
	}
	defer f.release()
	return int(C.st_count(f.h.c))
}

// Names lists the tensors in the order of their data; none when the file is closed.
func (f *File) Names() []string {
	if names, ok := f.plainNames(); ok {
		return names
	}
	names := make([]string, 0, f.Len())
	for info := range f.All() {
		names = append(names, info.Name)
	}
	return names
}

// plainNames asks for all names at once; it gives up if one holds NUL, which ends names there.
func (f *File) plainNames() ([]string, bool) {
	if !f.h.acquire() {
		return nil, true
	}
	defer f.release()
	var size C.size_t
	err := run(context.Background(), "names", &f.hooks, func() C.st_status { return C.st_names(f.h.c, nil, &size) })
	if err != nil || size == 0 {
		return nil, err == nil
	}
	all := make([]byte, int(size))
	err = run(context.Background(), "names", &f.hooks, func() C.st_status {
		return C.st_names(f.h.c, (*C.char)(first(all)), &size)
	})
	names := strings.Split(strings.TrimSuffix(string(all), "\x00"), "\x00")
	return names, err == nil && len(names) == int(C.st_count(f.h.c))
}

// All goes through the tensors in the order of their data. It ends early when the file is closed.
func (f *File) All() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		const batch = 256
		for i := 0; ; i += batch {
			infos := f.infos(i, batch)
			for _, info := range infos {
				if !yield(info) {
					return
				}
			}
			if len(infos) < batch {
				return
			}
		}
	}
}

func (f *File) infos(first, most int) []Info {
	n := min(f.Len()-first, most)
	if n <= 0 {
		return nil
	}
	found := make([]C.st_tensor, n)
	infos := make([]Info, 0, n)
	if !f.h.acquire() {
		return nil
	}
	defer f.release()
	if run(context.Background(), "list", &f.hooks, func() C.st_status {
		return C.st_at_many(f.h.c, C.size_t(first), C.size_t(n), &found[0])
	}) != nil {
		return nil
	}
	for i := range found {
		infos = append(infos, infoOf(&found[i]))
	}
	return infos
}

// Info describes the tensor of that name.
func (f *File) Info(name string) (Info, error) { return f.info("info", name) }

func (f *File) info(op, name string) (Info, error) {
	if !f.h.acquire() {
		return Info{}, closedError(op)
	}
	defer f.release()
	p, n := chars(name)
	var t C.st_tensor
	if C.stgo_describe(f.h.c, p, n, &t) == C.ST_OK {
		return infoOf(&t), nil
	}
	return Info{}, run(context.Background(), op, &hooks{}, func() C.st_status { // again, for the error
		var t C.st_tensor
		return C.stgo_describe(f.h.c, p, n, &t)
	})
}

// Has says whether there is a tensor of that name.
func (f *File) Has(name string) bool {
	_, err := f.info("has", name)
	return err == nil
}

// Metadata is the file's own map from string to string; empty if it has none.
func (f *File) Metadata() map[string]string {
	all := map[string]string{}
	_ = f.call("metadata", func() C.st_status {
		for i := range C.st_metadata_count(f.h.c) {
			var key, value *C.char
			var keyLen, valueLen C.size_t
			if status := C.st_metadata_at(f.h.c, i, &key, &keyLen, &value, &valueLen); status != C.ST_OK {
				return status
			}
			all[text(key, keyLen)] = text(value, valueLen)
		}
		return C.ST_OK
	})
	return all
}

// MetadataValue looks one key up. ErrNotFound if there is none.
func (f *File) MetadataValue(key string) (string, error) {
	if !f.h.acquire() {
		return "", closedError("metadata")
	}
	defer f.release()
	p, n := chars(key)
	var value *C.char
	var valueLen C.size_t
	if err := run(context.Background(), "metadata", &f.hooks, func() C.st_status {
		return C.st_metadata_get_n(f.h.c, p, n, &value, &valueLen)
	}); err != nil {
		return "", err
	}
	return text(value, valueLen), nil
}
