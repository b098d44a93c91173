/* What Go cannot say itself: callbacks of the call that runs on this thread, and calls that are worth a function of
 * their own. It keeps no pointer to Go's memory when a call is over. */
#ifndef LIBST_GO_BRIDGE_H
#define LIBST_GO_BRIDGE_H

#include <st/st.h>
#include <stdbool.h>

/* Whether so much memory can be had. */
bool stgo_has_memory(size_t n);

/* The call that this thread makes. In Go's memory; without pointers. */
typedef struct stgo_call {
  int32_t cancelled; /* set by any thread: the next progress callback stops the call */
  uint32_t hooks;    /* STGO_...: what Go wants to be told of */
  uintptr_t handle;  /* a cgo.Handle; 0 if Go wants to be told of nothing */
} stgo_call;
#define STGO_PROGRESS 1u
#define STGO_LOG 2u
#define STGO_REPORT 4u

/* Make `call` (NULL: none) the one of this thread; answers the one before. */
stgo_call *stgo_enter(stgo_call *call);

/* The callbacks in every option struct. They pass on to this thread's call; `user` is not looked at. */
int stgo_on_progress(void *user, uint64_t done, uint64_t total);
void stgo_on_log(void *user, uint32_t level, const char *message);
int stgo_on_report(void *user, const st_report *report);

/* As st_open_source; `reader` is a cgo.Handle. */
st_status stgo_open_source(const st_source *source, uintptr_t reader, const st_open_options *opts, st_file **out);

/* As st_open_memory, st_read, st_read_slice and st_writer_write, of bytes whose pointer cgo need not look behind.
 * They may call Go back; stgo_read and stgo_read_slice do not. */
st_status stgo_open_bytes(const uint8_t *bytes, size_t size, st_file **out);
st_status stgo_read_bytes(st_file *file, const char *name, size_t name_len, uint8_t *dst, size_t dst_size,
                          st_tensor *read);
st_status stgo_read_slice_bytes(st_file *file, const char *name, size_t name_len, const st_range *ranges, size_t n,
                                uint8_t *dst, size_t dst_size);
st_status stgo_write_bytes(st_writer *writer, const char *name, size_t name_len, const uint8_t *data, uint64_t nbytes);

/* An st_tensor *, of a type whose pointer cgo need not look behind for pointers. */
typedef uint64_t *stgo_tensor;

/* As st_get, but on failure `out` stays without a name: cgo takes longer for a function that answers something. Apart,
 * because Go is told that it does not call Go back. This is true where the thread has no call (stgo_enter). */
void stgo_view(st_file *file, const char *name, size_t name_len, stgo_tensor out);

/* As st_describe, in the same way. */
void stgo_describe(st_file *file, const char *name, size_t name_len, stgo_tensor out);

/* What is known in Go of a tensor: one line of a processor's cache. */
typedef struct stgo_known {
  uint32_t name, name_len; /* where its name begins in what st_names answers */
  uint32_t dtype, rank;
  uint64_t shape[4]; /* of more dimensions, nothing */
  uint64_t nbytes, file_offset;
} stgo_known;

/* As st_at, of a pin. *name is where the first one's name begins, and then where the next one's would. */
st_status stgo_known_at(st_file *pin, size_t first, size_t n, uint32_t *name, stgo_known *out);

/* As st_read of a pin; *size is that of the tensor, also where dst_size is less. Calls Go back as little as stgo_view.
 */
st_status stgo_read(st_file *pin, const char *name, size_t name_len, uint8_t *dst, size_t dst_size, uint64_t *size);

/* The same of what `file` shows now. */
st_status stgo_read_now(st_file *file, const char *name, size_t name_len, uint8_t *dst, size_t dst_size,
                        uint64_t *size);

/* What a part of a tensor is; `rank` is more than `shape` has room for if this is not told. */
typedef struct stgo_slice {
  uint64_t shape[8], nbytes;
  uint32_t dtype, rank;
} stgo_slice;

/* As st_describe and st_slice_shape of a pin. Calls Go back as little as stgo_view. */
void stgo_slice_shape(st_file *pin, const char *name, size_t name_len, const st_range *ranges, size_t n,
                      stgo_slice *out);

/* As st_read_slice. Calls Go back as little as stgo_view. */
st_status stgo_read_slice(st_file *pin, const char *name, size_t name_len, const st_range *ranges, size_t n,
                          uint8_t *dst, size_t dst_size);

/* Names and shapes live in one state of a file. A pin (st_snapshot) keeps this state until it is closed. So the file's
 * own handle gives out no pointers, and keeps no state for their sake.
 *
 * What a file has under a name, but for the name. If `shape` has room for it, the shape is copied there and *pin is
 * NULL; else *pin holds it, and the caller closes the pin. Calls Go back as little as stgo_view. */
st_status stgo_info(st_file *file, const char *name, size_t name_len, uint64_t *shape, uint32_t capacity, st_file **pin,
                    st_tensor *out);

#endif
