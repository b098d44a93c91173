package st_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"libst/st"
)

// large is a file whose reads and updates take several steps.
func large(t *testing.T, opts ...st.Options) (*st.File, string, st.Tensor) {
	t.Helper()
	value := st.TensorOf(make([]uint8, 64<<20))
	path := newFile(t, []named{{"x", value}, {"y", st.TensorOf([]uint8{1})}}, nil)
	return open(t, path, opts...), path, value
}

func TestProgressIsToldAndMayCancel(t *testing.T) {
	var done, total uint64
	var stop error
	watch := func(d, n uint64) error {
		done, total = d, n
		return stop
	}
	f, path, value := large(t, st.Options{ReadWrite: true, Progress: watch})
	into := make([]byte, len(value.Data))
	_, err := f.ReadInto("x", into)
	must(t, err)
	if done == 0 || done > total || total != uint64(len(into)) {
		t.Errorf("%d of %d bytes were told", done, total)
	}
	stop = errors.New("enough")
	calls := map[string]func() error{
		"read":   func() error { _, err := f.ReadInto("x", into); return err },
		"slice":  func() error { return f.SliceInto("x", into) },
		"update": func() error { return f.Update("x", value) },
		"verify": func() error { return st.Verify(path, &st.VerifyOptions{Progress: watch}) },
	}
	for what, call := range calls {
		err := call()
		refused(t, err, st.ErrCancelled)
		if !errors.Is(err, stop) {
			t.Errorf("%s answers %v", what, err)
		}
	}
	stop = nil
	must(t, f.Update("x", value))
}

