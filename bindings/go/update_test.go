package st_test

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"libst/st"
)

func TestUpdatesAreWhatOthersRead(t *testing.T) {
	tensors := everyDType()
	path := newFile(t, tensors, map[string]string{"format": "pt"})
	before, err := os.ReadFile(path)
	must(t, err)
	f := open(t, path, writable)
	for i := range tensors {
		value := tensors[i].tensor
		value.Data = slices.Clone(value.Data)
		for j := range value.Data {
			value.Data[j] ^= 1
		}
		must(t, f.Update(tensors[i].name, value))
		tensors[i].tensor = value
	}
	now, err := readFile(path)
	must(t, err)
	for _, want := range tensors {
		same(t, want.name, now[want.name], want.tensor)
	}
	after, err := os.ReadFile(path)
	must(t, err)
	info, err := f.IOInfo()
	must(t, err)
	if len(after) != len(before) || !slices.Equal(after[:info.DataOffset], before[:info.DataOffset]) {
		t.Error("the header has changed")
	}
	stats, err := f.Stats()
	must(t, err)
	if stats.Commits == 0 || stats.BytesWritten == 0 || stats.JournalBytes == 0 {
		t.Errorf("the updates counted %+v", stats)
	}
	must(t, st.Verify(path, nil))
}

func TestUpdatesKeepTheForm(t *testing.T) {
	f, path := small(t, writable)
	good := st.TensorOf([]int16{1, 2, 3})
	refused(t, f.Update("x", good), st.ErrNotFound)
	refused(t, f.Update("b", st.TensorOf([]uint16{1, 2, 3})), st.ErrDTypeMismatch)
	refused(t, f.Update("b", st.TensorOf([]int16{1, 2, 3}, 3, 1)), st.ErrShapeMismatch)
	refused(t, f.Update("b", st.Tensor{DType: st.I16, Shape: []uint64{3}, Data: []byte{1}}), st.ErrNBytesMismatch)
	refused(t, open(t, path).Update("b", good), st.ErrReadOnly)
	now, err := readFile(path)
	must(t, err)
	same(t, "b", now["b"], st.TensorOf([]int16{7, 8, 9}))
}

func TestPartsAreChangedAndTheLastWins(t *testing.T) {
	f, path := small(t, writable) // a is F32 of 2 rows of 3, b is I16 of 3
	must(t, f.Transact(func(tx *st.Tx) error {
		must(t, tx.Update("b", st.TensorOf([]int16{1, 1, 1})))
		must(t, tx.UpdateSlice("b", st.TensorOf([]int16{2, 3}), st.Every(-2)))
		must(t, tx.UpdateRows("b", st.TensorOf([]int16{4, 5, 6}), []int64{1, -1, 1}))
		must(t, tx.UpdateRows("a", st.TensorOf([]float32{8, 9}, 2, 1), []int64{1, 0}, st.Between(2, 3)))
		must(t, tx.UpdateRows("a", st.TensorOf([]float32{}, 0, 3), nil)) // none
		refused(t, tx.UpdateSlice("a", st.TensorOf([]float32{8, 9})), st.ErrShapeMismatch)
		refused(t, tx.UpdateSlice("x", st.TensorOf([]float32{8, 9})), st.ErrNotFound)
		refused(t, tx.UpdateRows("b", st.TensorOf([]int16{4}), []int64{3}), st.ErrOutOfRange)
		refused(t, tx.UpdateSlice("b", st.TensorOf([]int16{4}), st.Every(0)), st.ErrInvalidArgument)
		return nil
	}))
	before, err := f.Get("a")
	must(t, err)
	a, err := st.Values[float32](before)
	must(t, err)
	if a[2] != 9 || a[5] != 8 {
		t.Errorf("the last column is %v and %v", a[2], a[5])
	}
	must(t, f.UpdateSlice("a", st.TensorOf([]float32{-1, -2, -3}, 1, 3), st.Until(1)))
	now, err := readFile(path)
	must(t, err)
	same(t, "a", now["a"], st.TensorOf([]float32{-1, -2, -3, a[3], a[4], 8}, 2, 3))
	same(t, "b", now["b"], st.TensorOf([]int16{3, 6, 5}))
}

