package st_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"libst/st"
)

// everyDType has two tensors of each dtype, one of them without elements, and a scalar where a byte is an element.
func everyDType() []named {
	var all []named
	for i, d := range allDTypes {
		data := make([]byte, 24*d.Bits()/8)
		for j := range data {
			data[j] = byte(i*31 + j*7)
		}
		if d == st.Bool {
			clear(data)
		}
		all = append(all,
			named{d.String(), st.Tensor{DType: d, Shape: []uint64{2, 3, 4}, Data: data}},
			named{d.String() + ".none", st.Tensor{DType: d, Shape: []uint64{3, 0}, Data: []byte{}}})
		if d.Bits()%8 == 0 {
			all = append(all, named{d.String() + ".scalar", st.Tensor{DType: d, Shape: []uint64{}, Data: data[:d.Bits()/8]}})
		}
	}
	return all
}

func TestAllDTypesAreReadAsTheyWereWritten(t *testing.T) {
	tensors := everyDType()
	path := newFile(t, tensors, nil)
	content, err := os.ReadFile(path)
	must(t, err)
	inMemory, err := st.OpenBytes(content)
	must(t, err)
	defer inMemory.Close()
	for how, f := range map[string]*st.File{
		"mapped":  open(t, path),
		"private": open(t, path, st.Options{Map: st.MapPrivate}),
		"owned":   open(t, path, st.Options{Map: st.MapNone}),
		"written": open(t, path, st.Options{Map: st.MapCopyOnWrite}),
		"memory":  inMemory,
	} {
		t.Run(how, func(t *testing.T) {
			if f.Len() != len(tensors) {
				t.Fatalf("%d tensors, not %d", f.Len(), len(tensors))
			}
			for _, want := range slices.Concat(tensors, tensors) { // by then the catalogue is known in Go
				got, err := f.Get(want.name)
				must(t, err)
				same(t, "a copy of "+want.name, got, want.tensor)
				view, err := f.View(want.name)
				must(t, err)
				same(t, "a view of "+want.name, view, want.tensor)
				info, err := f.Info(want.name)
				must(t, err)
				if info.Name != want.name || info.Size != uint64(len(want.tensor.Data)) || !has(t, f, want.name) {
					t.Errorf("%s is described as %+v", want.name, info)
				}
				into := make([]byte, len(want.tensor.Data)+3)
				n, err := f.ReadInto(want.name, into)
				must(t, err)
				if n != len(want.tensor.Data) || !slices.Equal(into[:n], want.tensor.Data) || into[n] != 0 {
					t.Errorf("ReadInto of %s read %d bytes", want.name, n)
				}
			}
		})
	}
}

func TestTheCatalogueIsInTheOrderOfTheData(t *testing.T) {
	var tensors []named
	for i := range 1000 { // several batches
		tensors = append(tensors, named{fmt.Sprintf("t%d", (i*7919)%1000), st.TensorOf([]uint8{byte(i)})})
	}
	f := open(t, newFile(t, tensors, nil))
	names := namesOf(t, f)
	i := 0
	for info, err := range f.All() {
		must(t, err)
		if info.Name != tensors[i].name || names[i] != info.Name {
			t.Fatalf("tensor %d is %s, or %s, not %s", i, info.Name, names[i], tensors[i].name)
		}
		i++
	}
	if i != 1000 || len(names) != 1000 {
		t.Errorf("All gave %d tensors, Names %d", i, len(names))
	}
	for range f.All() {
		break // a loop may be left
	}
}

