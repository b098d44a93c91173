package st_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"time"

	"libst/st"
)

// exampleFile is a file with two small tensors.
func exampleFile() (path string, remove func()) {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(folder, "model.safetensors")
	if err := writeFile(path, []named{
		{"weight", st.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3)},
		{"bias", st.TensorOf([]float32{0.5, -0.5})},
	}, map[string]string{"format": "pt"}); err != nil {
		log.Fatal(err)
	}
	return path, func() { _ = os.RemoveAll(folder) }
}

func Example() {
	path, remove := exampleFile()
	defer remove()

	f, err := st.Open(path, &st.Options{ReadWrite: true})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	bias, err := f.Get("bias")
	if err != nil {
		log.Fatal(err)
	}
	numbers, _ := st.Values[float32](bias)
	for i := range numbers {
		numbers[i] *= 2
	}
	if err := f.Update("bias", st.TensorOf(numbers)); err != nil { // durable when it returns nil
		log.Fatal(err)
	}
	bias, _ = f.Get("bias")
	numbers, _ = st.Values[float32](bias)
	fmt.Println(bias.DType, bias.Shape, numbers)
	// Output: F32 [2] [1 -1]
}

func ExampleOpen_errors() {
	_, err := st.Open("no/such/model.safetensors", nil)
	fmt.Println(errors.Is(err, st.ErrNoFile), errors.Is(err, fs.ErrNotExist))

	var e *st.Error
	if errors.As(err, &e) {
		fmt.Println(e.Status, e.Errno)
	}
	// Output:
	// true true
	// ST_E_NO_FILE no such file or directory
}

func ExampleFile_All() {
	path, remove := exampleFile()
	defer remove()
	f, err := st.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	for tensor, err := range f.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tensor.Name, tensor.DType, tensor.Shape, tensor.Size)
	}
	format, err := f.MetadataValue("format")
	fmt.Println(format, err)
	// Output:
	// weight F32 [2 3] 24
	// bias F32 [2] 8
	// pt <nil>
}

func ExampleFile_Slice() {
	path, remove := exampleFile()
	defer remove()
	f, err := st.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	part, err := f.Slice("weight", st.Whole(), st.From(-2)) // weight[:, -2:], and only its bytes are read
	if err != nil {
		log.Fatal(err)
	}
	numbers, _ := st.Values[float32](part)
	fmt.Println(part.Shape, numbers)
	// Output: [2 2] [2 3 5 6]
}

func ExampleFile_View() {
	path, remove := exampleFile()
	defer remove()
	f, err := st.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close() // the view's Data ends here

	weight, err := f.View("weight") // no copy, whatever its size
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(weight.Data))
	// Output: 24
}

func ExampleFile_Snapshot() {
	path, remove := exampleFile()
	defer remove()
	f, err := st.Open(path, &st.Options{ReadWrite: true})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	before, err := f.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer before.Close() // its views end here, and what they kept of the replaced file
	weight, err := before.View("weight")
	if err != nil {
		log.Fatal(err)
	}
	tx, err := f.Begin(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if err := errors.Join(tx.Delete("weight"), tx.Commit()); err != nil {
		log.Fatal(err)
	}
	after, _ := f.Has("weight")
	still, _ := before.Has("weight")
	fmt.Println(after, still, len(weight.Data))
	// Output: false true 24
}

func ExampleFile_Begin() {
	path, remove := exampleFile()
	defer remove()
	f, err := st.Open(path, &st.Options{ReadWrite: true})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	tx, err := f.Begin(&st.TxOptions{LockTimeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() // does nothing after Commit
	if err := tx.Update("weight", st.TensorOf(make([]float32, 6), 2, 3)); err != nil {
		log.Fatal(err)
	}
	err = tx.Update("bias", st.TensorOf([]float64{1, 2})) // another dtype: refused, and the transaction is as before
	fmt.Println(errors.Is(err, st.ErrDTypeMismatch))
	fmt.Println(tx.Commit()) // both tensors, or none
	// Output:
	// true
	// <nil>
}

func ExampleFile_Transact() {
	path, remove := exampleFile()
	defer remove()
	f, err := st.Open(path, &st.Options{ReadWrite: true})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	err = f.Transact(func(tx *st.Tx) error { // nil commits, an error drops all of it
		if err := tx.Update("bias", st.TensorOf([]float32{1, 2})); err != nil {
			return err
		}
		return tx.Rename("weight", "w")
	})
	fmt.Println(err)
	fmt.Println(f.Names())
	// Output:
	// <nil>
	// [w bias] <nil>
}

func ExampleTx_Put() {
	path, remove := exampleFile()
	defer remove()
	f, err := st.Open(path, &st.Options{ReadWrite: true})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	tx, err := f.Begin(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if err := tx.Put("scale", st.TensorOf([]float64{0.5})); err != nil {
		log.Fatal(err)
	}
	if err := tx.Delete("bias"); err != nil {
		log.Fatal(err)
	}
	plan, err := tx.Plan()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Kind, tx.Commit())
	fmt.Println(f.Names())
	// Output:
	// publish <nil>
	// [weight scale] <nil>
}

func ExampleNewWriter() {
	path, remove := exampleFile()
	defer remove()
	w, err := st.NewWriter(path, nil, &st.SaveOptions{Metadata: map[string]string{"format": "pt"}})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort() // does nothing after Finish
	for _, name := range []string{"layers.0", "layers.1"} {
		tensor := st.TensorOf(make([]float32, 6), 2, 3) // one at a time in memory
		tensor.Name = name
		if err := w.Put(tensor); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(w.Finish()) // durable, and there
	// Output: <nil>
}

func ExampleFile_WithContext() {
	path, remove := exampleFile()
	defer remove()
	f, err := st.Open(path, &st.Options{ReadWrite: true})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cancel() // such as the end of a request
	err = f.WithContext(ctx).Update("bias", st.TensorOf([]float32{1, 2}))
	fmt.Println(errors.Is(err, context.Canceled), errors.Is(err, st.ErrCancelled))
	// Output: true true
}

func ExampleVerify() {
	path, remove := exampleFile()
	defer remove()
	err := st.Verify(path, &st.VerifyOptions{Report: func(r st.Report) error {
		if r.Level != st.LogInfo {
			fmt.Println(r.Level, r.Message)
		}
		return nil
	}})
	fmt.Println(err)
	// Output: <nil>
}
