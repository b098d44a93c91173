package st_test

import (
	"runtime"
	"sync"
	"testing"

	"libst/st"
)

// collectOften runs the garbage collector in a goroutine until it is stopped.
func collectOften() (stop func()) {
	done := make(chan struct{})
	var collector sync.WaitGroup
	spawn(&collector, func() {
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	})
	return func() {
		close(done)
		collector.Wait()
	}
}

// reads are calls that take several steps, the last use of their file.
var reads = map[string]func(f *st.File) error{
	"Get":      func(f *st.File) error { return errorOf(f.Get("x")) },
	"Load":     func(f *st.File) error { return f.Load(nil, nil) },
	"Prefetch": func(f *st.File) error { return f.Prefetch(nil, nil) },
	"ReadInto": func(f *st.File) error { return errorOf(f.ReadInto("x", make([]byte, 64<<20))) },
	"ReadMany": func(f *st.File) error {
		return f.ReadMany([]st.ReadRequest{{Name: "x", Dst: make([]byte, 64<<20)}}, nil)
	},
	"Slice": func(f *st.File) error { return errorOf(f.Slice("x")) },
}

// What a forgotten file is closed for is no reason to end calls of its Snapshots, nor those that are its own last use.
func TestTheCollectorInterruptsNobody(t *testing.T) {
	_, path, _ := large(t)
	before := openDescriptors(t)
	for what, read := range reads {
		var freed func() bool
		opts := st.Options{Map: st.MapNone, Progress: func(uint64, uint64) error {
			for !freed() {
				runtime.GC()
				runtime.Gosched()
			}
			return nil
		}}
		s := func() *st.File {
			f, err := st.Open(path, &opts)
			must(t, err)
			freed = f.Freed()
			return snapshot(t, f)
		}()
		if err := read(s); err != nil {
			t.Errorf("%s of a Snapshot of a forgotten file: %v", what, err)
		}
		must(t, s.Close())
	}
	defer collectOften()()
	for what, read := range reads {
		for range 3 {
			err := func() error {
				f, err := st.Open(path, nil)
				must(t, err)
				return read(f)
			}()
			if err != nil {
				t.Errorf("%s, the last use of its file: %v", what, err)
			}
		}
	}
	collect(t, func() bool { return openDescriptors(t) == before })
}
