package st_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"

	"libst/st"
)

var firstA = st.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3) // of small

func snapshot(t testing.TB, f *st.File) *st.File {
	t.Helper()
	s, err := f.Snapshot()
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t testing.TB, f *st.File, name string, value st.Tensor) {
	t.Helper()
	tx, err := f.Begin(nil)
	must(t, err)
	must(t, tx.Put(name, value))
	must(t, tx.Commit())
}

func TestASnapshotShowsOneState(t *testing.T) {
	f, path := small(t, writable)
	s := snapshot(t, f)
	view, err := s.View("a")
	must(t, err)
	other := st.TensorOf([]uint8{9})
	put(t, f, "a", other)
	put(t, f, "d", other)
	must(t, s.Refresh())
	for range 2 {
		got, err := s.Get("a")
		must(t, err)
		same(t, "a", got, firstA)
		same(t, "a view of a", view, firstA)
		if s.Len() != 3 || has(t, s, "d") || len(namesOf(t, s)) != 3 || s.Path() != path {
			t.Errorf("the snapshot has %v", namesOf(t, s))
		}
		of, err := s.Snapshot()
		must(t, err)
		got, err = of.Get("a")
		must(t, err)
		same(t, "a of a snapshot's snapshot", got, firstA)
		must(t, of.Close())
		_ = f.Close() // the second time round the file is closed
	}
	refused(t, s.Update("a", firstA), st.ErrReadOnly)
	_, err = s.Begin(nil)
	refused(t, err, st.ErrReadOnly)
	must(t, s.Close())
	if _, err := s.Get("a"); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
}

func TestACloseOfASnapshotStopsNobodyElse(t *testing.T) {
	path := newFile(t, []named{{"x", st.TensorOf(make([]uint8, 4<<20))}}, nil)
	var s *st.File
	told := 0
	f := open(t, path, st.Options{BlockSize: 64 << 10, IOThreads: 1, Progress: func(uint64, uint64) error {
		if told++; told == 1 { // while the call of f runs
			return s.Close()
		}
		return nil
	}})
	s = snapshot(t, f)
	must(t, f.ReadMany([]st.ReadRequest{{Name: "x", Dst: make([]byte, 4<<20)}}, nil))
	if told < 2 {
		t.Errorf("the call tells %d times how far it is", told)
	}
}

func TestASnapshotKeepsTheBytesThatAreAFile(t *testing.T) {
	_, path := small(t)
	snapshotOf := func() *st.File {
		all, err := os.ReadFile(path)
		must(t, err)
		f, err := st.OpenBytes(all)
		must(t, err)
		s := snapshot(t, f)
		must(t, f.Close())
		return s
	}
	s := snapshotOf()
	for range 20 {
		runtime.GC()
		_ = make([]byte, 1<<20)
	}
	got, err := s.Get("a")
	must(t, err)
	same(t, "a", got, firstA)
}

// closing is a context that closes a file as the call ends which it is given to: before the call's answer is looked at.
type closing struct {
	context.Context
	file *st.File
}

func (c closing) Done() <-chan struct{} { return make(chan struct{}) }

func (c closing) AfterFunc(func()) (stop func() bool) {
	return func() bool { return c.file.Close() == nil }
}

func TestASnapshotOfAFileThatIsClosedMeanwhileKeepsWhatItIsReadFrom(t *testing.T) {
	_, path := small(t)
	all, err := os.ReadFile(path)
	must(t, err)
	f, err := st.OpenSource(st.Source{Reader: bytes.NewReader(all), Size: int64(len(all))}, nil)
	must(t, err)
	s := snapshot(t, f.WithContext(closing{context.Background(), f}))
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("the file was not closed: %v", err)
	}
	got, err := s.WithContext(context.Background()).Get("a")
	must(t, err)
	same(t, "a", got, firstA)
}

func TestForgottenSnapshotsAreClosed(t *testing.T) {
	_, path := small(t)
	before := openDescriptors(t)
	for range 20 {
		f, err := st.Open(path, nil)
		must(t, err)
		_, err = f.Snapshot()
		must(t, err)
		must(t, f.Close())
	}
	collect(t, func() bool { return openDescriptors(t) == before })
}

func TestAReleasedFileThatIsForgottenIsClosed(t *testing.T) {
	_, path := small(t)
	before := openDescriptors(t)
	for range 20 {
		f, err := st.Open(path, nil)
		must(t, err)
		_, err = f.View("a")
		must(t, err)
		f.Release()
	}
	collect(t, func() bool { return openDescriptors(t) == before })
}

// mappings counts those of a file, replaced ones of its name included.
func mappings(t testing.TB, path string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return strings.Count(string(maps), path)
}

// A handle that publishes keeps open only those of its states that somebody may still look at.
func TestPublishesLeaveNothingOpen(t *testing.T) {
	looks := map[string]func(t *testing.T, f *st.File){
		"and nobody looks": func(*testing.T, *st.File) {},
		"and copies are read": func(t *testing.T, f *st.File) {
			for info, err := range f.All() {
				must(t, err)
				_, err := f.Get(info.Name)
				must(t, err)
				_, err = f.Slice(info.Name)
				must(t, err)
				_, _, err = f.SliceShape(info.Name)
				must(t, err)
				_, err = f.Info(info.Name)
				must(t, err)
				_, err = f.ReadInto(info.Name, make([]byte, info.Size))
				must(t, err)
			}
			if len(namesOf(t, f)) != 3 || len(metadataOf(t, f)) != 0 || shardsOf(t, f) == nil {
				t.Error("the file has changed")
			}
		},
		"and views are released": func(t *testing.T, f *st.File) {
			_, err := f.View("a")
			must(t, err)
			f.Release()
		},
		"and snapshots are viewed": func(t *testing.T, f *st.File) {
			s, err := f.Snapshot()
			must(t, err)
			_, err = s.View("a")
			must(t, err)
			must(t, s.Close())
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			f, path := small(t, writable)
			round := func(n uint8) {
				look(t, f)
				put(t, f, "a", st.TensorOf([]uint8{n, n}))
				look(t, f)
			}
			round(0)
			descriptors, mapped := openDescriptors(t), mappings(t, path)
			for n := range 50 {
				round(uint8(n))
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
