package st

/*
#cgo noescape stgo_view
#cgo nocallback stgo_view
#cgo noescape stgo_read
#cgo nocallback stgo_read
#cgo noescape stgo_read_now
#cgo nocallback stgo_read_now
#cgo noescape stgo_slice_shape
#cgo nocallback stgo_slice_shape
#cgo noescape stgo_read_slice
#cgo nocallback stgo_read_slice
#include "bridge.h"
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"unsafe"
)

// View gives a tensor without a copy: Data is the file's mapping (or, where there is none, memory that the file owns
// and fills on first use), Shape lies in its catalogue. Neither may be used after Close or Release of the File that View
// was called on. Neither may be written to, but Data with MapCopyOnWrite: later Views of the File show it, and the file
// never does. Data shows what others write meanwhile. If somebody truncates the file, or its storage fails to bring a
// page, touching it is a fatal SIGBUS. Where that is too much to watch, use Get.
//
// What this File publishes later does not reach the view, which keeps the replaced file's blocks taken until Close or
// Release. A view of a Snapshot keeps them until the Snapshot is closed, and no longer.
func (f *File) View(name string) (view Tensor, err error) {
	known := f.known()
	if known.showsViews(f.h) {
		if found := known.find(name); found != nil {
			f.keep() // first: from here on nothing closes the file but Close
			view.Name, view.DType, view.Shape, view.Data = name, DType(found.dtype), known.shape(found), known.data(found)
			if f.h.closed() { // nothing here held it: what was a view may be one no longer
				return Tensor{}, closedError("view")
			}
			return
		}
	}
	if !f.plain {
		return f.viewHooked(name, known)
	}
	if !f.h.acquire() {
		return Tensor{}, closedError("view")
	}
	p, n := chars(name)
	var t C.st_tensor
	C.stgo_view(f.h.c, p, n, C.stgo_tensor(unsafe.Pointer(&t)))
	if t.name != nil {
		f.keep()
		view.show(name, &t, f.h) // where it is answered: to copy it would be a quarter of the call
		known.noteLent(f.h, &t)
	}
	f.release() // nothing above panics, and a defer would be a tenth of the call
	if t.name == nil {
		return f.viewHooked(name, known) // again, for the error
	}
	return
}

func (f *File) viewHooked(name string, known *table) (Tensor, error) {
	if !f.h.acquire() {
		return Tensor{}, closedError("view")
	}
	defer f.release()
	p, n := chars(name)
	var t C.st_tensor
	if err := f.run("view", func() C.st_status { return C.st_get(f.h.c, p, n, &t) }); err != nil {
		return Tensor{}, err
	}
	f.keep()
	var view Tensor
	view.show(name, &t, f.h)
	known.noteLent(f.h, &t)
	return view, nil
}

func (view *Tensor) show(name string, t *C.st_tensor, h *handle) {
	view.Name, view.DType, view.Shape, view.Data = name, DType(t.dtype), shapeHere(t), []byte{}
	if h.ofBytes() {
		view.Shape = slices.Clone(view.Shape) // the safety net frees the catalogue, but not Go's bytes
	}
	if t.nbytes > 0 {
		view.Data = unsafe.Slice((*byte)(t.data), uint64(t.nbytes))
	}
}

// Get copies a tensor.
func (f *File) Get(name string) (got Tensor, err error) {
	if f.plain {
		if state := f.h.shown(); state != nil {
			defer f.done(state)
			var info Info
			if f.infoOwned(state, name, &info) {
				return f.getDescribed(state, &info)
			}
		}
	}
	err = f.pinTensor("get", name, func(pin *C.st_file, t *C.st_tensor) error {
		data, err := buffer("get", uint64(t.nbytes))
		if err != nil {
			return err
		}
		p, n := chars(name)
		if err := f.run("get", func() C.st_status {
			return C.stgo_read_bytes(pin, p, n, first(data), C.size_t(len(data)), nil)
		}); err != nil {
			return err
		}
		got = Tensor{Name: name, DType: DType(t.dtype), Shape: shapeOf(t), Data: data}
		return nil
	})
	return got, err
}

// infoOwned is Info of an acquired state, with a Shape that is the caller's own; false on an error.
func (f *File) infoOwned(state *handle, name string, info *Info) bool {
	known := f.known() // of another state, if somebody refreshes meanwhile
	if known == nil || known.state != state {
		return state.describe(f.h, name, info)
	}
	return known.describe(f.h, name, info)
}

// getDescribed is Get of an acquired state, by a description of it that is the caller's own.
func (f *File) getDescribed(state *handle, info *Info) (got Tensor, err error) {
	data, err := buffer("get", info.Size)
	if err != nil {
		return Tensor{}, err
	}
	if _, err := f.readPlain("get", state, info.Name, data); err != nil {
		return Tensor{}, err
	}
	return Tensor{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: data}, nil
}

// ReadInto copies a tensor into dst, which must have room for all of it, and answers its size. The size comes with
// ErrBufferSize, too. It is math.MaxInt then if an int cannot hold it, as the size of a tensor of 2 GiB on 32 bits.
func (f *File) ReadInto(name string, dst []byte) (size int, err error) {
	if !f.plain {
		return f.readHooked(name, dst)
	}
	from := f.h.shown()
	if from == nil {
		if from = f.h; !from.acquire() {
			return 0, closedError("read")
		}
	}
	size, err = f.readPlain("read", from, name, dst)
	f.done(from)
	return size, err
}

// readPlain reads from an acquired handle: what it shows now, or, of a pin, what it shows for ever.
func (f *File) readPlain(op string, from *handle, name string, dst []byte) (size int, err error) {
	p, n := chars(name)
	to := first(dst)
	var read C.uint64_t
	var status C.st_status
	runtime.LockOSThread() // as run does
	if from == f.h {
		status = C.stgo_read_now(from.c, p, n, to, C.size_t(len(dst)), &read)
	} else {
		status = C.stgo_read(from.c, p, n, to, C.size_t(len(dst)), &read)
	}
	if status != C.ST_OK {
		err = failure(op, status)
	}
	runtime.UnlockOSThread()
	return sizeHere(uint64(read)), err
}

func (f *File) readHooked(name string, dst []byte) (size int, err error) {
	p, n := chars(name)
	err = f.pinned("read", func(pin *C.st_file) error {
		var read C.st_tensor
		err := f.run("read", func() C.st_status {
			return C.stgo_read_bytes(pin, p, n, first(dst), C.size_t(len(dst)), &read)
		})
		size = sizeHere(uint64(read.nbytes)) // 0 on other errors than ErrBufferSize
		return err
	})
	return size, err
}

// sizeHere is a size, or the largest that there is here.
func sizeHere(size uint64) int { return int(min(size, math.MaxInt)) }

// A Range is one dimension's part of a slice, as Python's start:stop:step: negative Start and Stop count from the end,
// both are clipped to the dimension, and a negative Step goes backwards. Step is not 0.
type Range struct{ Start, Stop, Step int64 }

// Whole is a dimension in full.
func Whole() Range { return Range{0, math.MaxInt64, 1} }

// Between is start:stop.
func Between(start, stop int64) Range { return Range{start, stop, 1} }

// From is start: and on to the end.
func From(start int64) Range { return Range{start, math.MaxInt64, 1} }

// Until is the elements before stop.
func Until(stop int64) Range { return Range{0, stop, 1} }

// Every is each step-th element, from the end backwards if step is negative.
func Every(step int64) Range {
	if step < 0 {
		return Range{math.MaxInt64, math.MinInt64, step}
	}
	return Range{0, math.MaxInt64, step}
}

// Slice copies part of a tensor, packed in C order, and reads only the bytes needed. The ranges are for the leading
// dimensions; the others are taken whole.
func (f *File) Slice(name string, ranges ...Range) (got Tensor, err error) {
	if f.plain {
		if state := f.h.shown(); state != nil {
			defer f.done(state)
			p, n := chars(name)
			r, count := rangesOf(ranges)
			var part C.stgo_slice
			C.stgo_slice_shape(state.c, p, n, r, count, &part)
			if part.rank <= C.uint32_t(len(part.shape)) {
				return f.sliceDescribed(state, name, ranges, &part)
			}
		}
	}
	err = f.pinTensor("slice", name, func(pin *C.st_file, t *C.st_tensor) error {
		shape, size, err := f.sliceShape(pin, t, ranges)
		if err != nil {
			return err
		}
		data, err := buffer("slice", size)
		if err != nil {
			return err
		}
		if err := f.readSlice(pin, name, data, ranges); err != nil {
			return err
		}
		got = Tensor{Name: name, DType: DType(t.dtype), Shape: shape, Data: data}
		return nil
	})
	return got, err
}

// sliceDescribed is Slice of an acquired state.
func (f *File) sliceDescribed(state *handle, name string, ranges []Range, part *C.stgo_slice) (Tensor, error) {
	data, err := buffer("slice", uint64(part.nbytes))
	if err != nil {
		return Tensor{}, err
	}
	p, n := chars(name)
	r, count := rangesOf(ranges)
	runtime.LockOSThread() // as run does
	status := C.stgo_read_slice(state.c, p, n, r, count, first(data), C.size_t(len(data)))
	if status != C.ST_OK {
		err = failure("slice", status)
	}
	runtime.UnlockOSThread()
	if err != nil {
		return Tensor{}, err
	}
	shape := unsafe.Slice((*uint64)(&part.shape[0]), int(part.rank))
	return Tensor{Name: name, DType: DType(part.dtype), Shape: f.h.shapes.clone(shape), Data: data}, nil
}

// SliceInto is Slice into dst, which must have room for it.
func (f *File) SliceInto(name string, dst []byte, ranges ...Range) error {
	if !f.h.acquire() {
		return closedError("slice")
	}
	defer f.release()
	return f.readSlice(f.h.c, name, dst, ranges)
}

// SliceShape is the shape of what Slice would answer, and its size in bytes.
func (f *File) SliceShape(name string, ranges ...Range) (shape []uint64, size uint64, err error) {
	err = f.pinTensor("slice", name, func(pin *C.st_file, t *C.st_tensor) (err error) {
		shape, size, err = f.sliceShape(pin, t, ranges)
		return err
	})
	return shape, size, err
}

// sliceShape is of a tensor of a pin.
func (f *File) sliceShape(pin *C.st_file, t *C.st_tensor, ranges []Range) ([]uint64, uint64, error) {
	r, count := rangesOf(ranges)
	shape := make([]uint64, max(t.rank, 1)) // never NULL, which would ask for the size alone
	var size C.uint64_t
	if err := f.run("slice", func() C.st_status {
		return C.st_slice_shape(pin, t.name, t.name_len, r, count, (*C.uint64_t)(&shape[0]), C.size_t(t.rank), nil, &size)
	}); err != nil {
		return nil, 0, err
	}
	return shape[:t.rank], uint64(size), nil
}

func (f *File) readSlice(of *C.st_file, name string, dst []byte, ranges []Range) error {
	p, n := chars(name)
	r, count := rangesOf(ranges)
	return f.run("slice", func() C.st_status {
		return C.stgo_read_slice_bytes(of, p, n, r, count, first(dst), C.size_t(len(dst)))
	})
}

// Range is st_range: anything else does not compile.
const (
	_ = -(unsafe.Sizeof(Range{}) ^ C.sizeof_st_range)
	_ = -(unsafe.Offsetof(Range{}.Stop) ^ unsafe.Offsetof(C.st_range{}.stop))
	_ = -(unsafe.Offsetof(Range{}.Step) ^ unsafe.Offsetof(C.st_range{}.step))
)

func rangesOf(ranges []Range) (*C.st_range, C.size_t) {
	return (*C.st_range)(unsafe.Pointer(unsafe.SliceData(ranges))), C.size_t(len(ranges))
}

// A file may say any size, and Go ends the process where memory runs out. So C is asked for what is large first.
const large = 1 << 30

func buffer(op string, size uint64) ([]byte, error) {
	if size > math.MaxInt || size >= large && !bool(C.stgo_has_memory(C.size_t(size))) {
		return nil, &Error{Op: op, Status: ErrNoMem, Message: fmt.Sprintf("there is no memory for %d bytes", size), Offset: -1}
	}
	return uncleared(int(size)), nil
}

// uncleared is memory that C is about to fill: to clear it first would be a tenth of Get.
func uncleared(size int) []byte {
	if size == 0 {
		return []byte{}
	}
	var room strings.Builder // the one thing in Go that has memory without clearing it
	room.Grow(size)
	room.WriteByte(0) // as only a string that is not empty has an address
	return unsafe.Slice(unsafe.StringData(room.String()), size)
}
