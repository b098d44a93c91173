package st

/*
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"runtime/cgo"
	"sync"
	"syscall"
	"unsafe"
)

// A Source is a safetensors file that is no file of this system: an object in a store, a member of an archive, a stream
// that is decrypted as it is read. Its bytes and their size must not change while the File is open; a Reader that cannot
// promise this checks it, and answers ErrFileChanged or syscall.ESTALE.
type Source struct {
	Reader    io.ReaderAt // kept until the File and its Snapshots are closed; never closed
	Size      int64       // bytes
	Name      string      // for messages; "": "source"
	Identity  string      // the version of the bytes, as an ETag, for messages; "": none
	MostReads uint32      // calls of ReadAt at once; 0: eight
}

// OpenSource opens a safetensors file that a Source holds, for reading only. Nothing is mapped: View is memory of the
// file, which is read when it is first looked at; Load and ReadMany read in the order of the file. These options count:
// Map (only MapCopyOnWrite), IOThreads, BlockSize, Progress, Log and Context. ReadWrite and Deltas are ErrUnsupported.
//
// What ReadAt answers is in the chain of the call's error; its panic goes on in the call. Where several
// calls at once read by threads of the library's own (Load, ReadMany), one may get what was answered to another.
// ReadAt must not call runtime.Goexit, as t.FailNow of a test does: the call that waits for its bytes would never end.
func OpenSource(source Source, opts *Options) (*File, error) {
	if source.Reader == nil || source.Size < 0 {
		return nil, argumentError("open", "a Source has a Reader, and a Size of 0 or more bytes")
	}
	o := given(opts)
	if err := checkTimeout("open", o.LockTimeout); err != nil {
		return nil, err
	}
	reader := &sourceReader{of: source.Reader}
	self := cgo.NewHandle(reader)
	calls := hooks{progress: o.Progress, log: o.Log, source: reader}
	var name, identity *C.char // C may read both until the last handle is closed
	if source.Name != "" {
		name = C.CString(source.Name)
	}
	if source.Identity != "" {
		identity = C.CString(source.Identity)
	}
	h := &handle{steady: true, held: (&held{letGo: func() {
		self.Delete()
		C.free(unsafe.Pointer(name))
		C.free(unsafe.Pointer(identity))
	}}).share()}
	options := o.c()
	most := source.MostReads
	if most == 0 {
		most = 8
	}
	c := C.st_source{
		struct_size: C.sizeof_st_source,
		most_reads:  C.uint32_t(most),
		size:        C.uint64_t(source.Size),
		name:        name,
		identity:    identity,
	}
	opened := false
	defer func() {
		if !opened {
			h.free() // there is no file, unless a callback panicked
		}
	}()
	err := withPaths(o.Context, "open", o.Deltas, &calls, func(p []*C.char) C.st_status {
		layers := newPaths(p)
		defer layers.free()
		options.deltas, options.delta_count = layers.c, C.size_t(layers.n)
		return C.stgo_open_source(&c, C.uintptr_t(self), &options, &h.c)
	})
	if err != nil {
		return nil, err
	}
	opened = true
	return newFile(h, context.Background(), calls, ""), nil
}

// sourceReader is a Source's reader, as C calls it.
type sourceReader struct {
	of io.ReaderAt

	mutex sync.Mutex
	calls int         // that run
	other readFailure // what it last answered in a thread of the library's own, until a call takes that
}

// readFailure is an error of a reader, or its panic.
type readFailure struct {
	err      error
	panicked bool
	value    any // of the panic
}

// note keeps the first error, but any panic.
func (f *readFailure) note(next readFailure) {
	if f.err == nil || next.panicked && !f.panicked {
		*f = next
	}
}

// begin is told of each call, and forgets what no call has taken if no other one runs that might.
func (s *sourceReader) begin() {
	if s == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.calls++; s.calls == 1 {
		s.other = readFailure{}
	}
}

func (s *sourceReader) end() {
	if s == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.calls--
}

// failed takes what the reader answered to a call that failed: in the call's own thread, else in one of the library's.
// A panic goes on.
func (s *sourceReader) failed(here readFailure) error {
	if s == nil {
		return nil
	}
	failure := here
	s.mutex.Lock()
	if here.err == nil || s.calls == 1 { // else it may be another call's
		failure.note(s.other)
		s.other = readFailure{}
	}
	s.mutex.Unlock()
	if failure.panicked {
		panic(failure.value)
	}
	return failure.err
}

// read fills a range. In any thread, which may be none of Go's.
func (s *sourceReader) read(buffer []byte, at int64) (failure readFailure) {
	failure.panicked = true
	defer func() {
		if failure.panicked {
			failure.err, failure.value = errors.New("the reader of the source panicked"), recover()
		}
	}()
	n, err := s.of.ReadAt(buffer, at)
	failure.panicked = false
	if n == len(buffer) {
		return
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	failure.err = err
	return
}

// stgoRead reads for the call that runs in this thread; `call` is 0 in a thread of the library's own.
//
//export stgoRead
func stgoRead(user, call C.uintptr_t, ranges *C.st_source_range, n C.size_t) C.int {
	s := cgo.Handle(user).Value().(*sourceReader)
	for _, r := range unsafe.Slice(ranges, n) {
		failure := s.read(unsafe.Slice((*byte)(r.dst), uint64(r.nbytes)), int64(r.offset))
		if failure.err == nil {
			continue
		}
		if call != 0 {
			find(call).read.note(failure)
		} else {
			s.mutex.Lock()
			s.other.note(failure)
			s.mutex.Unlock()
		}
		return C.int(errnoOf(failure.err))
	}
	return 0
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno) && errno > 0:
		return errno
	case errors.Is(err, ErrFileChanged):
		return syscall.ESTALE
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT
	case errors.Is(err, fs.ErrPermission):
		return syscall.EACCES
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return syscall.ECANCELED
	}
	return syscall.EIO
}
