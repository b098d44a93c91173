package st

/*
#include <st/st.h>
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
)

// DType is an element type of the format. 0 is none. F4 packs two elements a byte, F6E2M3 and F6E3M2 four in three.
type DType uint32

// String is the name as in a file's header, such as "BF16"; "" for a number that is none.
func (d DType) String() string { return C.GoString(C.st_dtype_name(C.st_dtype(d))) }

// Bits is the size of an element: 4, 6, 8, 16, 32 or 64; 0 for a number that is none.
func (d DType) Bits() int { return int(C.st_dtype_bits(C.st_dtype(d))) }

// ParseDType finds the dtype of a name as in a file's header.
func ParseDType(name string) (DType, error) {
	p, n := chars(name)
	var d C.st_dtype
	err := run(context.Background(), "parse dtype", &hooks{}, func() C.st_status { return C.st_dtype_parse(p, n, &d) })
	return DType(d), err
}

// MarshalText gives the name, as JSON has it: "BF16".
func (d DType) MarshalText() ([]byte, error) {
	if name := d.String(); name != "" {
		return []byte(name), nil
	}
	return nil, &Error{Op: "marshal dtype", Status: ErrDType, Message: fmt.Sprintf("%d is no dtype", uint32(d)), Offset: -1}
}

// UnmarshalText is ParseDType.
func (d *DType) UnmarshalText(name []byte) error {
	parsed, err := ParseDType(string(name))
	if err == nil {
		*d = parsed
	}
	return err
}

// Version of the library that runs, such as "2.0.0".
func Version() string { return C.GoString(C.st_version()) }

// BuildInfo tells what the library that runs is made of, and what it finds here: lines of "name: value", for people and for
// reports of bugs. st_build_info in st.h tells which.
func BuildInfo() string {
	runtime.LockOSThread() // the text lives until this thread's next call
	defer runtime.UnlockOSThread()
	return C.GoString(C.st_build_info())
}
