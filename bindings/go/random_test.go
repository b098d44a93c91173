package st_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"libst/st"
)

// Files of random tensors, read by the library and by the tests' own reader; then changed at random.
func TestRandomFilesAreReadAndChangedAsTheyShouldBe(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	bytes := func(n int) []byte {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		return data
	}
	for range 100 {
		var tensors []named
		for i := range random.IntN(30) {
			dtype := allDTypes[random.IntN(len(allDTypes))]
			shape := make([]uint64, random.IntN(5))
			n := 1
			for d := range shape {
				shape[d] = random.Uint64N(6)
				n *= int(shape[d])
			}
			if n*dtype.Bits()%8 != 0 {
				shape, n = append(shape, 8), n*8
			}
			name := fmt.Sprintf("%s%d", string([]rune{rune(random.IntN(0xD800)), rune(0x10000 + random.IntN(0x1000))}), i)
			tensors = append(tensors, named{name, st.Tensor{DType: dtype, Shape: shape, Data: bytes(n * dtype.Bits() / 8)}})
		}
		path := newFile(t, tensors, nil)
		f := open(t, path, st.Options{ReadWrite: true, Map: st.MapMode(random.UintN(4))})
		check := func() {
			t.Helper()
			all, err := readFile(path)
			must(t, err)
			if len(all) != f.Len() || len(all) != len(tensors) {
				t.Fatalf("%d tensors, not %d", f.Len(), len(all))
			}
			for _, want := range tensors {
				same(t, fmt.Sprintf("%q in the file", want.name), all[want.name], want.tensor)
				got, err := f.View(want.name)
				must(t, err)
				same(t, fmt.Sprintf("%q", want.name), got, want.tensor)
			}
		}
		check()
		tx, err := f.Begin(nil)
		must(t, err)
		for i := range tensors {
			if random.IntN(2) == 0 {
				tensors[i].tensor.Data = bytes(len(tensors[i].tensor.Data))
				must(t, tx.Update(tensors[i].name, tensors[i].tensor))
			}
		}
		must(t, tx.Commit())
		check()
		must(t, f.Close())
	}
}
