package st

/*
#include "bridge.h"
*/
import "C"

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"
)

// Update replaces the bytes of one tensor in place, as a transaction of its own: checked, locked, journalled, and
// durable when it answers nil. On an error the file is as it was, unless that is ErrNeedsRecovery. DType and Shape of
// the value must be those in the file. A context that ends stops it only before the change is decided.
func (f *File) Update(name string, value Tensor) error {
	p, n := chars(name)
	return value.lend(func(v *C.st_tensor) error {
		return f.call("update", func() C.st_status { return C.st_update(f.h.c, p, n, v) })
	})
}

// UpdateSlice is Tx.UpdateSlice as a transaction of its own, durable when it answers nil.
func (f *File) UpdateSlice(name string, value Tensor, ranges ...Range) error {
	return f.Transact(func(tx *Tx) error { return tx.UpdateSlice(name, value, ranges...) })
}

// UpdateRows is Tx.UpdateRows as a transaction of its own, durable when it answers nil.
func (f *File) UpdateRows(name string, value Tensor, rows []int64, ranges ...Range) error {
	return f.Transact(func(tx *Tx) error { return tx.UpdateRows(name, value, rows, ranges...) })
}

// lend shows a tensor to C for the time of a call.
func (t *Tensor) lend(to func(*C.st_tensor) error) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	var c C.st_tensor
	fill(&c, &pin, t.Name, t)
	return to(&c)
}

// Transact makes changes all or nothing: it begins a transaction, calls change with it, and commits it if the answer is
// nil. On an error, or a panic, it drops all changes. What it answers is the error of change, or of the commit. After
// ErrBusy it may be called again. Commit and Rollback are its own, and not for change to call.
func (f *File) Transact(change func(tx *Tx) error) error {
	tx, err := f.Begin(nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := change(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// A Tx is a transaction: all of its changes become durable in Commit, or none. It belongs to one goroutine at a time.
// End it with Commit or Rollback; a Tx that is forgotten is rolled back some time after nothing refers to it. Until then
// its journal takes room on the disk.
type Tx struct {
	file    *File // with the transaction's progress
	mutex   sync.Mutex
	c       *C.st_txn // nil when done
	cleanup runtime.Cleanup
}

// txOf is a transaction and the handle that it is on, which may be closed before it is freed.
type txOf struct {
	h *handle
	c *C.st_txn
}

func (o txOf) free() {
	o.h.mutex.Lock()
	defer o.h.mutex.Unlock()
	C.st_txn_free(o.c)
}

// Begin begins a transaction on a file that was opened with Options.ReadWrite. It holds no lock until Commit. nil for the
// default options. Its calls end with the file's context (see WithContext); it is still to be rolled back then.
func (f *File) Begin(opts *TxOptions) (*Tx, error) {
	o := given(opts)
	if err := checkTimeout("begin", o.LockTimeout); err != nil {
		return nil, err
	}
	c := o.c()
	c.flags |= C.ST_TXN_COPY // the library borrows nothing of Go's; it copies into its journal, not into memory
	tx := &Tx{file: f.watchedBy(o.Progress)}
	begun := false
	defer func() {
		if !begun && tx.c != nil { // a callback panicked
			txOf{f.h, tx.c}.free()
		}
	}()
	if err := tx.file.call("begin", func() C.st_status { return C.st_txn_begin(f.h.c, &c, &tx.c) }); err != nil {
		return nil, err
	}
	begun = true
	tx.cleanup = runtime.AddCleanup(tx, func(o txOf) { go o.free() }, txOf{f.h, tx.c}) // it removes a journal
	return tx, nil
}

// Update stages a tensor's new bytes, which the caller may reuse when it returns. A tensor staged twice takes the last
// value. After a failure other than a wrong name, dtype, shape or size, all that the transaction can do is Rollback.
func (tx *Tx) Update(name string, value Tensor) error {
	p, n := chars(name)
	return value.lend(func(v *C.st_tensor) error {
		return tx.call("update", func() C.st_status { return C.st_txn_update(tx.c, p, n, v) })
	})
}

// UpdateSlice stages new bytes for part of a tensor, as Slice reads it: the journal and the locks hold these alone. The
// value has the tensor's DType and the part's Shape. What is staged later wins, over parts and over whole tensors.
func (tx *Tx) UpdateSlice(name string, value Tensor, ranges ...Range) error {
	return tx.updatePart(name, value, nil, 0, ranges)
}

// UpdateRows is UpdateSlice of rows of the first dimension, in any order, negative ones from its end; of one that comes
// twice the last counts. The ranges are for the dimensions behind the first.
func (tx *Tx) UpdateRows(name string, value Tensor, rows []int64, ranges ...Range) error {
	first := unsafe.SliceData(rows)
	if len(rows) == 0 {
		first = &noRow // not NULL, which would be all rows
	}
	return tx.updatePart(name, value, first, len(rows), ranges)
}

var noRow int64

func (tx *Tx) updatePart(name string, value Tensor, rows *int64, count int, ranges []Range) error {
	p, n := chars(name)
	r, rangeCount := rangesOf(ranges)
	return value.lend(func(v *C.st_tensor) error {
		return tx.call("update", func() C.st_status {
			return C.st_txn_update_slice(tx.c, p, n, r, rangeCount, (*C.int64_t)(rows), C.size_t(count), v)
		})
	})
}

// Commit makes all changes durable, or none, and ends the transaction. Only after ErrBusy does it live on, to be
// committed again or rolled back; and after fs.ErrClosed, since the file was closed before, to be rolled back.
func (tx *Tx) Commit() error {
	return tx.alone("commit", func() error {
		ran := false
		err := tx.file.call("commit", func() C.st_status {
			ran = true
			status := C.st_txn_commit(tx.c)
			if status != C.ST_E_BUSY {
				tx.free()
			}
			return status
		})
		if !ran && errors.Is(err, ErrCancelled) { // the context had ended before
			tx.free()
		}
		return err
	})
}

// Rollback drops all changes. After Commit it answers ErrTxDone and does nothing, so that it may be deferred.
func (tx *Tx) Rollback() error {
	return tx.alone("rollback", func() error {
		tx.free()
		return nil
	})
}

func (tx *Tx) free() {
	tx.cleanup.Stop()
	txOf{tx.file.h, tx.c}.free()
	tx.c = nil
}

func (tx *Tx) call(op string, call func() C.st_status) error {
	return tx.alone(op, func() error { return tx.file.call(op, call) })
}

// alone runs what no other goroutine may do meanwhile, on a transaction that has not ended.
func (tx *Tx) alone(op string, run func() error) error {
	if !tx.mutex.TryLock() { // waiting would be a deadlock for a callback of the transaction's own
		return argumentError(op, "the transaction is in use by another goroutine, or by this one's caller")
	}
	defer tx.mutex.Unlock()
	if tx.c == nil {
		return ErrTxDone
	}
	return run()
}
