package st_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"libst/st"
)

func errorOf[T any](_ T, err error) error { return err }

func TestNothingWorksAfterClose(t *testing.T) {
	f, path := small(t, writable)
	must(t, f.Close())
	value, none := st.TensorOf([]int16{1, 2, 3}), func(*st.Tx) error { return nil }
	calls := map[string]func() error{
		"ApplyDelta":        func() error { return errorOf(f.ApplyDelta(path, nil)) },
		"Begin":             func() error { return errorOf(f.Begin(nil)) },
		"Close":             f.Close,
		"Get":               func() error { return errorOf(f.Get("a")) },
		"Has":               func() error { return errorOf(f.Has("a")) },
		"IOInfo":            func() error { return errorOf(f.IOInfo()) },
		"Info":              func() error { return errorOf(f.Info("a")) },
		"Load":              func() error { return f.Load(nil, nil) },
		"Metadata":          func() error { return errorOf(f.Metadata()) },
		"MetadataValue":     func() error { return errorOf(f.MetadataValue("a")) },
		"Names":             func() error { return errorOf(f.Names()) },
		"Prefetch":          func() error { return f.Prefetch(nil, nil) },
		"ReadInto":          func() error { return errorOf(f.ReadInto("a", make([]byte, 24))) },
		"ReadMany":          func() error { return f.ReadMany([]st.ReadRequest{{Name: "a", Dst: make([]byte, 24)}}, nil) },
		"Refresh":           f.Refresh,
		"Reopen":            func() error { return errorOf(f.Reopen()) },
		"ReopenCopyOnWrite": func() error { return errorOf(f.ReopenCopyOnWrite()) },
		"Shards":            func() error { return errorOf(f.Shards()) },
		"Slice":             func() error { return errorOf(f.Slice("a")) },
		"SliceInto":         func() error { return f.SliceInto("a", make([]byte, 24)) },
		"SliceShape":        func() error { _, _, err := f.SliceShape("a"); return err },
		"Snapshot":          func() error { return errorOf(f.Snapshot()) },
		"Stats":             func() error { return errorOf(f.Stats()) },
		"Sync":              f.Sync,
		"Transact":          func() error { return f.Transact(none) },
		"Update":            func() error { return f.Update("b", value) },
		"UpdateRows":        func() error { return f.UpdateRows("b", value, []int64{0, 1, 2}) },
		"UpdateSlice":       func() error { return f.UpdateSlice("b", value) },
		"View":              func() error { return errorOf(f.View("a")) },
		"All": func() (told error) {
			for _, err := range f.All() {
				told = err
			}
			return told
		},
	}
	for what, call := range calls {
		if err := call(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	// These answer no error, and the last three are of these tests.
	silent := []string{"Interrupt", "Len", "Path", "Release", "String", "WithContext", "Freed", "Hold", "SeemClosed"}
	f.Interrupt()
	f.Release()
	if f.Len() != 0 || f.Path() != path || fmt.Sprint(f) != path {
		t.Error("a closed file has content, or no path")
	}
	for method := range reflect.TypeFor[*st.File]().NumMethod() {
		name := reflect.TypeFor[*st.File]().Method(method).Name
		if calls[name] == nil && !slices.Contains(silent, name) {
			t.Errorf("%s is not tried after Close", name)
		}
	}
}

func TestDescriptorsAreGivenBack(t *testing.T) {
	_, path := small(t)
	before := openDescriptors(t)
	for range 50 {
		f, err := st.Open(path, &writable)
		must(t, err)
		again, err := f.Reopen()
		must(t, err)
		must(t, f.Update("b", st.TensorOf([]int16{1, 2, 3})))
		committed, err := f.Begin(nil)
		must(t, err)
		must(t, committed.Update("c", st.TensorOf([]uint8{1, 2, 3, 4})))
		must(t, committed.Commit())
		forgotten, err := f.Begin(nil)
		must(t, err)
		must(t, forgotten.Update("c", st.TensorOf([]uint8{4, 3, 2, 1})))
		_, err = st.Open(path+".none", nil)
		refused(t, err, st.ErrNoFile)
		must(t, f.Close())
		must(t, again.Close())
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// collect lets the garbage collector run until a condition holds, and fails if it never does.
func collect(t *testing.T, until func() bool) {
	t.Helper()
	for begin := time.Now(); !until(); runtime.Gosched() {
		runtime.GC()
		if time.Since(begin) > time.Minute {
			t.Fatal("the garbage collector did not do it within a minute")
		}
	}
}

func TestForgottenFilesAreClosed(t *testing.T) {
	_, path := small(t)
	before := openDescriptors(t)
	for range 20 {
		f, err := st.Open(path, &writable)
		must(t, err)
		_, err = f.Get("a")
		must(t, err)
		_, err = st.OpenBytes([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
		must(t, err)
	}
	if openDescriptors(t) == before {
		t.Fatal("open files have no descriptors")
	}
	collect(t, func() bool { return openDescriptors(t) == before })
}

func TestForgottenTransactionsAreRolledBack(t *testing.T) {
	f, path := small(t, writable)
	forget := func() {
		tx, err := f.Begin(nil)
		must(t, err)
		must(t, tx.Put("n", st.TensorOf([]uint8{1})))
		runtime.KeepAlive(tx)
	}
	before := openDescriptors(t)
	forget()
	if openDescriptors(t) == before {
		t.Fatal("what is put has no journal")
	}
	collect(t, func() bool { // until a transaction has the journal that another had
		before := openDescriptors(t)
		forget()
		return openDescriptors(t) == before
	})
	tx, err := f.Begin(nil)
	must(t, err)
	must(t, tx.Put("n", st.TensorOf([]uint8{1})))
	must(t, f.Close())
	alone(t, path)
	must(t, tx.Rollback()) // its memory goes after its file
	holds(t, path, smallTensors(), nil)
}

// What WithContext makes of a file is the file, for the collector as well.
func TestAFileUnderAContextIsTheFile(t *testing.T) {
	_, path := small(t)
	before := openDescriptors(t)
	ctx, cancel := context.WithCancel(context.Background())
	under := func() *st.File {
		f, err := st.Open(path, nil)
		must(t, err)
		return f.WithContext(ctx)
	}
	f := under()
	for range 10 {
		runtime.GC()
	}
	got, err := f.Get("a")
	must(t, err)
	same(t, "a", got, smallTensors()["a"])
	s, err := f.Snapshot()
	must(t, err)
	again, err := f.Reopen()
	must(t, err)
	cancel()
	for _, file := range []*st.File{f, s, again} {
		_, err := file.Info("a")
		refused(t, err, st.ErrCancelled)
		_, err = file.View("a")
		refused(t, err, st.ErrCancelled)
		_, err = file.ReadInto("a", make([]byte, 24))
		refused(t, err, st.ErrCancelled)
		_, err = file.Names()
		refused(t, err, st.ErrCancelled)
		_, err = file.Metadata()
		refused(t, err, st.ErrCancelled)
		_, err = file.Shards()
		refused(t, err, st.ErrCancelled)
		for _, err = range file.All() {
			refused(t, err, st.ErrCancelled)
		}
		refused(t, err, st.ErrCancelled)
		if file.Len() != 3 {
			t.Error("what answers no error is lost with the context")
		}
		got, err := file.WithContext(context.Background()).Get("a")
		must(t, err)
		same(t, "a under another context", got, smallTensors()["a"])
		must(t, file.WithContext(context.Background()).Close())
		if err := file.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("closed again: %v", err)
		}
	}
	under()
	collect(t, func() bool { return openDescriptors(t) == before })
}

func TestViewsOutliveForgottenFiles(t *testing.T) {
	_, path := small(t)
	var views []st.Tensor
	for range 10 {
		f, err := st.Open(path, nil)
		must(t, err)
		view, err := f.View("a")
		must(t, err)
		views = append(views, view)
	}
	for range 10 {
		runtime.GC()
		_ = make([]byte, 1<<20)
	}
	for _, view := range views {
		same(t, "a view", view, st.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3))
	}
}

// Where there is no view, there is nothing that a forgotten file would have to stay for.
func TestAViewThatFailsKeepsNoForgottenFile(t *testing.T) {
	_, path := small(t)
	before := openDescriptors(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 5 {
		f, err := st.Open(path, nil)
		must(t, err)
		_, err = f.View("none")
		refused(t, err, st.ErrNotFound)
		_, err = f.WithContext(ctx).View("a")
		refused(t, err, st.ErrCancelled)
	}
	collect(t, func() bool { return openDescriptors(t) == before })
}

func TestNoViewIsAnsweredOfAFileThatIsClosedMeanwhile(t *testing.T) {
	f, _, _ := pages(t)
	for range 100 { // until the look-ups are known to Go
		_, err := f.View("t1")
		must(t, err)
	}
	f.SeemClosed(func() {
		if view, err := f.View("t1"); !errors.Is(err, fs.ErrClosed) || view.Data != nil {
			t.Errorf("%d bytes, %v", len(view.Data), err)
		}
	})
	must(t, f.Close())
}

// All cleanups of a program run one behind the other, also those that are not the library's.
func TestASafetyNetThatWaitsKeepsNoOtherCleanupWaiting(t *testing.T) {
	f, _ := small(t, writable)
	for range 5 {
		_, err := f.Begin(nil)
		must(t, err)
	}
	f.Hold(func() {
		for range 5 {
			var cleaned atomic.Bool
			runtime.AddCleanup(new([64]byte), func(b *atomic.Bool) { b.Store(true) }, &cleaned)
			collect(t, cleaned.Load)
		}
	})
}

func TestBytesThatAreAFileStay(t *testing.T) {
	tensor := st.TensorOf(make([]uint8, 100_000))
	for i := range tensor.Data {
		tensor.Data[i] = byte(i * 7)
	}
	path := newFile(t, []named{{"x", tensor}}, nil)
	open := func() *st.File {
		all, err := os.ReadFile(path)
		must(t, err)
		f, err := st.OpenBytes(all)
		must(t, err)
		return f // and nothing of Go's refers to the bytes
	}
	f := open()
	defer f.Close()
	var others [][]byte
	for range 200 {
		runtime.GC()
		others = append(others, make([]byte, 100_000))
	}
	got, err := f.Get("x")
	must(t, err)
	same(t, "x", got, tensor)
	view, err := f.View("x")
	must(t, err)
	same(t, "a view of x", view, tensor)
	runtime.KeepAlive(others)
}

// Values under the garbage collector: strings and shapes are Go's own, and calls keep their file.
func TestTheCollectorMayRunAtAnyTime(t *testing.T) {
	_, path := small(t, writable)
	defer collectOften()()
	var workers sync.WaitGroup
	for range 4 {
		spawn(&workers, func() {
			for i := range 30 {
				f, err := st.Open(path, &st.Options{Progress: func(uint64, uint64) error { return nil }})
				if err != nil {
					t.Error(err)
					return
				}
				infos := []st.Info{}
				for info, err := range f.All() {
					if err != nil {
						t.Error(err)
					}
					infos = append(infos, info)
				}
				view, err := f.View("a")
				copied, errCopy := f.Get("a")
				if err != nil || errCopy != nil || view.Data[3] != copied.Data[3] {
					t.Errorf("%v, %v", err, errCopy)
				}
				if i%2 == 0 {
					_ = f.Close()
				}
				if len(infos) != 3 || infos[0].Name != "a" || infos[0].Shape[1] != 3 {
					t.Errorf("the catalogue is %v", infos)
				}
			}
		})
	}
	workers.Wait()
}

func TestCloseMayRaceWithReaders(t *testing.T) {
	_, path := small(t)
	for range 50 {
		f, err := st.Open(path, nil)
		must(t, err)
		var group sync.WaitGroup
		begin := make(chan struct{})
		for range 4 {
			spawn(&group, func() {
				<-begin
				for {
					if _, err := f.Get("a"); err != nil {
						if !errors.Is(err, fs.ErrClosed) && !errors.Is(err, st.ErrInterrupted) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		close(begin)
		runtime.Gosched()
		must(t, f.Close())
		group.Wait()
	}
}