func TestRowsOfAFileAreChanged(t *testing.T) {
	f, path := small(t, writable)
	must(t, f.UpdateRows("b", st.TensorOf([]int16{4, 5, 6}), []int64{2, 0, -1}))
	must(t, f.UpdateRows("a", st.TensorOf([]float32{9}, 1, 1), []int64{-1}, st.From(2)))
	must(t, f.UpdateRows("c", st.TensorOf([]uint8{}), nil))
	refused(t, f.UpdateRows("b", st.TensorOf([]int16{4}), []int64{3}), st.ErrOutOfRange)
	want := smallTensors()
	want["a"], want["b"] = st.TensorOf([]float32{1, 2, 3, 4, 5, 9}, 2, 3), st.TensorOf([]int16{5, 8, 6})
	holds(t, path, want, nil)
}

func TestATransactionIsAllOrNothing(t *testing.T) {
	f, path := small(t, writable)
	a, b := st.TensorOf([]float32{9, 9, 9, 9, 9, 9}, 2, 3), st.TensorOf([]int16{5, 5, 5})

	tx, err := f.Begin(nil)
	must(t, err)
	must(t, tx.Update("a", a))
	must(t, tx.Update("b", b))
	must(t, tx.Rollback())
	now, err := readFile(path)
	must(t, err)
	same(t, "a, rolled back", now["a"], st.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3))
	for _, err := range []error{tx.Rollback(), tx.Commit(), tx.Update("a", a)} {
		if !errors.Is(err, st.ErrTxDone) {
			t.Errorf("after Rollback: %v", err)
		}
	}

	tx, err = f.Begin(&st.TxOptions{LockTimeout: st.NoWait})
	must(t, err)
	defer tx.Rollback()
	must(t, tx.Update("a", a))
	must(t, tx.Update("b", st.TensorOf([]int16{4, 4, 4})))
	must(t, tx.Update("b", b)) // the last one counts
	refused(t, tx.Update("c", b), st.ErrDTypeMismatch)
	must(t, tx.Commit())
	now, err = readFile(path)
	must(t, err)
	same(t, "a", now["a"], a)
	same(t, "b", now["b"], b)
	same(t, "c", now["c"], st.TensorOf([]uint8{10, 11, 12, 13}))
	if err := tx.Commit(); !errors.Is(err, st.ErrTxDone) {
		t.Errorf("after Commit: %v", err)
	}
}

// What was staged is the value at the time of the call: the library borrows nothing.
func TestACallersBufferIsFreeAfterUpdate(t *testing.T) {
	f, path := small(t, writable)
	tx, err := f.Begin(nil)
	must(t, err)
	value := st.TensorOf([]int16{1, 2, 3})
	must(t, tx.Update("b", value))
	clear(value.Data)
	must(t, tx.Commit())
	now, err := readFile(path)
	must(t, err)
	same(t, "b", now["b"], st.TensorOf([]int16{1, 2, 3}))
}

func TestTensorsAreSwappedByTheirViews(t *testing.T) {
	a, b := make([]uint8, 300_000), make([]uint8, 300_000)
	for i := range a {
		a[i], b[i] = uint8(i), uint8(i/256+1)
	}
	was := []named{{"a", st.TensorOf(a)}, {"b", st.TensorOf(b)}}
	path := newFile(t, was, nil)
	f := open(t, path, writable)
	x, err := f.View("a")
	must(t, err)
	y, err := f.View("b")
	must(t, err)
	tx, err := f.Begin(nil)
	must(t, err)
	must(t, tx.Update("a", y))
	must(t, tx.Update("b", x))
	must(t, tx.Commit())
	now, err := readFile(path)
	must(t, err)
	same(t, "a", now["a"], was[1].tensor)
	same(t, "b", now["b"], was[0].tensor)
}

