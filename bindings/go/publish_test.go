package st_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"libst/st"
)

// holds checks that a file has exactly these tensors, and this metadata.
func holds(t testing.TB, path string, want map[string]st.Tensor, metadata map[string]string) {
	t.Helper()
	now, err := readFile(path)
	must(t, err)
	if got, wanted := slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, wanted) {
		t.Fatalf("the file has %q, not %q", got, wanted)
	}
	for name, tensor := range want {
		same(t, name, now[name], tensor)
	}
	pairs, err := readMetadata(path)
	must(t, err)
	if !maps.Equal(pairs, metadata) {
		t.Fatalf("the metadata is %q, not %q", pairs, metadata)
	}
	must(t, st.Verify(path, nil))
}

// smallTensors is what the file of small has.
func smallTensors() map[string]st.Tensor {
	return map[string]st.Tensor{
		"a": st.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3),
		"b": st.TensorOf([]int16{7, 8, 9}),
		"c": st.TensorOf([]uint8{10, 11, 12, 13}),
	}
}

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

func alone(t testing.TB, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("beside the file lies %v", entries)
	}
}

func begin(t testing.TB, f *st.File, opts ...st.TxOptions) *st.Tx {
	t.Helper()
	var o *st.TxOptions
	if len(opts) > 0 {
		o = &opts[0]
	}
	tx, err := f.Begin(o)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestPutsOfAnyDTypeAndShapeAreWhatOthersRead(t *testing.T) {
	tensors := everyDType()
	f, path := small(t, writable)
	want := smallTensors()
	tx := begin(t, f)
	for i, n := range tensors {
		must(t, tx.Put(n.name+"\x00", n.tensor)) // a new one
		want[n.name+"\x00"] = n.tensor
		replaced := []string{"a", "b", "c"}[i%3]
		must(t, tx.Put(replaced, n.tensor)) // the last one counts
		want[replaced] = n.tensor
	}
	must(t, tx.Commit())
	holds(t, path, want, nil)
	if names := namesOf(t, f); !slices.Equal(names[:3], []string{"a", "b", "c"}) {
		t.Errorf("the replaced tensors have left their places: %q", names[:3])
	}
	must(t, f.Close())
	alone(t, path)
}

func TestAMixedTransactionIsOneNewFile(t *testing.T) {
	f, path := small(t, writable)
	old := open(t, path)
	view, err := f.View("a")
	must(t, err)
	was := inode(t, path)
	tx := begin(t, f)
	must(t, tx.Update("b", st.TensorOf([]int16{1, 2, 3})))
	n := st.TensorOf([]uint64{5, 6}, 2, 1)
	must(t, tx.Put("n", n))
	clear(n.Data) // the caller's again
	must(t, tx.Delete("c"))
	must(t, tx.Rename("a", "weight"))
	must(t, tx.Update("weight", st.TensorOf([]float32{6, 5, 4, 3, 2, 1}, 2, 3))) // by the name that it has now
	must(t, tx.SetMetadata("format", "p\x00t"))
	must(t, tx.SetMetadata("", ""))
	must(t, tx.SetMetadata("gone", "x"))
	must(t, tx.DeleteMetadata("gone"))
	holds(t, path, smallTensors(), nil) // nothing yet
	must(t, tx.Commit())
	holds(t, path, map[string]st.Tensor{
		"b": st.TensorOf([]int16{1, 2, 3}), "n": st.TensorOf([]uint64{5, 6}, 2, 1),
		"weight": st.TensorOf([]float32{6, 5, 4, 3, 2, 1}, 2, 3),
	}, map[string]string{"format": "p\x00t", "": ""})
	if inode(t, path) == was {
		t.Error("the old file was written to")
	}
	same(t, "a view of the old file", view, smallTensors()["a"])
	got, err := old.Get("c")
	must(t, err)
	same(t, "what has the old file open", got, smallTensors()["c"])
	if value, err := f.MetadataValue("format"); err != nil || value != "p\x00t" || has(t, f, "c") {
		t.Errorf("the file still shows the old one: %q, %v", value, err)
	}
}

func TestRefusalsLeaveTheTransactionAsItWas(t *testing.T) {
	f, path := small(t, writable)
	tx := begin(t, f)
	refused(t, tx.Delete("none"), st.ErrNotFound)
	refused(t, tx.Rename("none", "x"), st.ErrNotFound)
	refused(t, tx.Rename("a", "b"), st.ErrDuplicateName)
	refused(t, tx.DeleteMetadata("none"), st.ErrNotFound)
	good := st.TensorOf([]uint8{1, 2})
	refused(t, tx.Put("__metadata__", good), st.ErrInvalidArgument)
	refused(t, tx.Put("x", st.Tensor{DType: 99, Shape: []uint64{2}, Data: good.Data}), st.ErrDType)
	refused(t, tx.Put("x", st.Tensor{DType: st.U8, Shape: []uint64{3}, Data: good.Data}), st.ErrNBytesMismatch)
	refused(t, tx.Put("x", st.Tensor{DType: st.F4, Shape: []uint64{3}, Data: good.Data}), st.ErrSubByte)
	refused(t, tx.Put("x", st.Tensor{DType: st.U8, Shape: []uint64{1 << 63, 64}, Data: good.Data}), st.ErrShapeOverflow)
	must(t, tx.Delete("a"))
	refused(t, tx.Update("a", smallTensors()["a"]), st.ErrNotFound)
	must(t, tx.Put("a", good))
	must(t, tx.Rename("b", "t")) // names may go round
	must(t, tx.Rename("c", "b"))
	must(t, tx.Rename("t", "c"))
	must(t, tx.Commit())
	holds(t, path, map[string]st.Tensor{"a": good, "b": smallTensors()["c"], "c": smallTensors()["b"]}, nil)
	for _, err := range []error{
		tx.Put("a", good), tx.Delete("a"), tx.Rename("a", "b"), tx.SetMetadata("k", "v"), tx.DeleteMetadata("k"),
	} {
		if !errors.Is(err, st.ErrTxDone) {
			t.Errorf("after Commit: %v", err)
		}
	}
}

func TestRollbackLeavesTheFileAndTheFolder(t *testing.T) {
	f, path := small(t, writable)
	was := inode(t, path)
	tx := begin(t, f)
	must(t, tx.Put("big", st.TensorOf(make([]uint8, 5<<20))))
	must(t, tx.Delete("a"))
	must(t, tx.Rollback())
	tx = begin(t, f)
	must(t, tx.Put("big", st.TensorOf(make([]uint8, 5<<20))))
	must(t, f.Close()) // rolls back
	if err := tx.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	holds(t, path, smallTensors(), nil)
	if inode(t, path) != was {
		t.Error("the file was replaced")
	}
	alone(t, path)
}

func TestAPlanIsWhatTheCommitThenDoes(t *testing.T) {
	f, path := small(t, writable)
	tx := begin(t, f)
	plan, err := tx.Plan()
	must(t, err)
	if plan.Kind != st.PlanNothing {
		t.Errorf("nothing to do is %+v", plan)
	}
	must(t, tx.Update("b", st.TensorOf([]int16{1, 2, 3})))
	plan, err = tx.Plan()
	must(t, err)
	if plan.Kind != st.PlanPatch || plan.BytesWritten <= 6 {
		t.Errorf("an update is %+v", plan)
	}
	must(t, tx.Put("big", st.TensorOf(make([]uint8, 100_000))))
	plan, err = tx.Plan()
	must(t, err)
	if plan.Kind != st.PlanPublish || plan.BytesWritten < plan.DataOffset+100_000 || plan.How == "" || !plan.HasSpaceFree ||
		plan.SpaceFree == 0 || plan.SpaceNeeded < plan.FileSize-plan.BytesShared {
		t.Errorf("a put is %+v", plan)
	}
	holds(t, path, smallTensors(), nil) // touches nothing
	must(t, tx.Commit())
	info, err := f.IOInfo()
	must(t, err)
	if info.FileSize != plan.FileSize || info.DataOffset != plan.DataOffset {
		t.Errorf("the file is %+v, planned was %+v", info, plan)
	}
	if _, err := tx.Plan(); !errors.Is(err, st.ErrTxDone) {
		t.Errorf("after Commit: %v", err)
	}
}

func TestOptionsChooseHowAFileIsPublished(t *testing.T) {
	f, path := small(t, writable)
	was := inode(t, path)
	tx := begin(t, f, st.TxOptions{Publish: true})
	must(t, tx.Update("b", st.TensorOf([]int16{1, 2, 3})))
	must(t, tx.Commit())
	if inode(t, path) == was {
		t.Error("an update was not published")
	}
	tx = begin(t, f, st.TxOptions{Layout: st.LayoutCanonical, Alignment: 4096, HeaderReserve: 5000})
	must(t, tx.Put("d", st.TensorOf([]float64{1})))
	must(t, tx.Commit())
	info, err := f.IOInfo()
	must(t, err)
	if info.DataOffset%4096 != 0 || info.HeaderSize < 5000 || !slices.Equal(namesOf(t, f), []string{"d", "a", "b", "c"}) {
		t.Errorf("the order is %q, and %+v", namesOf(t, f), info)
	}
	for _, options := range []st.TxOptions{{Alignment: 12}, {Layout: st.LayoutStock}, {LockTimeout: -3}} {
		tx, err := f.Begin(&options)
		if err == nil {
			must(t, tx.Delete("d"))
			err = tx.Commit()
		}
		refused(t, err, st.ErrInvalidArgument)
	}

	must(t, st.Compact(path, &st.CompactOptions{HeaderReserve: 1000}))
	must(t, f.Refresh())
	if info, err = f.IOInfo(); err != nil || info.HeaderSize < 1000 || info.HeaderSize >= 5000 {
		t.Errorf("compacted it is %+v (%v)", info, err)
	}
	tx = begin(t, f)
	must(t, tx.Delete("a"))
	must(t, tx.Commit())
	must(t, st.Compact(path, nil))
	holds(t, path, map[string]st.Tensor{
		"b": st.TensorOf([]int16{1, 2, 3}), "c": smallTensors()["c"], "d": st.TensorOf([]float64{1}),
	}, nil)
	refused(t, st.Compact(path+".none", nil), st.ErrNoFile)
	refused(t, st.Compact("a\x00b", nil), st.ErrInvalidArgument)
}

func TestHardLinksAreRefusedUnlessTold(t *testing.T) {
	f, path := small(t, writable)
	link := path + ".link"
	must(t, os.Link(path, link))
	tx := begin(t, f)
	must(t, tx.Delete("a"))
	refused(t, tx.Commit(), st.ErrHardLinks)
	refused(t, st.Compact(path, nil), st.ErrHardLinks)
	holds(t, path, smallTensors(), nil)
	tx = begin(t, f, st.TxOptions{BreakLinks: true})
	must(t, tx.Delete("a"))
	must(t, tx.Commit())
	if has(t, f, "a") {
		t.Error("nothing was deleted")
	}
	holds(t, link, smallTensors(), nil)
}

// isMapped says whether this process maps a file that was deleted, or replaced, under that path.
func isMapped(t *testing.T, path string) bool {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	must(t, err)
	mappings, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return strings.Contains(string(mappings), path+" (deleted)")
}

func TestAReaderShowsOneStateUntilItRefreshes(t *testing.T) {
	f, path := small(t, writable)
	reader := open(t, path)
	names := namesOf(t, reader)
	a, err := reader.Get("a")
	must(t, err)
	b := smallTensors()["b"]
	tx := begin(t, f)
	must(t, tx.Rename("c", "new"))
	must(t, tx.Put("a", b))
	must(t, tx.Delete("b"))
	must(t, tx.SetMetadata("made by", "another"))
	must(t, tx.Commit())
	buffer := make([]byte, 1000)
	check := func(want map[string]st.Tensor, gone ...string) {
		t.Helper()
		for name, tensor := range want {
			info, err := reader.Info(name)
			must(t, err)
			got, err := reader.Get(name)
			must(t, err)
			n, err := reader.ReadInto(name, buffer)
			must(t, err)
			rows, err := reader.Slice(name, st.Whole())
			must(t, err)
			if info.DType != tensor.DType || !slices.Equal(info.Shape, tensor.Shape) || !bytes.Equal(got.Data, tensor.Data) ||
				!bytes.Equal(buffer[:n], tensor.Data) || !bytes.Equal(rows.Data, tensor.Data) {
				t.Errorf("%q is %+v, %v and %v", name, info, got.Data, buffer[:n])
			}
		}
		for _, name := range gone {
			_, err := reader.Info(name)
			refused(t, err, st.ErrNotFound)
			_, err = reader.Get(name)
			refused(t, err, st.ErrNotFound)
			_, err = reader.ReadInto(name, buffer)
			refused(t, err, st.ErrNotFound)
		}
		if got := namesOf(t, reader); len(got) != len(want) {
			t.Errorf("the names are %q", got)
		}
	}
	check(smallTensors(), "new")
	if !slices.Equal(namesOf(t, reader), names) || !isMapped(t, path) {
		t.Error("it is not the file that was opened")
	}
	must(t, reader.Refresh())
	check(map[string]st.Tensor{"a": b, "new": smallTensors()["c"]}, "b", "c")
	if metadataOf(t, reader)["made by"] != "another" || isMapped(t, path) {
		t.Error("something of the replaced file is kept")
	}
	b.Data = slices.Repeat([]byte{7}, len(b.Data))
	must(t, f.Update("a", b)) // in place, which needs no refresh
	check(map[string]st.Tensor{"a": b, "new": smallTensors()["c"]}, "b", "c")
	must(t, reader.Close())
	for _, err := range []error{
		func() error { _, err := reader.Info("a"); return err }(),
		func() error { _, err := reader.Get("a"); return err }(),
		func() error { _, err := reader.ReadInto("a", buffer); return err }(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("closed it answers %v", err)
		}
	}
	if _, err := reader.Names(); !errors.Is(err, fs.ErrClosed) || len(a.Data) == 0 {
		t.Error("closed it has names")
	}
}

func TestRefreshShowsWhatOthersHavePublished(t *testing.T) {
	f, path := small(t, writable)
	reader := open(t, path)
	view, err := reader.View("a")
	must(t, err)
	tx := begin(t, f)
	must(t, tx.Put("a", st.TensorOf([]uint8{1}, 1, 1, 1)))
	must(t, tx.Delete("c"))
	must(t, tx.Commit())
	if reader.Len() != 3 {
		t.Error("a file is not a snapshot")
	}
	must(t, reader.Refresh())
	if !slices.Equal(namesOf(t, reader), []string{"b", "a"}) { // wide elements first, so that all are aligned
		t.Errorf("refreshed it has %q", namesOf(t, reader))
	}
	part, err := reader.Slice("a", st.Whole(), st.Until(1))
	must(t, err)
	same(t, "a", part, st.TensorOf([]uint8{1}, 1, 1, 1))
	same(t, "a view of the old file", view, smallTensors()["a"])
	must(t, os.Remove(path))
	refused(t, reader.Refresh(), st.ErrNoFile)
	if reader.Len() != 2 {
		t.Error("a refresh that failed changed the file")
	}
	must(t, reader.Close())
	if err := reader.Refresh(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestAContextOrACallbackEndsAPublish(t *testing.T) {
	f, path := small(t, writable)
	stop := errors.New("enough")
	tx := begin(t, f, st.TxOptions{Progress: func(done, _ uint64) error { return stop }})
	err := tx.Put("big", st.TensorOf(make([]uint8, 24<<20)))
	if err == nil {
		err = tx.Commit()
	}
	if !errors.Is(err, stop) || !errors.Is(err, st.ErrCancelled) {
		t.Errorf("the callback's error became %v", err)
	}
	_ = tx.Rollback()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for what, err := range map[string]error{
		"compact": st.Compact(path, &st.CompactOptions{Context: ctx}), "refresh": f.WithContext(ctx).Refresh(),
		"save": st.Save(path, nil, &st.SaveOptions{Context: ctx}),
	} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, st.ErrCancelled) {
			t.Errorf("%s under a context that has ended: %v", what, err)
		}
	}
	holds(t, path, smallTensors(), nil)
}

// Descriptions and copies are of one tensor while commits of another goroutine put others in its place.
func TestReadersOfAFileThatIsPublishedSeeWholeTensors(t *testing.T) {
	f, path := small(t, st.Options{ReadWrite: true, LockTimeout: st.Forever})
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		spawn(&readers, func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				info, err := f.Info("c")
				if err != nil || info.Name != "c" || info.Size != 4 {
					t.Errorf("c is %+v (%v)", info, err)
				}
				part, err := f.Slice("r", st.Until(1))
				if err == nil && (part.Shape[0] != 1 || len(part.Data) != 1) {
					t.Errorf("r is %+v", part)
				}
			}
		})
	}
	for worker := range 2 {
		spawn(&writers, func() {
			for i := range 6 {
				tx, err := f.Begin(&st.TxOptions{LockTimeout: st.Forever})
				if err == nil {
					shape := slices.Repeat([]uint64{1}, 1+i%3*10)
					err = errors.Join(tx.Put(fmt.Sprintf("%d.%d", worker, i), st.TensorOf([]uint8{1})),
						tx.Put("r", st.TensorOf([]uint8{1}, shape...)), tx.Commit()) // in this order
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	now, err := readFile(path)
	must(t, err)
	if len(now) != 3+1+12 {
		t.Errorf("%d tensors are left", len(now))
	}
}
