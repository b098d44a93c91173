package st_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"libst/st"
)

// A history is what one handle of a file goes through, step by step, while others read through it. The content of a
// file after a step is a function of the step's number. So a read is right if its answer is the content of the file at
// some time during the read.
type history struct {
	file              *st.File
	started, finished atomic.Int64 // the last step that was begun, and the last that is done
}

var historyShapes = [][]uint64{{3}, {2, 5}, {64, 8}, {4, 1, 2, 3}, {1, 700}}

// valueOf is a tensor whose bytes tell it and its shape from any other's.
func valueOf(v int64) st.Tensor {
	shape := historyShapes[v/2%int64(len(historyShapes))]
	n := uint64(1)
	for _, d := range shape {
		n *= d
	}
	return st.TensorOf(slices.Repeat([]int64{v}, int(n)), shape...)
}

// valueAfter says which value a tensor has after a step; -1: there is none of that name.
func valueAfter(step int64, name string) int64 {
	phase := step % 4
	switch {
	case name == "put": // again and again, in other shapes
		return step - phase
	case name == "deleted" && phase == 1:
		return -1
	case name == "deleted" && phase >= 2: // put again
		return step - phase + 2
	case name == "deleted":
		return max(step-2, 0)
	case (name == "renamed") == (phase != 2):
		return 4
	}
	return -1 // "new name", or the old one
}

var historyNames = []string{"put", "deleted", "renamed", "new name"}

