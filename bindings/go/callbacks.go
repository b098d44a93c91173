package st

/*
#include <st/st.h>
*/
import "C"

import "runtime/cgo"

// Progress is told now and then how many bytes of a long call are done, of how many; total is 0 if that is not known.
// An error cancels the call, which then answers it, wrapped, and has changed nothing. It must not use the file, but for
// Close and Interrupt: a change would wait for the one that calls it. Nor may it call runtime.Goexit, as t.FailNow does.
type Progress func(done, total uint64) error

// LogLevel says how much a message matters.
type LogLevel uint32

// The levels of messages and reports.
const (
	LogInfo    LogLevel = 1
	LogWarning LogLevel = 2
	LogError   LogLevel = 3 // in a Report alone
)

func (l LogLevel) String() string { return nameOf(l, "unknown", "info", "warning", "error") }

// Log is told what a user may want to know: a mapping fell back, a journal was recovered.
type Log func(level LogLevel, message string)

// A Report is one finding of Verify or Recover.
type Report struct {
	Level   LogLevel
	Status  Status // what is wrong; 0 if nothing is
	Offset  int64  // in the file; -1 if it is about no place
	Message string // one sentence
}

// hooks are the functions of the caller that a call may run.
type hooks struct {
	progress Progress
	log      Log
	report   func(Report) error
	source   *sourceReader
}

func (h *hooks) any() bool {
	return h.progress != nil || h.log != nil || h.report != nil || h.source != nil
}

// running is one call of the library while it runs: what C's callbacks find by its cgo.Handle. All of it happens on the
// goroutine of the call.
type running struct {
	hooks
	err      error // a callback's answer
	panicked bool
	value    any         // of the panic
	read     readFailure // of a Source's reader, in this thread
}

// guard runs a callback and says whether the call is to stop. No panic goes through C's frames: it waits for run.
func (r *running) guard(callback func() error) (stop C.int) {
	if r.panicked || r.err != nil {
		return 1
	}
	r.panicked = true
	defer func() {
		if r.panicked {
			r.value = recover()
			stop = 1
		}
	}()
	r.err = callback()
	r.panicked = false
	if r.err != nil {
		return 1
	}
	return 0
}

func find(handle C.uintptr_t) *running { return cgo.Handle(handle).Value().(*running) }

//export stgoProgress
func stgoProgress(handle C.uintptr_t, done, total C.uint64_t) C.int {
	r := find(handle)
	return r.guard(func() error { return r.progress(uint64(done), uint64(total)) })
}

//export stgoLog
func stgoLog(handle C.uintptr_t, level C.uint32_t, message *C.char) C.int {
	r := find(handle)
	return r.guard(func() error {
		r.log(LogLevel(level), C.GoString(message))
		return nil
	})
}

//export stgoReport
func stgoReport(handle C.uintptr_t, level C.uint32_t, status C.int32_t, at C.uint64_t, message *C.char) C.int {
	r := find(handle)
	return r.guard(func() error {
		return r.report(Report{LogLevel(level), Status(status), offset(at), C.GoString(message)})
	})
}
