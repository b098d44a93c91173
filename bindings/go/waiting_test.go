package st_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"libst/st"
)

// holdVariable makes the test program another worker: one in the middle of a commit of tensor "a" of this file.
const holdVariable = "LIBST_TEST_HOLD"

// leaveVariable makes it one that dies after a commit of tensor "b", which its journal alone has.
const leaveVariable = "LIBST_TEST_LEAVE"

func TestMain(m *testing.M) {
	if path := os.Getenv(leaveVariable); path != "" {
		if err := leave(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(7)
	}
	if path := os.Getenv(holdVariable); path != "" {
		if err := hold(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func leave(path string) error {
	f, err := st.Open(path, &writable)
	if err != nil {
		return err
	}
	tx, err := f.Begin(&st.TxOptions{JournalOnly: true})
	if err != nil {
		return err
	}
	if err := tx.Update("b", st.TensorOf([]int16{1, 2, 3})); err != nil {
		return err
	}
	return tx.Commit()
}

func leaveJournal(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	worker := exec.Command(self)
	worker.Env = append(os.Environ(), leaveVariable+"="+path)
	if said, _ := worker.CombinedOutput(); len(said) > 0 {
		t.Fatalf("the other worker says %q", said)
	}
}

// hold commits tensor "a", says so when it has the lock, and goes on when its standard input ends.
func hold(path string) error {
	f, err := st.Open(path, &writable)
	if err != nil {
		return err
	}
	committing := false
	tx, err := f.Begin(&st.TxOptions{Progress: func(uint64, uint64) error {
		if committing {
			committing = false
			fmt.Println("locked")
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
		return nil
	}})
	if err != nil {
		return err
	}
	if err := tx.Update("a", st.TensorOf([]float32{0, 0, 0, 0, 0, 0}, 2, 3)); err != nil {
		return err
	}
	committing = true
	return tx.Commit()
}

// elsewhere is another process that holds the lock of "a" until it is told to go on, or killed.
type elsewhere struct {
	pid  int
	goOn func()
	kill func()
}

func holdElsewhere(t *testing.T, path string) elsewhere {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	worker := exec.Command(self)
	worker.Env = append(os.Environ(), holdVariable+"="+path)
	worker.Stderr = os.Stderr
	in, err := worker.StdinPipe()
	must(t, err)
	out, err := worker.StdoutPipe()
	must(t, err)
	must(t, worker.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the other worker says %q (%v)", line, err)
	}
	killed := false
	goOn := sync.OnceFunc(func() {
		_ = in.Close()
		if err := worker.Wait(); err != nil && !killed {
			t.Error(err)
		}
	})
	t.Cleanup(goOn)
	return elsewhere{worker.Process.Pid, goOn, func() {
		killed = true
		must(t, worker.Process.Kill())
		goOn()
	}}
}

var sixes = st.TensorOf([]float32{6, 6, 6, 6, 6, 6}, 2, 3)

func TestBusyNamesWhoHoldsTheLock(t *testing.T) {
	f, path := small(t, st.Options{ReadWrite: true, LockTimeout: time.Millisecond})
	other := holdElsewhere(t, path)
	e := refused(t, f.Update("a", sixes), st.ErrBusy)
	if e.HolderPID != other.pid || e.Tensor != "a" {
		t.Errorf("the lock of %q is held by %d, not %d", e.Tensor, e.HolderPID, other.pid)
	}
	must(t, f.Update("b", st.TensorOf([]int16{1, 2, 3}))) // another tensor is free

	tx, err := f.Begin(&st.TxOptions{LockTimeout: st.NoWait})
	must(t, err)
	must(t, tx.Update("a", sixes))
	refused(t, tx.Commit(), st.ErrBusy)
	other.goOn()
	must(t, tx.Commit()) // a busy transaction lives on
	now, err := readFile(path)
	must(t, err)
	same(t, "a", now["a"], sixes)
}

// waiting runs a call that has to wait for a lock, and `stop` when it does.
func waiting(t *testing.T, f *st.File, call func() error, stop func()) error {
	t.Helper()
	before, err := f.Stats()
	must(t, err)
	answer := make(chan error, 1)
	go func() { answer <- call() }()
	for {
		now, err := f.Stats()
		must(t, err)
		if now.LockWaits > before.LockWaits {
			break
		}
		select {
		case err := <-answer:
			t.Fatalf("the call has not waited: it answers %v", err)
		default:
			runtime.Gosched()
		}
	}
	stop()
	return <-answer
}

// A call that waits for a lock tells its progress so, again and again. So no clock is needed to see which timeout a call has.
func TestTheFilesTimeoutIsThatOfItsTransactions(t *testing.T) {
	base, changed := newFile(t, []named{{"a", firstA}}, nil), newFile(t, []named{{"a", sixes}}, nil)
	toSixes := delta(t, base, changed)
	waits, told := errors.New("it waits"), 0
	heard := func(uint64, uint64) error {
		if told++; told > 10 { // no call has so many steps
			return waits
		}
		return nil
	}
	calls := map[string]func(f *st.File, own time.Duration) error{
		"UpdateSlice": func(f *st.File, own time.Duration) error {
			return f.UpdateSlice("a", st.TensorOf([]float32{6, 6, 6}, 1, 3), st.Until(1))
		},
		"UpdateRows": func(f *st.File, own time.Duration) error {
			return f.UpdateRows("a", st.TensorOf([]float32{6, 6, 6}, 1, 3), []int64{1})
		},
		"Transact": func(f *st.File, own time.Duration) error {
			return f.Transact(func(tx *st.Tx) error { return tx.Update("a", sixes) })
		},
		"Begin": func(f *st.File, own time.Duration) error {
			tx, err := f.Begin(&st.TxOptions{LockTimeout: own})
			must(t, err)
			must(t, tx.Update("a", sixes))
			err = tx.Commit()
			_ = tx.Rollback()
			return err
		},
		"ApplyDelta": func(f *st.File, own time.Duration) error {
			return errorOf(f.ApplyDelta(toSixes, &st.ApplyDeltaOptions{LockTimeout: own}))
		},
	}
	holdElsewhere(t, base)
	for what, call := range calls {
		f := open(t, base, st.Options{ReadWrite: true, LockTimeout: st.NoWait, Progress: heard})
		told = 0
		refused(t, call(f, 0), st.ErrBusy)
		again, err := f.Reopen()
		must(t, err)
		told = 0
		refused(t, call(again, 0), st.ErrBusy)
		must(t, again.Close())
		if what == "Begin" || what == "ApplyDelta" { // their own timeout goes before the file's
			told = 0
			if err := call(f, st.Forever); !errors.Is(err, waits) {
				t.Errorf("%s with a timeout of its own: %v", what, err)
			}
		}
	}
}

func TestAContextEndsAWait(t *testing.T) {
	f, path := small(t, st.Options{ReadWrite: true, LockTimeout: st.Forever})
	holdElsewhere(t, path)
	why := errors.New("the user went away")

	ctx, cancel := context.WithCancelCause(context.Background())
	err := waiting(t, f, func() error { return f.WithContext(ctx).Update("a", sixes) }, func() { cancel(why) })
	refused(t, err, st.ErrCancelled)
	if !errors.Is(err, why) {
		t.Errorf("the update answers %v", err)
	}

	ctx, stop := context.WithCancel(context.Background())
	tx, err := f.WithContext(ctx).Begin(&st.TxOptions{LockTimeout: st.Forever})
	must(t, err)
	must(t, tx.Update("a", sixes))
	err = waiting(t, f, tx.Commit, stop)
	refused(t, err, st.ErrCancelled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the commit answers %v", err)
	}

	ctx, stop = context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	if err = f.WithContext(ctx).Update("a", sixes); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline answers %v", err)
	}
	must(t, f.Update("b", st.TensorOf([]int16{1, 2, 3}))) // the file is as good as before
}

func TestInterruptAndCloseEndAWait(t *testing.T) {
	f, path := small(t, st.Options{ReadWrite: true, LockTimeout: st.Forever})
	holdElsewhere(t, path)
	refused(t, waiting(t, f, func() error { return f.Update("a", sixes) }, f.Interrupt), st.ErrInterrupted)
	refused(t, waiting(t, f, func() error { return f.Update("a", sixes) }, func() { must(t, f.Close()) }), st.ErrInterrupted)
}

func TestAContextThatHasEndedBeginsNothing(t *testing.T) {
	f, path := small(t, writable)
	ctx, cancel := context.WithCancel(context.Background())
	begun, err := f.WithContext(ctx).Begin(nil)
	must(t, err)
	must(t, begun.Update("b", st.TensorOf([]int16{1, 2, 3})))
	cancel()
	fail := map[string]error{
		"update": f.WithContext(ctx).Update("a", sixes), "verify": st.Verify(path, &st.VerifyOptions{Context: ctx}),
		"recover":   st.Recover(path, &st.RecoverOptions{Context: ctx}),
		"tx update": begun.Update("a", sixes), "commit": begun.Commit(),
	}
	_, fail["open"] = st.Open(path, &st.Options{Context: ctx})
	_, fail["get"] = f.WithContext(ctx).Get("a")
	_, fail["slice"] = f.WithContext(ctx).Slice("a")
	_, fail["begin"] = f.WithContext(ctx).Begin(nil)
	for what, err := range fail {
		refused(t, err, st.ErrCancelled)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s answers %v", what, err)
		}
	}
	because := errors.New("another goroutine failed") // as errgroup says it
	caused, cancelCaused := context.WithCancelCause(context.Background())
	cancelCaused(because)
	if _, err := f.WithContext(caused).Get("a"); !errors.Is(err, because) || !errors.Is(err, context.Canceled) {
		t.Errorf("under a context that has a cause, Get answers %v", err)
	}
	if err := begun.Rollback(); !errors.Is(err, st.ErrTxDone) {
		t.Errorf("after a commit that did not begin, Rollback answers %v", err)
	}
	now, err := readFile(path)
	must(t, err)
	same(t, "b", now["b"], st.TensorOf([]int16{7, 8, 9}))
}

// late is a context that ends after Err was asked some times.
type late struct {
	context.Context
	left int
}

func (c *late) Done() <-chan struct{} { return make(chan struct{}) }

func (c *late) Err() error {
	if c.left--; c.left >= 0 {
		return nil
	}
	return context.Canceled
}

func TestWhatIsCancelledBeforeItBeginsHasEndedWhenTheContextEndsMeanwhile(t *testing.T) {
	f, path := small(t, writable)
	for times := range 3 {
		ctx := &late{context.Background(), 10}
		tx, err := f.WithContext(ctx).Begin(nil)
		must(t, err)
		w, err := st.NewWriter(path+".new", nil, &st.SaveOptions{Context: ctx})
		must(t, err)
		ctx.left = times
		if err := tx.Commit(); err != nil {
			refused(t, err, st.ErrCancelled)
		}
		if err := tx.Rollback(); !errors.Is(err, st.ErrTxDone) {
			t.Errorf("after %d times: %v", times, err)
		}
		ctx.left = times
		if err := w.Finish(); err != nil {
			refused(t, err, st.ErrCancelled)
		}
		if err := w.Abort(); !errors.Is(err, st.ErrWriterDone) {
			t.Errorf("after %d times: %v", times, err)
		}
	}
}

func TestProgressEndsTheWaitOfARecovery(t *testing.T) {
	_, path := small(t)
	holder := holdElsewhere(t, path)
	defer holder.kill()
	stop := errors.New("enough")
	err := st.Recover(path, &st.RecoverOptions{LockTimeout: st.Forever, Progress: func(uint64, uint64) error { return stop }})
	refused(t, err, st.ErrCancelled)
	if !errors.Is(err, stop) {
		t.Error(err)
	}
}