func namesAfter(step int64) []string {
	var names []string
	for _, name := range historyNames {
		if valueAfter(step, name) >= 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func newHistory(t *testing.T) *history {
	path := newFile(t, []named{{"put", valueOf(0)}, {"deleted", valueOf(0)}, {"renamed", valueOf(4)}}, map[string]string{"step": "0"})
	return &history{file: open(t, path, writable)}
}

// next commits a step. One goroutine does.
func (h *history) next() error {
	step := h.finished.Load() + 1
	tx, err := h.file.Begin(nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	switch step % 4 {
	case 0:
		err = tx.Put("put", valueOf(step))
	case 1:
		err = tx.Delete("deleted")
	case 2:
		err = errors.Join(tx.Put("deleted", valueOf(step)), tx.Rename("renamed", "new name"))
	case 3:
		err = tx.Rename("new name", "renamed")
	}
	if err = errors.Join(err, tx.SetMetadata("step", strconv.FormatInt(step, 10))); err != nil {
		return err
	}
	h.started.Store(step)
	if err := tx.Commit(); err != nil {
		return err
	}
	h.finished.Store(step)
	return nil
}

// check makes a read and complains if what it answers was never so during the call.
func (h *history) check(read func() (answer string), right func(step int64) string) error {
	first := h.finished.Load()
	got := read()
	last := h.started.Load()
	for step := first; step <= last; step++ {
		if got == right(step) {
			return nil
		}
	}
	return fmt.Errorf("%s, between the steps %d and %d, of which the first has %s", got, first, last, right(first))
}

// told is a tensor, or an error, as a text to compare.
func told(tensor st.Tensor, err error) string {
	if errors.Is(err, st.ErrNotFound) {
		return "none"
	} else if err != nil {
		return err.Error()
	}
	values, err := st.Values[int64](tensor)
	if err != nil {
		return err.Error()
	}
	if len(values) == 0 || slices.Min(values) != slices.Max(values) {
		return fmt.Sprint("a mix of other values: ", tensor.Shape, values[:min(len(values), 1)])
	}
	return fmt.Sprint(tensor.Shape, len(values), " times ", values[0])
}

func rightTensor(name string, change func(st.Tensor) st.Tensor) func(step int64) string {
	return func(step int64) string {
		v := valueAfter(step, name)
		if v < 0 {
			return "none"
		}
		return told(change(valueOf(v)), nil)
	}
}

func everyOther(t st.Tensor) st.Tensor {
	n := t.Shape[0]
	rows := (n + 1) / 2
	return st.Tensor{DType: t.DType, Shape: append([]uint64{rows}, t.Shape[1:]...), Data: t.Data[:uint64(len(t.Data))/n*rows]}
}

// reads are the ways to read one name.
func (h *history) reads(name string, buffer []byte) []error {
	whole := func(t st.Tensor) st.Tensor { return t }
	return []error{
		h.check(func() string { return told(h.file.Get(name)) }, rightTensor(name, whole)),
		h.check(func() string { return told(h.file.Slice(name, st.Every(2))) }, rightTensor(name, everyOther)),
		h.check(func() string {
			n, err := h.file.ReadInto(name, buffer)
			if err != nil {
				return told(st.Tensor{}, err)
			}
			return fmt.Sprint(n, binary.LittleEndian.Uint64(buffer), binary.LittleEndian.Uint64(buffer[n-8:]))
		}, func(step int64) string {
			v := valueAfter(step, name)
			if v < 0 {
				return "none"
			}
			return fmt.Sprint(len(valueOf(v).Data), v, v)
		}),
		h.check(func() string {
			info, err := h.file.Info(name)
			if err != nil {
				return told(st.Tensor{}, err)
			}
			return fmt.Sprint(info.Name, info.DType, info.Shape, info.Size)
		}, func(step int64) string {
			v := valueAfter(step, name)
			if v < 0 {
				return "none"
			}
			t := valueOf(v)
			return fmt.Sprint(name, t.DType, t.Shape, len(t.Data))
		}),
		h.check(func() string {
			shape, size, err := h.file.SliceShape(name, st.Every(2))
			if err != nil {
				return told(st.Tensor{}, err)
			}
			return fmt.Sprint(shape, size)
		}, func(step int64) string {
			v := valueAfter(step, name)
			if v < 0 {
				return "none"
			}
			t := everyOther(valueOf(v))
			return fmt.Sprint(t.Shape, len(t.Data))
		}),
	}
}

// lists are the ways to read all names.
func (h *history) lists() []error {
	right := func(step int64) string { return fmt.Sprint(namesAfter(step)) }
	return []error{
		h.check(func() string {
			names, err := h.file.Names()
			if err != nil {
				return err.Error()
			}
			slices.Sort(names)
			return fmt.Sprint(names)
		}, right),
		h.check(func() string {
			var names []string
			for info, err := range h.file.All() {
				if err != nil {
					return err.Error()
				}
				names = append(names, info.Name)
			}
			slices.Sort(names)
			return fmt.Sprint(names)
		}, right),
		h.check(func() string {
			metadata, err := h.file.Metadata()
			if err != nil {
				return err.Error()
			}
			return metadata["step"]
		}, func(step int64) string { return strconv.FormatInt(step, 10) }),
	}
}

// readsWanted is how many reads the test makes, and a hundredth part as many changes.
func readsWanted() int64 {
	switch os.Getenv("ST_TEST_BOUND") {
	case "small":
		return 2_000
	case "full":
		return 1_000_000
	}
	return 20_000
}

// readBeside reads in four goroutines, by what read makes of a buffer, while the changer goes on; until both have done
// enough, or a change fails.
func readBeside(t *testing.T, wanted int64, read func(buffer []byte) []error, changes *atomic.Int64, change func() error) {
	t.Helper()
	var reads, wrong atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 4 {
		spawn(&group, func() {
			buffer := make([]byte, 8*700)
			for !stop.Load() {
				all := read(buffer)
				for _, err := range all {
					if err != nil && wrong.Add(1) <= 10 {
						t.Error(err)
					}
				}
				reads.Add(int64(len(all)))
			}
		})
	}
	for reads.Load() < wanted || changes.Load() < wanted/100 {
		if err := change(); err != nil {
			t.Error(err)
			break
		}
	}
	stop.Store(true)
	group.Wait()
	t.Logf("%d reads, %d of them wrong, against %d changes", reads.Load(), wrong.Load(), changes.Load())
}

func TestReadsAgainstChangesThroughOneHandle(t *testing.T) {
	h := newHistory(t)
	read := func(buffer []byte) []error {
		all := h.lists()
		for range 4 {
			for _, name := range historyNames {
				all = append(all, h.reads(name, buffer)...)
			}
		}
		return all
	}
	readBeside(t, readsWanted(), read, &h.finished, func() error {
		if err := h.next(); err != nil {
			return fmt.Errorf("step %d: %w", h.started.Load(), err)
		}
		return nil
	})
}

// A reader beside: what it shows is changed by its Refresh alone, and what it keeps of one state must not outlast that.
func TestReadsAgainstRefreshesOfAReader(t *testing.T) {
	h := newHistory(t)
	shown := &history{file: open(t, h.file.Path())}
	read := func(buffer []byte) []error {
		all := shown.lists()
		for _, name := range historyNames {
			all = append(all, shown.reads(name, buffer)...)
		}
		return all
	}
	readBeside(t, readsWanted()/2, read, &h.finished, func() error {
		if err := h.next(); err != nil {
			return fmt.Errorf("step %d: %w", h.started.Load(), err)
		}
		shown.started.Store(h.finished.Load())
		if err := shown.file.Refresh(); err != nil {
			return fmt.Errorf("refresh after step %d: %w", h.finished.Load(), err)
		}
		shown.finished.Store(h.finished.Load())
		return nil
	})
}
