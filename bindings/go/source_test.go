package st_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"libst/st"
)

// A source that counts, and answers what it is told to.
type counting struct {
	io.ReaderAt
	reads  atomic.Int64
	err    error
	panics any
}

func (c *counting) ReadAt(p []byte, at int64) (int, error) {
	c.reads.Add(1)
	if c.panics != nil {
		panic(c.panics)
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.ReaderAt.ReadAt(p, at)
}

func largeModel(t *testing.T) ([]byte, map[string]st.Tensor) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "large.safetensors")
	var all []named
	for i := range 8 {
		data := bytes.Repeat([]byte{byte(i), 1, 2, 3}, 1<<17)
		all = append(all, named{string(rune('a' + i)), st.Tensor{DType: st.U8, Shape: []uint64{uint64(len(data))}, Data: data}})
	}
	must(t, writeFile(path, all, nil))
	content, err := os.ReadFile(path)
	must(t, err)
	want, err := readFile(path)
	must(t, err)
	return content, want
}

func TestASourceIsReadAsAFileIs(t *testing.T) {
	content, want := largeModel(t)
	source := &counting{ReaderAt: bytes.NewReader(content)}
	f, err := st.OpenSource(st.Source{Reader: source, Size: int64(len(content))}, &st.Options{BlockSize: 1 << 16})
	must(t, err)
	if n := source.reads.Load(); n != 1 {
		t.Errorf("opening took %d reads", n)
	}
	snapshot, err := f.Snapshot()
	must(t, err)
	for name, tensor := range want {
		for what, get := range map[string]func(string) (st.Tensor, error){"Get": f.Get, "View": f.View, "Snapshot": snapshot.Get} {
			got, err := get(name)
			if err != nil || !bytes.Equal(got.Data, tensor.Data) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
	}
	must(t, f.Load(nil, nil))
	if _, err := f.Reopen(); !errors.Is(err, st.ErrUnsupported) {
		t.Errorf("Reopen: %v", err)
	}
	must(t, f.Close())
	if got, err := snapshot.Get("b"); err != nil || !bytes.Equal(got.Data, want["b"].Data) {
		t.Errorf("a snapshot outlives the file: %v", err)
	}
	must(t, snapshot.Close())
}

func TestAMemberOfAnArchive(t *testing.T) {
	content, want := largeModel(t)
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	member, err := w.CreateHeader(&zip.FileHeader{Name: "model.safetensors", Method: zip.Store})
	must(t, err)
	if _, err := member.Write(content); err != nil {
		t.Fatal(err)
	}
	must(t, w.Close())
	r, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	must(t, err)
	at, err := r.File[0].DataOffset()
	must(t, err)
	inside := io.NewSectionReader(bytes.NewReader(archive.Bytes()), at, int64(r.File[0].UncompressedSize64))
	f, err := st.OpenSource(st.Source{Reader: inside, Size: inside.Size(), Name: "model.safetensors"}, nil)
	must(t, err)
	defer f.Close()
	if got, err := f.Get("c"); err != nil || !bytes.Equal(got.Data, want["c"].Data) {
		t.Error(err)
	}
}

func TestWhatAReaderAnswersIsInTheError(t *testing.T) {
	content, want := largeModel(t)
	lost := errors.New("the connection was lost")
	for _, most := range []uint32{1, 4} {
		source := &counting{ReaderAt: bytes.NewReader(content)}
		f, err := st.OpenSource(st.Source{Reader: source, Size: int64(len(content)), MostReads: most, Name: "bucket/m", Identity: "v1"},
			&st.Options{BlockSize: 1 << 16})
		must(t, err)
		for cause, status := range map[error]st.Status{
			lost: st.ErrIO, syscall.ESTALE: st.ErrFileChanged, st.ErrFileChanged: st.ErrFileChanged,
			os.ErrNotExist: st.ErrNoFile, os.ErrPermission: st.ErrPermission, io.EOF: st.ErrIO,
		} {
			source.err = cause
			for what, call := range map[string]func() error{
				"Get":  func() error { _, err := f.Get("a"); return err },
				"View": func() error { _, err := f.View("a"); return err },
				"Load": func() error { return f.Load(nil, nil) },
			} {
				err := call()
				inChain := errors.Is(err, cause) || cause == io.EOF && errors.Is(err, io.ErrUnexpectedEOF)
				if !errors.Is(err, status) || !inChain {
					t.Errorf("%s after %v: %v", what, cause, err)
				}
			}
		}
		source.err = nil
		source.panics = "no way"
		func() {
			defer func() {
				if value := recover(); value != "no way" {
					t.Errorf("the panic became %v", value)
				}
			}()
			_ = f.Load(nil, nil)
			t.Error("the panic did not go on")
		}()
		source.panics = nil
		if got, err := f.Get("a"); err != nil || !bytes.Equal(got.Data, want["a"].Data) {
			t.Errorf("afterwards: %v", err)
		}
		if _, err := f.Get("none"); !errors.Is(err, st.ErrNotFound) || errors.Is(err, lost) {
			t.Errorf("another error: %v", err)
		}
		f.Close()
	}
}

// failing answers another error for each place.
type failing struct {
	io.ReaderAt
	fails atomic.Bool
}

type errorAt int64

func (e errorAt) Error() string { return fmt.Sprintf("no byte %d", int64(e)) }

func (s *failing) ReadAt(p []byte, at int64) (int, error) {
	if s.fails.Load() {
		return 0, errorAt(at)
	}
	return s.ReaderAt.ReadAt(p, at)
}

func TestGoroutinesGetTheErrorsOfTheirOwnReads(t *testing.T) {
	content, want := largeModel(t)
	source := &failing{ReaderAt: bytes.NewReader(content)}
	f, err := st.OpenSource(st.Source{Reader: source, Size: int64(len(content))}, nil)
	must(t, err)
	defer f.Close()
	source.fails.Store(true)
	var group sync.WaitGroup
	for name := range want {
		info, err := f.Info(name)
		must(t, err)
		spawn(&group, func() {
			for range 200 {
				var cause errorAt
				if _, err := f.Get(name); !errors.As(err, &cause) {
					t.Errorf("%s: %v", name, err)
				} else if at := uint64(cause); at < info.Offset || at >= info.Offset+info.Size {
					t.Errorf("%s, which lies at %d, has the error of byte %d", name, info.Offset, at)
				}
			}
		})
	}
	group.Wait()
}

func TestNoCallGetsWhatWasAnsweredToOneThatIsOver(t *testing.T) {
	lost := errors.New("the connection was lost")
	if err := st.Leftover(lost, 0); err != nil {
		t.Errorf("a call has the error of one before: %v", err)
	}
	if err := st.Leftover(lost, 1); !errors.Is(err, lost) {
		t.Errorf("what may be a running call's is gone: %v", err)
	}
}

// panicsOnce panics in one of its reads, and fails in the others.
type panicsOnce struct {
	io.ReaderAt
	state atomic.Int32 // 0: it reads; 1: the next read panics; 2: all fail
}

func (s *panicsOnce) ReadAt(p []byte, at int64) (int, error) {
	if s.state.Load() == 0 {
		return s.ReaderAt.ReadAt(p, at)
	}
	if s.state.CompareAndSwap(1, 2) {
		panic("no way")
	}
	return 0, io.ErrClosedPipe
}

func TestAPanicOfAReaderIsNotLostBesideErrors(t *testing.T) {
	content, _ := largeModel(t)
	source := &panicsOnce{ReaderAt: bytes.NewReader(content)}
	f, err := st.OpenSource(st.Source{Reader: source, Size: int64(len(content)), MostReads: 8}, &st.Options{BlockSize: 1 << 16})
	must(t, err)
	defer f.Close()
	for range 50 {
		source.state.Store(1)
		func() {
			defer func() {
				if value := recover(); value != "no way" {
					t.Errorf("the panic became %v", value)
				}
			}()
			_ = f.Load(nil, nil)
		}()
		if _, err := f.Get("a"); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("afterwards: %v", err)
		}
	}
}

