package st

/*
#cgo noescape stgo_view
#cgo nocallback stgo_view
#include "bridge.h"
*/
import "C"

import (
	"context"
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// View gives a tensor without a copy: Data is the file's mapping (or, where there is none, memory that the file owns
// and fills on first use), Shape lies in its catalogue. Neither may be written to, or used after Close; and Data shows
// what others write meanwhile. If somebody truncates the file, touching it is a fatal SIGBUS. Where that is too much to
// watch, use Get.
func (f *File) View(name string) (view Tensor, err error) {
	if f.hooks.any() {
		return f.viewHooked(name)
	}
	if !f.h.acquire() {
		return Tensor{}, closedError("view")
	}
	f.keep()
	p, n := chars(name)
	var t C.st_tensor
	status := C.stgo_view(f.h.c, p, n, C.stgo_tensor(unsafe.Pointer(&t)))
	f.release() // nothing above panics, and a defer would be a tenth of the call
	if status != C.ST_OK {
		return f.viewHooked(name) // again, for the error
	}
	view.show(name, &t) // where it is answered: to copy it would be a quarter of the call
	return
}

func (f *File) viewHooked(name string) (Tensor, error) {
	if !f.h.acquire() {
		return Tensor{}, closedError("view")
	}
	defer f.release()
	f.keep()
	p, n := chars(name)
	var t C.st_tensor
	if err := run(context.Background(), "view", &f.hooks, func() C.st_status {
		return C.st_get_n(f.h.c, p, n, &t)
	}); err != nil {
		return Tensor{}, err
	}
	var view Tensor
	view.show(name, &t)
	return view, nil
}

func (view *Tensor) show(name string, t *C.st_tensor) {
	view.Name, view.DType, view.Shape, view.Data = name, DType(t.dtype), shapeHere(t), []byte{}
	if t.nbytes > 0 {
		view.Data = unsafe.Slice((*byte)(t.data), uint64(t.nbytes))
	}
}

// Get copies a tensor.
func (f *File) Get(name string) (Tensor, error) { return f.GetContext(context.Background(), name) }

// GetContext is Get that ends with the context.
func (f *File) GetContext(ctx context.Context, name string) (Tensor, error) {
	info, err := f.info("get", name)
	if err != nil {
		return Tensor{}, err
	}
	data, err := buffer("get", info.Size)
	if err != nil {
		return Tensor{}, err
	}
	if _, err := f.ReadIntoContext(ctx, name, data); err != nil {
		return Tensor{}, err
	}
	return Tensor{Name: name, DType: info.DType, Shape: info.Shape, Data: data}, nil
}

// ReadInto copies a tensor into dst, which must have room for all of it, and answers its size.
func (f *File) ReadInto(name string, dst []byte) (int, error) {
	return f.ReadIntoContext(context.Background(), name, dst)
}

// ReadIntoContext is ReadInto that ends with the context.
func (f *File) ReadIntoContext(ctx context.Context, name string, dst []byte) (int, error) {
	p, n := chars(name)
	var size C.uint64_t
	if err := f.callContext(ctx, "read", func() C.st_status {
		return C.stgo_read(f.h.c, p, n, first(dst), C.size_t(len(dst)), &size)
	}); err != nil {
		return 0, err
	}
	return int(size), nil
}

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
func (f *File) Slice(name string, ranges ...Range) (Tensor, error) {
	return f.SliceContext(context.Background(), name, ranges...)
}

// SliceContext is Slice that ends with the context.
func (f *File) SliceContext(ctx context.Context, name string, ranges ...Range) (Tensor, error) {
	info, err := f.Info(name)
	if err != nil {
		return Tensor{}, err
	}
	shape, size, err := f.sliceShape("slice", name, info, ranges)
	if err != nil {
		return Tensor{}, err
	}
	data, err := buffer("slice", size)
	if err != nil {
		return Tensor{}, err
	}
	if err := f.sliceInto(ctx, name, data, ranges); err != nil {
		return Tensor{}, err
	}
	return Tensor{Name: name, DType: info.DType, Shape: shape, Data: data}, nil
}

// SliceInto is Slice into dst, which must have room for it.
func (f *File) SliceInto(name string, dst []byte, ranges ...Range) error {
	return f.sliceInto(context.Background(), name, dst, ranges)
}

// SliceShape is the shape of what Slice would answer, and its size in bytes.
func (f *File) SliceShape(name string, ranges ...Range) (shape []uint64, size uint64, err error) {
	info, err := f.Info(name)
	if err != nil {
		return nil, 0, err
	}
	return f.sliceShape("slice", name, info, ranges)
}

func (f *File) sliceShape(op, name string, info Info, ranges []Range) ([]uint64, uint64, error) {
	p, n := chars(name)
	r, count := rangesOf(ranges)
	// The library writes as many numbers as the tensor now has dimensions, so the shape is reckoned here: a commit of
	// another goroutine may have put one of more dimensions in its place.
	var size C.uint64_t
	if err := f.call(op, func() C.st_status { return C.st_slice_shape(f.h.c, p, n, r, count, nil, &size) }); err != nil {
		return nil, 0, err
	}
	shape := slices.Clone(info.Shape)
	for i := range min(len(ranges), len(shape)) {
		shape[i] = ranges[i].length(shape[i])
	}
	if sizeOf(info.DType, shape) != uint64(size) {
		return nil, 0, &Error{Op: op, Status: ErrFileChanged, Tensor: name, HasTensor: true, Offset: -1,
			Message: fmt.Sprintf("tensor %q was replaced during the call; try again", name)}
	}
	return shape, uint64(size), nil
}

// length is how many of n elements the range takes.
func (r Range) length(n uint64) uint64 {
	low, high := int64(0), int64(n)
	if r.Step < 0 {
		low, high = -1, int64(n)-1
	}
	clip := func(at int64) int64 {
		if at < 0 {
			at += int64(n)
		}
		return max(low, min(at, high))
	}
	start, stop := clip(r.Start), clip(r.Stop)
	switch {
	case r.Step > 0 && start < stop:
		return uint64(stop-start-1)/uint64(r.Step) + 1
	case r.Step < 0 && start > stop:
		return uint64(start-stop-1)/-uint64(r.Step) + 1
	}
	return 0
}

func (f *File) sliceInto(ctx context.Context, name string, dst []byte, ranges []Range) error {
	p, n := chars(name)
	r, count := rangesOf(ranges)
	return f.callContext(ctx, "slice", func() C.st_status {
		return C.st_read_slice_n(f.h.c, p, n, r, count, first(dst), C.size_t(len(dst)))
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

func buffer(op string, size uint64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, &Error{Op: op, Status: ErrNoMem, Message: "the tensor is larger than memory can be", Offset: -1}
	}
	return make([]byte, size), nil
}
