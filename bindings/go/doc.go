// Package st opens, reads, verifies, writes and changes safetensors files with libst: tensors are looked at without a copy and
// changed in place, as transactions that survive a crash.
//
//	f, err := st.Open("model.safetensors", &st.Options{ReadWrite: true})
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	bias, err := f.Get("final_conv.bias") // a copy; View does without
//	...
//	err = f.Update("final_conv.bias", bias) // durable when it returns nil
//
// A transaction ([File.Transact], [File.Begin]) makes many changes at once. Updates alone are patched in place; one that
// puts, deletes or renames tensors makes a new file, which every reader sees whole or not at all. [Save] and [NewWriter]
// write new files.
//
// # Options
//
// Functions take a pointer to a struct of options, or nil. The zero value of every field is its default.
//
// A context ends calls: [File.WithContext] gives one to the calls of a File and of its transactions. Functions that are not
// about an open file take it in their options. [DescribeDelta] and [OpenBytes]
// take none. A call that it ends answers [ErrCancelled], and the context's error and cause. It
// stops at its next progress step, or within a tenth of a second of waiting for a lock or a server; other calls on the
// file go on.
//
// # Errors
//
// Every failure of the library is an [*Error], which says what went wrong, where, and what to do. It unwraps to its
// [Status] and, where a system call failed, to its [syscall.Errno]:
//
//	errors.Is(err, st.ErrBusy)         // another worker holds the lock
//	errors.Is(err, st.ErrNotFound)     // no such tensor, or no such key of the metadata
//	errors.Is(err, fs.ErrNotExist)     // no such file
//	errors.Is(err, syscall.ENOSPC)
//	var e *st.Error
//	errors.As(err, &e)                 // e.Tensor, e.Offset, e.HolderPID
//
// # Memory
//
// Get, ReadInto and Slice copy. View does not: its Data is the file's own mapping. It is valid until Close or Release of
// the File, and shows what others change meanwhile. It must not be written to, but with [MapCopyOnWrite]: later Views
// show what was written then, and the file never does.
//
// Each call shows one state of the file, also beside commits in other goroutines. A [File.Snapshot] shows one state to many
// calls. A File that publishes or refreshes keeps nothing of the file that it replaces, but what views lie in: views of
// the File itself keep it until Release or Close, views of a Snapshot until that is closed.
//
// The library keeps no pointer into Go's memory beyond a call. What File.Update is given is in the file when it returns.
// What Tx's Update, UpdateSlice, UpdateRows and Put and a Writer are given is on disk (ST_TXN_COPY). So the caller may reuse it at once. The one
// exception is OpenBytes, which pins its argument until Close, that of its Snapshots included.
//
// # Goroutines
//
// A File may be used from many goroutines at once, and Close may be called while others use it: their calls give up and
// answer [ErrInterrupted] or [fs.ErrClosed]. A Tx or Writer belongs to one goroutine at a time.
//
// Callbacks ([Progress], [Log], and what is told each [Report]) run on the goroutine of the call that they are about. A panic in one
// cancels the call, as far as it can be cancelled, and goes on in the caller. They and the Reader of a [Source] must not call
// runtime.Goexit, as t.FailNow of a test does: what the call holds would never be let go.
package st