func TestNamesAndMetadataMayHoldNUL(t *testing.T) {
	tensors := []named{
		{"a\x00b", st.TensorOf([]uint8{1})}, {"a", st.TensorOf([]uint8{2})}, {"", st.TensorOf([]uint8{3})},
		{"\x00", st.TensorOf([]uint8{4})}, {"ü\U0001F600", st.TensorOf([]uint8{5})},
	}
	metadata := map[string]string{"k\x00": "v\x00w", "": "", "format": "pt"}
	f := open(t, newFile(t, tensors, metadata), writable)
	for i, want := range tensors {
		if namesOf(t, f)[i] != want.name {
			t.Errorf("name %d is %q, not %q", i, namesOf(t, f)[i], want.name)
		}
		got, err := f.Get(want.name)
		must(t, err)
		same(t, fmt.Sprintf("%q", want.name), got, want.tensor)
		must(t, f.Update(want.name, st.TensorOf([]uint8{byte(100 + i)})))
	}
	for i, want := range tensors {
		got, err := f.Get(want.name)
		must(t, err)
		if got.Data[0] != byte(100+i) {
			t.Errorf("%q was not updated", want.name)
		}
	}
	if got := metadataOf(t, f); !maps.Equal(got, metadata) {
		t.Errorf("the metadata is %q", got)
	}
	for key, want := range metadata {
		if got, err := f.MetadataValue(key); err != nil || got != want {
			t.Errorf("metadata %q is %q (%v)", key, got, err)
		}
	}
	_, err := f.MetadataValue("k")
	refused(t, err, st.ErrNotFound)
	e := refused(t, f.Update("a\x00c", tensors[0].tensor), st.ErrNotFound)
	if !e.HasTensor || e.Tensor != "a\x00c" {
		t.Errorf("the error is about %q", e.Tensor)
	}
}

func TestAFileWithoutTensors(t *testing.T) {
	f := open(t, newFile(t, nil, nil))
	if f.Len() != 0 || len(namesOf(t, f)) != 0 || len(metadataOf(t, f)) != 0 {
		t.Error("there is something in an empty file")
	}
	for info, err := range f.All() {
		must(t, err)
		t.Errorf("All gave %v", info)
	}
}

// pick is what Slice should answer for one tensor of int32: elements by index, as Python would.
func pick(shape []uint64, values []int32, ranges []st.Range) (out []int32, outShape []uint64) {
	all := [][]int{{}}
	for d, n := range shape {
		r := st.Whole()
		if d < len(ranges) {
			r = ranges[d]
		}
		indices := pythonIndices(int64(n), r)
		outShape = append(outShape, uint64(len(indices)))
		var next [][]int
		for _, prefix := range all {
			for _, i := range indices {
				next = append(next, append(slices.Clone(prefix), i))
			}
		}
		all = next
	}
	for _, index := range all {
		at := 0
		for d, i := range index {
			at = at*int(shape[d]) + i
		}
		out = append(out, values[at])
	}
	return out, outShape
}

func pythonIndices(n int64, r st.Range) (indices []int) {
	low, high := int64(0), n
	if r.Step < 0 {
		low, high = -1, n-1
	}
	clip := func(i int64) int64 {
		if i < 0 && i != math.MinInt64 {
			i += n
		}
		return min(max(i, low), high)
	}
	start, stop := clip(r.Start), clip(r.Stop)
	for i := start; r.Step > 0 && i < stop || r.Step < 0 && i > stop; i += r.Step {
		indices = append(indices, int(i))
	}
	return indices
}

func TestSlicesAreThoseOfPython(t *testing.T) {
	shape := []uint64{4, 5, 6}
	values := make([]int32, 120)
	for i := range values {
		values[i] = int32(i * i)
	}
	f := open(t, newFile(t, []named{{"x", st.TensorOf(values, shape...)}, {"scalar", st.TensorOf([]int32{7}, []uint64{}...)}}, nil))
	choices := []st.Range{st.Whole(), st.Between(1, 3), st.Until(-1), st.From(-2), st.Every(2), st.Every(-1), {-1, -4, -2},
		st.Between(3, 1), st.From(100)}
	for _, a := range choices {
		for _, b := range choices {
			for _, ranges := range [][]st.Range{{a}, {a, b}, {a, b, a}} {
				want, wantShape := pick(shape, values, ranges)
				got, err := f.Slice("x", ranges...)
				must(t, err)
				elements, err := st.Values[int32](got)
				must(t, err)
				if !slices.Equal(elements, want) || !slices.Equal(got.Shape, wantShape) {
					t.Fatalf("%v is %v of shape %v, not %v of %v", ranges, elements, got.Shape, want, wantShape)
				}
				askedShape, size, err := f.SliceShape("x", ranges...)
				must(t, err)
				into := make([]byte, size)
				must(t, f.SliceInto("x", into, ranges...))
				if !slices.Equal(askedShape, wantShape) || !slices.Equal(into, got.Data) {
					t.Fatalf("%v: SliceShape or SliceInto differ", ranges)
				}
			}
		}
	}
	whole, err := f.Slice("scalar")
	must(t, err)
	same(t, "a slice of a scalar", whole, st.Tensor{DType: st.I32, Shape: []uint64{}, Data: []byte{7, 0, 0, 0}})

	_, err = f.Slice("scalar", st.Whole())
	refused(t, err, st.ErrOutOfRange)
	_, err = f.Slice("x", st.Range{})
	refused(t, err, st.ErrInvalidArgument)
	refused(t, f.SliceInto("x", make([]byte, 479)), st.ErrBufferSize)
}

