package st

// #include "bridge.h"
import "C"

// Verify checks a file against every rule of the format and reads all its bytes once. It answers the first error found;
// VerifyOptions.Report tells of each.
func Verify(path string, opts *VerifyOptions) error {
	o := given(opts)
	c, paths := o.c(), append([]string{path}, o.Deltas...)
	return withPaths(o.Context, "verify", paths, &hooks{progress: o.Progress, report: o.Report}, func(p []*C.char) C.st_status {
		layers := newPaths(p[1:])
		defer layers.free()
		c.deltas, c.delta_count = layers.c, C.size_t(layers.n)
		return C.st_verify(p[0], &c)
	})
}

// Recover finishes or drops what crashed writers left beside a file, as Open does. It may be called at any time, again,
// and by many processes.
func Recover(path string, opts *RecoverOptions) error {
	o := given(opts)
	if err := checkTimeout("recover", o.LockTimeout); err != nil {
		return err
	}
	c := o.c()
	return withPath(o.Context, "recover", path, &hooks{progress: o.Progress, report: o.Report}, func(p *C.char) C.st_status {
		return C.st_recover(p, &c)
	})
}

// Compact rewrites a file in canonical order, with its data at 64 or CompactOptions.Alignment, and with no spare room but
// CompactOptions.HeaderReserve; on xfs and btrfs less than a block more, where that lets blocks be shared. Readers see the
// old file or the new one, whole. Shards are rewritten one after the other: a failure, or a cancel, leaves those that are
// done.
func Compact(path string, opts *CompactOptions) error {
	o := given(opts)
	if err := checkTimeout("compact", o.LockTimeout); err != nil {
		return err
	}
	c := o.c()
	return withPath(o.Context, "compact", path, &hooks{progress: o.Progress}, func(p *C.char) C.st_status {
		return C.st_compact(p, &c)
	})
}