func TestAnErrorNamesTheSourceAndItsVersionAlsoWhereTheyAreAlike(t *testing.T) {
	broken := &counting{err: io.ErrUnexpectedEOF}
	_, err := st.OpenSource(st.Source{Reader: broken, Size: 100, Name: "same", Identity: "same"}, nil)
	if err == nil || !strings.Contains(err.Error(), "'same (version same)'") {
		t.Errorf("%v", err)
	}
}

func TestSourcesThatCannotBeOpened(t *testing.T) {
	content, _ := largeModel(t)
	good := st.Source{Reader: bytes.NewReader(content), Size: int64(len(content))}
	short := good
	short.Size = 100
	for _, c := range []struct {
		source st.Source
		opts   *st.Options
		want   st.Status
	}{
		{st.Source{Size: 10}, nil, st.ErrInvalidArgument},
		{st.Source{Reader: good.Reader, Size: -1}, nil, st.ErrInvalidArgument},
		{good, &st.Options{ReadWrite: true}, st.ErrUnsupported},
		{good, &st.Options{Deltas: []string{"d"}}, st.ErrUnsupported},
		{short, nil, st.ErrHeaderTooLarge},
	} {
		if f, err := st.OpenSource(c.source, c.opts); f != nil || !errors.Is(err, c.want) && c.want != st.ErrHeaderTooLarge || err == nil {
			t.Errorf("%+v: %v", c.source.Size, err)
		}
	}
}

// A header, and behind it as many zeros as it says.
type vast string

func (v vast) ReadAt(p []byte, at int64) (int, error) {
	clear(p)
	if at < int64(len(v)) {
		copy(p, v[at:])
	}
	return len(p), nil
}

func TestATensorThatIsLargerThanMemoryIsAnError(t *testing.T) {
	const size = 1 << 60
	header := fmt.Sprintf(`{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%[1]d]}}`, uint64(size))
	head := vast(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + vast(header)
	f, err := st.OpenSource(st.Source{Reader: head, Size: int64(len(head)) + size}, nil)
	must(t, err)
	defer f.Close()
	if _, err := f.Get("t"); !errors.Is(err, st.ErrNoMem) {
		t.Error(err)
	}
	if _, err := f.Slice("t", st.From(1)); !errors.Is(err, st.ErrNoMem) || !strings.Contains(err.Error(), "1152921504606846975 bytes") {
		t.Error(err)
	}
	if part, err := f.Slice("t", st.From(-3)); err != nil || !bytes.Equal(part.Data, make([]byte, 3)) {
		t.Error(part, err)
	}
}
