// Take the first rows of a tensor into one of their own, and rename it: both at once.
package main

import (
	"log"

	"libst/st"
)

func change(path string) error {
	f, err := st.Open(path, st.ReadWrite())
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := f.Slice("lm_head.weight", st.Until(4)) // reads only the bytes it needs
	if err != nil {
		return err
	}
	tx, err := f.Begin() // all of it, or nothing
	if err != nil {
		return err
	}
	defer tx.Rollback()                          // does nothing after Commit
	if err := tx.Put("head", rows); err != nil { // any dtype and shape
		return err
	}
	if err := tx.Rename("lm_head.weight", "output.weight"); err != nil {
		return err
	}
	return tx.Commit() // durable when it returns nil
}

func main() {
	if err := change("model.safetensors"); err != nil {
		log.Fatal(err)
	}
}
