package st

/*
#include <st/st.h>
*/
import "C"

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"syscall"
	"unsafe"
)

// Error is a failure of the library.
type Error struct {
	Op        string        // the method that failed, such as "open"
	Status    Status        // what a program looks at
	Message   string        // one sentence: what, where, what to do
	Tensor    string        // the tensor that it is about, if HasTensor
	HasTensor bool          // a tensor's name may be empty
	Shard     uint32        // number of the file in a sharded checkpoint; else 0
	Offset    int64         // in the file; -1 if it is about no place
	Errno     syscall.Errno // of the failed system call; 0 if there was none
	HolderPID int           // ErrBusy: the process that holds the lock; 0 if it cannot be known
	cause     error         // why a call was cancelled; nil if it was not
	ended     error         // what the context that ended it answers; nil if none did
}

// Error is the library's sentence, which says what could not be done.
func (e *Error) Error() string { return "libst: " + e.Message }

// Unwrap gives the status, the errno if there is one, and what cancelled the call: the cause and the error of its context,
// or what its callback returned.
func (e *Error) Unwrap() []error {
	all := []error{e.Status}
	if e.Errno != 0 {
		all = append(all, e.Errno)
	}
	if e.cause != nil {
		all = append(all, e.cause)
	}
	if e.ended != nil {
		all = append(all, e.ended)
	}
	return all
}

// ErrTxDone is what a transaction answers that was committed or rolled back before.
var ErrTxDone = errors.New("libst: the transaction was committed or rolled back before")

// failure is the error that this goroutine's thread has just been given. The caller holds the thread.
func failure(op string, status C.st_status) *Error {
	info := C.st_error_info{struct_size: C.uint32_t(C.sizeof_st_error_info)}
	if C.st_last_error_info(&info) != C.ST_OK || info.status != status {
		return &Error{Op: op, Status: Status(status), Message: Status(status).String(), Offset: -1}
	}
	e := &Error{
		Op:        op,
		Status:    Status(status),
		Message:   C.GoString(info.message),
		Shard:     uint32(info.shard),
		Offset:    offset(info.offset),
		Errno:     syscall.Errno(info.os_errno),
		HolderPID: int(info.holder_pid),
	}
	if info.tensor != nil {
		e.HasTensor = true
		e.Tensor = text(info.tensor, info.tensor_len)
	}
	return e
}

func closedError(op string) *Error {
	return &Error{Op: op, Status: ErrInvalidArgument, Message: "the file is closed", Offset: -1, cause: fs.ErrClosed}
}

func argumentError(op, message string) *Error {
	return &Error{Op: op, Status: ErrInvalidArgument, Message: message, Offset: -1}
}

// cancelledError is for calls whose context had ended before they began.
func cancelledError(op string, ctx context.Context) *Error {
	cause := context.Cause(ctx)
	return &Error{Op: op, Status: ErrCancelled, Message: "the call was cancelled: " + cause.Error(), Offset: -1, cause: cause,
		ended: ctx.Err()}
}

// offset turns the C value for "no place" into Go's -1.
func offset(of C.uint64_t) int64 {
	if of > math.MaxInt64 {
		return -1
	}
	return int64(of)
}

// text copies a string that may hold NUL.
func text(p *C.char, n C.size_t) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(p)), uint64(n)))
}
