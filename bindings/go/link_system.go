//go:build !libst_beside

package st

// The libst of the system, or of the prefix that PKG_CONFIG_PATH names.

// #cgo pkg-config: libst
import "C"
