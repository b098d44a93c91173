package st

/*
#include "bridge.h"
*/
import "C"

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
	if !f.h.acquire() {
		return nil, closedError("snapshot")
	}
	defer f.release() // after the snapshot has its share of what C borrows, which a Close would let go
	h := &handle{snapshot: true, steady: true, loaded: f.h.loaded}
	opened := false
	defer func() {
		if !opened && h.c != nil { // a callback panicked
			C.st_close(h.c)
		}
	}()
	if err := f.run("snapshot", func() C.st_status { return C.st_snapshot(f.h.c, &h.c) }); err != nil {
		return nil, err
	}
	opened = true
	h.held = f.h.held.share()
	return newFile(h, f.ctx, f.hooks, f.path), nil
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
	f.h.supersede() // its table says that views are kept
	f.net.mutex.Lock()
	defer f.net.mutex.Unlock()
	if f.net.viewed.Swap(false) && !f.h.closed() {
		f.net.cleanup = newCleanup(f.net, f.h)
	}
}

// shown is a pin of what a steady handle shows, acquired, so that calls need not make one each; nil where they must. It
// stays until Refresh.
func (h *handle) shown() *handle {
	if state := h.state.Load(); state != nil && state.acquire() {
		return state
	}
	if !h.steady || !h.acquire() {
		return nil
	}
	defer h.release()
	h.mutex.Lock() // so that nothing is kept that Refresh has superseded meanwhile
	defer h.mutex.Unlock()
	state := h.state.Load()
	if state == nil && !h.closed() {
		state = &handle{}
		if C.st_snapshot(h.c, &state.c) != C.ST_OK {
			return nil // no memory: the call that makes its own says so
		}
		state.held = h.held.share()
		h.state.Store(state)
	}
	if state == nil || !state.acquire() {
		return nil
	}
	return state
}

// supersede lets go of that pin, once the calls that use it are over, and of the table. For an open handle.
func (h *handle) supersede() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.table.Store(nil)
	h.wait()
	if state := h.state.Swap(nil); state != nil {
		state.close(false)
	}
}

// pinned makes calls that belong together, on one state of the file: what one of them describes is what the next one reads,
// whatever other goroutines commit. Names, shapes and strings are copied before it ends.
func (f *File) pinned(op string, use func(pin *C.st_file) error) error {
	if state := f.h.shown(); state != nil {
		defer f.done(state)
		return use(state.c)
	}
	if !f.h.acquire() {
		return closedError(op)
	}
	defer f.release()
	var pin *C.st_file
	defer func() {
		if pin != nil { // also if a callback panicked
			C.st_close(pin)
		}
	}()
	if err := f.run(op, func() C.st_status { return C.st_snapshot(f.h.c, &pin) }); err != nil {
		return err
	}
	return use(pin)
}

// pinTensor is pinned for calls about one tensor, which is there.
func (f *File) pinTensor(op, name string, use func(pin *C.st_file, t *C.st_tensor) error) error {
	return f.pinned(op, func(pin *C.st_file) error {
		p, n := chars(name)
		var t C.st_tensor
		if err := f.run(op, func() C.st_status { return C.st_describe(pin, p, n, &t) }); err != nil {
			return err
		}
		return use(pin, &t)
	})
}
