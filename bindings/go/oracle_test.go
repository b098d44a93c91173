package st_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"libst/st"
)

// What a file should hold, and how many new files came before this one.
type held struct {
	tensors  map[string]st.Tensor
	metadata map[string]string
	file     int
}

func (h held) clone() held {
	return held{maps.Clone(h.tensors), maps.Clone(h.metadata), h.file}
}

// An oracle makes changes of a file at random, and the same changes in memory. After each step all is as it should be:
// for the file that made it, for a reader, and for what was taken from them before.
type oracle struct {
	*testing.T
	random  *rand.Rand
	path    string
	writer  *st.File
	reader  *st.File
	mapped  bool // whether the reader's views lie in a mapping
	now     held
	reads   held // what the reader shows
	befores []before
	views   []viewed
	latest  map[int]held // the last state of each file
	log     []string
}

type before struct {
	snapshot *st.File
	held     held
}

type viewed struct {
	tensor st.Tensor
	file   int
}

var oracleNames = []string{"w", "b", "", "nul\x00inside", "größe/張量", "quote\"\\\n", "layer.0", "layer.10", "x"}

func (o *oracle) bytes(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(o.random.Uint32())
	}
	return data
}

func (o *oracle) note(format string, args ...any) {
	o.log = append(o.log, fmt.Sprintf(format, args...))
}

func (o *oracle) name() string { return oracleNames[o.random.IntN(len(oracleNames))] }

func (o *oracle) value(name string) st.Tensor {
	dtype := allDTypes[o.random.IntN(len(allDTypes))]
	shape := make([]uint64, o.random.IntN(4))
	for i := range shape {
		shape[i] = o.random.Uint64N(6)
	}
	if dtype.Bits() < 8 {
		shape = append(shape, 4*o.random.Uint64N(4))
	} else if o.random.IntN(30) == 0 {
		shape = append(shape, 9, 1, 2, 1, 3, 1, 1) // a long one
	}
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return st.Tensor{Name: name, DType: dtype, Shape: shape, Data: o.bytes(n * dtype.Bits() / 8)}
}

// a is the file as it is, or under a context.
func (o *oracle) a(f *st.File) *st.File {
	if o.random.IntN(3) == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		o.Cleanup(cancel)
		return f.WithContext(ctx)
	}
	return f
}

// indices are those of a range in a dimension.
func indices(r st.Range, n int64) (all []int64) {
	low, high := int64(0), n
	if r.Step < 0 {
		low, high = -1, n-1
	}
	place := func(end int64) int64 {
		if end < 0 {
			if end < -2*n-2 {
				return low
			}
			end += n
		}
		return min(max(end, low), high)
	}
	at, stop := place(r.Start), place(r.Stop)
	for (r.Step > 0 && at < stop) || (r.Step < 0 && at > stop) {
		all = append(all, at)
		if r.Step > 2*n || r.Step < -2*n {
			break
		}
		at += r.Step
	}
	return all
}

// elements are told, by their number in C order, those that parts of the leading dimensions have.
func elements(shape []uint64, parts [][]int64, base int64, each func(int64)) {
	if len(shape) == 0 {
		each(base)
		return
	}
	if len(parts) == 0 {
		for i := range int64(shape[0]) {
			elements(shape[1:], nil, base*int64(shape[0])+i, each)
		}
		return
	}
	for _, i := range parts[0] {
		elements(shape[1:], parts[1:], base*int64(shape[0])+i, each)
	}
}

func (o *oracle) ranges(shape []uint64) (ranges []st.Range, parts [][]int64) {
	for _, n := range shape[:o.random.IntN(len(shape)+1)] {
		end := func() int64 {
			switch o.random.IntN(8) {
			case 0:
				return math.MinInt64
			case 1:
				return math.MaxInt64
			}
			return o.random.Int64N(4*int64(n)+1) - 2*int64(n)
		}
		steps := []int64{1, 1, 2, -1, -3, math.MaxInt64, math.MinInt64}
		r := st.Range{Start: end(), Stop: end(), Step: steps[o.random.IntN(len(steps))]}
		ranges, parts = append(ranges, r), append(parts, indices(r, int64(n)))
	}
	return ranges, parts
}

func shapeOfPart(shape []uint64, parts [][]int64) []uint64 {
	shape = append([]uint64{}, shape...)
	for i, part := range parts {
		shape[i] = uint64(len(part))
	}
	return shape
}

