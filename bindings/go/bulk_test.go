package st_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"libst/st"
)

// layers is a file of some size in many tensors, one of them with NUL in its name.
func layers(t *testing.T) (path string, tensors []named) {
	for i := range 64 {
		values := make([]int32, 32<<10)
		for j := range values {
			values[j] = int32(i<<16 + j)
		}
		tensors = append(tensors, named{fmt.Sprintf("layer\x00%d", i), st.TensorOf(values, 128, 256)})
	}
	return newFile(t, tensors, nil), tensors
}

func TestReadManyReadsWhatReadIntoReads(t *testing.T) {
	path, tensors := layers(t)
	for _, opts := range []st.Options{
		{}, {Map: st.MapNone}, {Direct: st.DirectOn},
		{Prefetch: st.PrefetchParallel, IOThreads: 4, BlockSize: 64 << 10, MemoryLimit: 1 << 20},
	} {
		f := open(t, path, opts)
		var requests []st.ReadRequest
		for i := len(tensors) - 1; i >= 0; i-- { // any order
			request := st.ReadRequest{Name: tensors[i].name, Dst: make([]byte, len(tensors[i].tensor.Data))}
			if i%3 == 0 {
				request.Ranges = []st.Range{st.Between(3, 5), st.Every(-1)}
				request.Dst = make([]byte, 2*256*4)
			}
			requests = append(requests, request)
		}
		must(t, f.ReadMany(requests, nil))
		for _, r := range requests {
			want, err := f.Slice(r.Name, r.Ranges...)
			must(t, err)
			if !slices.Equal(r.Dst, want.Data) {
				t.Fatalf("%q differs", r.Name)
			}
		}
		stats, err := f.Stats()
		must(t, err)
		if stats.ReadRequests == 0 {
			t.Error("bulk reads made no requests")
		}
	}
	f := open(t, path)
	must(t, f.ReadMany(nil, nil))
	refused(t, f.ReadMany([]st.ReadRequest{{Name: "none"}}, nil), st.ErrNotFound)
	refused(t, f.ReadMany([]st.ReadRequest{{Name: "none"}}, &st.BulkOptions{HugePages: true}), st.ErrUnsupported)
	refused(t, f.Prefetch(nil, &st.BulkOptions{PastPageCache: true}), st.ErrUnsupported)
	refused(t, f.ReadMany([]st.ReadRequest{{Name: tensors[0].name}}, nil), st.ErrBufferSize)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	refused(t, f.WithContext(ctx).ReadMany([]st.ReadRequest{{Name: tensors[0].name}}, nil), st.ErrCancelled)
}

func TestReadManyReadsToFreshMemory(t *testing.T) {
	path, tensors := layers(t)
	f := open(t, path)
	size := len(tensors[0].tensor.Data)
	const access, kind = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_PRIVATE | syscall.MAP_ANON
	fresh, err := syscall.Mmap(-1, 0, size*len(tensors), access, kind)
	must(t, err)
	defer syscall.Munmap(fresh)
	var requests []st.ReadRequest
	for i, tensor := range tensors {
		requests = append(requests, st.ReadRequest{Name: tensor.name, Dst: fresh[i*size : (i+1)*size]})
	}
	opts := &st.BulkOptions{FreshMemory: true}
	must(t, f.ReadMany(requests, opts))
	for i, tensor := range tensors {
		if !slices.Equal(requests[i].Dst, tensor.tensor.Data) {
			t.Fatalf("%q differs", tensor.name)
		}
	}
	refused(t, f.Load(nil, opts), st.ErrUnsupported)
	refused(t, f.Prefetch(nil, opts), st.ErrUnsupported)
}

func TestLoadedTensorsAreTheFilesMemory(t *testing.T) {
	path, tensors := layers(t)
	var told uint64
	f := open(t, path, st.Options{Progress: func(uint64, uint64) error { return errors.New("the file's, not the call's") }})
	must(t, f.Load(nil, &st.BulkOptions{HugePages: true, PastPageCache: true, Progress: func(done, total uint64) error {
		told = done
		return nil
	}}))
	must(t, os.Truncate(path, 8)) // would be fatal under a mapping
	for _, want := range tensors {
		view, err := f.View(want.name)
		must(t, err)
		same(t, want.name, view, want.tensor)
	}
	stats, err := f.Stats()
	must(t, err)
	if stats.BytesOwned == 0 || told == 0 {
		t.Errorf("%d bytes are owned, %d were told", stats.BytesOwned, told)
	}
	for range 3 {
		runtime.GC()
	}
}

func TestBulkCallsTakeNames(t *testing.T) {
	path, tensors := layers(t)
	f := open(t, path, st.Options{Map: st.MapNone, Prefetch: st.PrefetchSequential})
	for what, call := range map[string]func([]string) error{
		"load":     func(names []string) error { return f.Load(names, nil) },
		"prefetch": func(names []string) error { return f.Prefetch(names, nil) },
	} {
		must(t, call([]string{}))
		must(t, call([]string{tensors[5].name, tensors[2].name}))
		if e := refused(t, call([]string{tensors[1].name, "none"}), st.ErrNotFound); e.Tensor != "none" || e.Op != what {
			t.Errorf("%s complains about %q of %s", what, e.Tensor, e.Op)
		}
	}
	view, err := f.View(tensors[5].name)
	must(t, err)
	same(t, "a loaded tensor", view, tensors[5].tensor)
	must(t, f.Close())
	for _, err := range []error{f.Load(nil, nil), f.Prefetch(nil, nil), f.ReadMany([]st.ReadRequest{{Name: "x"}}, nil)} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestWorkersShareTheWarming(t *testing.T) {
	path, _ := layers(t)
	whole := uint64(0)
	for worker := range uint32(4) {
		f := open(t, path, st.Options{Map: st.MapNone, WorkerIndex: worker, WorkerCount: 4})
		must(t, f.Prefetch(nil, nil))
		stats, err := f.Stats()
		must(t, err)
		if stats.BytesOwned == 0 || stats.BytesOwned > 4<<20 {
			t.Errorf("worker %d has %d bytes", worker, stats.BytesOwned)
		}
		whole += stats.BytesOwned
	}
	if whole < 8<<20 {
		t.Errorf("all workers together have %d bytes", whole)
	}
	info, err := open(t, path, st.Options{Prefetch: st.PrefetchSequential, Direct: st.DirectOff}).IOInfo()
	must(t, err)
	if info.Prefetch != st.PrefetchSequential || info.Direct != st.DirectOff || info.PrefetchReason == "" || info.BlockSize == 0 {
		t.Errorf("bulk reads are described as %+v", info)
	}
}