func TestClosingAFileEndsItsTransactions(t *testing.T) {
	f, path := small(t, writable)
	tx, err := f.Begin(nil)
	must(t, err)
	must(t, tx.Update("b", st.TensorOf([]int16{1, 2, 3})))
	must(t, f.Close())
	for range 2 {
		for _, err := range []error{tx.Commit(), tx.Update("b", st.TensorOf([]int16{1, 2, 3}))} {
			if !errors.Is(err, fs.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	}
	must(t, tx.Rollback())
	if err := tx.Commit(); !errors.Is(err, st.ErrTxDone) {
		t.Errorf("after Close and Rollback: %v", err)
	}
	now, err := readFile(path)
	must(t, err)
	same(t, "b", now["b"], st.TensorOf([]int16{7, 8, 9}))
}

func TestViewsShowUpdates(t *testing.T) {
	f, _ := small(t, writable)
	view, err := f.View("b")
	must(t, err)
	must(t, f.Update("b", st.TensorOf([]int16{1, 2, 3})))
	same(t, "the view", view, st.TensorOf([]int16{1, 2, 3}))
}

func TestTransactCommitsOnlyWhatItsFunctionLetsItCommit(t *testing.T) {
	f, path := small(t, writable)
	b, c := st.TensorOf([]int16{1, 2, 3}), st.TensorOf([]uint8{4, 3, 2, 1})
	var kept *st.Tx
	change := func(answer func() error) func(tx *st.Tx) error {
		return func(tx *st.Tx) error {
			kept = tx
			return errors.Join(tx.Update("b", b), tx.Update("c", c), answer())
		}
	}
	ended := func(how string) {
		t.Helper()
		if err := kept.Update("b", b); !errors.Is(err, st.ErrTxDone) {
			t.Errorf("a transaction that %s answers %v", how, err)
		}
	}

	no := errors.New("no")
	if err := f.Transact(change(func() error { return no })); !errors.Is(err, no) {
		t.Errorf("Transact answers %v", err)
	}
	ended("was refused")
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not go on")
			}
		}()
		_ = f.Transact(change(func() error { panic("boom") }))
	}()
	ended("panicked")
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		_ = f.Transact(change(func() error { runtime.Goexit(); return nil }))
	}()
	<-finished
	ended("lost its goroutine")
	holds(t, path, smallTensors(), nil)

	must(t, f.Transact(change(func() error { return nil })))
	ended("was committed")
	holds(t, path, map[string]st.Tensor{"a": smallTensors()["a"], "b": b, "c": c}, nil)
	refused(t, open(t, path).Transact(change(func() error { return nil })), st.ErrReadOnly)
	early := f.Transact(func(tx *st.Tx) error { return tx.Commit() })
	if !errors.Is(early, st.ErrTxDone) {
		t.Errorf("a transaction that its function commits answers %v", early)
	}
}

func TestTimeoutsAreThoseThatTheLibraryHas(t *testing.T) {
	f, path := small(t, writable)
	for what, err := range map[string]error{
		"open":         func() error { _, err := st.Open(path, &st.Options{LockTimeout: -3}); return err }(),
		"save":         st.Save(path, nil, &st.SaveOptions{LockTimeout: -time.Second}),
		"recover":      st.Recover(path, &st.RecoverOptions{LockTimeout: -3}),
		"compact":      st.Compact(path, &st.CompactOptions{LockTimeout: -3}),
		"join":         st.Join(path, path+".joined", &st.SaveOptions{LockTimeout: -3}),
		"merge":        st.MergeDeltas(path, nil, path+".merged", &st.SaveOptions{LockTimeout: -3}),
		"apply delta":  func() error { _, err := f.ApplyDelta(path, &st.ApplyDeltaOptions{LockTimeout: -3}); return err }(),
		"begin":        func() error { _, err := f.Begin(&st.TxOptions{LockTimeout: -3}); return err }(),
		"new writer":   func() error { _, err := st.NewWriter(path, nil, &st.SaveOptions{LockTimeout: -3}); return err }(),
		"create delta": st.CreateDelta(path, path, path+".delta", &st.CreateDeltaOptions{LockTimeout: -3}),
	} {
		var e *st.Error
		if !errors.As(err, &e) || e.Status != st.ErrInvalidArgument {
			t.Errorf("%s under a timeout that is none: %v", what, err)
		} else if words := e.Message; !strings.HasPrefix(words, "LockTimeout is -") || !strings.Contains(words, "st.Forever") {
			t.Errorf("%s tells of the timeout: %s", what, words)
		}
	}
	for _, timeout := range []time.Duration{0, 1, time.Hour, math.MaxInt64, st.NoWait, st.Forever} {
		tx := begin(t, f, st.TxOptions{LockTimeout: timeout})
		must(t, tx.Update("b", st.TensorOf([]int16{1, 2, 3})))
		must(t, tx.Commit())
	}
}