func TestAPanicOfACallbackIsTheCallers(t *testing.T) {
	var boom any
	watch := func(uint64, uint64) error {
		if boom != nil {
			panic(boom)
		}
		return nil
	}
	f, path, value := large(t, st.Options{ReadWrite: true, Progress: watch})
	caught := func(call func()) (value any) {
		defer func() { value = recover() }()
		call()
		return nil
	}
	before := openDescriptors(t)
	boom = "boom"
	for range 3 {
		for what, call := range map[string]func(){
			"read":   func() { _, _ = f.ReadInto("x", make([]byte, len(value.Data))) },
			"update": func() { _ = f.Update("x", value) },
			"verify": func() { _ = st.Verify(path, &st.VerifyOptions{Progress: watch}) },
			"report": func() {
				_ = st.Verify(path, &st.VerifyOptions{Report: func(st.Report) error { panic("boom") }})
			},
		} {
			if got := caught(call); got != "boom" {
				t.Errorf("%s panicked with %v", what, got)
			}
		}
	}
	boom = nil
	tx, err := f.Begin(nil)
	must(t, err)
	must(t, tx.Update("x", value))
	boom = "boom"
	if got := caught(func() { _ = tx.Commit() }); got != "boom" {
		t.Errorf("commit panicked with %v", got)
	}
	boom = nil
	if err := tx.Rollback(); !errors.Is(err, st.ErrTxDone) {
		t.Errorf("Rollback after a commit that panicked answers %v", err)
	}
	if after := openDescriptors(t); after > before+2 { // the journal, kept for the next transaction, and its folder
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
	must(t, f.Update("x", value))
}

// A callback may use the library, even the same file; the errors and callbacks of its calls are its own.
func TestCallbacksMayCall(t *testing.T) {
	var f *st.File
	var inside atomic.Int32
	other, _ := small(t)
	f, _, value := large(t, st.Options{Progress: func(uint64, uint64) error {
		if inside.Add(1) > 3 {
			return nil
		}
		if f != nil {
			if _, err := f.Get("none"); !errors.Is(err, st.ErrNotFound) {
				t.Errorf("inside, a tensor that is not there answers %v", err)
			}
			if _, err := f.Get("y"); err != nil {
				t.Error(err)
			}
			if _, err := other.Get("a"); err != nil {
				t.Error(err)
			}
		}
		return nil
	}})
	got, err := f.Get("x")
	must(t, err)
	same(t, "x", got, value)
	if inside.Load() < 4 {
		t.Errorf("progress was told %d times", inside.Load())
	}
}

func TestACallbackMayCloseItsFile(t *testing.T) {
	var f *st.File
	closed := false
	f, _, _ = large(t, st.Options{Progress: func(uint64, uint64) error {
		if f != nil && !closed {
			closed = true
			return f.Close()
		}
		return nil
	}})
	_, err := f.ReadInto("x", make([]byte, 64<<20))
	refused(t, err, st.ErrInterrupted)
}

func TestATransactionIsNotForTwoAtOnce(t *testing.T) {
	f, _, value := large(t, writable)
	var tx *st.Tx
	var inside error
	tx, err := f.Begin(&st.TxOptions{Progress: func(uint64, uint64) error {
		inside = tx.Update("y", st.TensorOf([]uint8{2}))
		return nil
	}})
	must(t, err)
	must(t, tx.Update("x", value))
	refused(t, inside, st.ErrInvalidArgument)
	must(t, tx.Rollback())
}

// Cancelling one call leaves the others on the same file alone.
func TestAContextIsOfOneCall(t *testing.T) {
	f, _, value := large(t)
	because := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	var group sync.WaitGroup
	for range 4 {
		spawn(&group, func() {
			into := make([]byte, len(value.Data))
			for range 5 {
				if _, err := f.ReadInto("x", into); err != nil {
					t.Error(err)
				}
			}
		})
	}
	spawn(&group, func() {
		into := make([]byte, len(value.Data))
		for {
			if _, err := f.WithContext(ctx).ReadInto("x", into); err != nil {
				if !errors.Is(err, context.Canceled) || !errors.Is(err, because) {
					t.Error(err)
				}
				return
			}
		}
	})
	cancel(because)
	group.Wait()
}

// A worker that was killed in the middle of its commit leaves a journal, of which the next open tells.
func TestLogsTellOfRecovery(t *testing.T) {
	_, path := small(t)
	holdElsewhere(t, path).kill()
	var told []string
	f := open(t, path, st.Options{ReadWrite: true, Log: func(level st.LogLevel, message string) {
		told = append(told, level.String()+": "+message)
	}})
	if len(told) == 0 || !strings.HasPrefix(told[0], "info: ") {
		t.Errorf("the log of a recovery is %q", told)
	}
	got, err := f.Get("a")
	must(t, err)
	same(t, "a", got, st.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3))

	holdElsewhere(t, path).kill()
	before := openDescriptors(t)
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic of a log did not come through")
			}
		}()
		_, _ = st.Open(path, &st.Options{ReadWrite: true, Log: func(st.LogLevel, string) { panic("boom") }})
	}()
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// An update finishes first what the journal of a worker that died has, and the log is told.
func TestAPanicOfALogCancelsTheCall(t *testing.T) {
	var boom any
	f, path := small(t, st.Options{ReadWrite: true, Log: func(st.LogLevel, string) {
		if boom != nil {
			panic(boom)
		}
	}})
	before, err := f.Get("a")
	must(t, err)
	leaveJournal(t, path)
	boom = "boom"
	func() {
		defer func() {
			if value := recover(); value != "boom" {
				t.Errorf("the panic became %v", value)
			}
		}()
		_ = f.Update("a", sixes)
	}()
	boom = nil
	got, err := f.Get("a")
	must(t, err)
	same(t, "a", got, before)
	must(t, f.Update("a", sixes))
}

// Where nobody wants to be told, a finding is no reason to call Go.
func TestFindingsUnderAContextNeedNoReport(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	progress := func(uint64, uint64) error { return nil }
	for name, told := range map[string]st.Progress{"nothing": nil, "progress": progress} {
		t.Run(name, func(t *testing.T) {
			_, path := small(t)
			holdElsewhere(t, path).kill()
			must(t, st.Recover(path, &st.RecoverOptions{Context: ctx, Progress: told}))
			content, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, append(content, 0), 0o644))
			refused(t, st.Verify(path, &st.VerifyOptions{Context: ctx, Progress: told}), st.ErrTrailingData)
		})
	}
}

func TestAPanicOfALogInReopenLeavesNothingOpen(t *testing.T) {
	_, path := small(t)
	var boom any
	f := open(t, path, st.Options{ReadWrite: true, Log: func(st.LogLevel, string) {
		if boom != nil {
			panic(boom)
		}
	}})
	holdElsewhere(t, path).kill()
	boom = "boom"
	before := openDescriptors(t)
	func() {
		defer func() {
			if value := recover(); value != "boom" {
				t.Errorf("the panic became %v", value)
			}
		}()
		_, _ = f.Reopen()
	}()
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}
