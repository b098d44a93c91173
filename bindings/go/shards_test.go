package st_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"libst/st"
)

func TestACheckpointIsShardedChangedAndJoined(t *testing.T) {
	f, path := small(t)
	if shards := shardsOf(t, f); len(shards) != 1 || filepath.Base(shards[0]) != filepath.Base(path) {
		t.Fatalf("a file stands for %q", shards)
	}
	folder := filepath.Join(t.TempDir(), "sharded")
	must(t, st.Reshard(path, folder, 1, nil)) // a tensor a shard
	sharded := open(t, folder, writable)
	if shards := shardsOf(t, sharded); len(shards) != 3 {
		t.Fatalf("sharded into %q", shards)
	}
	want := smallTensors()
	tx, err := sharded.Begin(nil)
	must(t, err)
	must(t, tx.Delete("c"))
	must(t, tx.Put("d", want["b"]))
	must(t, tx.Rename("a", "e"))
	must(t, tx.Commit())
	want["d"], want["e"] = want["b"], want["a"]
	delete(want, "c")
	delete(want, "a")
	must(t, st.Verify(folder, nil))

	joined := filepath.Join(t.TempDir(), "joined.safetensors")
	must(t, st.Join(folder, joined, nil))
	now, err := readFile(joined)
	must(t, err)
	if len(now) != len(want) {
		t.Fatalf("the joined file has %d tensors, not %d", len(now), len(want))
	}
	for name, tensor := range want {
		same(t, name, now[name], tensor)
	}
	refused(t, st.Reshard(joined, folder, 1, nil), st.ErrInvalidArgument)

	again := open(t, folder)
	for _, shard := range shardsOf(t, again) {
		must(t, os.Remove(shard))
	}
	_, err = again.Has("b")
	refused(t, err, st.ErrShardMissing)
	if has(t, again, "none") {
		t.Error("it has what no shard is said to have")
	}
	_, err = st.Open(folder, nil)
	refused(t, err, st.ErrShardMissing)
}

// A loop that copies a checkpoint must not take a part of it for the whole.
func TestWhatListsSaysThatAShardIsMissing(t *testing.T) {
	path := newFile(t, []named{{"a", st.TensorOf([]uint8{1})}, {"b\x00", st.TensorOf([]uint8{2})}}, nil)
	folder := filepath.Join(t.TempDir(), "sharded")
	must(t, st.Reshard(path, folder, 1, nil))
	f := open(t, folder)
	for _, shard := range shardsOf(t, f) {
		must(t, os.Remove(shard))
	}
	times := 0
	for info, err := range f.All() {
		times++
		refused(t, err, st.ErrShardMissing)
		if info.Name != "" {
			t.Errorf("beside the error is %+v", info)
		}
	}
	if times != 1 {
		t.Errorf("All gave %d times", times)
	}
	for range f.All() {
		break // of the error
	}
	if names, err := f.Names(); names != nil { // names that hold NUL are asked of the shards
		t.Errorf("the names are %q, %v", names, err)
	} else {
		refused(t, err, st.ErrShardMissing)
	}
}

func TestALoopOfAFileThatIsClosedInItSaysSo(t *testing.T) {
	var tensors []named
	for i := range 1000 { // several batches
		tensors = append(tensors, named{fmt.Sprint(i), st.TensorOf([]uint8{byte(i)})})
	}
	for what, opts := range map[string]st.Options{"steady": {}, "writable": writable} {
		f := open(t, newFile(t, tensors, nil), opts)
		seen, last := 0, error(nil)
		for _, err := range f.All() {
			if last = err; err == nil {
				seen++
			}
			_ = f.Close()
		}
		if seen == 0 || seen >= 1000 || !errors.Is(last, fs.ErrClosed) {
			t.Errorf("%s: after %d tensors: %v", what, seen, last)
		}
	}
}

func TestUnderNewNamesOldShardsStayUntilRecovery(t *testing.T) {
	f, path := small(t, writable)
	folder := filepath.Join(t.TempDir(), "sharded")
	must(t, st.Reshard(path, folder, 1, nil))
	sharded := open(t, folder, writable)
	before := shardsOf(t, sharded)
	tx, err := sharded.Begin(&st.TxOptions{NewNames: true, ShardGrace: time.Minute})
	must(t, err)
	must(t, tx.Rename("a", "e"))
	plan, err := tx.Plan()
	must(t, err)
	if !strings.Contains(plan.How, "stays 60 s") {
		t.Fatalf("the plan says %q", plan.How)
	}
	must(t, tx.Commit())
	after := shardsOf(t, sharded)
	old := slices.DeleteFunc(before, func(shard string) bool { return slices.Contains(after, shard) })
	if len(old) != 1 || !slices.ContainsFunc(after, func(s string) bool { return strings.HasSuffix(s, ".g1.safetensors") }) {
		t.Fatalf("old are %q, and now there are %q", old, after)
	}
	_, err = os.Stat(old[0])
	must(t, err)
	must(t, st.Recover(folder, nil))
	if _, err = os.Stat(old[0]); err == nil {
		t.Fatalf("%s is still there", old[0])
	}
	must(t, st.Verify(folder, nil))
	_, err = f.Begin(&st.TxOptions{NewNames: true, ShardGrace: st.NoGrace})
	refused(t, err, st.ErrUnsupported)
}
