package st

/*
#include <st/st.h>
*/
import "C"

import (
	"errors"
	"io/fs"
)

// Status is what a call of the library answers. Each is an error, so that errors.Is(err, st.ErrBusy) asks whether an
// error has it. The numbers are fixed for ever; numbers.go has them.
type Status int32

// String is the name of the status in the C header, such as ST_E_BUSY.
func (s Status) String() string { return C.GoString(C.st_status_name(C.st_status(s))) }

// Error is the same as String.
func (s Status) Error() string { return s.String() }

// Is makes statuses match the errors of the standard library that mean the same. A tensor that is not there is no
// fs.ErrNotExist, because a program that asks for this asks for the file.
func (s Status) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return s == ErrNoFile
	case fs.ErrPermission:
		return s == ErrPermission
	case errors.ErrUnsupported:
		return s == ErrUnsupported || s == ErrLockUnsupported
	}
	return false
}
