package st

/*
#include "bridge.h"
*/
import "C"

import (
	"context"
	"runtime"
	"unsafe"
)

// A ReadRequest is a tensor, or part of one, and where its bytes go.
type ReadRequest struct {
	Name   string
	Dst    []byte  // with room for all of it
	Ranges []Range // as for Slice; none: the whole tensor
}

// ReadMany copies all of them, in the order of the file whatever order they are given in: neighbours with one request,
// by as many threads as the storage likes. On an error the destinations hold any bytes.
func (f *File) ReadMany(requests []ReadRequest) error {
	return f.ReadManyContext(context.Background(), requests)
}

// ReadManyContext is ReadMany that ends with the context.
func (f *File) ReadManyContext(ctx context.Context, requests []ReadRequest) error {
	if len(requests) == 0 {
		return nil
	}
	// The requests point to Go's memory from Go's memory, so what they point to is pinned for the call.
	var pin runtime.Pinner
	defer pin.Unpin()
	all := make([]C.st_read_request, len(requests))
	for i := range requests {
		r, c := &requests[i], &all[i]
		c.name, c.name_len = chars(r.Name)
		c.dst, c.dst_size = first(r.Dst), C.size_t(len(r.Dst))
		pin.Pin(c.name)
		pin.Pin(c.dst)
		if len(r.Ranges) > 0 {
			c.ranges, c.range_count = rangesOf(r.Ranges)
			pin.Pin(c.ranges)
		}
	}
	return f.callContext(ctx, "read many", func() C.st_status {
		return C.st_read_many(f.h.c, &all[0], C.size_t(len(all)), nil, nil)
	})
}

// Prefetch brings tensors into memory, in file order and large requests, so that views of them do not wait for the
// storage. No names (nil) are all tensors, or this worker's part of them where WithWorker was given.
func (f *File) Prefetch(names []string) error {
	return f.PrefetchContext(context.Background(), names)
}

// PrefetchContext is Prefetch that ends with the context.
func (f *File) PrefetchContext(ctx context.Context, names []string) error {
	return f.bulk(ctx, "prefetch", &f.hooks, names, func(pin *C.st_file, indices *C.uint64_t, n C.size_t) C.st_status {
		return C.st_prefetch_at(pin, indices, n, nil, nil)
	})
}

// Load reads tensors into one block of memory that the file owns until Close, or until it was replaced and nothing views
// it any more. View then answers views into it, which no truncation of the file can make fault. No names (nil) are all
// tensors.
func (f *File) Load(names []string, opts ...LoadOption) error {
	return f.LoadContext(context.Background(), names, opts...)
}

// LoadContext is Load that ends with the context.
func (f *File) LoadContext(ctx context.Context, names []string, opts ...LoadOption) error {
	config := loadConfig{hooks: f.hooks}
	C.st_load_options_init(&config.c, C.sizeof_st_load_options)
	for _, o := range opts {
		o.toLoad(&config)
	}
	return f.bulk(ctx, "load", &config.hooks, names, func(pin *C.st_file, indices *C.uint64_t, n C.size_t) C.st_status {
		return C.st_load(pin, indices, n, &config.c)
	})
}

// bulk makes a call for tensors by their indices, since names may hold NUL; on a pin, which they are indices of.
func (f *File) bulk(ctx context.Context, op string, h *hooks, names []string, call func(*C.st_file, *C.uint64_t, C.size_t) C.st_status) error {
	if names != nil && len(names) == 0 {
		return nil
	}
	return f.pinned(ctx, op, func(pin *C.st_file) error {
		var indices []C.uint64_t // NULL for all
		return run(ctx, op, h, func() C.st_status {
			for _, name := range names {
				p, n := chars(name)
				var i C.size_t
				if status := C.st_find(pin, p, n, &i); status != C.ST_OK {
					return status
				}
				indices = append(indices, C.uint64_t(i))
			}
			return call(pin, unsafe.SliceData(indices), C.size_t(len(indices)))
		})
	})
}