func TestReadIntoTellsHowMuchRoomItNeeds(t *testing.T) {
	plain, path := small(t)
	now, err := plain.Snapshot()
	must(t, err)
	defer now.Close()
	watched := open(t, path, st.Options{Progress: func(uint64, uint64) error { return nil }})
	for name, f := range map[string]*st.File{
		"a reader": plain, "a writer": open(t, path, writable), "a snapshot": now, "with a callback": watched,
	} {
		size, err := f.ReadInto("a", make([]byte, 23))
		refused(t, err, st.ErrBufferSize)
		if size != 24 {
			t.Errorf("%s asks for %d bytes", name, size)
		}
		if size, err := f.ReadInto("none", make([]byte, 23)); size != 0 || !errors.Is(err, st.ErrNotFound) {
			t.Errorf("%s asks for %d bytes of nothing (%v)", name, size, err)
		}
	}
}

func TestSlicesDoNotCutBytes(t *testing.T) {
	f := open(t, newFile(t, []named{{"x", st.Tensor{DType: st.F4, Shape: []uint64{2, 4}, Data: []byte{1, 2, 3, 4}}}}, nil))
	_, err := f.Slice("x", st.Whole(), st.Until(1))
	refused(t, err, st.ErrSubByte)
	row, err := f.Slice("x", st.From(1))
	must(t, err)
	same(t, "a row", row, st.Tensor{DType: st.F4, Shape: []uint64{1, 4}, Data: []byte{3, 4}})
}

func TestSlicesOfManyDimensions(t *testing.T) {
	for rank := range 12 {
		shape := slices.Repeat([]uint64{1}, rank)
		f := open(t, newFile(t, []named{{"x", st.TensorOf([]uint8{7, 8, 9}, append(shape, 3)...)}}, nil))
		for range 2 {
			got, err := f.Slice("x", append(slices.Repeat([]st.Range{st.Whole()}, rank), st.From(1))...)
			must(t, err)
			same(t, fmt.Sprintf("a slice of %d dimensions", rank+1), got, st.TensorOf([]uint8{8, 9}, append(shape, 2)...))
		}
	}
}

func TestASliceOfAFileThatWasTruncatedIsAnError(t *testing.T) {
	f, path := small(t)
	must(t, os.Truncate(path, 8))
	if e := refused(t, errorOf(f.Slice("a", st.From(1))), st.ErrFileChanged); e.Op != "slice" || e.Tensor != "a" {
		t.Errorf("the error is of %s of %q", e.Op, e.Tensor)
	}
}

func TestManyGoroutinesReadOneFile(t *testing.T) {
	tensors := everyDType()
	path := newFile(t, tensors, nil)
	for _, mode := range []st.MapMode{st.MapShared, st.MapNone, st.MapCopyOnWrite} {
		f := open(t, path, st.Options{Map: mode})
		var group sync.WaitGroup
		for worker := range 8 {
			spawn(&group, func() {
				mine := f
				if worker%2 == 1 { // with a handle of its own
					again, err := f.Reopen()
					if err != nil {
						t.Error(err)
						return
					}
					defer again.Close()
					mine = again
				}
				for round := range 20 {
					for i := range tensors {
						want := tensors[(i+worker*5)%len(tensors)]
						var got st.Tensor
						var err error
						if round%2 == 0 {
							got, err = mine.View(want.name)
						} else {
							got, err = mine.Slice(want.name)
						}
						if err != nil || !slices.Equal(got.Data, want.tensor.Data) || !slices.Equal(got.Shape, want.tensor.Shape) {
							t.Errorf("%s: %v", want.name, err)
							return
						}
					}
				}
			})
		}
		group.Wait()
	}
}