func sizeOf(dtype st.DType, shape []uint64) int {
	n := dtype.Bits()
	for _, d := range shape {
		n *= int(d)
	}
	return n / 8
}

// withPart is a tensor with other values in a part.
func withPart(of st.Tensor, parts [][]int64, value st.Tensor) st.Tensor {
	of.Data = slices.Clone(of.Data)
	width, at := int64(of.DType.Bits()/8), int64(0)
	elements(of.Shape, parts, 0, func(i int64) {
		copy(of.Data[i*width:(i+1)*width], value.Data[at:])
		at += width
	})
	return of
}

func (o *oracle) change(tx *st.Tx, staged *held) {
	name := o.name()
	old, there := staged.tensors[name]
	switch o.random.IntN(10) {
	case 0, 1:
		value := o.value(name)
		if !there {
			refused(o, tx.Update(name, value), st.ErrNotFound)
			return
		}
		value.DType, value.Shape, value.Data = old.DType, old.Shape, o.bytes(len(old.Data))
		must(o, tx.Update(name, value))
		staged.tensors[name] = value
		o.note("update %q", name)
	case 2, 3:
		if !there || old.DType.Bits() < 8 {
			return
		}
		ranges, parts := o.ranges(old.Shape)
		value := st.Tensor{DType: old.DType, Shape: shapeOfPart(old.Shape, parts)}
		value.Data = o.bytes(sizeOf(value.DType, value.Shape))
		must(o, tx.UpdateSlice(name, value, ranges...))
		staged.tensors[name] = withPart(old, parts, value)
		o.note("slice %q %v", name, ranges)
	case 4:
		if !there || old.DType.Bits() < 8 || len(old.Shape) == 0 || old.Shape[0] == 0 {
			return
		}
		n := int64(old.Shape[0])
		ranges, parts := o.ranges(old.Shape[1:])
		rows, places := make([]int64, o.random.IntN(4)), []int64{}
		for i := range rows {
			rows[i] = o.random.Int64N(2*n) - n
			places = append(places, (rows[i]+n)%n)
		}
		parts = append([][]int64{places}, parts...)
		value := st.Tensor{DType: old.DType, Shape: shapeOfPart(old.Shape, parts)}
		value.Data = o.bytes(sizeOf(value.DType, value.Shape))
		must(o, tx.UpdateRows(name, value, rows, ranges...))
		staged.tensors[name] = withPart(old, parts, value)
		o.note("rows %q %v %v", name, rows, ranges)
	case 5:
		value := o.value(name)
		must(o, tx.Put(name, value))
		staged.tensors[name] = value
		o.note("put %q", name)
	case 6:
		err := tx.Delete(name)
		if !there {
			refused(o, err, st.ErrNotFound)
			return
		}
		must(o, err)
		delete(staged.tensors, name)
		o.note("delete %q", name)
	case 7:
		to := o.name()
		_, taken := staged.tensors[to]
		err := tx.Rename(name, to)
		switch {
		case !there:
			refused(o, err, st.ErrNotFound)
		case taken && name != to:
			refused(o, err, st.ErrDuplicateName)
		case name != to:
			must(o, err)
			delete(staged.tensors, name)
			old.Name = to
			staged.tensors[to] = old
			o.note("rename %q %q", name, to)
		}
	case 8:
		value := strconv.FormatUint(o.random.Uint64(), 16) + "\x00"
		must(o, tx.SetMetadata(name, value))
		staged.metadata[name] = value
		o.note("set %q", name)
	case 9:
		err := tx.DeleteMetadata(name)
		if _, there := staged.metadata[name]; !there {
			refused(o, err, st.ErrNotFound)
			return
		}
		must(o, err)
		delete(staged.metadata, name)
		o.note("unset %q", name)
	}
}

func (o *oracle) committed(staged held, kind st.PlanKind) {
	staged.file = o.now.file
	if kind == st.PlanPublish {
		staged.file++
	} else {
		if o.reads.file == staged.file {
			o.reads.tensors = maps.Clone(staged.tensors)
		}
		for i := range o.befores {
			if o.befores[i].held.file == staged.file {
				o.befores[i].held.tensors = maps.Clone(staged.tensors)
			}
		}
	}
	o.now = staged
	o.latest[staged.file] = staged
}

