package st

/*
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
	h     *handle
	ctx   context.Context
	hooks hooks
	plain bool // without callbacks, and with a context that never ends
	path  string
	net   *net
}

// net is the safety net of a File, and of all that WithContext makes of it.
type net struct {
	viewed  atomic.Bool
	mutex   sync.Mutex // of cleanup
	cleanup runtime.Cleanup
}

// handle is the C handle with the count of calls that use it: the last call to end after Close frees it.
type handle struct {
	c        *C.st_file
	users    atomic.Int64           // and closedBit
	snapshot bool                   // made by Snapshot: st_interrupt would stop calls of another handle too
	steady   bool                   // what it shows is changed by Refresh alone: not writable, or a snapshot
	held     *held                  // OpenBytes' argument or OpenSource's reader; else nil
	mutex    sync.Mutex             // of changes of state, and of what frees the handle or a transaction on it
	state    atomic.Pointer[handle] // see shown; nil if none is at hand
	table    atomic.Pointer[table]  // of `state`; nil if there is none
	names    atomic.Pointer[string] // of a pin: all, each with its NUL; nil until they are asked for
	shapes   shapes                 // that Info and Get give out
	patience atomic.Int64           // look-ups to go without a table until one is made
	loaded   *atomic.Bool           // whether tensors were loaded; the same of a handle and its snapshots
}

// held is what C borrows of Go, until the last handle of it is closed.
type held struct {
	handles atomic.Int64
	bytes   bool // views lie in it
	letGo   func()
}

func (b *held) share() *held {
	if b != nil {
		b.handles.Add(1)
	}
	return b
}

func (b *held) drop() {
	if b != nil && b.handles.Add(-1) == 0 {
		b.letGo()
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

// close reports whether it was this call that closed. Only Close of a File that is no Snapshot may interrupt: a File that
// the garbage collector closes is forgotten, and its Snapshots are not.
func (h *handle) close(interrupt bool) bool {
	if !h.acquire() { // what is below needs the handle
		return false
	}
	defer h.release()
	if h.users.Or(closedBit)&closedBit != 0 {
		return false
	}
	if interrupt {
		C.st_interrupt(h.c)
	}
	h.supersede()
	return true
}

// ofBytes says that views are Go's own memory.
func (h *handle) ofBytes() bool { return h.held != nil && h.held.bytes }

func (h *handle) closed() bool { return h.users.Load()&closedBit != 0 }

func (h *handle) free() {
	h.mutex.Lock()
	C.st_close(h.c)
	h.mutex.Unlock()
	h.held.drop()
}

// Open opens a safetensors file: reads and checks its header, maps its data, and first of all finishes what a crashed
// writer had committed. nil for the default options.
func Open(path string, opts *Options) (*File, error) {
	o := given(opts)
	if err := checkTimeout("open", o.LockTimeout); err != nil {
		return nil, err
	}
	options, paths := o.c(), append([]string{path}, o.Deltas...)
	calls := hooks{progress: o.Progress, log: o.Log}
	var c *C.st_file
	opened := false
	defer func() {
		if !opened && c != nil { // a callback panicked
			C.st_close(c)
		}
	}()
	err := withPaths(o.Context, "open", paths, &calls, func(p []*C.char) C.st_status {
		layers := newPaths(p[1:])
		defer layers.free()
		options.deltas, options.delta_count = layers.c, C.size_t(layers.n)
		return C.st_open(p[0], &options, &c)
	})
	if err != nil {
		return nil, err
	}
	opened = true
	return newFile(&handle{c: c, steady: !o.ReadWrite}, context.Background(), calls, path), nil
}

// OpenBytes opens a file that lies in memory, read-only and without a copy: the bytes are pinned until Close and must
// not change meanwhile.
func OpenBytes(data []byte) (*File, error) {
	pin := new(runtime.Pinner)
	h := &handle{steady: true, held: (&held{bytes: true, letGo: pin.Unpin}).share()}
	if len(data) > 0 {
		pin.Pin(unsafe.SliceData(data))
	}
	if err := run(context.Background(), "open", &hooks{}, func() C.st_status {
		return C.stgo_open_bytes(first(data), C.size_t(len(data)), &h.c)
	}); err != nil {
		h.held.drop()
		return nil, err
	}
	return newFile(h, context.Background(), hooks{}, ""), nil
}

func newFile(h *handle, ctx context.Context, hooks hooks, path string) *File {
	if h.loaded == nil {
		h.loaded = new(atomic.Bool)
	}
	h.wait()
	f := &File{h: h, hooks: hooks, path: path, net: &net{}}
	f.net.cleanup = newCleanup(f.net, h)
	f.end(ctx)
	return f
}

func newCleanup(n *net, h *handle) runtime.Cleanup {
	// In a goroutine: to unmap takes long, and all cleanups wait for one.
	return runtime.AddCleanup(n, func(h *handle) { go h.close(false) }, h)
}

func (f *File) end(ctx context.Context) {
	f.ctx = ctx
	f.plain = ctx.Done() == nil && !f.hooks.any()
}

// WithContext is the same open file under a context: what is called on it ends when the context
// does. The error is ErrCancelled, and the context's error and cause. It costs next to nothing, so it may be made for one call:
//
//	err := f.WithContext(ctx).Update("w", value)
//
// A Tx, Snapshot or Reopen of it has the same context. To close it is to close the file.
func (f *File) WithContext(ctx context.Context) *File {
	under := *f
	under.end(ctx)
	return &under
}

// Reopen opens the same file a second time with the same options: its own descriptor, mapping and locks, for a worker.
// ErrFileChanged if the path now names no file, or another one, which no commit of f put there.
func (f *File) Reopen() (*File, error) { return f.reopened(0, f.h.steady) }

// ReopenCopyOnWrite is Reopen for reading only, and with MapCopyOnWrite, however f reaches its data: for views that may be
// written. Its error is as that of Reopen.
func (f *File) ReopenCopyOnWrite() (*File, error) { return f.reopened(C.ST_REOPEN_COPY_ON_WRITE, true) }

func (f *File) reopened(flags C.uint32_t, steady bool) (*File, error) {
	h := &handle{steady: steady}
	opened := false
	defer func() {
		if !opened && h.c != nil { // a callback panicked
			C.st_close(h.c)
		}
	}()
	if err := f.call("reopen", func() C.st_status { return C.st_reopen(f.h.c, flags, &h.c) }); err != nil {
		return nil, err
	}
	opened = true
	return newFile(h, f.ctx, f.hooks, f.path), nil
}

// Close ends the file. Views of it are no longer valid, but views of its Snapshots are. Transactions on it end and drop
// what they staged. Calls of other goroutines give up; the last of them to end frees the file, maybe after Close has
// answered. Its one error is fs.ErrClosed: the file was closed before. For what a JournalOnly commit has left to do, and its
// error, call Sync first.
func (f *File) Close() error {
	if !f.h.close(!f.h.snapshot) {
		return closedError("close")
	}
	f.stopCleanup()
	return nil
}

// Path is what the file was opened by, with all that a URL has, which may be secrets; "" if it lies in memory or is a
// Source.
func (f *File) Path() string { return f.path }

// String is for messages: the path, or of a URL the scheme alone.
func (f *File) String() string {
	if scheme, _, isURL := strings.Cut(f.path, "://"); isURL {
		return scheme + "://..."
	}
	return f.path
}

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
	if !f.h.ofBytes() && !f.net.viewed.Load() && f.net.viewed.CompareAndSwap(false, true) {
		f.stopCleanup()
	}
}

func (f *File) stopCleanup() {
	f.net.mutex.Lock()
	defer f.net.mutex.Unlock()
	f.net.cleanup.Stop()
}

// run is for calls of a handle that the caller holds: of this file, or a pin of it.
func (f *File) run(op string, call func() C.st_status) error {
	return run(f.ctx, op, &f.hooks, call)
}

// call is run of the file's own handle, if it is open.
func (f *File) call(op string, call func() C.st_status) error {
	if !f.h.acquire() {
		return closedError(op)
	}
	defer f.release()
	return f.run(op, call)
}

func (f *File) release() { f.done(f.h) }

// done releases a handle that a call of the file has used: its own, or a pin of what it shows.
func (f *File) done(with *handle) {
	with.release()
	runtime.KeepAlive(f) // or the safety net might close the file under the call
}
