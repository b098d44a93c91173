package st_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"libst/st"
)

// enough look-ups that a small file is known in Go.
const enough = 100

// pages is a file of tensors that take some pages each, opened for reading, and known in Go.
func pages(t *testing.T) (f *st.File, path string, tensors []named) {
	t.Helper()
	for i := range 8 {
		data := slices.Repeat([]uint16{uint16(1000 + i)}, 5000)
		tensors = append(tensors, named{fmt.Sprintf("t%d", i), st.TensorOf(data, 50, 100)})
	}
	path = newFile(t, tensors, nil)
	f = open(t, path)
	askOften(t, f)
	return f, path, tensors
}

func askOften(t *testing.T, f *st.File) {
	t.Helper()
	for range enough {
		_, err := f.Info("t0")
		must(t, err)
	}
}

func viewOf(t *testing.T, f *st.File, name string) st.Tensor {
	t.Helper()
	view, err := f.View(name)
	must(t, err)
	return view
}

// What is known of a file is what its handle shows, and no more.
func TestWhatIsKnownEndsWithTheState(t *testing.T) {
	f, path, tensors := pages(t)
	changed := st.TensorOf([]int32{-1, -2, -3}, 3, 1)
	before := viewOf(t, f, "t5")
	writer := open(t, path, writable)
	put(t, writer, "t5", changed)
	put(t, writer, "new", changed)
	check := func(name string, want st.Tensor) {
		t.Helper()
		for range enough {
			same(t, name, viewOf(t, f, name), want)
			got, err := f.Get(name)
			must(t, err)
			same(t, name, got, want)
			info, err := f.Info(name)
			must(t, err)
			into := make([]byte, 20_000)
			n, err := f.ReadInto(name, into)
			must(t, err)
			if info.Name != name || info.DType != want.DType || !slices.Equal(info.Shape, want.Shape) || info.Size != uint64(len(want.Data)) {
				t.Fatalf("%s is described as %+v", name, info)
			}
			if !slices.Equal(into[:n], want.Data) {
				t.Fatalf("of %s other bytes are read", name)
			}
		}
	}
	check("t5", tensors[5].tensor)
	if _, err := f.Info("new"); err == nil {
		t.Error("a tensor of another state is there")
	}
	must(t, f.Refresh())
	check("t5", changed)
	check("new", changed)
	check("t6", tensors[6].tensor)
	same(t, "a view of before", before, tensors[5].tensor)
}

// Names are those of the state that is shown, and the list is the caller's own.
func TestNamesThatAreKnownEndWithTheState(t *testing.T) {
	f, path, tensors := pages(t)
	var want []string
	for _, tensor := range tensors {
		want = append(want, tensor.name)
	}
	for range 3 {
		got := namesOf(t, f)
		if !slices.Equal(got, want) {
			t.Fatalf("the names are %q", got)
		}
		got[0] = "the caller's"
		_ = append(got, "the caller's")
	}
	writer := open(t, path, writable)
	must(t, writer.Transact(func(tx *st.Tx) error { return tx.Rename("t3", "renamed") }))
	if got := namesOf(t, f); !slices.Equal(got, want) {
		t.Errorf("before a refresh the names are %q", got)
	}
	before, err := f.Snapshot()
	must(t, err)
	defer before.Close()
	must(t, f.Refresh())
	for range 2 {
		if got := namesOf(t, f); len(got) != len(want) || slices.Contains(got, "t3") || !slices.Contains(got, "renamed") {
			t.Errorf("refreshed, the names are %q", got)
		}
		if got := namesOf(t, before); !slices.Equal(got, want) {
			t.Errorf("of before, the names are %q", got)
		}
		if got := namesOf(t, writer); !slices.Contains(got, "renamed") {
			t.Errorf("the writer's names are %q", got)
		}
	}
}

// A description is the caller's own, before and after the table is there, and so is a copy. Both stay when the file is closed.
func TestWhatIsKnownIsNotTheCallers(t *testing.T) {
	f, _, _ := pages(t)
	first, err := f.Info("t1")
	must(t, err)
	for range 3 {
		info, err := f.Info("t1")
		must(t, err)
		got, err := f.Get("t1")
		must(t, err)
		if !slices.Equal(info.Shape, []uint64{50, 100}) || !slices.Equal(got.Shape, info.Shape) {
			t.Fatalf("the shape is %v, or %v", info.Shape, got.Shape)
		}
		info.Shape[0], got.Shape[1] = 1, 2
		_ = append(info.Shape, 3)
		_ = append(got.Shape, 3)
	}
	askOften(t, f)
	info, err := f.Info("t2")
	must(t, err)
	if !slices.Equal(info.Shape, []uint64{50, 100}) {
		t.Errorf("the shape of the next tensor is %v", info.Shape)
	}
	must(t, f.Close())
	for range 3 {
		runtime.GC()
	}
	if !slices.Equal(first.Shape, []uint64{50, 100}) {
		t.Errorf("of a closed file the shape is %v", first.Shape)
	}
}