func (o *oracle) transaction() {
	opts := &st.TxOptions{}
	switch o.random.IntN(6) {
	case 0:
		opts.Publish = true
	case 1:
		opts.JournalOnly = true
	case 2:
		opts.Layout = st.LayoutCanonical
	case 3:
		opts.Alignment, opts.HeaderReserve = 8<<o.random.IntN(9), o.random.Uint64N(3000)
	}
	if o.random.IntN(3) == 0 {
		opts.Progress = func(uint64, uint64) error { return nil }
	}
	tx, err := o.a(o.writer).Begin(opts)
	must(o, err)
	staged := o.now.clone()
	for range o.random.IntN(6) {
		o.change(tx, &staged)
	}
	plan, err := tx.Plan()
	must(o, err)
	if o.random.IntN(5) == 0 {
		must(o, tx.Rollback())
		o.note("rollback")
		return
	}
	o.note("commit %v", plan.Kind)
	must(o, tx.Commit())
	o.committed(staged, plan.Kind)
}

func (o *oracle) openReader() {
	modes := []st.MapMode{st.MapAuto, st.MapPrivate, st.MapNone}
	mode := modes[o.random.IntN(3)]
	opts := &st.Options{Map: mode}
	if o.random.IntN(3) == 0 {
		opts.Log = func(st.LogLevel, string) {}
	}
	o.note("reader %v", mode)
	if o.reader != nil {
		must(o, o.reader.Close())
	}
	var err error
	o.reader, err = st.Open(o.path, opts)
	must(o, err)
	o.mapped, o.views, o.reads = mode != st.MapNone, nil, o.now.clone()
}

func (o *oracle) step() {
	switch o.random.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6:
		o.transaction()
	case 7:
		modes := []st.MapMode{st.MapAuto, st.MapPrivate, st.MapNone, st.MapCopyOnWrite}
		must(o, o.writer.Close())
		var err error
		mode := modes[o.random.IntN(4)]
		o.note("writer %v", mode)
		o.writer, err = st.Open(o.path, &st.Options{ReadWrite: true, Map: mode})
		must(o, err)
	case 8:
		o.openReader()
	case 9, 10:
		o.note("refresh")
		must(o, o.a(o.reader).Refresh())
		o.reads = o.now.clone()
	case 11:
		o.note("release")
		o.views = nil
		o.reader.Release()
	case 12:
		if len(o.befores) > 3 {
			must(o, o.befores[0].snapshot.Close())
			o.befores = o.befores[1:]
		}
		from := o.writer
		held := o.now.clone()
		if o.random.IntN(2) == 0 {
			from, held = o.reader, o.reads.clone()
		}
		o.note("snapshot")
		snapshot, err := o.a(from).Snapshot()
		must(o, err)
		o.befores = append(o.befores, before{snapshot, held})
	case 13, 14:
		if !o.mapped {
			return
		}
		for name, want := range o.reads.tensors {
			view, err := o.a(o.reader).View(name)
			must(o, err)
			same(o, "a view", view, want)
			o.views = append(o.views, viewed{view, o.reads.file})
		}
		o.note("views")
	case 15:
		o.note("compact")
		must(o, st.Compact(o.path, nil))
		must(o, o.writer.Refresh())
		o.committed(o.now.clone(), st.PlanPublish)
	case 16:
		name := o.name()
		if old, there := o.now.tensors[name]; there {
			staged := o.now.clone()
			old.Data = o.bytes(len(old.Data))
			must(o, o.a(o.writer).Update(name, old))
			staged.tensors[name] = old
			o.committed(staged, st.PlanPatch)
			o.note("update one %q", name)
		}
	case 17:
		o.note("reopen")
		again, err := o.a(o.writer).Reopen()
		must(o, err)
		must(o, o.writer.Close())
		o.writer = again
	case 18:
		must(o, st.Verify(o.path, nil))
	case 19:
		o.note("load")
		err := o.reader.Load(nil, nil)
		must(o, err)
		o.mapped = false
	}
}

