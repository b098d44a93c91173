package st

/*
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"context"
	"strings"
	"unsafe"
)

// Shards are the absolute paths of the files that this File stands for: one, or those that an index of shards names, in
// the order of Info's Shard. nil for a file in memory, and after Close.
func (f *File) Shards() []string {
	var paths []string
	_ = f.pinned(context.Background(), "shards", func(pin *C.st_file) error {
		return run(context.Background(), "shards", &f.hooks, func() C.st_status {
			for i := range C.st_shard_count(pin) {
				var path *C.char
				if status := C.st_shard_path(pin, i, &path); status != C.ST_OK {
					paths = nil
					return status
				}
				paths = append(paths, C.GoString(path))
			}
			return C.ST_OK
		})
	})
	return paths
}

// Reshard writes a checkpoint into a folder as shards of at most maxShardSize bytes of tensors, with their index, named as
// Hugging Face names them. from is anything that Open takes; it is not changed. The index comes last; on failure what was
// written is removed. A folder that holds a checkpoint already is ErrInvalidArgument. Metadata options are not used.
func Reshard(from, toFolder string, maxShardSize uint64, opts ...SaveOption) error {
	return ReshardContext(context.Background(), from, toFolder, maxShardSize, opts...)
}

// ReshardContext is Reshard that ends with the context.
func ReshardContext(ctx context.Context, from, toFolder string, maxShardSize uint64, opts ...SaveOption) error {
	return reshape(ctx, "reshard", from, toFolder, opts, func(f, t *C.char, c *C.st_save_options) C.st_status {
		return C.st_reshard(f, t, C.uint64_t(maxShardSize), c)
	})
}

// Join writes a checkpoint, sharded or not, as one file. Metadata options are not used.
func Join(from, to string, opts ...SaveOption) error {
	return JoinContext(context.Background(), from, to, opts...)
}

// JoinContext is Join that ends with the context.
func JoinContext(ctx context.Context, from, to string, opts ...SaveOption) error {
	return reshape(ctx, "join", from, to, opts, func(f, t *C.char, c *C.st_save_options) C.st_status {
		return C.st_join(f, t, c)
	})
}

func reshape(ctx context.Context, op, from, to string, opts []SaveOption, call func(f, t *C.char, c *C.st_save_options) C.st_status) error {
	if strings.IndexByte(from, 0) >= 0 {
		return argumentError(op, "a path holds no NUL")
	}
	config := newSaveConfig(opts)
	f := C.CString(from)
	defer C.free(unsafe.Pointer(f))
	return withPath(ctx, op, to, &config.hooks, func(t *C.char) C.st_status { return call(f, t, &config.c) })
}
