package st

/*
#include "bridge.h"
*/
import "C"

import (
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
func (f *File) ReadMany(requests []ReadRequest, opts *BulkOptions) error {
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
		c.dst, c.dst_size = unsafe.Pointer(first(r.Dst)), C.size_t(len(r.Dst))
		pin.Pin(c.name)
		pin.Pin(c.dst)
		if len(r.Ranges) > 0 {
			c.ranges, c.range_count = rangesOf(r.Ranges)
			pin.Pin(c.ranges)
		}
	}
	o := given(opts)
	options := o.c()
	return f.watchedBy(o.Progress).call("read many", func() C.st_status {
		// No &all[0]: cgo would then look behind what the requests point to, too.
		return C.st_read_many(f.h.c, unsafe.SliceData(all), C.size_t(len(all)), &options)
	})
}

// Prefetch brings tensors into memory, in file order and large requests, so that views of them do not wait for the
// storage. No names (nil) are all tensors, or this worker's part of them where Options.WorkerCount was given.
func (f *File) Prefetch(names []string, opts *BulkOptions) error {
	return f.bulk("prefetch", names, opts, func(pin *C.st_file, indices *C.size_t, n C.size_t, o *C.st_bulk_options) C.st_status {
		return C.st_prefetch(pin, indices, n, o)
	})
}

// Load reads tensors into one block of memory that the file owns until Close, or until it was replaced and nothing views
// it any more. View then answers views into it, which no truncation of the file can make fault. No names (nil) are all
// tensors. Views under MapCopyOnWrite stay where they are, with what was written into them: their pages become this
// process's own instead, and a truncation makes them fault.
func (f *File) Load(names []string, opts *BulkOptions) error {
	return f.bulk("load", names, opts, func(pin *C.st_file, indices *C.size_t, n C.size_t, o *C.st_bulk_options) C.st_status {
		f.h.loaded.Store(true) // first, as its tensors become views one after the other
		return C.st_load(pin, indices, n, o)
	})
}

type bulkCall func(pin *C.st_file, indices *C.size_t, n C.size_t, o *C.st_bulk_options) C.st_status

// bulk makes a call for tensors by their indices, on a pin, which they are indices of.
func (f *File) bulk(op string, names []string, opts *BulkOptions, call bulkCall) error {
	if names != nil && len(names) == 0 {
		return nil
	}
	o := given(opts)
	options := o.c()
	f = f.watchedBy(o.Progress)
	return f.pinned(op, func(pin *C.st_file) error {
		var indices []C.size_t // NULL for all
		return f.run(op, func() C.st_status {
			if status := openFilesOf(pin, names); status != C.ST_OK {
				return status
			}
			for _, name := range names {
				p, n := chars(name)
				var i C.size_t
				if status := C.st_find(pin, p, n, &i); status != C.ST_OK {
					return status
				}
				indices = append(indices, i)
			}
			return call(pin, unsafe.SliceData(indices), C.size_t(len(indices)), &options)
		})
	})
}

// openFilesOf opens the shards of a URL that have these tensors, side by side. Calls for one tensor would wait one by one.
func openFilesOf(pin *C.st_file, names []string) C.st_status {
	if len(names) == 0 || C.st_shard_count(pin) == 1 {
		return C.ST_OK
	}
	var held runtime.Pinner
	defer held.Unpin()
	requests := make([]C.st_read_request, len(names)) // without room
	for i, name := range names {
		requests[i].name, requests[i].name_len = chars(name)
		held.Pin(requests[i].name)
	}
	status := C.st_read_many(pin, unsafe.SliceData(requests), C.size_t(len(requests)), nil)
	if status == C.ST_E_BUFFER_SIZE { // which is told after the opens
		return C.ST_OK
	}
	return status
}

// watchedBy is the file for a call with a progress of its own; nil: the file's.
func (f *File) watchedBy(progress Progress) *File {
	if progress == nil {
		return f
	}
	watched := *f
	watched.hooks.progress = progress
	watched.end(f.ctx)
	return &watched
}