// On a machine of the other order each number's bytes are turned, and each of the two of a complex.
func TestValuesAreLittleEndianInAFile(t *testing.T) {
	turned(t, []bool{true, false}, 1)
	turned(t, []uint8{1, 2}, 1)
	turned(t, []int16{1, -2}, 2)
	turned(t, []float32{1.5, -2, 3}, 4)
	turned(t, []complex64{complex(1.5, -2), complex(3, 4)}, 4)
	turned(t, []float64{1.5, -2}, 8)
	turned(t, []uint64{}, 8)
}

func turned[T st.Element](t *testing.T, values []T, width int) {
	t.Helper()
	want := st.TensorOfIn(false, values)
	for number := range slices.Chunk(want.Data, width) {
		slices.Reverse(number)
	}
	got := st.TensorOfIn(true, values)
	same(t, fmt.Sprintf("%T", values), got, want)
	if back, err := st.ValuesIn[T](true, got); err != nil || !slices.Equal(back, values) {
		t.Errorf("%v come back as %v (%v)", values, back, err)
	}
}

func TestValuesAndTensorOf(t *testing.T) {
	floats := st.TensorOf([]float32{1.5, -2}, 1, 2)
	if back, err := st.Values[float32](floats); err != nil || !slices.Equal(back, []float32{1.5, -2}) {
		t.Errorf("floats come back as %v (%v)", back, err)
	}
	if bits, err := st.Values[uint32](floats); err != nil || bits[0] != math.Float32bits(1.5) {
		t.Errorf("their bits are %v (%v)", bits, err)
	}
	_, err := st.Values[int32](floats)
	refused(t, err, st.ErrDTypeMismatch)
	_, err = st.Values[uint8](st.Tensor{})
	refused(t, err, st.ErrDTypeMismatch)
	if packed, err := st.Values[uint8](st.Tensor{DType: st.F4, Shape: []uint64{4}, Data: []byte{1, 2}}); err != nil || len(packed) != 2 {
		t.Errorf("packed elements are %v (%v)", packed, err)
	}
	_, err = st.Values[uint32](st.Tensor{Name: "w", DType: st.F32, Shape: []uint64{2}, Data: make([]byte, 7)})
	if e := refused(t, err, st.ErrNBytesMismatch); e.Tensor != "w" {
		t.Errorf("part of an element: %#v", e)
	}
	unaligned := append([]byte{0}, floats.Data...)[1:]
	if back, err := st.Values[float32](st.Tensor{DType: st.F32, Data: unaligned}); err != nil || back[1] != -2 {
		t.Errorf("unaligned floats come back as %v (%v)", back, err)
	}
	truths, err := st.Values[bool](st.Tensor{DType: st.Bool, Shape: []uint64{4}, Data: []byte{0, 1, 2, 255}})
	if must(t, err); !slices.Equal(truths, []bool{false, true, true, true}) {
		t.Errorf("bytes that are true come back as %v", truths)
	}
	for want, got := range map[st.DType]st.Tensor{
		st.Bool: st.TensorOf([]bool{true}), st.I8: st.TensorOf([]int8{1}), st.U8: st.TensorOf([]uint8{1}),
		st.I16: st.TensorOf([]int16{1}), st.U16: st.TensorOf([]uint16{1}), st.I32: st.TensorOf([]int32{1}),
		st.U32: st.TensorOf([]uint32{1}), st.I64: st.TensorOf([]int64{1}), st.U64: st.TensorOf([]uint64{1}),
		st.F32: st.TensorOf([]float32{1}), st.F64: st.TensorOf([]float64{1}), st.C64: st.TensorOf([]complex64{1}),
	} {
		if got.DType != want || len(got.Data) != want.Bits()/8 {
			t.Errorf("%v became %v", want, got)
		}
	}
}

