package st

/*
#include "bridge.h"
*/
import "C"

// Shards are the absolute paths of the files that this File stands for, in the order of Info's Shard: one file, or those
// that an index of shards names; and then the deltas that lie on them. nil for a file in memory and for a Source.
func (f *File) Shards() (paths []string, err error) {
	err = f.pinned("shards", func(pin *C.st_file) error {
		return f.run("shards", func() C.st_status {
			for i := range C.st_shard_count(pin) {
				var path *C.char
				if status := C.st_shard_path(pin, i, &path); status == C.ST_E_UNSUPPORTED {
					return C.ST_OK // it has no paths
				} else if status != C.ST_OK {
					return status
				}
				paths = append(paths, C.GoString(path))
			}
			return C.ST_OK
		})
	})
	if err != nil {
		return nil, err
	}
	return paths, nil
}

// Reshard writes a checkpoint into a folder as shards of at most maxShardSize bytes of tensors, with their index, named as
// Hugging Face names them. from is anything that Open takes; it is not changed. The index comes last; on failure what was
// written is removed. from is copied in one state: a writer that changes it meanwhile waits. A folder that holds a checkpoint
// already is ErrInvalidArgument. SaveOptions.Metadata is not used.
func Reshard(from, toFolder string, maxShardSize uint64, opts *SaveOptions) error {
	return reshape("reshard", from, toFolder, opts, func(f, t *C.char, c *C.st_save_options) C.st_status {
		return C.st_reshard(f, t, C.uint64_t(maxShardSize), c)
	})
}

// Join writes a checkpoint, sharded or not, as one file. SaveOptions.Metadata is not used.
func Join(from, to string, opts *SaveOptions) error {
	return reshape("join", from, to, opts, func(f, t *C.char, c *C.st_save_options) C.st_status {
		return C.st_join(f, t, c)
	})
}

func reshape(op, from, to string, opts *SaveOptions, call func(f, t *C.char, c *C.st_save_options) C.st_status) error {
	o := given(opts)
	if err := checkTimeout(op, o.LockTimeout); err != nil {
		return err
	}
	c := o.c()
	return withPaths(o.Context, op, []string{from, to}, &hooks{progress: o.Progress}, func(p []*C.char) C.st_status {
		return call(p[0], p[1], &c)
	})
}