// reading checks all ways to the bytes of what a file shows.
func (o *oracle) reading(who string, f *st.File, want held) {
	o.Helper()
	names := namesOf(o, o.a(f))
	if len(names) != len(want.tensors) || f.Len() != len(names) {
		o.Fatalf("%s has %q, not %d names", who, names, len(want.tensors))
	}
	metadata := metadataOf(o, f)
	if !maps.Equal(metadata, want.metadata) {
		o.Fatalf("%s has the metadata %q, not %q", who, metadata, want.metadata)
	}
	var requests []st.ReadRequest
	for _, name := range names {
		want, there := want.tensors[name]
		if !there {
			o.Fatalf("%s has %q", who, name)
		}
		got, err := o.a(f).Get(name)
		must(o, err)
		same(o, who, got, want)
		info, err := o.a(f).Info(name)
		must(o, err)
		if info.Name != name || info.DType != want.DType || !slices.Equal(info.Shape, want.Shape) ||
			info.Size != uint64(len(want.Data)) {
			o.Fatalf("%s: %+v is not of %v", who, info, want)
		}
		for range o.random.IntN(3) {
			if !has(o.T, o.a(f), name) || has(o.T, f, name+"no") {
				o.Fatalf("%s: Has", who)
			}
		}
		dst := make([]byte, len(want.Data)+o.random.IntN(3))
		if n, err := o.a(f).ReadInto(name, dst); err != nil || n != len(want.Data) || !bytes.Equal(dst[:n], want.Data) {
			o.Fatalf("%s: %d %v", who, n, err)
		}
		if len(want.Data) > 0 {
			n, err := o.a(f).ReadInto(name, dst[:len(want.Data)-1])
			refused(o, err, st.ErrBufferSize)
			if n != len(want.Data) {
				o.Fatal(n)
			}
		}
		if want.DType.Bits() >= 8 {
			ranges, parts := o.ranges(want.Shape)
			var expected []byte
			width := int64(want.DType.Bits() / 8)
			elements(want.Shape, parts, 0, func(i int64) { expected = append(expected, want.Data[i*width:(i+1)*width]...) })
			got, err := o.a(f).Slice(name, ranges...)
			must(o, err)
			same(o, who+": a slice", got, st.Tensor{DType: want.DType, Shape: shapeOfPart(want.Shape, parts), Data: expected})
			into := make([]byte, len(expected))
			must(o, o.a(f).SliceInto(name, into, ranges...))
			if !bytes.Equal(into, expected) {
				o.Fatal("SliceInto")
			}
			requests = append(requests, st.ReadRequest{Name: name, Dst: make([]byte, len(expected)), Ranges: ranges})
			defer func(i int) {
				if !bytes.Equal(requests[i].Dst, expected) && !o.Failed() {
					o.Fatalf("%s: ReadMany of %q %v", who, name, ranges)
				}
			}(len(requests) - 1)
		}
	}
	must(o, o.a(f).ReadMany(requests, nil))
	if _, err := f.Info("none"); !errors.Is(err, st.ErrNotFound) {
		o.Fatal(err)
	}
}

func (o *oracle) check() {
	o.Helper()
	o.reading("the writer", o.writer, o.now)
	o.reading("the reader", o.reader, o.reads)
	for i, b := range o.befores {
		o.reading(fmt.Sprintf("snapshot %d", i), b.snapshot, b.held)
	}
	for _, v := range o.views {
		want, there := o.latest[v.file].tensors[v.tensor.Name]
		if !there {
			o.Fatal("no such view")
		}
		same(o, "a view from before", v.tensor, want)
	}
	all, err := readFile(o.path)
	must(o, err)
	if len(all) != len(o.now.tensors) {
		o.Fatalf("%d tensors in the file", len(all))
	}
	for name, want := range o.now.tensors {
		same(o, "in the file", all[name], want)
	}
}

// LIBST_TEST_SEED and LIBST_TEST_STEPS choose other runs.
func TestRandomChangesAreThoseInMemory(t *testing.T) {
	chosen := func(name string, otherwise uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	seed, steps := chosen("LIBST_TEST_SEED", rand.Uint64()), chosen("LIBST_TEST_STEPS", 150)
	t.Logf("seed %d", seed)
	o := &oracle{T: t, random: rand.New(rand.NewPCG(seed, 0)), path: filepath.Join(t.TempDir(), "model.safetensors"),
		now: held{map[string]st.Tensor{}, map[string]string{"format": "pt"}, 0}, latest: map[int]held{}}
	defer func() {
		if t.Failed() {
			for _, line := range o.log[max(0, len(o.log)-25):] {
				t.Log(line)
			}
		}
	}()
	var tensors []st.Tensor
	for _, name := range oracleNames[:4] {
		value := o.value(name)
		o.now.tensors[name] = value
		tensors = append(tensors, value)
	}
	o.latest[0] = o.now
	must(t, st.Save(o.path, tensors, &st.SaveOptions{Metadata: o.now.metadata}))
	var err error
	o.writer, err = st.Open(o.path, &writable)
	must(t, err)
	o.openReader()
	for range steps {
		o.step()
		o.check()
	}
	must(t, errors.Join(o.writer.Close(), o.reader.Close()))
	for _, b := range o.befores {
		must(t, b.snapshot.Close())
	}
}
