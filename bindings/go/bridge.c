#include "bridge.h"

#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

static _Thread_local stgo_call *current;

stgo_call *stgo_enter(stgo_call *call) {
  stgo_call *before = current;
  current = call;
  return before;
}

/* While Go's callback runs, calls that it makes itself are not this call. */
int stgo_on_progress(void *user, uint64_t done, uint64_t total) {
  stgo_call *call = current;
  int stop = 0;
  (void)user;
  if (!call) return 0;
  if (__atomic_load_n(&call->cancelled, __ATOMIC_RELAXED)) return 1;
  if (call->hooks & STGO_PROGRESS) {
    current = NULL;
    stop = stgoProgress(call->handle, done, total);
    current = call;
  }
  return stop;
}

void stgo_on_log(void *user, uint32_t level, const char *message) {
  stgo_call *call = current;
  (void)user;
  if (!call || !(call->hooks & STGO_LOG)) return;
  current = NULL;
  if (stgoLog(call->handle, level, (char *)message)) __atomic_store_n(&call->cancelled, 1, __ATOMIC_RELAXED);
  current = call;
}

int stgo_on_report(void *user, const st_report *report) {
  stgo_call *call = current;
  int stop;
  (void)user;
  if (!call) return 0;
  if (__atomic_load_n(&call->cancelled, __ATOMIC_RELAXED)) return 1;
  if (!(call->hooks & STGO_REPORT)) return 0;
  current = NULL;
  stop = stgoReport(call->handle, report->level, report->status, report->offset, (char *)report->message);
  current = call;
  return stop;
}

/* In any thread. */
static int on_read(void *user, const st_source_range *ranges, size_t n) {
  stgo_call *call = current;
  int answer;
  current = NULL;
  answer = stgoRead((uintptr_t)user, call ? call->handle : 0, (st_source_range *)ranges, n);
  current = call;
  return answer;
}

st_status stgo_open_source(const st_source *source, uintptr_t reader, const st_open_options *opts, st_file **out) {
  st_source given = *source;
  given.read = on_read;
  given.user = (void *)reader;
  return st_open_source(&given, opts, out);
}

st_status stgo_open_bytes(const uint8_t *bytes, size_t size, st_file **out) {
  return st_open_memory(bytes, size, out);
}

st_status stgo_read_bytes(st_file *file, const char *name, size_t name_len, uint8_t *dst, size_t dst_size,
                          st_tensor *read) {
  return st_read(file, name, name_len, dst, dst_size, read);
}

st_status stgo_read_slice_bytes(st_file *file, const char *name, size_t name_len, const st_range *ranges, size_t n,
                                uint8_t *dst, size_t dst_size) {
  return st_read_slice(file, name, name_len, ranges, n, dst, dst_size, NULL);
}

st_status stgo_write_bytes(st_writer *writer, const char *name, size_t name_len, const uint8_t *data, uint64_t nbytes) {
  return st_writer_write(writer, name, name_len, data, nbytes);
}

void stgo_view(st_file *file, const char *name, size_t name_len, stgo_tensor out) {
  (void)st_get(file, name, name_len, (st_tensor *)out);
}

void stgo_describe(st_file *file, const char *name, size_t name_len, stgo_tensor out) {
  (void)st_describe(file, name, name_len, (st_tensor *)out);
}

static stgo_known known_of(const st_tensor *t, uint32_t name) {
  stgo_known known = {name, (uint32_t)t->name_len, t->dtype, t->rank, {0}, t->nbytes, t->file_offset};
  const size_t size = t->rank * sizeof *t->shape;
  if (size > 0 && size <= sizeof known.shape) memcpy(known.shape, t->shape, size);
  return known;
}

st_status stgo_known_at(st_file *pin, size_t first, size_t n, uint32_t *name, stgo_known *out) {
  st_tensor found[32];
  while (n > 0) {
    const size_t part = n < sizeof found / sizeof *found ? n : sizeof found / sizeof *found;
    const st_status status = st_at(pin, first, part, found);
    if (status != ST_OK) return status;
    for (size_t i = 0; i < part; ++i) {
      out[i] = known_of(&found[i], *name);
      *name += out[i].name_len + 1;
    }
    out += part;
    first += part;
    n -= part;
  }
  return ST_OK;
}

st_status stgo_read(st_file *pin, const char *name, size_t name_len, uint8_t *dst, size_t dst_size, uint64_t *size) {
  st_tensor read;
  const st_status status = st_read(pin, name, name_len, dst, dst_size, &read);
  if (status == ST_OK || status == ST_E_BUFFER_SIZE) *size = read.nbytes;
  return status;
}

st_status stgo_read_now(st_file *file, const char *name, size_t name_len, uint8_t *dst, size_t dst_size,
                        uint64_t *size) {
  st_file *pin;
  st_status status = st_snapshot(file, &pin);
  if (status != ST_OK) return status;
  status = stgo_read(pin, name, name_len, dst, dst_size, size);
  st_close(pin); /* keeps the thread's last error */
  return status;
}

void stgo_slice_shape(st_file *pin, const char *name, size_t name_len, const st_range *ranges, size_t n,
                      stgo_slice *out) {
  const size_t room = sizeof out->shape / sizeof *out->shape;
  size_t rank;
  st_tensor whole;
  out->rank = UINT32_MAX;
  if (st_describe(pin, name, name_len, &whole) != ST_OK) return;
  if (st_slice_shape(pin, name, name_len, ranges, n, out->shape, room, &rank, &out->nbytes) != ST_OK) return;
  out->dtype = whole.dtype;
  out->rank = (uint32_t)rank;
}

st_status stgo_read_slice(st_file *pin, const char *name, size_t name_len, const st_range *ranges, size_t n,
                          uint8_t *dst, size_t dst_size) {
  return st_read_slice(pin, name, name_len, ranges, n, dst, dst_size, NULL);
}

st_status stgo_info(st_file *file, const char *name, size_t name_len, uint64_t *shape, uint32_t capacity, st_file **pin,
                    st_tensor *out) {
  st_status status = st_snapshot(file, pin);
  if (status != ST_OK) return status;
  status = st_describe(*pin, name, name_len, out);
  if (status == ST_OK && out->rank > capacity) return ST_OK;
  if (status == ST_OK && out->rank > 0) memcpy(shape, out->shape, out->rank * sizeof *shape);
  st_close(*pin);
  *pin = NULL;
  return status;
}

bool stgo_has_memory(size_t n) {
  void *volatile all = malloc(n); /* or the compiler leaves both calls out */
  free(all);
  return all != NULL;
}
