package st_test

import (
	"os"
	"path/filepath"
	"testing"

	"libst/st"
)

func TestACheckpointIsShardedChangedAndJoined(t *testing.T) {
	f, path := small(t)
	if shards := f.Shards(); len(shards) != 1 || filepath.Base(shards[0]) != filepath.Base(path) {
		t.Fatalf("a file stands for %q", shards)
	}
	folder := filepath.Join(t.TempDir(), "sharded")
	must(t, st.Reshard(path, folder, 1)) // a tensor a shard
	sharded := open(t, folder, st.ReadWrite())
	if shards := sharded.Shards(); len(shards) != 3 {
		t.Fatalf("sharded into %q", shards)
	}
	want := smallTensors()
	tx, err := sharded.Begin()
	must(t, err)
	must(t, tx.Delete("c"))
	must(t, tx.Put("d", want["b"]))
	must(t, tx.Rename("a", "e"))
	must(t, tx.Commit())
	want["d"], want["e"] = want["b"], want["a"]
	delete(want, "c")
	delete(want, "a")
	must(t, st.Verify(folder))

	joined := filepath.Join(t.TempDir(), "joined.safetensors")
	must(t, st.Join(folder, joined))
	now, err := readFile(joined)
	must(t, err)
	if len(now) != len(want) {
		t.Fatalf("the joined file has %d tensors, not %d", len(now), len(want))
	}
	for name, tensor := range want {
		same(t, name, now[name], tensor)
	}
	refused(t, st.Reshard(joined, folder, 1), st.ErrInvalidArgument)
	must(t, os.Remove(sharded.Shards()[0]))
	_, err = st.Open(folder)
	refused(t, err, st.ErrShardMissing)
}
