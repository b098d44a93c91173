package st_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"libst/st"
)

// named is a tensor of a file that a test makes.
type named struct {
	name   string
	tensor st.Tensor
}

// The tests' own reader and writer of the format share no code with the library: there is no package for Go to compare
// with that the registries have.

func writeFile(path string, tensors []named, metadata map[string]string) error {
	header := map[string]any{}
	var data []byte
	for _, t := range tensors {
		begin := len(data)
		data = append(data, t.tensor.Data...)
		shape := append([]uint64{}, t.tensor.Shape...)
		header[t.name] = map[string]any{
			"dtype": t.tensor.DType.String(), "shape": shape, "data_offsets": []int{begin, len(data)},
		}
	}
	if metadata != nil {
		header["__metadata__"] = metadata
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	content := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return os.WriteFile(path, slices.Concat(content, text, data), 0o644)
}

func readFile(path string) (map[string]st.Tensor, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(content)
	header := map[string]struct {
		DType   string    `json:"dtype"`
		Shape   []uint64  `json:"shape"`
		Offsets [2]uint64 `json:"data_offsets"`
	}{}
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(content[8:8+n], &raw); err != nil {
		return nil, err
	}
	delete(raw, "__metadata__")
	data := content[8+n:]
	all := map[string]st.Tensor{}
	for name, text := range raw {
		entry := header[name]
		if err := json.Unmarshal(text, &entry); err != nil {
			return nil, err
		}
		dtype, err := dtypeNamed(entry.DType)
		if err != nil {
			return nil, err
		}
		all[name] = st.Tensor{Name: name, DType: dtype, Shape: entry.Shape, Data: data[entry.Offsets[0]:entry.Offsets[1]]}
	}
	return all, nil
}

func readMetadata(path string) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	header := map[string]json.RawMessage{}
	if err := json.Unmarshal(content[8:8+binary.LittleEndian.Uint64(content)], &header); err != nil || header["__metadata__"] == nil {
		return nil, err
	}
	pairs := map[string]string{}
	return pairs, json.Unmarshal(header["__metadata__"], &pairs)
}

var allDTypes = []st.DType{
	st.Bool, st.F4, st.F6E2M3, st.F6E3M2, st.U8, st.I8, st.F8E5M2, st.F8E4M3, st.F8E8M0, st.F8E4M3FNUZ, st.F8E5M2FNUZ,
	st.I16, st.U16, st.F16, st.BF16, st.I32, st.U32, st.F32, st.C64, st.F64, st.I64, st.U64,
}

func dtypeNamed(name string) (st.DType, error) {
	for _, d := range allDTypes {
		if d.String() == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("no dtype %q", name)
}

func newFile(t testing.TB, tensors []named, metadata map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	must(t, writeFile(path, tensors, metadata))
	return path
}

// small is a file of three tensors, opened.
func small(t testing.TB, opts ...st.Options) (*st.File, string) {
	t.Helper()
	path := newFile(t, []named{
		{"a", st.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3)},
		{"b", st.TensorOf([]int16{7, 8, 9})},
		{"c", st.TensorOf([]uint8{10, 11, 12, 13})},
	}, nil)
	return open(t, path, opts...), path
}

// writable are the options of a file that is to be changed.
var writable = st.Options{ReadWrite: true}

// open opens with the options given, of which there is one set at most.
func open(t testing.TB, path string, opts ...st.Options) *st.File {
	t.Helper()
	var o *st.Options
	if len(opts) > 0 {
		o = &opts[0]
	}
	f, err := st.Open(path, o)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func has(t *testing.T, f *st.File, name string) bool {
	t.Helper()
	there, err := f.Has(name)
	must(t, err)
	return there
}

// namesOf, metadataOf and shardsOf are what no error may cut short.
func namesOf(t testing.TB, f *st.File) []string { return all(t, f.Names) }

func metadataOf(t testing.TB, f *st.File) map[string]string { return all(t, f.Metadata) }

func shardsOf(t testing.TB, f *st.File) []string { return all(t, f.Shards) }

func all[T any](t testing.TB, of func() (T, error)) T {
	t.Helper()
	found, err := of()
	must(t, err)
	return found
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks an error's status and that it says something.
func refused(t testing.TB, err error, want st.Status) *st.Error {
	t.Helper()
	var e *st.Error
	if !errors.As(err, &e) || !errors.Is(err, want) || e.Status != want || e.Message == "" {
		t.Fatalf("the error is %#v (%v), not %v", err, err, want)
	}
	return e
}

func same(t testing.TB, what string, got, want st.Tensor) {
	t.Helper()
	if got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || !slices.Equal(got.Data, want.Data) {
		t.Fatalf("%s is %v %v of %d bytes, not %v %v of %d, or has other bytes", what, got.DType, got.Shape, len(got.Data),
			want.DType, want.Shape, len(want.Data))
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func spawn(group *sync.WaitGroup, work func()) {
	group.Add(1)
	go func() {
		defer group.Done()
		work()
	}()
}
