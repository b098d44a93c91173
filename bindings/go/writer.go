package st

/*
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"unsafe"
)

// A Writer writes a file tensor by tensor, so that it may be larger than memory. It belongs to one goroutine at a time.
// End it with Finish or Abort; one that is forgotten is aborted some time after nothing refers to it.
type Writer struct {
	ctx     context.Context
	hooks   hooks
	mutex   sync.Mutex
	c       *C.st_writer // nil when done
	cleanup runtime.Cleanup
}

// ErrWriterDone is what a writer answers that was finished or aborted before.
var ErrWriterDone = errors.New("st: the writer was finished or aborted before")

// NewWriter begins a file. What is declared (Name, DType and Shape count) has its place from the start, and may be
// written in any order and in pieces, with Add. Put writes whole tensors, declared or not; those that are not lie behind
// one another as they come. Until Finish answers nil the path leads to the old file, or to none.
func NewWriter(path string, declared []Info, opts ...SaveOption) (*Writer, error) {
	return NewWriterContext(context.Background(), path, declared, opts...)
}

// NewWriterContext is NewWriter for a writer whose every call ends with the context. It is still to be aborted then.
func NewWriterContext(ctx context.Context, path string, declared []Info, opts ...SaveOption) (*Writer, error) {
	config := newSaveConfig(opts)
	var pin runtime.Pinner
	defer pin.Unpin()
	all := make([]C.st_tensor, len(declared))
	for i := range declared {
		t := &declared[i]
		describe(&all[i], &pin, t.Name, t.DType, t.Shape)
		all[i].nbytes = C.uint64_t(sizeOf(t.DType, t.Shape))
	}
	pairs := pairsOf(config.metadata, &pin)
	var c *C.st_writer
	opened := false
	defer func() {
		if !opened && c != nil { // a callback panicked
			C.st_writer_abort(c)
		}
	}()
	if err := withPath(ctx, "new writer", path, &config.hooks, func(p *C.char) C.st_status {
		return C.st_writer_open(p, unsafe.SliceData(all), C.size_t(len(all)), unsafe.SliceData(pairs), C.size_t(len(pairs)),
			&config.c, &c)
	}); err != nil {
		return nil, err
	}
	opened = true
	w := &Writer{ctx: ctx, hooks: config.hooks, c: c}
	w.cleanup = runtime.AddCleanup(w, func(c *C.st_writer) { C.st_writer_abort(c) }, c)
	return w, nil
}

// Put writes a whole tensor, by its Name. A name that was written before (ErrDuplicateName), and a form that is none or
// not as declared, are refused and leave the writer as it was.
func (w *Writer) Put(tensor Tensor) error {
	p, n := chars(tensor.Name)
	v := valueOf(&tensor)
	return w.call("put", w.ctx, func() C.st_status {
		return C.stgo_writer_put(w.c, p, n, v.dtype, v.rank, v.shape, v.data, v.size)
	})
}

// Add writes the next bytes of a declared tensor. ErrNotFound, and ErrNBytesMismatch for more than is missing, leave the
// writer as it was; after any other failure all that it can do is Abort.
func (w *Writer) Add(name string, data []byte) error {
	p, n := chars(name)
	return w.call("add", w.ctx, func() C.st_status {
		return C.st_writer_add_n(w.c, p, n, first(data), C.uint64_t(len(data)))
	})
}

// Finish makes the file durable, gives it its name, and ends the writer. Only after ErrBusy and ErrIncomplete (bytes of a
// declared tensor are missing) does it live on, to be gone on with or aborted.
func (w *Writer) Finish() error {
	if err := w.ctx.Err(); err != nil {
		if abort := w.Abort(); abort != nil {
			return abort
		}
		return cancelledError("finish", context.Cause(w.ctx))
	}
	return w.call("finish", w.ctx, func() C.st_status {
		status := C.st_writer_finish(w.c)
		if status != C.ST_E_BUSY && status != C.ST_E_INCOMPLETE {
			w.done()
		}
		return status
	})
}

// Abort drops what was written. After Finish it answers ErrWriterDone and does nothing, so that it may be deferred.
func (w *Writer) Abort() error {
	return w.call("abort", context.Background(), func() C.st_status {
		C.st_writer_abort(w.c)
		w.done()
		return C.ST_OK
	})
}

// done is after C has freed the writer.
func (w *Writer) done() {
	w.c = nil
	w.cleanup.Stop()
}

func (w *Writer) call(op string, ctx context.Context, call func() C.st_status) error {
	if !w.mutex.TryLock() { // waiting would be a deadlock for a callback of the writer's own
		return argumentError(op, "the writer is in use by another goroutine, or by this one's caller")
	}
	defer w.mutex.Unlock()
	if w.c == nil {
		return ErrWriterDone
	}
	err := run(ctx, op, &w.hooks, call)
	runtime.KeepAlive(w) // or the safety net might abort the writer under the call
	return err
}
