#include "bridge.h"

#include <string.h>

#include "_cgo_export.h"

static _Thread_local stgo_call *current;

stgo_call *stgo_enter(stgo_call *call) {
  stgo_call *before = current;
  current = call;
  return before;
}

/* While Go's callback runs, calls that it makes itself are not this call. */
static int on_progress(void *user, uint64_t done, uint64_t total) {
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

static void on_log(void *user, uint32_t level, const char *message) {
  stgo_call *call = current;
  (void)user;
  if (!call || !(call->hooks & STGO_LOG)) return;
  current = NULL;
  stgoLog(call->handle, level, (char *)message);
  current = call;
}

static int on_report(void *user, const st_report *report) {
  stgo_call *call = current;
  int stop;
  (void)user;
  if (!call) return 0;
  if (__atomic_load_n(&call->cancelled, __ATOMIC_RELAXED)) return 1;
  current = NULL;
  stop = stgoReport(call->handle, report->level, report->status, report->offset, (char *)report->message);
  current = call;
  return stop;
}

void stgo_hook_open(st_open_options *options) {
  options->progress = on_progress;
  options->log = on_log;
}

void stgo_hook_txn(st_txn_options *options) {
  options->progress = on_progress;
}

void stgo_hook_save(st_save_options *options) {
  options->progress = on_progress;
}

void stgo_hook_verify(st_verify_options *options) {
  options->progress = on_progress;
  options->report = on_report;
}

void stgo_hook_recover(st_recover_options *options) {
  options->report = on_report;
}

st_status stgo_describe(st_file *file, const char *name, size_t name_len, st_tensor *out) {
  for (;;) { /* again where a commit or refresh of another thread gave the index to another tensor */
    size_t i;
    const st_status found = st_find(file, name, name_len, &i);
    if (found != ST_OK) return found;
    const st_status described = st_at(file, i, out);
    if (described == ST_E_OUT_OF_RANGE) continue;
    if (described != ST_OK || (out->name_len == name_len && !memcmp(out->name, name, name_len))) return described;
  }
}

st_status stgo_view(st_file *file, const char *name, size_t name_len, stgo_tensor out) {
  return st_get_n(file, name, name_len, (st_tensor *)out);
}

st_status stgo_read(st_file *file, const char *name, size_t name_len, void *dst, size_t dst_size, uint64_t *nbytes) {
  st_tensor tensor;
  const st_status found = stgo_describe(file, name, name_len, &tensor);
  if (found != ST_OK) return found;
  *nbytes = tensor.nbytes;
  return st_read_n(file, name, name_len, dst, dst_size);
}

static st_tensor tensor_of(st_dtype dtype, uint32_t rank, const uint64_t *shape, const void *data, uint64_t nbytes) {
  st_tensor value = {0};
  value.dtype = dtype;
  value.rank = rank;
  value.shape = shape;
  value.data = data;
  value.nbytes = nbytes;
  return value;
}

st_status stgo_update(st_file *file, const char *name, size_t name_len, st_dtype dtype, uint32_t rank,
                      const uint64_t *shape, const void *data, uint64_t nbytes) {
  const st_tensor value = tensor_of(dtype, rank, shape, data, nbytes);
  return st_update_n(file, name, name_len, &value);
}

st_status stgo_txn_update(st_txn *txn, const char *name, size_t name_len, st_dtype dtype, uint32_t rank,
                          const uint64_t *shape, const void *data, uint64_t nbytes) {
  const st_tensor value = tensor_of(dtype, rank, shape, data, nbytes);
  return st_txn_update_n(txn, name, name_len, &value);
}

st_status stgo_txn_put(st_txn *txn, const char *name, size_t name_len, st_dtype dtype, uint32_t rank,
                       const uint64_t *shape, const void *data, uint64_t nbytes) {
  const st_tensor value = tensor_of(dtype, rank, shape, data, nbytes);
  return st_txn_put_n(txn, name, name_len, &value);
}

st_status stgo_writer_put(st_writer *writer, const char *name, size_t name_len, st_dtype dtype, uint32_t rank,
                          const uint64_t *shape, const void *data, uint64_t nbytes) {
  st_tensor tensor = tensor_of(dtype, rank, shape, data, nbytes);
  tensor.name = name;
  tensor.name_len = name_len;
  return st_writer_put(writer, &tensor);
}
