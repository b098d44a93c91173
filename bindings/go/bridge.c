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

void stgo_hook_diff(st_diff_options *options) {
  options->progress = on_progress;
}

void stgo_hook_patch(st_patch_options *options) {
  options->progress = on_progress;
}

void stgo_hook_recover(st_recover_options *options) {
  options->report = on_report;
}

/* On failure there is no pin; st_close leaves the last error as it is. */
st_status stgo_pin_tensor(st_file *file, const char *name, size_t name_len, st_file **pin, st_tensor *out) {
  st_status status = st_snapshot(file, pin);
  if (status == ST_OK && (status = st_describe(*pin, name, name_len, out)) != ST_OK) stgo_unpin(pin);
  return status;
}

void stgo_unpin(st_file **pin) {
  st_close(*pin);
  *pin = NULL;
}

st_status stgo_info(st_file *file, const char *name, size_t name_len, uint64_t *shape, uint32_t capacity, st_file **pin,
                    st_tensor *out) {
  const st_status status = stgo_pin_tensor(file, name, name_len, pin, out);
  if (status != ST_OK || out->rank > capacity) return status;
  if (out->rank > 0) memcpy(shape, out->shape, out->rank * sizeof *shape);
  out->shape = shape;
  stgo_unpin(pin);
  return ST_OK;
}

st_status stgo_view(st_file *file, const char *name, size_t name_len, stgo_tensor out) {
  return st_get_n(file, name, name_len, (st_tensor *)out);
}

st_status stgo_describe(st_file *pin, const char *name, size_t name_len, stgo_tensor out) {
  return st_describe(pin, name, name_len, (st_tensor *)out);
}

st_status stgo_read_pinned(st_file *pin, const char *name, size_t name_len, void *dst, size_t dst_size,
                           uint64_t *nbytes) {
  st_tensor read;
  const st_status status = st_read_n(pin, name, name_len, dst, dst_size, &read);
  if (status == ST_OK) *nbytes = read.nbytes;
  return status;
}

st_status stgo_read(st_file *file, const char *name, size_t name_len, void *dst, size_t dst_size, uint64_t *nbytes) {
  st_file *pin;
  st_status status = st_snapshot(file, &pin);
  if (status != ST_OK) return status;
  status = stgo_read_pinned(pin, name, name_len, dst, dst_size, nbytes);
  st_close(pin);
  return status;
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

st_status stgo_patch(const char *base, const char *delta, const st_patch_options *given, const char *reverse,
                     st_plan *plan) {
  st_patch_options copy = *given, *options = &copy;
  options->reverse = reverse;
  options->plan = plan;
  return st_patch(base, delta, options);
}

st_status stgo_open(const char *path, const st_open_options *given, const char *const *deltas, uint64_t delta_count,
                    st_file **out) {
  st_open_options copy = *given, *options = &copy;
  options->deltas = deltas;
  options->delta_count = delta_count;
  return st_open(path, options, out);
}

st_status stgo_verify(const char *path, const st_verify_options *given, const char *const *deltas,
                      uint64_t delta_count) {
  st_verify_options copy = *given, *options = &copy;
  options->deltas = deltas;
  options->delta_count = delta_count;
  return st_verify_with(path, options);
}
