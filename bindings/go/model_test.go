package st_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"libst/st"
)

// model copies the real model that the tests are given, which others have written.
func model(t *testing.T) string {
	t.Helper()
	given := os.Getenv("LIBST_TEST_MODEL")
	if given == "" {
		t.Skip("LIBST_TEST_MODEL names no model; tests/go/run.sh fetches one")
	}
	content, err := os.ReadFile(given)
	must(t, err)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	must(t, os.WriteFile(path, content, 0o644))
	return path
}

type stockTensor struct {
	DType  string   `json:"dtype"`
	Shape  []uint64 `json:"shape"`
	SHA256 string   `json:"sha256"`
}

// stock is what the safetensors package reads in a file.
func stock(t *testing.T, path string) map[string]stockTensor {
	t.Helper()
	python := os.Getenv("LIBST_TEST_PYTHON")
	if python == "" {
		t.Skip("LIBST_TEST_PYTHON names no Python that has the safetensors package")
	}
	out, err := exec.Command(python, "-c", `
import hashlib, json, sys, safetensors
print(json.dumps({name: {"dtype": t["dtype"], "shape": t["shape"], "sha256": hashlib.sha256(t["data"]).hexdigest()}
                  for name, t in safetensors.deserialize(open(sys.argv[1], "rb").read())}))`, path).Output()
	must(t, err)
	all := map[string]stockTensor{}
	must(t, json.Unmarshal(out, &all))
	return all
}

func sameAsStock(t *testing.T, f *st.File, path string) {
	t.Helper()
	want := stock(t, path)
	if len(want) != f.Len() {
		t.Fatalf("%d tensors, but stock has %d", f.Len(), len(want))
	}
	for info, err := range f.All() {
		must(t, err)
		got, err := f.Get(info.Name)
		must(t, err)
		sum := sha256.Sum256(got.Data)
		w, ok := want[info.Name]
		if !ok || w.DType != got.DType.String() || !slices.Equal(w.Shape, got.Shape) || w.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s is %v %v, stock has %+v", info.Name, got.DType, got.Shape, w)
		}
	}
}

func TestTheRealModelIsWhatOthersRead(t *testing.T) {
	path := model(t)
	f := open(t, path)
	all, err := readFile(path)
	must(t, err)
	if len(all) == 0 || f.Len() != len(all) {
		t.Fatalf("%d tensors, not %d", f.Len(), len(all))
	}
	for name, want := range all {
		view, err := f.View(name)
		must(t, err)
		same(t, name, view, want)
	}
	sameAsStock(t, f, path)
}

func TestStockReadsWhatIsUpdatedInTheRealModel(t *testing.T) {
	path := model(t)
	f := open(t, path, writable)
	before := stock(t, path)
	tx, err := f.Begin(nil)
	must(t, err)
	for _, name := range []string{"final_conv.bias", "conv1.bias"} {
		value, err := f.Get(name)
		must(t, err)
		numbers, err := st.Values[float32](value)
		must(t, err)
		for i := range numbers {
			numbers[i] += 0.5
		}
		must(t, tx.Update(name, st.TensorOf(numbers, value.Shape...)))
	}
	must(t, tx.Commit())
	sameAsStock(t, f, path)
	changed := []string{}
	for name, now := range stock(t, path) {
		if now.SHA256 != before[name].SHA256 {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	if !slices.Equal(changed, []string{"conv1.bias", "final_conv.bias"}) {
		t.Errorf("these changed: %v", changed)
	}
	must(t, st.Verify(path, nil))
}

func TestStockReadsAllDTypes(t *testing.T) {
	path := newFile(t, everyDType(), map[string]string{"format": "pt"})
	sameAsStock(t, open(t, path), path)
}