// What is known takes no call of C, so no callback and no context makes a difference to it.
func TestWhatIsKnownIsForFilesWithCallbacksAndContextsToo(t *testing.T) {
	plain, path, tensors := pages(t)
	watched := open(t, path, st.Options{
		Log: func(st.LogLevel, string) {}, Progress: func(uint64, uint64) error { return nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	for what, f := range map[string]*st.File{
		"a file": plain, "a file with callbacks": watched, "a file under a context": open(t, path).WithContext(ctx),
	} {
		askOften(t, f)
		viewOf(t, f, "t1") // and the state is lent
		calls := map[string]func(){
			"Info": func() {
				if info, err := f.Info("t1"); err != nil || info.Name != "t1" {
					t.Error(info, err)
				}
			},
			"View": func() {
				if view, err := f.View("t1"); err != nil || view.Data[0] != tensors[1].tensor.Data[0] {
					t.Error(view, err)
				}
			},
			"Has": func() {
				if !has(t, f, "t1") || has(t, f, "none") {
					t.Error("it has what it has not")
				}
			},
		}
		for name, call := range calls {
			if n := testing.AllocsPerRun(100, call); n != 0 {
				t.Errorf("%s of %s allocates %v times", name, what, n)
			}
		}
	}
	f := open(t, path).WithContext(ctx)
	askOften(t, f)
	cancel()
	for _, err := range []error{errorOf(f.Info("t1")), errorOf(f.View("t1")), errorOf(f.Has("t1")), errorOf(f.Has("none"))} {
		refused(t, err, st.ErrCancelled)
	}
}

// lookedAt is a context that ends once it was asked for its error so often since `asked` was 0.
type lookedAt struct {
	context.Context
	end   context.CancelFunc
	often int
	asked int
}

func (c *lookedAt) Err() error {
	if c.asked++; c.asked == c.often {
		c.end()
	}
	return c.Context.Err()
}

// To make the table takes long for many tensors. So it is a call of the file's, which its context ends.
func TestAContextEndsWhatMakesTheTable(t *testing.T) {
	var tensors []named
	for i := range 2000 {
		tensors = append(tensors, named{fmt.Sprintf("t%d", i), st.TensorOf([]uint8{1})})
	}
	f := open(t, newFile(t, tensors, nil))
	inner, cancel := context.WithCancel(context.Background())
	defer cancel()
	ctx := &lookedAt{Context: inner, end: cancel, often: 5} // a look-up alone asks it twice
	under := f.WithContext(ctx)
	var err error
	for i := 0; err == nil && i < 2*len(tensors); i++ {
		ctx.asked = 0
		_, err = under.Info("t0")
	}
	refused(t, err, st.ErrCancelled)
	for range 2 * len(tensors) {
		has(t, f, "t0")
	}
	if n := testing.AllocsPerRun(100, func() { has(t, f, "t0") }); n != 0 {
		t.Errorf("no table is made later: Has allocates %v times", n)
	}
}

// Nobody finds a tensor that is not there, and the error is the library's, also once the catalogue is known.
func TestWhatIsNotThereIsNotFound(t *testing.T) {
	f, path, _ := pages(t)
	for _, f := range []*st.File{f, open(t, path), open(t, path, writable)} {
		for range enough {
			if e := refused(t, errorOf(f.Info("none")), st.ErrNotFound); e.Tensor != "none" || e.Op != "info" {
				t.Fatalf("the error is about %q of %s", e.Tensor, e.Op)
			}
			if has(t, f, "none") || !has(t, f, "t7") {
				t.Fatal("it has what it has not")
			}
		}
	}
}

func address(view st.Tensor) *byte { return unsafe.SliceData(view.Data) }

// Views are of what was loaded, though the table knew another place.
func TestViewsOfWhatIsLoadedLieInMemory(t *testing.T) {
	f, path, tensors := pages(t)
	var before []st.Tensor
	for _, want := range tensors {
		before = append(before, viewOf(t, f, want.name))
		if address(viewOf(t, f, want.name)) != address(before[len(before)-1]) {
			t.Errorf("%s lies elsewhere the second time", want.name)
		}
	}
	must(t, f.Load([]string{"t1", "t2"}, nil))
	for range 2 {
		for i, want := range tensors {
			if moved := address(viewOf(t, f, want.name)) != address(before[i]); moved != (i == 1 || i == 2) {
				t.Errorf("%s lies elsewhere after the load: %v", want.name, moved)
			}
		}
		askOften(t, f)
	}
	must(t, os.Truncate(path, 8))
	same(t, "what was loaded", viewOf(t, f, "t2"), tensors[2].tensor)
}

// What a reader keeps of replaced files is what its views need, whichever way they were answered.
func TestAReaderKeepsNoMoreThanItsViewsNeed(t *testing.T) {
	for name, look := range map[string]func(t *testing.T, f *st.File){
		"and none is viewed": func(t *testing.T, f *st.File) {
			into := make([]byte, 10_000)
			_, err := f.ReadInto("t3", into)
			must(t, err)
			_, err = f.Get("t3")
			must(t, err)
		},
		"and views are released": func(t *testing.T, f *st.File) {
			for range enough {
				viewOf(t, f, "t3")
			}
			f.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, path, _ := pages(t)
			writer := open(t, path, writable)
			round := func(n uint8) {
				askOften(t, f)
				look(t, f)
				put(t, writer, "t1", st.TensorOf([]uint8{n, n}))
				must(t, f.Refresh())
			}
			round(0)
			descriptors, mapped := openDescriptors(t), mappings(t, path)
			for n := range uint8(10) {
				round(n)
			}
			if now := openDescriptors(t); now != descriptors {
				t.Errorf("%d descriptors are open, %d were", now, descriptors)
			}
			if now := mappings(t, path); now != mapped {
				t.Errorf("%d mappings of the file, %d were", now, mapped)
			}
		})
	}
}

// A view that follows a Release keeps the state anew.
func TestAViewAfterAReleaseIsKept(t *testing.T) {
	f, path, tensors := pages(t)
	for range enough {
		viewOf(t, f, "t3")
	}
	f.Release()
	var view st.Tensor
	for range enough {
		view = viewOf(t, f, "t3")
	}
	put(t, open(t, path, writable), "t3", st.TensorOf([]uint8{1}))
	must(t, f.Refresh())
	same(t, "the view", view, tensors[3].tensor)
	f.Release()
}

// Most shapes lie in the table itself, and long ones apart. A name is as long as it is, whatever is in it.
func TestTensorsOfAnyRankAndNameAreKnown(t *testing.T) {
	var tensors []named
	for rank := range 9 {
		size, shape := uint64(1), make([]uint64, rank)
		for i := range shape {
			shape[i] = uint64(1 + (i+rank)%3)
			size *= shape[i]
		}
		for _, name := range []string{"t", "\x00", "a\x00b\x00"} {
			tensors = append(tensors, named{fmt.Sprint(name, rank), st.TensorOf(make([]uint16, size), shape...)})
		}
	}
	tensors = append(tensors, named{"", st.TensorOf([]uint16{1})})
	f := open(t, newFile(t, tensors, nil))
	for range 2 {
		for _, want := range tensors {
			same(t, want.name, viewOf(t, f, want.name), want.tensor)
			info, err := f.Info(want.name)
			must(t, err)
			if info.Name != want.name || !slices.Equal(info.Shape, want.tensor.Shape) || info.Size != uint64(len(want.tensor.Data)) {
				t.Errorf("%q is described as %+v", want.name, info)
			}
		}
		askOften(t, f)
	}
	if n := testing.AllocsPerRun(100, func() { viewOf(t, f, "t8") }); n != 0 {
		t.Errorf("View allocates %v times", n)
	}
}

// Names and the table take the same text, whichever comes first.
func TestTheTextOfTheNamesIsHeldOnce(t *testing.T) {
	path := newFile(t, []named{{"t0", st.TensorOf([]uint8{1})}, {"t1", st.TensorOf([]uint8{2})}}, nil)
	for _, first := range []func(*testing.T, *st.File){askOften, func(t *testing.T, f *st.File) { namesOf(t, f) }} {
		f := open(t, path)
		first(t, f)
		askOften(t, f)
		for _, name := range namesOf(t, f) {
			info, err := f.Info(name)
			must(t, err)
			if unsafe.StringData(info.Name) != unsafe.StringData(name) {
				t.Errorf("%s is there twice", name)
			}
		}
	}
}

// A name that holds NUL is asked for apart, also where the text is there.
func TestNamesThatHoldNULAreListedBesideATable(t *testing.T) {
	f := open(t, newFile(t, []named{{"t0", st.TensorOf([]uint8{1})}, {"a\x00b", st.TensorOf([]uint8{2})}}, nil))
	for range 3 {
		if got := namesOf(t, f); !slices.Equal(got, []string{"t0", "a\x00b"}) {
			t.Errorf("the names are %q", got)
		}
		askOften(t, f)
	}
}
