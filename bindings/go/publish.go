package st

/*
#include "bridge.h"
*/
import "C"

// Put adds a tensor, or replaces one by any dtype and shape. One that is replaced keeps its place in the order of the
// file, others come last. With a Put, Delete, Rename or metadata in it a transaction, its updates included, is
// published: a new file is made beside the old one and takes its name. Every reader sees the old one or the new one,
// whole. The bytes are written out during the call; the caller may reuse them when it returns.
//
// A wrong dtype, shape, size or name is refused and leaves the transaction as it was.
func (tx *Tx) Put(name string, value Tensor) error {
	p, n := chars(name)
	return value.lend(func(v *C.st_tensor) error {
		return tx.call("put", func() C.st_status { return C.st_txn_put(tx.c, p, n, v) })
	})
}

// Delete removes a tensor. ErrNotFound leaves the transaction as it was.
func (tx *Tx) Delete(name string) error {
	p, n := chars(name)
	return tx.call("delete", func() C.st_status { return C.st_txn_delete(tx.c, p, n) })
}

// Rename gives a tensor another name. ErrNotFound, and ErrDuplicateName if that name is taken, leave the transaction as
// it was. Names are those that the calls before in the same transaction left.
func (tx *Tx) Rename(from, to string) error {
	f, fn := chars(from)
	t, tn := chars(to)
	return tx.call("rename", func() C.st_status { return C.st_txn_rename(tx.c, f, fn, t, tn) })
}

// SetMetadata sets a key of the file's metadata.
func (tx *Tx) SetMetadata(key, value string) error {
	k, kn := chars(key)
	v, vn := chars(value)
	return tx.call("set metadata", func() C.st_status { return C.st_txn_set_metadata(tx.c, k, kn, v, vn) })
}

// DeleteMetadata removes a key of the file's metadata. ErrNotFound leaves the transaction as it was.
func (tx *Tx) DeleteMetadata(key string) error {
	k, kn := chars(key)
	return tx.call("delete metadata", func() C.st_status { return C.st_txn_set_metadata(tx.c, k, kn, nil, C.ST_NTS) })
}

// Sync makes durable in the file what was committed with JournalOnly. Close does so, too, and the next commit of the same
// bytes. Where the bytes are needed in the file, or the error, call it before Close, which tells neither. ErrNeedsRecovery says that a sync failed: nothing is lost, and the next Open finishes it.
func (f *File) Sync() error {
	return f.call("sync", func() C.st_status { return C.st_sync(f.h.c) })
}

// Refresh shows the file as it is now: what others have committed, replaced files included. Views that were given out
// stay valid, and show the file that they were taken from. It waits for no call on this File, and may run beside any. On an
// error the File is as it was.
func (f *File) Refresh() error {
	return f.call("refresh", func() C.st_status {
		f.h.supersede() // or memory that nobody uses would be read once more
		defer f.h.supersede()
		return C.st_refresh(f.h.c)
	})
}
