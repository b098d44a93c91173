//go:build libst_beside

package st

// The libst that lies in the module's folder: `bash tests/dist.sh go` packs a module that has one. A program finds it there, or
// beside itself.

// #cgo CFLAGS: -I${SRCDIR}/include
// #cgo linux,amd64 LDFLAGS: -L${SRCDIR}/lib/linux_amd64 -l:libst.so.2 -Wl,-rpath,$ORIGIN -Wl,-rpath,${SRCDIR}/lib/linux_amd64
// #cgo linux,arm64 LDFLAGS: -L${SRCDIR}/lib/linux_arm64 -l:libst.so.2 -Wl,-rpath,$ORIGIN -Wl,-rpath,${SRCDIR}/lib/linux_arm64
import "C"
