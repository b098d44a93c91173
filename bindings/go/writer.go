package st

/*
#include "bridge.h"
*/
import "C"

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"
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
var ErrWriterDone = errors.New("libst: the writer was finished or aborted before")

// NewWriter begins a file. A declared tensor (Name, DType and Shape count) has its place from the start. Write writes
// declared tensors in any order and in pieces. Put writes whole tensors, declared or not; undeclared ones lie behind one
// another as they come. Until Finish answers nil the path leads to the old file, or to none. When SaveOptions.Context
// ends, each call of the writer answers so; it is still to be aborted then.
func NewWriter(path string, declared []Info, opts *SaveOptions) (*Writer, error) {
	o := given(opts)
	if err := checkTimeout("new writer", o.LockTimeout); err != nil {
		return nil, err
	}
	options := o.c()
	w := &Writer{ctx: contextOf(o.Context), hooks: hooks{progress: o.Progress}}
	var pin runtime.Pinner
	defer pin.Unpin()
	all := make([]C.st_tensor, len(declared))
	for i := range declared {
		t := &declared[i]
		describe(&all[i], &pin, t.Name, t.DType, t.Shape)
		all[i].nbytes = C.uint64_t(sizeOf(t.DType, t.Shape))
	}
	pairs := pairsOf(o.Metadata, &pin)
	opened := false
	defer func() {
		if !opened { // also if a callback panicked
			C.st_writer_free(w.c)
		}
	}()
	if err := withPath(w.ctx, "new writer", path, &w.hooks, func(p *C.char) C.st_status {
		return C.st_writer_open(p, unsafe.SliceData(all), C.size_t(len(all)), unsafe.SliceData(pairs), C.size_t(len(pairs)),
			&options, &w.c)
	}); err != nil {
		return nil, err
	}
	opened = true
	w.cleanup = runtime.AddCleanup(w, func(c *C.st_writer) { go C.st_writer_free(c) }, w.c)
	return w, nil
}

// Put writes a whole tensor, by its Name. It refuses a name that was written before (ErrDuplicateName), and a form that
// is none or not as declared. A refusal leaves the writer as it was.
func (w *Writer) Put(tensor Tensor) error {
	return tensor.lend(func(t *C.st_tensor) error {
		return w.call("put", func() C.st_status { return C.st_writer_put(w.c, t) })
	})
}

// Write writes the next bytes of a declared tensor. ErrNotFound, and ErrNBytesMismatch for more than is missing, leave the
// writer as it was; after any other failure all that it can do is Abort.
func (w *Writer) Write(name string, data []byte) error {
	p, n := chars(name)
	return w.call("write", func() C.st_status {
		return C.stgo_write_bytes(w.c, p, n, first(data), C.uint64_t(len(data)))
	})
}

// Finish makes the file durable, gives it its name, and ends the writer. After ErrBusy and ErrIncomplete (bytes of a
// declared tensor are missing) it lives on, to be gone on with or aborted. So it does after ErrIO where too many files were
// open (syscall.EMFILE, syscall.ENFILE).
func (w *Writer) Finish() error {
	return w.alone("finish", func() error {
		livesOn := false
		defer func() {
			if !livesOn { // also if a callback panicked
				w.free()
			}
		}()
		err := run(w.ctx, "finish", &w.hooks, func() C.st_status { return C.st_writer_finish(w.c) })
		var e *Error
		if errors.As(err, &e) {
			tooMany := e.Errno == syscall.EMFILE || e.Errno == syscall.ENFILE
			livesOn = e.Status == ErrBusy || e.Status == ErrIncomplete || e.Status == ErrIO && tooMany
		}
		return err
	})
}

// Abort drops what was written. After Finish it answers ErrWriterDone and does nothing, so that it may be deferred.
func (w *Writer) Abort() error {
	return w.alone("abort", func() error {
		w.free()
		return nil
	})
}

func (w *Writer) free() {
	w.cleanup.Stop()
	C.st_writer_free(w.c)
	w.c = nil
}

func (w *Writer) call(op string, call func() C.st_status) error {
	return w.alone(op, func() error { return run(w.ctx, op, &w.hooks, call) })
}

// alone runs what no other goroutine may do meanwhile, on a writer that has not ended.
func (w *Writer) alone(op string, run func() error) error {
	if !w.mutex.TryLock() { // waiting would be a deadlock for a callback of the writer's own
		return argumentError(op, "the writer is in use by another goroutine, or by this one's caller")
	}
	defer w.mutex.Unlock() // it keeps the writer, or the safety net might free it under the call
	if w.c == nil {
		return ErrWriterDone
	}
	return run()
}
