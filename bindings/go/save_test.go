package st_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"libst/st"
)

// tensorsOf are the tensors by their names, and with them.
func tensorsOf(all []named) ([]st.Tensor, map[string]st.Tensor) {
	list, byName := make([]st.Tensor, 0, len(all)), map[string]st.Tensor{}
	for _, n := range all {
		n.tensor.Name = n.name
		list = append(list, n.tensor)
		byName[n.name] = n.tensor
	}
	return list, byName
}

func TestWhatIsSavedIsWhatOthersRead(t *testing.T) {
	tensors, want := tensorsOf(append(everyDType(),
		named{"", st.TensorOf([]uint8{1})}, named{"nul\x00inside", st.TensorOf([]uint8{2})}, named{"größe", st.TensorOf([]uint8{3})}))
	path := filepath.Join(t.TempDir(), "new.safetensors")
	metadata := map[string]string{"format": "pt", "": "", "nul\x00": "x\x00y"}
	must(t, st.Save(path, tensors, &st.SaveOptions{Metadata: metadata}))
	holds(t, path, want, metadata)
	for _, layout := range []st.Layout{st.LayoutCanonical, st.LayoutStock} {
		must(t, st.Save(path, tensors, &st.SaveOptions{Layout: layout}))
		holds(t, path, want, nil)
	}
	alone(t, path)
	must(t, st.Save(path, nil, nil))
	holds(t, path, nil, nil)

	b, a := st.TensorOf(make([]uint8, 8)), st.TensorOf([]float64{3})
	b.Name, a.Name = "b", "a"
	must(t, st.Save(path, []st.Tensor{b, a}, &st.SaveOptions{Alignment: 4096, HeaderReserve: 5000}))
	f := open(t, path)
	info, err := f.IOInfo()
	must(t, err)
	if info.DataOffset%4096 != 0 || info.HeaderSize < 5000 || !slices.Equal(namesOf(t, f), []string{"b", "a"}) {
		t.Errorf("the order is %q, and %+v", namesOf(t, f), info)
	}
}

func TestWhatNoReaderWouldTakeIsNotSaved(t *testing.T) {
	_, path := small(t)
	good := st.Tensor{Name: "w", DType: st.U8, Shape: []uint64{2}, Data: []byte{1, 2}}
	with := func(change func(*st.Tensor)) []st.Tensor {
		other := good
		change(&other)
		return []st.Tensor{other}
	}
	refused(t, st.Save(path, []st.Tensor{good, good}, nil), st.ErrDuplicateName)
	refused(t, st.Save(path, with(func(v *st.Tensor) { v.DType = 99 }), nil), st.ErrDType)
	refused(t, st.Save(path, with(func(v *st.Tensor) { v.Shape = []uint64{3} }), nil), st.ErrSizeMismatch)
	refused(t, st.Save(path, with(func(v *st.Tensor) { v.DType, v.Shape = st.F4, []uint64{3} }), nil), st.ErrSubByte)
	refused(t, st.Save(path, with(func(v *st.Tensor) { v.Shape = []uint64{1 << 63, 64} }), nil), st.ErrShapeOverflow)
	refused(t, st.Save(path, with(func(v *st.Tensor) { v.Name = "\xff" }), nil), st.ErrHeaderUTF8)
	refused(t, st.Save(path, []st.Tensor{good}, &st.SaveOptions{Alignment: 12}), st.ErrInvalidArgument)
	refused(t, st.Save(filepath.Join(t.TempDir(), "none", "x"), []st.Tensor{good}, nil), st.ErrNoFile)
	refused(t, st.Save(t.TempDir(), []st.Tensor{good}, nil), st.ErrNotRegular)
	refused(t, st.Save("a\x00b", []st.Tensor{good}, nil), st.ErrInvalidArgument)
	stop := errors.New("enough")
	err := st.Save(path, []st.Tensor{good}, &st.SaveOptions{Progress: func(uint64, uint64) error { return stop }})
	if refused(t, err, st.ErrCancelled); !errors.Is(err, stop) {
		t.Errorf("the callback's error became %v", err)
	}
	holds(t, path, smallTensors(), nil)
	alone(t, path)
}

func TestAWriterWritesWhatSaveWrites(t *testing.T) {
	tensors, want := tensorsOf(everyDType())
	path := filepath.Join(t.TempDir(), "new.safetensors")
	told := 0
	w, err := st.NewWriter(path, nil, &st.SaveOptions{
		Metadata: map[string]string{"k": "v"}, Progress: func(uint64, uint64) error { told++; return nil },
	})
	must(t, err)
	defer w.Abort()
	for _, tensor := range tensors {
		tensor.Data = slices.Clone(tensor.Data)
		must(t, w.Put(tensor))
		clear(tensor.Data) // the caller's again
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there before it is finished")
	}
	must(t, w.Finish())
	holds(t, path, want, map[string]string{"k": "v"})
	alone(t, path)
	if told == 0 {
		t.Error("there was no progress")
	}
	for _, err := range []error{w.Finish(), w.Abort(), w.Put(tensors[0]), w.Write("x", nil)} {
		if !errors.Is(err, st.ErrWriterDone) {
			t.Errorf("after Finish: %v", err)
		}
	}
}

