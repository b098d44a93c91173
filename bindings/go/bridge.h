/* What Go cannot say itself: callbacks of the call that runs on this thread, and
 * structs that hold pointers to Go's memory, which are therefore built in C. It
 * keeps no pointer to Go's memory when a call is over. */
#ifndef LIBST_GO_BRIDGE_H
#define LIBST_GO_BRIDGE_H

#include <st/st.h>

/* The call that this thread makes. In Go's memory; without pointers. */
typedef struct stgo_call {
  int32_t cancelled; /* set by any thread: the next progress callback stops the call */
  uint32_t hooks;    /* STGO_PROGRESS, STGO_LOG: what Go wants to be told of */
  uintptr_t handle;  /* a cgo.Handle */
} stgo_call;
#define STGO_PROGRESS 1u
#define STGO_LOG 2u

/* Make `call` (NULL: none) the one of this thread; answers the one before. */
stgo_call *stgo_enter(stgo_call *call);

/* Give these options the callbacks that pass on to this thread's call. */
void stgo_hook_open(st_open_options *options);
void stgo_hook_txn(st_txn_options *options);
void stgo_hook_save(st_save_options *options);
void stgo_hook_verify(st_verify_options *options);
void stgo_hook_diff(st_diff_options *options);
void stgo_hook_patch(st_patch_options *options);
void stgo_hook_recover(st_recover_options *options);

/* An st_tensor *, of a type whose pointer cgo need not look behind for pointers. */
typedef uint64_t *stgo_tensor;

/* As st_get_n. Apart, because Go is told that it does not call Go back, which is true where the thread has no call
 * (stgo_enter). */
st_status stgo_view(st_file *file, const char *name, size_t name_len, stgo_tensor out);

/* Names and shapes live in one state of a file. A pin (st_snapshot) keeps that state until it is closed, so that a
 * handle is asked for none of them, and keeps no state for their sake.
 *
 * A pin, and what it has under a name. NULL on failure. */
st_status stgo_pin_tensor(st_file *file, const char *name, size_t name_len, st_file **pin, st_tensor *out);
/* Close it; *pin is NULL then. */
void stgo_unpin(st_file **pin);

/* What a file has under a name, but for the name: without a pin and with its shape in `shape`, where that has room;
 * else with a pin. Calls Go back as little as stgo_view. */
st_status stgo_info(st_file *file, const char *name, size_t name_len, uint64_t *shape, uint32_t capacity, st_file **pin,
                    st_tensor *out);

/* st_describe of a pin. Calls Go back as little as stgo_view. */
st_status stgo_describe(st_file *pin, const char *name, size_t name_len, stgo_tensor out);

/* st_read_n that answers the size; of a pin, or by one of its own. */
st_status stgo_read_pinned(st_file *pin, const char *name, size_t name_len, void *dst, size_t dst_size,
                           uint64_t *nbytes);
st_status stgo_read(st_file *file, const char *name, size_t name_len, void *dst, size_t dst_size, uint64_t *nbytes);

st_status stgo_update(st_file *file, const char *name, size_t name_len, st_dtype dtype, uint32_t rank,
                      const uint64_t *shape, const void *data, uint64_t nbytes);
st_status stgo_txn_update(st_txn *txn, const char *name, size_t name_len, st_dtype dtype, uint32_t rank,
                          const uint64_t *shape, const void *data, uint64_t nbytes);
st_status stgo_txn_put(st_txn *txn, const char *name, size_t name_len, st_dtype dtype, uint32_t rank,
                       const uint64_t *shape, const void *data, uint64_t nbytes);
st_status stgo_writer_put(st_writer *writer, const char *name, size_t name_len, st_dtype dtype, uint32_t rank,
                          const uint64_t *shape, const void *data, uint64_t nbytes);

/* st_patch; what the options would point at apart, since Go's memory may not. */
st_status stgo_patch(const char *base, const char *delta, const st_patch_options *options, const char *reverse,
                     st_plan *plan);

/* st_open and st_verify_with; the deltas apart, likewise. */
st_status stgo_open(const char *path, const st_open_options *options, const char *const *deltas, uint64_t delta_count,
                    st_file **out);
st_status stgo_verify(const char *path, const st_verify_options *options, const char *const *deltas,
                      uint64_t delta_count);

#endif
