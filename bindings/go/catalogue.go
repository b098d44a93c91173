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
	"encoding/binary"
	"errors"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
)

// Info describes a tensor.
type Info struct {
	Name   string
	DType  DType
	Shape  []uint64 // slowest dimension first; empty for a scalar
	Size   uint64   // in bytes
	Offset uint64   // of its first byte in its file; made by steps of a delta: in memory that looks like a file
	Shard  uint32   // number of its file among File.Shards: one file, an index's shards, or base and deltas
}

func (info *Info) show(name string, shape []uint64, t *C.st_tensor) {
	info.Name, info.Shape = name, shape
	info.DType, info.Shard = DType(t.dtype), uint32(t.shard)
	info.Size, info.Offset = uint64(t.nbytes), uint64(t.file_offset)
}

// shapes is where shapes are copied to, several in one piece of memory: to allocate each took a tenth of Info.
type shapes struct {
	now atomic.Pointer[shapesPiece]
}

type shapesPiece struct {
	taken atomic.Int64
	room  [63]uint64
}

// clone answers a copy that is the caller's own.
func (s *shapes) clone(shape []uint64) []uint64 {
	for {
		piece := s.now.Load()
		if piece != nil {
			if end := piece.taken.Add(int64(len(shape))); end <= int64(len(piece.room)) {
				copied := piece.room[end-int64(len(shape)) : end : end]
				copy(copied, shape)
				return copied
			}
			if len(shape) > len(piece.room)/4 {
				return slices.Clone(shape)
			}
		}
		s.now.CompareAndSwap(piece, new(shapesPiece))
	}
}

func shapeOf(t *C.st_tensor) []uint64 {
	return append(make([]uint64, 0, t.rank), shapeHere(t)...)
}

