package st_test

import (
	"testing"

	"libst/st"
)

// What a call costs over the library's own: BenchmarkCount is little more than an empty cgo call.

func BenchmarkCount(b *testing.B) {
	f, _ := small(b)
	for b.Loop() {
		f.Len()
	}
}

func BenchmarkView(b *testing.B) {
	f, _ := small(b)
	for b.Loop() {
		if _, err := f.View("b"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkViewUnderALog(b *testing.B) {
	f, _ := small(b, st.Options{Log: func(st.LogLevel, string) {}})
	for b.Loop() {
		if _, err := f.View("b"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	f, _ := small(b)
	for b.Loop() {
		if _, err := f.Get("b"); err != nil {
			b.Fatal(err)
		}
	}
}
