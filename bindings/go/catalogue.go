package st

/*
#cgo noescape stgo_info
#cgo nocallback stgo_info
#cgo noescape stgo_describe
#cgo nocallback stgo_describe
#include "bridge.h"
*/
import "C"

import (
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

func infoOf(name string, t *C.st_tensor) Info {
	return Info{
		Name:   name,
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

// shapeHere is the shape in C's memory, which lives as long as the handle that it was asked of.
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
	f = f.withoutContext()
	var names []string
	_ = f.pinned("names", func(pin *C.st_file) error {
		count := int(C.st_count(pin))
		if names = f.plainNames(pin, count); len(names) != count { // one holds NUL, which ends names there
			names = names[:0]
			for infos := range f.batches(pin) {
				for _, info := range infos {
					names = append(names, info.Name)
				}
			}
		}
		return nil
	})
	return names
}

// plainNames asks for all names of a pin at once; none if one holds NUL.
func (f *File) plainNames(pin *C.st_file, count int) []string {
	var size C.size_t
	if f.run("names", func() C.st_status { return C.st_names(pin, nil, &size) }) != nil || size == 0 {
		return nil
	}
	all := make([]byte, int(size))
	if f.run("names", func() C.st_status { return C.st_names(pin, (*C.char)(first(all)), &size) }) != nil {
		return nil
	}
	names := make([]string, 0, count)
	for rest := unsafe.String(&all[0], len(all)); rest != ""; { // nobody writes to it any more
		name, after, _ := strings.Cut(rest, "\x00")
		if len(names) == count {
			return nil
		}
		names, rest = append(names, name), after
	}
	return names
}

// All goes through the tensors in the order of their data, as they are when it begins, whatever is committed meanwhile.
// It ends early when the file is closed.
func (f *File) All() iter.Seq[Info] {
	f = f.withoutContext()
	return func(yield func(Info) bool) {
		_ = f.pinned("list", func(pin *C.st_file) error {
			for infos := range f.batches(pin) {
				for _, info := range infos {
					if !yield(info) {
						return nil
					}
				}
				if f.h.closed() {
					return nil
				}
			}
			return nil
		})
	}
}

// batches are the tensors of a pin, many at a time.
func (f *File) batches(pin *C.st_file) iter.Seq[[]Info] {
	return func(yield func([]Info) bool) {
		const most = 256
		found := make([]C.st_tensor, min(int(C.st_count(pin)), most))
		for left, at := int(C.st_count(pin)), 0; left > 0; {
			n := min(left, most)
			if f.run("list", func() C.st_status { return C.st_at(pin, C.size_t(at), C.size_t(n), &found[0]) }) != nil {
				return
			}
			infos := make([]Info, n)
			for i := range infos {
				infos[i] = infoOf(text(found[i].name, found[i].name_len), &found[i])
			}
			if !yield(infos) {
				return
			}
			left, at = left-n, at+n
		}
	}
}

// Info describes the tensor of that name.
func (f *File) Info(name string) (info Info, err error) {
	if f.plain {
		if info, ok := f.h.infoShown(name); ok {
			return info, nil
		}
		if info, ok := f.infoNow(name); ok {
			return info, nil
		}
	}
	err = f.pinTensor("info", name, func(_ *C.st_file, t *C.st_tensor) error { // again, for the error
		info = infoOf(name, t)
		return nil
	})
	return info, err
}

// infoShown is Info of what a steady handle shows; false where there is none, or on an error. Apart, so that what C fills
// lies on the stack.
func (h *handle) infoShown(name string) (info Info, ok bool) {
	state := h.shown()
	if state == nil {
		return
	}
	p, n := chars(name)
	var t C.st_tensor
	if ok = C.stgo_describe(state.c, p, n, C.stgo_tensor(unsafe.Pointer(&t))) == C.ST_OK; ok {
		info = infoOf(name, &t)
	}
	state.release()
	return
}

// infoNow is Info in one call of C; false on an error.
func (f *File) infoNow(name string) (info Info, ok bool) {
	if !f.h.acquire() {
		return
	}
	defer f.release()
	p, n := chars(name)
	var pin *C.st_file
	var t C.st_tensor
	var shape [8]C.uint64_t
	if ok = C.stgo_info(f.h.c, p, n, &shape[0], C.uint32_t(len(shape)), &pin, &t) == C.ST_OK; ok {
		info = infoOf(name, &t)
		C.st_close(pin)
	}
	return
}

// Has says whether there is a tensor of that name.
func (f *File) Has(name string) bool {
	p, n := chars(name)
	var i C.size_t
	return f.withoutContext().call("has", func() C.st_status { return C.st_find(f.h.c, p, n, &i) }) == nil
}

// Metadata is the file's own map from string to string; empty if it has none.
func (f *File) Metadata() map[string]string {
	f = f.withoutContext()
	all := map[string]string{}
	_ = f.pinned("metadata", func(pin *C.st_file) error {
		return f.run("metadata", func() C.st_status {
			for i := range C.st_metadata_count(pin) {
				var key, value *C.char
				var keyLen, valueLen C.size_t
				if status := C.st_metadata_at(pin, i, &key, &keyLen, &value, &valueLen); status != C.ST_OK {
					return status
				}
				all[text(key, keyLen)] = text(value, valueLen)
			}
			return C.ST_OK
		})
	})
	return all
}

// MetadataValue looks one key up. ErrNotFound if there is none.
func (f *File) MetadataValue(key string) (found string, err error) {
	p, n := chars(key)
	err = f.pinned("metadata", func(pin *C.st_file) error {
		var value *C.char
		var valueLen C.size_t
		err := f.run("metadata", func() C.st_status { return C.st_metadata_get(pin, p, n, &value, &valueLen) })
		if err == nil {
			found = text(value, valueLen)
		}
		return err
	})
	return found, err
}
