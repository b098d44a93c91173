package st

/*
#include "bridge.h"
*/
import "C"

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// A table is the catalogue of one state in Go's memory. A look-up there needs no call of C, which costs as much as the
// look-up. It takes some 80 bytes a tensor beside the names, and has no pointers for the collector to follow.
//
// A table is right for as long as its handle shows that state. So only a steady handle has one, and what changes the state
// (Refresh) or ends the views of it (Release, Close) drops the table. It is of one file, because to describe the
// tensors of a sharded checkpoint would open every shard.
type table struct {
	state *handle // what it was made of
	seed  maphash.Seed
	slots []slot // open addressing
	all   []C.stgo_known
	names string   // of all, each with its NUL: the text that the state keeps
	more  []uint64 // the shapes that stgo_known has no room for; its own begins with the place here

	// Where the file's first byte is mapped; nil where views may lie elsewhere. It lives as long as `state`, and once the
	// state was lent to a view of the handle also until Release.
	mapping unsafe.Pointer
	lent    atomic.Bool
}

// A slot says where the name lies, as what is known does: so a processor fetches the name and what is known at the same
// time, and not one after the other.
type slot struct {
	hash  uint32 // its upper half
	known uint32 // index + 1; 0 of an empty slot
	name  uint32
}

// known is the table of what the handle shows; nil if there is none, or not yet, or if the context has ended. A look-up
// there makes no call of C, so the file's callbacks make no difference to it.
func (f *File) known() *table {
	if !f.plain && f.ctx.Err() != nil {
		return nil
	}
	if t := f.h.table.Load(); t != nil || !f.h.steady || f.h.patience.Add(-1) != 0 {
		return t
	}
	f.learn()
	return f.h.table.Load()
}

// wait puts a table off until as many look-ups went without one as there are tensors. They took longer than it takes to
// make the table. A program that looks at each tensor once needs none. For an open handle.
func (h *handle) wait() {
	if h.steady {
		h.patience.Store(16 + int64(C.st_count(h.c)))
	}
}

// learn makes the table by calls of C, which are the file's as others are: its callbacks hear of them, and its context
// ends them. The look-up that learns goes without a table where this fails, and later look-ups try again.
func (f *File) learn() {
	err := f.run("info", func() C.st_status { return f.h.learn(f.ctx) })
	if err != nil && f.h.acquire() {
		f.h.wait()
		f.release()
	}
}

