package st

/*
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A File is an open safetensors file. Close it when done; a File that is forgotten is closed some time after nothing
// refers to it. Not so if a view of it was given out since the last Release: its memory then stays, because the view
// may still be in use.
type File struct {
	h       *handle
	hooks   hooks
	path    string
	viewed  atomic.Bool
	mutex   sync.Mutex // of cleanup
	cleanup runtime.Cleanup
}

// handle is the C handle with the count of calls that use it: the last call to end after Close frees it.
type handle struct {
	c        *C.st_file
	users    atomic.Int64           // and closedBit
	snapshot bool                   // of another handle, whose calls st_interrupt would stop too
	steady   bool                   // what it shows is changed by Refresh alone: not writable, or a snapshot
	bytes    *heldBytes             // OpenBytes' argument; else nil
	mutex    sync.Mutex             // of whoever changes state
	state    atomic.Pointer[handle] // see shown; nil if none is at hand
}

// heldBytes are pinned until the last handle of them is closed.
type heldBytes struct {
	pin     runtime.Pinner
	handles atomic.Int64
}

func (b *heldBytes) share() *heldBytes {
	if b != nil {
		b.handles.Add(1)
	}
	return b
}

func (b *heldBytes) drop() {
	if b != nil && b.handles.Add(-1) == 0 {
		b.pin.Unpin()
	}
}

const closedBit = 1 << 62

func (h *handle) acquire() bool {
	for {
		users := h.users.Load()
		if users&closedBit != 0 {
			return false
		}
		if h.users.CompareAndSwap(users, users+1) {
			return true
		}
	}
}

func (h *handle) release() {
	if h.users.Add(-1) == closedBit {
		h.free()
	}
}

// close reports whether it was this call that closed.
func (h *handle) close() bool {
	if !h.acquire() { // st_interrupt below needs the handle
		return false
	}
	defer h.release()
	if h.users.Or(closedBit)&closedBit != 0 {
		return false
	}
	if !h.snapshot {
		C.st_interrupt(h.c)
	}
	h.supersede()
	return true
}

func (h *handle) closed() bool { return h.users.Load()&closedBit != 0 }

func (h *handle) free() {
	C.st_close(h.c)
	h.bytes.drop()
}

// Open opens a safetensors file: reads and checks its header, maps its data, and first of all finishes what a crashed
// writer had committed. Without options it is read-only.
func Open(path string, opts ...OpenOption) (*File, error) {
	return OpenContext(context.Background(), path, opts...)
}

// OpenContext is Open whose recovery ends with the context.
func OpenContext(ctx context.Context, path string, opts ...OpenOption) (*File, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return nil, argumentError("open", "a path holds no NUL")
	}
	config := openConfig{}
	C.st_open_options_init(&config.c, C.sizeof_st_open_options)
	for _, o := range opts {
		o.toOpen(&config)
	}
	C.stgo_hook_open(&config.c)
	var c *C.st_file
	opened := false
	defer func() {
		if !opened && c != nil { // a callback panicked
			C.st_close(c)
		}
	}()
	paths := append([]string{path}, config.deltas...)
	err := withPaths(ctx, "open", paths, &config.hooks, func(p []*C.char) C.st_status {
		layers := newPaths(p[1:])
		defer layers.free()
		return C.stgo_open(p[0], &config.c, layers.c, C.uint64_t(layers.n), &c)
	})
	if err != nil {
		return nil, err
	}
	opened = true
	return newFile(&handle{c: c, steady: config.c.flags&C.ST_OPEN_READ_WRITE == 0}, config.hooks, path), nil
}

// OpenBytes opens a file that lies in memory, read-only and without a copy: the bytes are pinned until Close and must
// not change meanwhile.
func OpenBytes(data []byte) (*File, error) {
	h := &handle{steady: true, bytes: (&heldBytes{}).share()}
	if len(data) > 0 {
		h.bytes.pin.Pin(unsafe.SliceData(data))
	}
	if err := run(context.Background(), "open", &hooks{}, func() C.st_status {
		return C.st_open_memory(first(data), C.size_t(len(data)), &h.c)
	}); err != nil {
		h.bytes.drop()
		return nil, err
	}
	return newFile(h, hooks{}, ""), nil
}

func newFile(h *handle, hooks hooks, path string) *File {
	f := &File{h: h, hooks: hooks, path: path}
	f.cleanup = newCleanup(f)
	return f
}

func newCleanup(f *File) runtime.Cleanup {
	return runtime.AddCleanup(f, func(h *handle) { h.close() }, f.h)
}

// Reopen opens the same file a second time with the same options: its own descriptor, mapping and locks, for a worker.
// ErrFileChanged if the path now names another file.
func (f *File) Reopen() (*File, error) {
	h := &handle{steady: f.h.steady}
	if err := f.call("reopen", func() C.st_status { return C.st_reopen(f.h.c, &h.c) }); err != nil {
		return nil, err
	}
	return newFile(h, f.hooks, f.path), nil
}

// Close ends the file: views of it (not those of its Snapshots) are no longer valid, transactions that live are rolled back, calls of other goroutines
// give up. It answers an error, which is fs.ErrClosed, only if the file was closed before.
func (f *File) Close() error {
	if !f.h.close() {
		return closedError("close")
	}
	f.stopCleanup()
	return nil
}

// Path is what the file was opened by; "" if it lies in memory.
func (f *File) Path() string { return f.path }

// Interrupt makes the calls that now run on this file, in any goroutine, give up waiting for locks and stop long reads:
// they answer ErrInterrupted.
func (f *File) Interrupt() {
	if f.h.acquire() {
		C.st_interrupt(f.h.c)
		f.h.release()
	}
}

// keep gives up the safety net once a view of memory that is not Go's is out: memory that is lost is better than a view
// that dangles.
func (f *File) keep() {
	if f.h.bytes == nil && !f.viewed.Load() && f.viewed.CompareAndSwap(false, true) {
		f.stopCleanup()
	}
}

func (f *File) stopCleanup() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.cleanup.Stop()
}

// call is run for the calls of an open file.
func (f *File) call(op string, call func() C.st_status) error {
	return f.callContext(context.Background(), op, call)
}

func (f *File) callContext(ctx context.Context, op string, call func() C.st_status) error {
	if !f.h.acquire() {
		return closedError(op)
	}
	defer f.release()
	return run(ctx, op, &f.hooks, call)
}

func (f *File) release() {
	f.h.release()
	runtime.KeepAlive(f) // or the safety net might close the file under the call
}
