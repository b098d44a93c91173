package st

/*
#include "bridge.h"
*/
import "C"

import (
	"context"
	"runtime"
	"sync"
	"unsafe"
)

// Update replaces the bytes of one tensor in place, as a transaction of its own: checked, locked, journalled, and
// durable when it answers nil. On an error the file is as it was, unless that is ErrNeedsRecovery. DType and Shape of
// the value must be those in the file.
func (f *File) Update(name string, value Tensor) error {
	return f.UpdateContext(context.Background(), name, value)
}

// UpdateContext is Update that is given up when the context ends before the change is decided.
func (f *File) UpdateContext(ctx context.Context, name string, value Tensor) error {
	p, n := chars(name)
	v := valueOf(&value)
	return f.callContext(ctx, "update", func() C.st_status {
		return C.stgo_update(f.h.c, p, n, v.dtype, v.rank, v.shape, v.data, v.size)
	})
}

// value is a Tensor in C's types.
type value struct {
	dtype C.st_dtype
	rank  C.uint32_t
	shape *C.uint64_t
	data  unsafe.Pointer
	size  C.uint64_t
}

func valueOf(t *Tensor) value {
	return value{
		dtype: C.st_dtype(t.DType),
		rank:  C.uint32_t(len(t.Shape)),
		shape: (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(t.Shape))),
		data:  first(t.Data),
		size:  C.uint64_t(len(t.Data)),
	}
}

// A Tx is a transaction: all of its changes become durable in Commit, or none. It belongs to one goroutine at a time.
// End it with Commit or Rollback, or the file's Close will; until then its journal takes room on the disk.
type Tx struct {
	file  *File
	ctx   context.Context
	hooks hooks
	mutex sync.Mutex
	c     *C.st_txn // nil when done
}

// Begin begins a transaction on a file that was opened with ReadWrite. It holds no lock until Commit.
func (f *File) Begin(opts ...TxOption) (*Tx, error) {
	return f.BeginContext(context.Background(), opts...)
}

// BeginContext is Begin for a transaction whose every call ends with the context. It is still to be rolled back then.
func (f *File) BeginContext(ctx context.Context, opts ...TxOption) (*Tx, error) {
	config := txConfig{hooks: f.hooks}
	C.st_txn_options_init(&config.c, C.sizeof_st_txn_options)
	config.c.flags |= C.ST_TXN_COPY // the library borrows nothing of Go's; it copies into its journal, not into memory
	for _, o := range opts {
		o.toTx(&config)
	}
	C.stgo_hook_txn(&config.c)
	tx := &Tx{file: f, ctx: ctx, hooks: config.hooks}
	if err := f.callContext(ctx, "begin", func() C.st_status { return C.st_begin(f.h.c, &config.c, &tx.c) }); err != nil {
		return nil, err
	}
	return tx, nil
}

// Update stages a tensor's new bytes, which the caller may reuse when it returns. A tensor staged twice takes the last
// value. After a failure other than a wrong name, dtype, shape or size, all that the transaction can do is Rollback.
func (tx *Tx) Update(name string, value Tensor) error {
	p, n := chars(name)
	v := valueOf(&value)
	return tx.call("update", tx.ctx, func() C.st_status {
		return C.stgo_txn_update(tx.c, p, n, v.dtype, v.rank, v.shape, v.data, v.size)
	})
}

// Commit makes all changes durable, or none, and ends the transaction. Only after ErrBusy does it live on, to be
// committed again or rolled back.
func (tx *Tx) Commit() error {
	if err := tx.ctx.Err(); err != nil {
		if rollback := tx.Rollback(); rollback != nil {
			return rollback
		}
		return cancelledError("commit", context.Cause(tx.ctx))
	}
	return tx.call("commit", tx.ctx, func() C.st_status {
		status := C.st_commit(tx.c)
		if status != C.ST_E_BUSY {
			tx.c = nil
		}
		return status
	})
}

// Rollback drops all changes. After Commit it answers ErrTxDone and does nothing, so that it may be deferred.
func (tx *Tx) Rollback() error {
	return tx.call("rollback", context.Background(), func() C.st_status {
		C.st_abort(tx.c)
		tx.c = nil
		return C.ST_OK
	})
}

func (tx *Tx) call(op string, ctx context.Context, call func() C.st_status) error {
	if !tx.mutex.TryLock() { // waiting would be a deadlock for a callback of the transaction's own
		return argumentError(op, "the transaction is in use by another goroutine, or by this one's caller")
	}
	defer tx.mutex.Unlock()
	if tx.c == nil {
		return ErrTxDone
	}
	if !tx.file.h.acquire() {
		tx.c = nil // freed with the file
		return closedError(op)
	}
	defer tx.file.release()
	err := run(ctx, op, &tx.hooks, call)
	runtime.KeepAlive(tx)
	return err
}