// infosOf puts the names of all into one piece of memory, and their shapes into another.
func infosOf(found []C.st_tensor) []Info {
	chars, dims := 0, 0
	for i := range found {
		chars, dims = chars+int(found[i].name_len), dims+int(found[i].rank)
	}
	infos, names, shapes := make([]Info, len(found)), make([]byte, 0, chars), make([]uint64, 0, dims)
	for i := range found {
		t := &found[i]
		name, shape := len(names), len(shapes)
		names = append(names, unsafe.Slice((*byte)(unsafe.Pointer(t.name)), uint64(t.name_len))...)
		shapes = append(shapes, shapeHere(t)...)
		infos[i].show(unsafe.String(unsafe.SliceData(names[name:]), len(names)-name), shapes[shape:len(shapes):len(shapes)], t)
	}
	return infos
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

// Names lists the tensors in the order of their data, all of them or an error.
func (f *File) Names() (names []string, err error) {
	if f.ctx.Err() != nil { // names that are known take no call, which would find out
		return nil, cancelledError("names", f.ctx)
	}
	if state := f.h.shown(); state != nil {
		defer f.done(state)
		return f.namesBy(state.c, state.names.Load(), state.fetchNames)
	}
	err = f.pinned("names", func(pin *C.st_file) (err error) {
		names, err = f.namesBy(pin, nil, func() (*string, C.st_status) { return namesOf(pin) })
		return err
	})
	return names, err
}

// namesBy are the names of a pin, cut of its text. Without the text a call fetches it.
func (f *File) namesBy(pin *C.st_file, text *string, fetch func() (*string, C.st_status)) ([]string, error) {
	if text == nil {
		err := f.run("names", func() (status C.st_status) {
			text, status = fetch()
			return status
		})
		if err != nil {
			return nil, err
		}
	}
	if names := cut(*text, int(C.st_count(pin))); names != nil {
		return names, nil
	}
	return f.namesOneByOne(pin)
}

// fetchNames answers the text of namesOf, which the state keeps: for Names, and for the table.
func (state *handle) fetchNames() (*string, C.st_status) {
	if known := state.names.Load(); known != nil {
		return known, C.ST_OK
	}
	text, status := namesOf(state.c)
	if status == C.ST_OK && !state.names.CompareAndSwap(nil, text) {
		text = state.names.Load() // another goroutine was faster, and two are too many
	}
	return text, status
}

// namesOf are all names of a pin, each with its NUL.
func namesOf(pin *C.st_file) (*string, C.st_status) {
	var size C.size_t
	if status := C.st_names(pin, nil, &size); status != C.ST_OK || size == 0 {
		return new(string), status
	}
	all := uncleared(int(size))
	status := C.st_names(pin, (*C.char)(unsafe.Pointer(first(all))), &size)
	text := unsafe.String(unsafe.SliceData(all), len(all))
	return &text, status
}

func (f *File) namesOneByOne(pin *C.st_file) ([]string, error) {
	names := make([]string, 0, int(C.st_count(pin)))
	err := f.batches("names", pin, func(infos []Info) error {
		for _, info := range infos {
			names = append(names, info.Name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// cut makes `count` strings of names that each end with a NUL; nil if there are not as many, since one holds NUL. The
// strings lie in the memory of `text`. It looks at eight bytes at a time, because a call for each name takes half of the
// time of Names.
func cut(text string, count int) []string {
	const low = 0x7f7f7f7f7f7f7f7f // all bits of eight bytes but the highest
	names := make([]string, 0, count)
	all, begin := unsafe.Slice(unsafe.StringData(text), len(text)), 0
	for at := 0; at+8 <= len(all); at += 8 {
		word := binary.LittleEndian.Uint64(all[at:])
		for nuls := ^(word&low + low | word | low); nuls != 0; nuls &= nuls - 1 {
			end := at + bits.TrailingZeros64(nuls)/8
			names, begin = append(names, text[begin:end]), end+1
		}
	}
	for begin < len(text) {
		name, _, _ := strings.Cut(text[begin:], "\x00")
		names, begin = append(names, name), begin+len(name)+1
	}
	if len(names) != count {
		return nil
	}
	return names
}

// All goes through the tensors in the order of their data, as they are when it begins, whatever is committed meanwhile.
// An error ends it, also where the file is closed or its context ends: it comes last, and its Info is empty. A loop that
// meets none has seen every tensor.
func (f *File) All() iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		left := false
		err := f.pinned("list", func(pin *C.st_file) error {
			return f.batches("list", pin, func(infos []Info) error {
				if f.h.closed() {
					return closedError("list")
				}
				for _, info := range infos {
					if left = !yield(info, nil); left {
						return errLeft
					}
				}
				return nil
			})
		})
		if err != nil && !left {
			yield(Info{}, err)
		}
	}
}

var errLeft = errors.New("the loop was left")

const batch = 256 // tensors that are described at once

// batches shows the tensors of a pin, many at a time, until there are no more or `use` answers an error.
func (f *File) batches(op string, pin *C.st_file, use func([]Info) error) error {
	found := make([]C.st_tensor, min(int(C.st_count(pin)), batch))
	for left, at := int(C.st_count(pin)), 0; left > 0; {
		n := min(left, batch)
		if err := f.run(op, func() C.st_status { return C.st_at(pin, C.size_t(at), C.size_t(n), &found[0]) }); err != nil {
			return err
		}
		if err := use(infosOf(found[:n])); err != nil {
			return err
		}
		left, at = left-n, at+n
	}
	return nil
}

// Info describes the tensor of that name.
func (f *File) Info(name string) (info Info, err error) {
	if known := f.known(); known != nil {
		if known.describe(f.h, name, &info) {
			return info, nil
		}
	} else if f.plain && f.infoPlain(name, &info) {
		return info, nil
	}
	err = f.pinTensor("info", name, func(_ *C.st_file, t *C.st_tensor) error { // again, for the error
		info.show(name, shapeOf(t), t)
		return nil
	})
	return info, err
}

// infoPlain is Info in one call of C; false on an error.
func (f *File) infoPlain(name string, info *Info) bool {
	state := f.h.shown()
	if state == nil {
		return f.infoNow(name, info)
	}
	found := state.describe(f.h, name, info)
	f.done(state) // a defer would be a tenth of the call
	return found
}

// describe asks C of an acquired state; false on an error. Apart, so that what C fills lies on the stack.
func (state *handle) describe(h *handle, name string, info *Info) bool {
	p, n := chars(name)
	var t C.st_tensor
	C.stgo_describe(state.c, p, n, C.stgo_tensor(unsafe.Pointer(&t)))
	if t.name == nil {
		return false
	}
	info.show(name, h.shapes.clone(shapeHere(&t)), &t)
	return true
}

// infoNow is Info in one call of C; false on an error.
func (f *File) infoNow(name string, info *Info) bool {
	if !f.h.acquire() {
		return false
	}
	defer f.release()
	p, n := chars(name)
	var pin *C.st_file
	var t C.st_tensor
	var shape [8]C.uint64_t
	if C.stgo_info(f.h.c, p, n, &shape[0], C.uint32_t(len(shape)), &pin, &t) != C.ST_OK {
		return false
	}
	if pin == nil { // t.shape lay in what is closed
		info.show(name, append(make([]uint64, 0, t.rank), unsafe.Slice((*uint64)(&shape[0]), int(t.rank))...), &t)
		return true
	}
	info.show(name, shapeOf(&t), &t)
	C.st_close(pin)
	return true
}

// Has says whether there is a tensor of that name. An error says that this cannot be known, such as ErrShardMissing.
func (f *File) Has(name string) (bool, error) {
	if known := f.known(); known != nil {
		return known.find(name) != nil, nil
	}
	p, n := chars(name)
	var i C.size_t
	err := f.call("has", func() C.st_status { return C.st_find(f.h.c, p, n, &i) })
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Metadata is the file's own map from string to string, all of it or an error; empty if the file has none.
func (f *File) Metadata() (map[string]string, error) {
	all := map[string]string{}
	err := f.pinned("metadata", func(pin *C.st_file) error {
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
	if err != nil {
		return nil, err
	}
	return all, nil
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
