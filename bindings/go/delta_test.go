package st_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"libst/st"
)

// twoFiles are a base, and what is to be made of it: one tensor changed, one deleted, one added.
func twoFiles(t *testing.T) (base, other string) {
	t.Helper()
	base = newFile(t, []named{
		{"a", st.TensorOf([]float32{1, 2, 3})},
		{"b", st.TensorOf([]float32{4, 5})},
		{"c", st.TensorOf([]float32{6})},
	}, map[string]string{"k": "v"})
	other = newFile(t, []named{
		{"a", st.TensorOf([]float32{1, 2, 3})},
		{"b", st.TensorOf([]float32{40, 50})},
		{"d", st.TensorOf([]uint8{7})},
	}, map[string]string{"k": "w"})
	return base, other
}

func delta(t *testing.T, base, other string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "delta.safetensors")
	must(t, st.CreateDelta(base, other, path, &st.CreateDeltaOptions{Alignment: 4096}))
	return path
}

func sameTensors(t *testing.T, got, want *st.File) {
	t.Helper()
	if g, w := namesOf(t, got), namesOf(t, want); len(g) != len(w) {
		t.Fatalf("tensors %v, wanted %v", g, w)
	}
	for _, name := range namesOf(t, want) {
		g, err := got.Get(name)
		must(t, err)
		w, err := want.Get(name)
		must(t, err)
		if g.DType != w.DType || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("tensor %s differs", name)
		}
	}
}

func TestDeltaIsAppliedUndoneMergedAndLaidOver(t *testing.T) {
	base, other := twoFiles(t)
	d := delta(t, base, other)
	info, err := st.DescribeDelta(d)
	must(t, err)
	if info.Changed != 1 || info.Added != 1 || info.Deleted != 1 || info.MetadataSet != 1 || info.DataBytes != 9 || len(info.Base) != 32 || len(info.Result) != 32 {
		t.Errorf("the delta says of itself %+v", info)
	}
	if there, err := os.Stat(d); err != nil || info.FileSize != uint64(there.Size()) {
		t.Errorf("the delta is of %d bytes, not as %v says (%v)", info.FileSize, there, err)
	}
	must(t, st.Verify(base, &st.VerifyOptions{Deltas: []string{d}}))

	sameTensors(t, open(t, base, st.Options{Deltas: []string{d}}), open(t, other))
	merged := filepath.Join(t.TempDir(), "merged.safetensors")
	must(t, st.MergeDeltas(base, []string{d}, merged, &st.SaveOptions{Layout: st.LayoutCanonical}))
	sameTensors(t, open(t, merged), open(t, other))

	before, err := os.ReadFile(base)
	must(t, err)
	back := filepath.Join(t.TempDir(), "back.safetensors")
	told := 0
	plan, err := st.ApplyDelta(base, d, &st.ApplyDeltaOptions{
		Reverse: back, Progress: func(done, total uint64) error { told++; return nil },
	})
	must(t, err)
	if plan.Kind != st.PlanPublish || told == 0 {
		t.Errorf("it was done by %v; progress was told %d times", plan.Kind, told)
	}
	sameTensors(t, open(t, base), open(t, other))
	if _, err := st.ApplyDelta(base, d, nil); !errors.Is(err, st.ErrDeltaBase) {
		t.Errorf("applied twice: %v", err)
	}
	_, err = st.ApplyDelta(base, back, nil)
	must(t, err)
	unchanged := filepath.Join(t.TempDir(), "unchanged.safetensors")
	must(t, os.WriteFile(unchanged, before, 0o600))
	sameTensors(t, open(t, base), open(t, unchanged))

	f := open(t, base, st.Options{ReadWrite: true})
	_, err = f.ApplyDelta(d, nil)
	must(t, err)
	sameTensors(t, f, open(t, other))
	if _, err := open(t, base).ApplyDelta(back, nil); !errors.Is(err, st.ErrReadOnly) {
		t.Errorf("applied through a file that is open for reading: %v", err)
	}
	_, err = f.ApplyDelta(back, &st.ApplyDeltaOptions{JournalOnly: true})
	must(t, err)
	must(t, f.Sync())
	sameTensors(t, f, open(t, unchanged))
	if _, err := st.ApplyDelta(base, d, &st.ApplyDeltaOptions{JournalOnly: true}); !errors.Is(err, st.ErrUnsupported) {
		t.Errorf("by its path, and synced later: %v", err)
	}
}

func TestACommitToTheJournalIsSeenAtOnceAndSyncedLater(t *testing.T) {
	base, _ := twoFiles(t)
	f := open(t, base, st.Options{ReadWrite: true})
	value, err := f.Get("a")
	must(t, err)
	for range 2 {
		value.Data[0]++
		tx := begin(t, f, st.TxOptions{JournalOnly: true})
		must(t, tx.Update("a", value))
		must(t, tx.Commit())
		sameTensors(t, open(t, base), f)
	}
	must(t, f.Sync())
	must(t, f.Close())
	seen, err := open(t, base).Get("a")
	must(t, err)
	if !bytes.Equal(seen.Data, value.Data) {
		t.Errorf("the file has %v, and not %v", seen.Data, value.Data)
	}
}

func TestDeltaOfAnotherBaseIsRefused(t *testing.T) {
	base, other := twoFiles(t)
	d := delta(t, base, other)
	if _, err := st.Open(other, &st.Options{Deltas: []string{d}}); !errors.Is(err, st.ErrDeltaBase) {
		t.Errorf("laid over another file: %v", err)
	}
	if err := st.Verify(other, &st.VerifyOptions{Deltas: []string{d}}); !errors.Is(err, st.ErrDeltaBase) {
		t.Errorf("verified over another file: %v", err)
	}
	if _, err := st.DescribeDelta(base); !errors.Is(err, st.ErrDelta) {
		t.Errorf("a file that is no delta: %v", err)
	}
	if err := st.MergeDeltas(base, []string{"with\x00NUL"}, d, nil); !errors.Is(err, st.ErrInvalidArgument) {
		t.Errorf("a path with NUL: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := st.ApplyDelta(base, d, &st.ApplyDeltaOptions{Context: ctx}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}