func TestDeclaredTensorsComeInAnyOrderAndInPieces(t *testing.T) {
	tensors, want := tensorsOf(everyDType())
	path := filepath.Join(t.TempDir(), "new.safetensors")
	var declared []st.Info
	for _, tensor := range tensors {
		declared = append(declared, st.Info{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape})
	}
	w, err := st.NewWriter(path, declared, nil)
	must(t, err)
	defer w.Abort()
	refused(t, w.Write("none", []byte{1}), st.ErrNotFound)
	refused(t, w.Put(st.Tensor{Name: "U8", DType: st.U8, Shape: []uint64{1}, Data: []byte{1}}), st.ErrShapeMismatch)
	slices.Reverse(tensors)
	for _, tensor := range tensors {
		must(t, w.Write(tensor.Name, tensor.Data[:len(tensor.Data)/2]))
	}
	refused(t, w.Finish(), st.ErrIncomplete)
	refused(t, w.Write("U8", make([]byte, 1000)), st.ErrNBytesMismatch)
	for _, tensor := range tensors {
		must(t, w.Write(tensor.Name, tensor.Data[len(tensor.Data)/2:]))
	}
	refused(t, w.Put(tensors[0]), st.ErrDuplicateName)
	extra := st.TensorOf([]uint8{1}, 1)
	extra.Name = "extra"
	must(t, w.Put(extra))
	must(t, w.Finish())
	want["extra"] = extra
	holds(t, path, want, nil)

	for shape, status := range map[uint64]st.Status{3: st.ErrSubByte, 1 << 63: st.ErrShapeOverflow} {
		_, err := st.NewWriter(path, []st.Info{{Name: "x", DType: st.F4, Shape: []uint64{shape, 1, 1 << (shape >> 58)}}}, nil)
		refused(t, err, status)
	}
	_, err = st.NewWriter(path, []st.Info{{Name: "x", Shape: []uint64{3}}}, nil)
	refused(t, err, st.ErrDType)
}

func TestAWriterThatIsNotFinishedLeavesTheOldFile(t *testing.T) {
	_, path := small(t)
	tensor := st.TensorOf(make([]uint8, 1<<20))
	tensor.Name = "w"
	aborted, err := st.NewWriter(path, nil, nil)
	must(t, err)
	must(t, aborted.Put(tensor))
	must(t, aborted.Abort())
	alone(t, path)

	ctx, cancel := context.WithCancel(context.Background())
	ended, err := st.NewWriter(path, nil, &st.SaveOptions{Context: ctx})
	must(t, err)
	must(t, ended.Put(tensor))
	cancel()
	if err := ended.Finish(); !errors.Is(err, context.Canceled) || !errors.Is(err, st.ErrCancelled) {
		t.Errorf("under a context that has ended: %v", err)
	}
	alone(t, path)

	panicking, err := st.NewWriter(path, nil, &st.SaveOptions{
		Progress: func(uint64, uint64) error { panic("from progress") },
	})
	must(t, err)
	func() {
		defer func() {
			if recover() != "from progress" {
				t.Error("the panic did not go on")
			}
		}()
		_ = panicking.Put(tensor)
		_ = panicking.Finish()
	}()
	_ = panicking.Abort()
	holds(t, path, smallTensors(), nil)
	alone(t, path)
}

// withoutDescriptors runs what cannot open a file.
func withoutDescriptors(t *testing.T, run func() error) error {
	t.Helper()
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1, Max: limit.Max}))
	err := run()
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	return err
}

func TestAWriterGoesOnWhereTooManyFilesWereOpen(t *testing.T) {
	_, path := small(t)
	tensor := st.TensorOf([]uint8{1, 2, 3})
	tensor.Name = "w"
	w, err := st.NewWriter(path, nil, nil)
	must(t, err)
	must(t, w.Put(tensor))
	err = withoutDescriptors(t, w.Finish)
	if refused(t, err, st.ErrIO); !errors.Is(err, syscall.EMFILE) {
		t.Fatal(err)
	}
	must(t, w.Finish())
	holds(t, path, map[string]st.Tensor{"w": tensor}, nil)
	alone(t, path)
}

func TestForgottenWritersAreAborted(t *testing.T) {
	_, path := small(t)
	before := openDescriptors(t)
	for range 10 {
		w, err := st.NewWriter(filepath.Join(filepath.Dir(path), "new"), nil, nil)
		must(t, err)
		must(t, w.Put(st.Tensor{Name: "w", DType: st.U8, Shape: []uint64{1}, Data: []byte{1}}))
		runtime.KeepAlive(w)
	}
	if openDescriptors(t) == before {
		t.Fatal("open writers have no descriptors")
	}
	collect(t, func() bool { return openDescriptors(t) == before })
	alone(t, path)
}
