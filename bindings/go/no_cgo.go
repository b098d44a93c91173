//go:build !cgo

package st

// The compiler prints this line where cgo is off, and it has nothing else of the package to complain about.
var _ int = "libst/st needs cgo: build with CGO_ENABLED=1 and a C compiler, natively or with CC set to one for the target"