func (h *handle) learn(ctx context.Context) C.st_status {
	state := h.shown()
	if state == nil {
		return C.ST_OK
	}
	defer state.release()
	t, status := tableOf(ctx, state)
	if t == nil {
		return status
	}
	if !h.ofBytes() {
		t.findMapping()
	}
	if h.loaded.Load() { // what was found may be what was loaded
		t.mapping = nil
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.state.Load() == state { // not superseded meanwhile
		h.table.Store(t)
	}
	return C.ST_OK
}

// tableOf is nil on an error, and of shards.
func tableOf(ctx context.Context, state *handle) (*table, C.st_status) {
	if C.st_shard_count(state.c) != 1 {
		return nil, C.ST_OK
	}
	count := int(C.st_count(state.c))
	t := &table{
		state: state,
		seed:  maphash.MakeSeed(), // whoever wrote the file must not know which names collide
		slots: make([]slot, 1<<bits.Len(uint(count+count/3))),
		all:   make([]C.stgo_known, count),
	}
	names, status := state.fetchNames()
	if status != C.ST_OK {
		return nil, status
	}
	t.names = *names
	var name C.uint32_t
	for at := 0; at < count; at += batch {
		if ctx.Err() != nil { // the calls below are too short to find out
			return nil, C.ST_E_CANCELLED
		}
		n := min(count-at, batch)
		if status := C.stgo_known_at(state.c, C.size_t(at), C.size_t(n), &name, &t.all[at]); status != C.ST_OK {
			return nil, status
		}
		for i := at; i < at+n; i++ {
			if status := t.add(i); status != C.ST_OK {
				return nil, status
			}
		}
	}
	return t, C.ST_OK
}

// add puts a tensor into the slots, and a long shape where there is room for it.
func (t *table) add(i int) C.st_status {
	known := &t.all[i]
	hash := maphash.String(t.seed, t.name(known))
	at := t.first(hash)
	for t.slots[at].known != 0 {
		at = t.next(at)
	}
	t.slots[at] = slot{uint32(hash >> 32), uint32(i + 1), uint32(known.name)}
	if known.rank <= C.uint32_t(len(known.shape)) {
		return C.ST_OK
	}
	var found C.st_tensor
	status := C.st_at(t.state.c, C.size_t(i), 1, &found)
	if status == C.ST_OK {
		known.shape[0] = C.uint64_t(len(t.more))
		t.more = append(t.more, shapeHere(&found)...)
	}
	return status
}

func (t *table) name(of *C.stgo_known) string { return t.names[of.name:][:of.name_len] }

func (t *table) shape(of *C.stgo_known) []uint64 {
	if of.rank > C.uint32_t(len(of.shape)) {
		begin, end := uint64(of.shape[0]), uint64(of.shape[0])+uint64(of.rank)
		return t.more[begin:end:end]
	}
	return unsafe.Slice((*uint64)(&of.shape[0]), int(of.rank))
}

func (t *table) first(hash uint64) uint64 { return hash & uint64(len(t.slots)-1) }
func (t *table) next(at uint64) uint64    { return (at + 1) & uint64(len(t.slots)-1) }

// find answers nil if there is no tensor of that name. Nobody writes to what it answers.
func (t *table) find(name string) *C.stgo_known {
	hash := maphash.String(t.seed, name)
	for at := t.first(hash); ; at = t.next(at) {
		slot := &t.slots[at]
		if slot.known == 0 {
			return nil
		}
		if slot.hash != uint32(hash>>32) {
			continue
		}
		known := &t.all[slot.known-1]
		if int(known.name_len) == len(name) && t.names[slot.name:][:len(name)] == name {
			return known
		}
	}
}

// describe answers a description with a Shape of its own, so that a write to it changes nothing here. False if there is
// no tensor of that name.
func (t *table) describe(h *handle, name string, info *Info) bool {
	found := t.find(name)
	if found == nil {
		return false
	}
	info.Name, info.DType, info.Shape = t.name(found), DType(found.dtype), h.shapes.clone(t.shape(found))
	info.Size, info.Offset = uint64(found.nbytes), uint64(found.file_offset)
	return true
}

// findMapping asks a pin of the state, so that the handle need not keep the state.
func (t *table) findMapping() {
	c := C.st_io_info{struct_size: C.uint32_t(C.sizeof_st_io_info)}
	if C.st_file_io_info(t.state.c, &c) != C.ST_OK || c._map != C.ST_MAP_SHARED && c._map != C.ST_MAP_PRIVATE {
		return
	}
	for i := range t.all {
		if t.all[i].nbytes == 0 {
			continue
		}
		p, n := chars(t.name(&t.all[i]))
		var view C.st_tensor
		if C.st_get(t.state.c, p, n, &view) == C.ST_OK {
			t.mapping = unsafe.Add(view.data, -int(t.all[i].file_offset))
		}
		return
	}
}

func (t *table) data(of *C.stgo_known) []byte {
	if of.nbytes == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(unsafe.Add(t.mapping, uint64(of.file_offset))), uint64(of.nbytes))
}

// showsViews says whether views may be answered from the table: the handle keeps their mapping, and none of its tensors
// was loaded into other memory.
func (t *table) showsViews(h *handle) bool { return t != nil && t.lent.Load() && !h.loaded.Load() }

// noteLent is told of a view of the handle, which has lent the state that the view is of. Is that the table's?
func (t *table) noteLent(h *handle, view *C.st_tensor) {
	if t == nil || t.mapping == nil || view.nbytes == 0 || h.loaded.Load() || !t.state.acquire() {
		return
	}
	// The state is held here, so its mapping is, and no other state's can be in its place.
	if view.data == unsafe.Add(t.mapping, uint64(view.file_offset)) {
		t.lent.Store(true)
	}
	t.state.release()
}
