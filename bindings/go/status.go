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

// Action is what a caller can do about a status.
type Action uint32

// The actions.
const (
	ActionNone   Action = 0 // the status is none, or newer than the library
	ActionFix    Action = 1 // mend the argument or the file; the same call fails again
	ActionRetry  Action = 2 // call again, later
	ActionReopen Action = 3 // close the file, open it anew, and look at what it holds
	ActionSpace  Action = 4 // free space on the disk or in memory, then call again
	ActionMove   Action = 5 // use another filesystem, machine or library
	ActionEnd    Action = 6 // this call, or this transaction, was stopped; begin it anew
	ActionReport Action = 7 // a bug in libst; please report it
)

func (a Action) String() string {
	return nameOf(a, "none", "fix", "retry", "reopen", "space", "move", "end", "report")
}

// Action tells it also of statuses that are newer than this package, but known to the library.
func (s Status) Action() Action { return Action(C.st_status_action(C.st_status(s))) }

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
