package st_test

import (
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
	if shards := f.Shards(); len(shards) != 1 || filepath.Base(shards[0]) != filepath.Base(path) {
		t.Fatalf("a file stands for %q", shards)
	}
	folder := filepath.Join(t.TempDir(), "sharded")
	must(t, st.Reshard(path, folder, 1, nil)) // a tensor a shard
	sharded := open(t, folder, writable)
	if shards := sharded.Shards(); len(shards) != 3 {
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
	for _, shard := range again.Shards() {
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

func TestUnderNewNamesOldShardsStayUntilRecovery(t *testing.T) {
	f, path := small(t, writable)
	folder := filepath.Join(t.TempDir(), "sharded")
	must(t, st.Reshard(path, folder, 1, nil))
	sharded := open(t, folder, writable)
	before := sharded.Shards()
	tx, err := sharded.Begin(&st.TxOptions{NewNames: true, ShardGrace: time.Minute})
	must(t, err)
	must(t, tx.Rename("a", "e"))
	plan, err := tx.Plan()
	must(t, err)
	if !strings.Contains(plan.How, "stays 60 s") {
		t.Fatalf("the plan says %q", plan.How)
	}
	must(t, tx.Commit())
	after := sharded.Shards()
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
