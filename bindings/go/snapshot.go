package st

/*
#include "bridge.h"
*/
import "C"

import "context"

// Snapshot opens what the file shows now a second time, for reading only: the same tensors and metadata for as long as the
// Snapshot lives, whatever is published or refreshed meanwhile. (What is patched in place shows, as in any View.) It
// shares descriptor and mapping with the file, and costs next to nothing. Close it when done, before or after the file.
//
// So views of it live until it is closed, and it keeps what they lie in, and nothing else: of a file that is changed
// while its tensors are viewed, take a Snapshot for each round of views.
//
//	now, err := f.Snapshot()
//	...
//	defer now.Close()
//	w, err := now.View("w") // until now.Close, whatever f publishes
//
// All that reads works on it. What would change the file answers ErrReadOnly, and Refresh does nothing. Close of the
// Snapshot lets calls on it end; but Interrupt of either, and Close of the file, stop the calls that now run on both.
func (f *File) Snapshot() (*File, error) {
	h := &handle{snapshot: true}
	if err := f.call("snapshot", func() C.st_status { return C.st_snapshot(f.h.c, &h.c) }); err != nil {
		return nil, err
	}
	h.bytes = f.h.bytes.share()
	return newFile(h, f.hooks, f.path), nil
}

// Release says that nobody holds a View of this File any more. What it kept for their sake goes: mappings and descriptors
// of files that were replaced by what it published or refreshed, and those files' blocks on the disk. Snapshots keep what
// is theirs. Without a View since the last Release there is nothing to go. It must not run beside View on the same File;
// other calls may run.
func (f *File) Release() {
	if !f.h.acquire() {
		return
	}
	defer f.release()
	C.st_release(f.h.c)
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.viewed.Swap(false) && !f.h.closed() {
		f.cleanup = newCleanup(f)
	}
}

// pinned makes calls that belong together, on one state of the file: what one of them describes is what the next one reads,
// whatever other goroutines commit. Names, shapes and strings are copied before it ends.
func (f *File) pinned(ctx context.Context, op string, use func(pin *C.st_file) error) error {
	if !f.h.acquire() {
		return closedError(op)
	}
	defer f.release()
	var pin *C.st_file
	if err := run(ctx, op, &f.hooks, func() C.st_status { return C.st_snapshot(f.h.c, &pin) }); err != nil {
		return err
	}
	defer C.st_close(pin)
	return use(pin)
}

// pinTensor is pinned for calls about one tensor, which is there. The last of them may close the pin.
func (f *File) pinTensor(ctx context.Context, op, name string, use func(pin **C.st_file, t *C.st_tensor) error) error {
	if !f.h.acquire() {
		return closedError(op)
	}
	defer f.release()
	p, n := chars(name)
	var both struct {
		pin *C.st_file
		t   C.st_tensor
	}
	defer func() {
		if both.pin != nil {
			C.st_close(both.pin)
		}
	}()
	if err := run(ctx, op, &f.hooks, func() C.st_status {
		return C.stgo_pin_tensor(f.h.c, p, n, &both.pin, &both.t)
	}); err != nil {
		return err
	}
	return use(&both.pin, &both.t)
}
