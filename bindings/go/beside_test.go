package st_test

import (
	"bytes"
	"os"
	"testing"

	"libst/st"
)

// beside is a buffer in one piece of memory with a pointer of Go's.
type beside struct {
	pointer *beside
	buffer  [512]byte
}

func newBeside() *beside { return &beside{pointer: new(beside)} }

func TestABufferMayLieBesidePointers(t *testing.T) {
	f, path := small(t)
	hooked := open(t, path, st.Options{Log: func(st.LogLevel, string) {}})
	want, err := f.Get("a")
	must(t, err)
	reads := map[string]func(dst []byte) error{
		"ReadInto":          func(dst []byte) error { return errorOf(f.ReadInto("a", dst)) },
		"ReadInto, hooked":  func(dst []byte) error { return errorOf(hooked.ReadInto("a", dst)) },
		"ReadMany":          func(dst []byte) error { return f.ReadMany([]st.ReadRequest{{Name: "a", Dst: dst}}, nil) },
		"SliceInto":         func(dst []byte) error { return f.SliceInto("a", dst) },
		"SliceInto, hooked": func(dst []byte) error { return hooked.SliceInto("a", dst, st.Whole()) },
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			to := newBeside()
			must(t, read(to.buffer[:]))
			if !bytes.Equal(to.buffer[:len(want.Data)], want.Data) {
				t.Error("other bytes")
			}
		})
	}
	from := newBeside()
	copy(from.buffer[:], want.Data)
	value := st.Tensor{Name: "a", DType: want.DType, Shape: want.Shape, Data: from.buffer[:len(want.Data)]}
	writer := func(write func(*st.Writer) error) func(string) error {
		return func(path string) error {
			w, err := st.NewWriter(path, []st.Info{{Name: "a", DType: want.DType, Shape: want.Shape}}, nil)
			must(t, err)
			must(t, write(w))
			return w.Finish()
		}
	}
	change := func(change func(*st.Tx) error) func(string) error {
		return func(path string) error { return open(t, path, writable).Transact(change) }
	}
	writes := map[string]func(path string) error{
		"Writer.Write": writer(func(w *st.Writer) error { return w.Write("a", value.Data) }),
		"Writer.Put":   writer(func(w *st.Writer) error { return w.Put(value) }),
		"Save":         func(path string) error { return st.Save(path, []st.Tensor{value}, nil) },
		"Update":       func(path string) error { return open(t, path, writable).Update("a", value) },
		"Tx.Update":    change(func(tx *st.Tx) error { return tx.Update("a", value) }),
		"Tx.Put":       change(func(tx *st.Tx) error { return tx.Put("a", value) }),
		"UpdateSlice":  change(func(tx *st.Tx) error { return tx.UpdateSlice("a", value, st.Whole()) }),
		"UpdateRows":   change(func(tx *st.Tx) error { return tx.UpdateRows("a", value, []int64{0, 1}) }),
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			path := newFile(t, []named{{"a", st.TensorOf(make([]float32, 6), want.Shape...)}}, nil)
			must(t, write(path))
			all, err := readFile(path)
			must(t, err)
			same(t, "a", all["a"], want)
		})
	}
	t.Run("OpenBytes", func(t *testing.T) {
		content, err := os.ReadFile(path)
		must(t, err)
		held := newBeside()
		f, err := st.OpenBytes(held.buffer[:copy(held.buffer[:], content)])
		must(t, err)
		defer f.Close()
		got, err := f.View("a")
		must(t, err)
		same(t, "a", got, want)
	})
}
