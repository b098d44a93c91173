package st_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"libst/st"
)

func TestUpdatesAreWhatOthersRead(t *testing.T) {
	tensors := everyDType()
	path := newFile(t, tensors, map[string]string{"format": "pt"})
	before, err := os.ReadFile(path)
	must(t, err)
	f := open(t, path, st.ReadWrite())
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
	must(t, st.Verify(path))
}

func TestUpdatesKeepTheForm(t *testing.T) {
	f, path := small(t, st.ReadWrite())
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

func TestATransactionIsAllOrNothing(t *testing.T) {
	f, path := small(t, st.ReadWrite())
	a, b := st.TensorOf([]float32{9, 9, 9, 9, 9, 9}, 2, 3), st.TensorOf([]int16{5, 5, 5})

	tx, err := f.Begin()
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

	tx, err = f.Begin(st.WithLockTimeout(0))
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
	f, path := small(t, st.ReadWrite())
	tx, err := f.Begin()
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
	f := open(t, path, st.ReadWrite())
	x, err := f.View("a")
	must(t, err)
	y, err := f.View("b")
	must(t, err)
	tx, err := f.Begin()
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
	f, path := small(t, st.ReadWrite())
	tx, err := f.Begin()
	must(t, err)
	must(t, tx.Update("b", st.TensorOf([]int16{1, 2, 3})))
	must(t, f.Close())
	for _, err := range []error{tx.Commit(), tx.Rollback()} {
		if !errors.Is(err, fs.ErrClosed) && !errors.Is(err, st.ErrTxDone) {
			t.Errorf("after Close: %v", err)
		}
	}
	now, err := readFile(path)
	must(t, err)
	same(t, "b", now["b"], st.TensorOf([]int16{7, 8, 9}))
}

func TestViewsShowUpdates(t *testing.T) {
	f, _ := small(t, st.ReadWrite())
	view, err := f.View("b")
	must(t, err)
	must(t, f.Update("b", st.TensorOf([]int16{1, 2, 3})))
	same(t, "the view", view, st.TensorOf([]int16{1, 2, 3}))
}
