// What the Go binding costs, and what a reader written in Go alone does.
//
//	bindings-bench SMALL NAME LARGE
//
// for each line "WHAT N" on standard input, prints the nanoseconds of N times
//
//	empty          a call of a C function that does nothing
//	c              st_get of the tensor NAME of the file SMALL, all N inside one call of C
//	view           f.View of the same
//	open, names    libst: open the file LARGE; the same, and list the names
//	json, json-names     readHeader of LARGE; the same, and list the names
//
//	bindings-bench WAY ROW FILE COUNT
//
// is a shot of reads.go. WAY: libst, mmap, pread; ROW: view, info, get, readinto, names, copy and copyinto of what is
// mapped, and each with -again.
package main

/*
#cgo pkg-config: libst
#include <st/st.h>

static void nothing(void) {}

static st_status get_many(st_file *file, const char *name, size_t length, long n) {
  st_status status = ST_OK;
  st_tensor tensor;
  while (n-- > 0 && status == ST_OK) status = st_get(file, name, length, &tensor);
  return status;
}
*/
import "C"

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"libst/st"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

var seen int // so that nothing is left out

func main() {
	if len(os.Args) == 5 {
		shot(os.Args[1], os.Args[2], os.Args[3], must(strconv.Atoi(os.Args[4])))
		return
	}
	if len(os.Args) != 4 {
		log.Fatal("bindings-bench SMALL NAME LARGE")
	}
	small, name, large := os.Args[1], os.Args[2], os.Args[3]
	file := must(st.Open(small, nil))

	var raw *C.st_file
	cPath, cName := C.CString(small), C.CString(name)
	if status := C.st_open(cPath, nil, &raw); status != C.ST_OK {
		log.Fatal(C.GoString(C.st_last_error()))
	}

	works := map[string]func(n int){
		"empty": func(n int) {
			for range n {
				C.nothing()
			}
		},
		"c": func(n int) {
			if C.get_many(raw, cName, C.size_t(len(name)), C.long(n)) != C.ST_OK {
				log.Fatal(C.GoString(C.st_last_error()))
			}
		},
		"view": func(n int) {
			for range n {
				t, err := file.View(name)
				if err != nil {
					log.Fatal(err)
				}
				seen += len(t.Data)
			}
		},
		"open": func(n int) {
			for range n {
				must(st.Open(large, nil)).Close()
			}
		},
		"names": func(n int) {
			for range n {
				f := must(st.Open(large, nil))
				seen += len(must(f.Names()))
				f.Close()
			}
		},
		"json": func(n int) {
			for range n {
				seen += len(must(readHeader(large)))
			}
		},
		"json-names": func(n int) {
			for range n {
				seen += len(names(must(readHeader(large))))
			}
		},
	}
	var what string
	var n int
	for {
		if read, _ := fmt.Scanln(&what, &n); read != 2 {
			return
		}
		begin := time.Now()
		works[what](n)
		fmt.Println(time.Since(begin).Nanoseconds())
	}
}