// The shape may be a View's, which is no longer there when the tensor is.
func TestTensorOfKeepsNothingOfItsArguments(t *testing.T) {
	shape := []uint64{1, 2}
	tensor := st.TensorOf([]uint8{3, 4}, shape...)
	shape[0], shape[1] = 2, 1
	same(t, "the tensor", tensor, st.Tensor{DType: st.U8, Shape: []uint64{1, 2}, Data: []byte{3, 4}})
	scalar := st.TensorOf([]uint8{7}, shape[:0]...)
	if scalar.Shape == nil || len(scalar.Shape) != 0 || unsafe.SliceData(scalar.Shape) == unsafe.SliceData(shape) {
		t.Errorf("the shape of a scalar is %v", scalar.Shape)
	}

	f, path := small(t)
	view := viewOf(t, f, "a")
	values, err := st.Values[float32](view)
	must(t, err)
	copied := st.TensorOf(values, view.Shape...)
	must(t, f.Close()) // and with it the memory of the view's shape
	copied.Name = "a"
	other := path + ".other"
	must(t, st.Save(other, []st.Tensor{copied}, nil))
	saved, err := readFile(other)
	must(t, err)
	same(t, "what was saved", saved["a"], firstA)
}

func TestIOInfoAndStatsTellWhatHappened(t *testing.T) {
	f, path := small(t, st.Options{Map: st.MapNone})
	info, err := f.IOInfo()
	must(t, err)
	status, err := os.Stat(path)
	must(t, err)
	if info.Map != st.MapNone || info.FileSize != uint64(status.Size()) || info.DataOffset != info.HeaderSize+8 ||
		info.Filesystem == "" || info.Reason == "" {
		t.Errorf("the file is described as %+v", info)
	}
	before, err := f.Stats()
	must(t, err)
	_, err = f.Get("a")
	must(t, err)
	after, err := f.Stats()
	must(t, err)
	if after.BytesRead-before.BytesRead != 24 || after.BytesMapped != 0 || after.IndexBytes == 0 {
		t.Errorf("reading 24 bytes counted %+v after %+v", after, before)
	}
	runtime.KeepAlive(f)
	if !strings.HasPrefix(st.BuildInfo(), "version: "+st.Version()+"\n") {
		t.Errorf("version %s, build info %q", st.Version(), st.BuildInfo())
	}
	if !strings.HasPrefix(st.Version(), "2.") || f.Path() != path {
		t.Errorf("version %s, path %s", st.Version(), f.Path())
	}
}

func TestWritesToCopyOnWriteViewsAreSeenByLaterViewsAlone(t *testing.T) {
	_, path := small(t)
	f := open(t, path, st.Options{Map: st.MapCopyOnWrite})
	view, err := f.View("c")
	must(t, err)
	view.Data[0] = 99
	again, err := f.View("c")
	must(t, err)
	if again.Data[0] != 99 {
		t.Errorf("a later view has %d", again.Data[0])
	}
	holds(t, path, smallTensors(), nil)
}

func TestAFileIsReopenedForViewsThatMayBeWritten(t *testing.T) {
	f, path := small(t, writable)
	mine, err := f.ReopenCopyOnWrite()
	must(t, err)
	defer mine.Close()
	for range enough { // also once the catalogue is known
		viewOf(t, mine, "c").Data[1]++
	}
	if got := viewOf(t, mine, "c").Data[1]; got != 11+enough {
		t.Errorf("a later view has %d", got)
	}
	info, err := mine.IOInfo()
	must(t, err)
	if info.Map != st.MapCopyOnWrite || mine.Path() != path {
		t.Errorf("%s is reached by %v", mine.Path(), info.Map)
	}
	refused(t, mine.Update("c", smallTensors()["c"]), st.ErrReadOnly)
	holds(t, path, smallTensors(), nil)
	must(t, f.Close())
	if _, err := f.ReopenCopyOnWrite(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("of a closed file: %v", err)
	}
}

// An int of 32 bits holds no size above 2 GiB.
func TestASizeThatNoIntHoldsIsTheLargestInt(t *testing.T) {
	for size, want := range map[uint64]int{0: 0, math.MaxInt: math.MaxInt, math.MaxInt + 1: math.MaxInt, math.MaxUint64: math.MaxInt} {
		if got := st.SizeHere(size); got != want {
			t.Errorf("%d is %d", size, got)
		}
	}
}
