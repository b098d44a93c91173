package st

/*
#cgo CFLAGS: -std=c11
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
	"strings"
	"sync/atomic"
	"unsafe"
)

// run makes one call of the library and turns its status into an error. The goroutine keeps its thread, because the
// library's last error belongs to a thread, and so does the call that callbacks are about.
func run(ctx context.Context, op string, h *hooks, call func() C.st_status) error {
	if ctx.Done() != nil || h.any() {
		return runHooked(ctx, op, h, call)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if status := call(); status != C.ST_OK {
		return failure(op, status)
	}
	return nil
}

// runHooked is run with callbacks, or with a context that may end while the call runs. The library then learns of it at
// its next progress callback; where it waits for a lock or a server, within a tenth of a second. Other calls on the same
// file go on, which st_interrupt would stop too.
func runHooked(ctx context.Context, op string, h *hooks, call func() C.st_status) error {
	if ctx.Err() != nil {
		return cancelledError(op, ctx)
	}
	r := &running{hooks: *h}
	c := &C.stgo_call{}
	if h.any() {
		handle := cgo.NewHandle(r)
		defer handle.Delete()
		c.handle = C.uintptr_t(handle)
	}
	if h.progress != nil {
		c.hooks |= C.STGO_PROGRESS
	}
	if h.log != nil {
		c.hooks |= C.STGO_LOG
	}
	if h.report != nil {
		c.hooks |= C.STGO_REPORT
	}
	cancelled := (*int32)(unsafe.Pointer(&c.cancelled))
	stop := context.AfterFunc(ctx, func() { atomic.StoreInt32(cancelled, 1) })
	defer stop()

	h.source.begin()
	defer h.source.end()
	err := enter(c, op, call)
	if r.panicked {
		panic(r.value)
	}
	if err == nil {
		return nil
	}
	if err.Status == ErrCancelled {
		if err.cause = r.err; err.cause == nil && ctx.Err() != nil {
			err.cause, err.ended = context.Cause(ctx), ctx.Err()
		}
		if err.cause != nil {
			err.Message += ": " + err.cause.Error()
		}
	}
	if err.cause == nil && err.Errno != 0 {
		err.cause = h.source.failed(r.read)
	}
	return err
}

func enter(c *C.stgo_call, op string, call func() C.st_status) *Error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Pinned, because C holds the pointer from here to the other stgo_enter.
	var pin runtime.Pinner
	pin.Pin(c)
	defer pin.Unpin()
	before := C.stgo_enter(c)
	defer C.stgo_enter(before)
	if status := call(); status != C.ST_OK {
		return failure(op, status)
	}
	return nil
}

// withPaths is run of a call that takes paths, as C has them. Without a context (nil) nothing ends it.
func withPaths(ctx context.Context, op string, paths []string, h *hooks, call func([]*C.char) C.st_status) error {
	all := make([]*C.char, len(paths))
	for i, path := range paths {
		if strings.IndexByte(path, 0) >= 0 {
			return argumentError(op, "a path holds no NUL")
		}
		all[i] = C.CString(path)
		defer C.free(unsafe.Pointer(all[i]))
	}
	return run(contextOf(ctx), op, h, func() C.st_status { return call(all) })
}

func withPath(ctx context.Context, op, path string, h *hooks, call func(*C.char) C.st_status) error {
	return withPaths(ctx, op, []string{path}, h, func(p []*C.char) C.st_status { return call(p[0]) })
}

var empty [1]byte

// chars is a string for the length that goes with it; never NULL, since a name may be empty.
func chars(s string) (*C.char, C.size_t) {
	if s == "" {
		return (*C.char)(unsafe.Pointer(&empty[0])), 0
	}
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.size_t(len(s))
}

// first is where a slice begins; never NULL, so that "no bytes" is not "no buffer". It is no void *: behind one cgo looks
// at all that was allocated with the bytes, and panics where that holds a pointer.
func first(b []byte) *C.uint8_t {
	if len(b) == 0 {
		return (*C.uint8_t)(&empty[0])
	}
	return (*C.uint8_t)(unsafe.SliceData(b))
}
