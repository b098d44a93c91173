/* The whole life of a file by the C ABI, in C99 and with nothing but libst:
 * written by stdio, opened, read, changed, recovered, closed. Every function of
 * st.h is called at least once (exports.sh checks that), and every answer is
 * looked at. Exits 0 if all is as it should be. */
#include <st/st.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32 /* whose remove() takes no folder */
#include <direct.h>
#define remove_folder _rmdir
#else
#define remove_folder remove
#endif

static int failures = 0;

#define CHECK(condition)                                                                                        \
  do {                                                                                                          \
    if (!(condition)) {                                                                                         \
      fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition, st_last_error()); \
      ++failures;                                                                                               \
    }                                                                                                           \
  } while (0)
#define CHECK_STATUS(wanted, call)                                                                                   \
  do {                                                                                                               \
    const st_status status_ = (call);                                                                                \
    if (status_ != (wanted)) {                                                                                       \
      fprintf(stderr, "%s:%d: %s is %s, not " #wanted " (%s)\n", __FILE__, __LINE__, #call, st_status_name(status_), \
              st_last_error());                                                                                      \
      ++failures;                                                                                                    \
    }                                                                                                                \
  } while (0)

static const char json[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"bias\":{\"dtype\":\"I16\",\"shape\":[3],\"data_offsets\":[24,30]}}  ";
static const float weight[6] = {0.0f, 1.0f, 2.0f, 10.0f, 11.0f, 12.0f};
static const int16_t bias[3] = {-1, 0, 1};
#define FILE_BYTES (8 + sizeof json - 1 + sizeof weight + sizeof bias)

static int write_file(const char *path) {
  unsigned char length[8] = {0};
  FILE *f = fopen(path, "wb");
  int ok;
  length[0] = (unsigned char)(sizeof json - 1);
  if (!f) return 0;
  ok = fwrite(length, 1, 8, f) == 8 && fwrite(json, 1, sizeof json - 1, f) == sizeof json - 1 &&
       fwrite(weight, 1, sizeof weight, f) == sizeof weight && fwrite(bias, 1, sizeof bias, f) == sizeof bias;
  return fclose(f) == 0 && ok;
}

static void catalogue(st_file *file) {
  st_tensor t, all[2];
  size_t i = 99, size = 0;
  char list[12];
  const char *key, *value;
  size_t key_len, value_len;
  CHECK(st_count(file) == 2);
  CHECK_STATUS(ST_OK, st_at(file, 0, 1, &t));
  CHECK(strcmp(t.name, "weight") == 0 && t.name_len == 6 && t.dtype == ST_DTYPE_F32 && t.rank == 2);
  CHECK(t.shape[0] == 2 && t.shape[1] == 3 && t.nbytes == 24 && t.data == NULL);
  CHECK(t.file_offset == 8 + sizeof json - 1);
  CHECK_STATUS(ST_OK, st_at(file, 0, 2, all));
  CHECK(memcmp(&all[0], &t, sizeof t) == 0 && strcmp(all[1].name, "bias") == 0);
  CHECK_STATUS(ST_E_OUT_OF_RANGE, st_at(file, 2, 1, &t));
  CHECK_STATUS(ST_OK, st_names(file, NULL, &size));
  CHECK(size == sizeof list);
  CHECK_STATUS(ST_OK, st_names(file, list, &size));
  CHECK(memcmp(list, "weight\0bias", sizeof list) == 0);
  CHECK_STATUS(ST_OK, st_find(file, "bias", 4, &i));
  CHECK(i == 1);
  CHECK_STATUS(ST_OK, st_describe(file, "weight!", 6, &t));
  CHECK(memcmp(&all[0], &t, sizeof t) == 0);
  CHECK_STATUS(ST_OK, st_describe(file, "bias", ST_NTS, &t));
  CHECK(memcmp(&all[1], &t, sizeof t) == 0);
  CHECK(st_metadata_count(file) == 1);
  CHECK_STATUS(ST_OK, st_metadata_at(file, 0, &key, &key_len, &value, &value_len));
  CHECK(strcmp(key, "format") == 0 && key_len == 6 && strcmp(value, "pt") == 0 && value_len == 2);
  CHECK_STATUS(ST_OK, st_metadata_get(file, "format", ST_NTS, &value, &value_len));
  CHECK_STATUS(ST_OK, st_metadata_get(file, "format!", 6, &value, &value_len));
  CHECK(strcmp(value, "pt") == 0);
  CHECK_STATUS(ST_E_NOT_FOUND, st_metadata_get(file, "absent", ST_NTS, &value, &value_len));
}

static void reading(st_file *file) {
  st_tensor t;
  float floats[6];
  int16_t shorts[3];
  uint64_t shape[2], nbytes;
  size_t rank;
  st_range columns[2] = {ST_RANGE_ALL, {0, 3, 2}};
  const st_range last = {-1, INT64_MAX, 1};
  CHECK_STATUS(ST_OK, st_get(file, "weight", ST_NTS, &t));
  CHECK(memcmp(t.data, weight, sizeof weight) == 0);
  CHECK_STATUS(ST_OK, st_get(file, "bias!", 4, &t));
  CHECK(memcmp(t.data, bias, sizeof bias) == 0);
  CHECK_STATUS(ST_OK, st_get_at(file, 1, &t));
  CHECK(strcmp(t.name, "bias") == 0 && t.data != NULL);
  CHECK_STATUS(ST_OK, st_read(file, "weight", ST_NTS, floats, sizeof floats, NULL));
  CHECK(memcmp(floats, weight, sizeof weight) == 0);
  CHECK_STATUS(ST_OK, st_read(file, "bias!", 4, shorts, sizeof shorts, NULL));
  CHECK(memcmp(shorts, bias, sizeof bias) == 0);
  CHECK_STATUS(ST_E_BUFFER_SIZE, st_read(file, "weight", ST_NTS, floats, sizeof floats - 1, &t));
  CHECK(strcmp(t.name, "weight") == 0 && t.nbytes == sizeof floats && t.data == NULL);
  CHECK_STATUS(ST_OK, st_slice_shape(file, "weight", 6, columns, 2, shape, 2, &rank, &nbytes));
  CHECK(shape[0] == 2 && shape[1] == 2 && rank == 2 && nbytes == 16);
  CHECK_STATUS(ST_OK, st_read_slice(file, "weight", ST_NTS, columns, 2, floats, sizeof floats, NULL));
  CHECK(floats[0] == 0.0f && floats[1] == 2.0f && floats[2] == 10.0f && floats[3] == 12.0f);
  CHECK_STATUS(ST_OK, st_read_slice(file, "bias!", 4, &last, 1, shorts, sizeof shorts, NULL));
  CHECK(shorts[0] == 1);
  CHECK_STATUS(ST_E_NOT_FOUND, st_get(file, "absent", ST_NTS, &t));
}

static void snapshots(st_file *file) {
  st_file *pin = NULL;
  st_mapping *kept = NULL;
  const void *data;
  size_t size;
  st_tensor here, there;
  CHECK_STATUS(ST_OK, st_snapshot(file, &pin));
  CHECK_STATUS(ST_OK, st_get(pin, "weight", ST_NTS, &here));
  CHECK_STATUS(ST_OK, st_get(file, "weight", ST_NTS, &there));
  CHECK(memcmp(&here, &there, sizeof here) == 0);
  st_release(file);
  CHECK(memcmp(here.data, weight, sizeof weight) == 0);
  const st_status keeps = st_mapping_keep(pin, &kept, &data, &size);
  CHECK(keeps == ST_OK || keeps == ST_E_UNSUPPORTED);
  st_close(pin);
  if (keeps == ST_OK) CHECK(size > sizeof weight && memcmp(here.data, weight, sizeof weight) == 0);
  st_mapping_free(kept);
}

static int count_call(void *user, uint64_t done, uint64_t total) {
  CHECK(done <= total || total == 0);
  ++*(int *)user;
  return 0;
}

static void bulk(st_file *file) {
  st_bulk_options options = {.struct_size = sizeof options};
  st_read_request requests[2];
  st_tensor t;
  float column[2];
  int16_t shorts[3];
  st_range first[2] = {ST_RANGE_ALL, {0, 1, 1}};
  const size_t indices[] = {1, 0}, outside = 2;
  int calls = 0;
  options.progress = count_call;
  options.progress_user = &calls;
  memset(requests, 0, sizeof requests);
  requests[0].name = "bias!";
  requests[0].name_len = 4;
  requests[0].dst = shorts;
  requests[0].dst_size = sizeof shorts;
  requests[1].index = 0;
  requests[1].dst = column;
  requests[1].dst_size = sizeof column;
  requests[1].ranges = first;
  requests[1].range_count = 2;
  CHECK_STATUS(ST_OK, st_read_many(file, requests, 2, &options));
  CHECK(memcmp(shorts, bias, sizeof bias) == 0 && column[0] == 0.0f && column[1] == 10.0f && calls > 0);
  CHECK_STATUS(ST_OK, st_prefetch(file, NULL, 0, NULL));
  CHECK_STATUS(ST_OK, st_prefetch(file, indices, 2, &options));
  CHECK_STATUS(ST_E_OUT_OF_RANGE, st_prefetch(file, &outside, 1, NULL));
  options.flags = ST_BULK_HUGE_PAGES | ST_BULK_DIRECT;
  CHECK_STATUS(ST_OK, st_load(file, indices, 2, &options));
  CHECK_STATUS(ST_OK, st_load(file, NULL, 0, NULL));
  CHECK_STATUS(ST_OK, st_get(file, "weight", ST_NTS, &t));
  CHECK(memcmp(t.data, weight, sizeof weight) == 0);
}

static void errors(void) {
  st_error_info info = {.struct_size = sizeof info};
  CHECK_STATUS(ST_OK, st_last_error_info(&info));
  CHECK(info.status == ST_E_NOT_FOUND && strcmp(info.tensor, "absent") == 0 && info.tensor_len == 6);
  CHECK(strcmp(info.message, st_last_error()) == 0);
  CHECK(strcmp(st_status_name(info.status), "ST_E_NOT_FOUND") == 0);
  CHECK(st_status_action(info.status) == ST_ACTION_FIX);
}

static void changing(const char *path) {
  st_open_options options = {.struct_size = sizeof options};
  st_txn_options txn_options = {.struct_size = sizeof txn_options};
  st_file *file = NULL;
  st_txn *txn = NULL;
  st_tensor t, view;
  int calls = 0;
  const st_range last = {-1, INT64_MAX, 1};
  const int64_t back[2] = {1, -2};
  const uint64_t slice[2] = {2, 1};
  float column[2] = {12.0f, 2.0f}; /* what is there */
  float fresh[6] = {6.0f, 5.0f, 4.0f, 3.0f, 2.0f, 1.0f};
  int16_t ones[3] = {1, 1, 1};
  options.flags = ST_OPEN_READ_WRITE;
  CHECK_STATUS(ST_OK, st_open(path, &options, &file));
  if (!file) return;
  CHECK_STATUS(ST_OK, st_get(file, "weight", ST_NTS, &view));

  CHECK_STATUS(ST_OK, st_get(file, "weight", ST_NTS, &t));
  t.data = fresh;
  CHECK_STATUS(ST_OK, st_update(file, "weight", ST_NTS, &t));
  CHECK(memcmp(view.data, fresh, sizeof fresh) == 0);
  CHECK_STATUS(ST_OK, st_get(file, "bias", ST_NTS, &t));
  t.data = ones;
  CHECK_STATUS(ST_OK, st_update(file, "bias!", 4, &t));

  txn_options.flags = ST_TXN_COPY;
  txn_options.progress = count_call;
  txn_options.progress_user = &calls;
  CHECK_STATUS(ST_OK, st_txn_begin(file, &txn_options, &txn));
  t.data = bias;
  CHECK_STATUS(ST_OK, st_txn_update(txn, "bias", ST_NTS, &t));
  t = view;
  t.data = weight;
  CHECK_STATUS(ST_OK, st_txn_update(txn, "weight!", 6, &t));
  t.shape = slice;
  t.nbytes = 8;
  t.data = column;
  CHECK_STATUS(ST_OK, st_txn_update_slice(txn, "weight!", 6, &last, 1, back, 2, &t));
  t = view;
  t.dtype = ST_DTYPE_I32;
  CHECK_STATUS(ST_E_DTYPE_MISMATCH, st_txn_update(txn, "weight", ST_NTS, &t));
  CHECK_STATUS(ST_OK, st_txn_commit(txn));
  CHECK_STATUS(ST_E_TXN_FAILED, st_txn_commit(txn)); /* it has ended */
  st_txn_free(txn);
  CHECK(calls > 0);

  CHECK_STATUS(ST_OK, st_txn_begin(file, NULL, &txn));
  t = view;
  t.data = fresh;
  CHECK_STATUS(ST_OK, st_txn_update(txn, "weight", ST_NTS, &t));
  st_txn_free(txn);
  CHECK(memcmp(view.data, weight, sizeof weight) == 0);
  st_interrupt(file); /* nothing runs: nothing happens */
  st_close(file);
}

static void observing(st_file *file) {
  st_io_info info = {.struct_size = sizeof info};
  st_stats stats = {.struct_size = sizeof stats};
  CHECK_STATUS(ST_OK, st_file_io_info(file, &info));
  CHECK(info.file_size == FILE_BYTES && info.header_size == sizeof json - 1 &&
        info.data_offset == 8 + info.header_size);
  CHECK(info.filesystem[0] != '\0' && info.reason[0] != '\0');
  CHECK_STATUS(ST_OK, st_shard_io_info(file, 0, &info));
  CHECK_STATUS(ST_OK, st_file_stats(file, &stats));
  CHECK(stats.bytes_read >= sizeof weight && stats.commits == 0);
}

static void names(void) {
  st_dtype dtype = 0;
  char version[32];
  CHECK_STATUS(ST_OK, st_dtype_parse("F16", ST_NTS, &dtype));
  CHECK(dtype == ST_DTYPE_F16);
  CHECK_STATUS(ST_OK, st_dtype_parse("BF16!", 4, &dtype));
  CHECK(dtype == ST_DTYPE_BF16 && st_dtype_bits(dtype) == 16 && strcmp(st_dtype_name(dtype), "BF16") == 0);
  CHECK_STATUS(ST_E_DTYPE, st_dtype_parse("float", ST_NTS, &dtype));
  sprintf(version, "%d.%d.%d", ST_VERSION_MAJOR, ST_VERSION_MINOR, ST_VERSION_PATCH);
  CHECK(strcmp(st_version(), version) == 0);
  CHECK(strstr(st_build_info(), version) != NULL);
}

static int note_report(void *user, const st_report *report) {
  CHECK(report->struct_size == sizeof *report && report->message[0] != '\0');
  ++*(int *)user;
  return 0;
}

static void recovering(const char *path) {
  st_recover_options recover = {.struct_size = sizeof recover};
  st_verify_options verify = {.struct_size = sizeof verify};
  int reports = 0;
  CHECK_STATUS(ST_OK, st_verify(path, NULL));
  verify.report = note_report;
  verify.report_user = &reports;
  CHECK_STATUS(ST_OK, st_verify(path, &verify));
  CHECK(reports >= 1);
  CHECK_STATUS(ST_OK, st_recover(path, NULL));
  recover.report = note_report;
  recover.report_user = &reports;
  CHECK_STATUS(ST_OK, st_recover(path, &recover));
}

static void memory(const char *path) {
  unsigned char bytes[FILE_BYTES];
  st_file *file = NULL;
  FILE *f = fopen(path, "rb");
  CHECK(f && fread(bytes, 1, sizeof bytes, f) == sizeof bytes);
  if (f) fclose(f);
  CHECK_STATUS(ST_OK, st_open_memory(bytes, sizeof bytes, &file));
  if (!file) return;
  catalogue(file);
  reading(file); /* which also finds that the changes are all there */
  snapshots(file);
  bulk(file);
  st_close(file);
}

/* The bytes of a file, where the system has no file of them. */
static int read_source(void *user, const st_source_range *ranges, size_t n) {
  size_t i;
  for (i = 0; i < n; ++i)
    memcpy(ranges[i].dst, (const unsigned char *)user + ranges[i].offset, (size_t)ranges[i].nbytes);
  return 0;
}

static void source(const char *path) {
  unsigned char bytes[FILE_BYTES];
  st_source given = {.struct_size = sizeof given};
  st_file *file = NULL;
  FILE *f = fopen(path, "rb");
  CHECK(f && fread(bytes, 1, sizeof bytes, f) == sizeof bytes);
  if (f) fclose(f);
  given.size = sizeof bytes;
  given.read = read_source;
  given.user = bytes;
  CHECK_STATUS(ST_OK, st_open_source(&given, NULL, &file));
  if (!file) return;
  catalogue(file);
  reading(file);
  snapshots(file);
  bulk(file);
  st_close(file);
}

static st_tensor described(const char *name, uint64_t elements, uint64_t *shape, const void *data) {
  st_tensor t;
  memset(&t, 0, sizeof t);
  *shape = elements;
  t.name = name;
  t.name_len = strlen(name);
  t.dtype = ST_DTYPE_I16;
  t.rank = 1;
  t.shape = shape;
  t.nbytes = 2 * elements;
  t.data = data;
  return t;
}

/* Tensors come, go and change their names, in new files. */
static void reshaping(const char *path) {
  st_save_options save = {.struct_size = sizeof save};
  st_open_options options = {.struct_size = sizeof options};
  st_plan plan = {.struct_size = sizeof plan};
  st_writer *writer = NULL;
  st_file *file = NULL;
  st_txn *txn = NULL;
  st_metadata pair = {"kind", 4, "test", 4};
  uint64_t shapes[2];
  st_tensor both[2], t;
  const int16_t four[4] = {1, 2, 3, 4};
  const char *value;
  size_t value_len;

  both[0] = described("a", 3, &shapes[0], bias);
  both[1] = described("b", 4, &shapes[1], four);
  save.layout = ST_LAYOUT_STOCK;
  CHECK_STATUS(ST_OK, st_save(path, both, 2, &pair, 1, &save));
  CHECK_STATUS(ST_OK, st_writer_open(path, both, 1, NULL, 0, NULL, &writer));
  CHECK_STATUS(ST_OK, st_writer_write(writer, "a", ST_NTS, bias, 2));
  CHECK_STATUS(ST_OK, st_writer_write(writer, "a!", 1, bias + 1, 4));
  CHECK_STATUS(ST_OK, st_writer_put(writer, &both[1]));
  CHECK_STATUS(ST_OK, st_writer_finish(writer));
  st_writer_free(writer);
  CHECK_STATUS(ST_OK, st_writer_open(path, NULL, 0, NULL, 0, NULL, &writer));
  st_writer_free(writer);

  options.flags = ST_OPEN_READ_WRITE;
  CHECK_STATUS(ST_OK, st_open(path, &options, &file));
  if (!file) return;
  CHECK(st_count(file) == 2 && st_metadata_count(file) == 0);
  CHECK_STATUS(ST_OK, st_txn_begin(file, NULL, &txn));
  t = described("c", 4, &shapes[1], four);
  CHECK_STATUS(ST_OK, st_txn_put(txn, "c", ST_NTS, &t));
  CHECK_STATUS(ST_OK, st_txn_put(txn, "d!", 1, &t));
  CHECK_STATUS(ST_OK, st_txn_delete(txn, "a", ST_NTS));
  CHECK_STATUS(ST_OK, st_txn_delete(txn, "d!", 1));
  CHECK_STATUS(ST_OK, st_txn_rename(txn, "b", ST_NTS, "e", ST_NTS));
  CHECK_STATUS(ST_OK, st_txn_rename(txn, "e!", 1, "f!", 1));
  CHECK_STATUS(ST_OK, st_txn_set_metadata(txn, "kind", ST_NTS, "test", ST_NTS));
  CHECK_STATUS(ST_OK, st_txn_set_metadata(txn, "more!", 4, "yes!", 3));
  CHECK_STATUS(ST_OK, st_txn_plan(txn, &plan));
  CHECK(plan.kind != ST_PLAN_NOTHING && plan.kind != ST_PLAN_PATCH && plan.file_size > 8);
  CHECK_STATUS(ST_OK, st_txn_commit(txn));
  st_txn_free(txn);
  CHECK(st_count(file) == 2);
  CHECK_STATUS(ST_OK, st_get(file, "c", ST_NTS, &t));
  CHECK(memcmp(t.data, four, sizeof four) == 0);
  CHECK_STATUS(ST_OK, st_get(file, "f", ST_NTS, &t));
  CHECK(memcmp(t.data, four, sizeof four) == 0);
  CHECK_STATUS(ST_OK, st_metadata_get(file, "more", ST_NTS, &value, &value_len));
  CHECK(strcmp(value, "yes") == 0);
  CHECK_STATUS(ST_OK, st_compact(path, NULL));
  CHECK_STATUS(ST_OK, st_refresh(file));
  CHECK_STATUS(ST_OK, st_get(file, "f", ST_NTS, &t));
  CHECK(memcmp(t.data, four, sizeof four) == 0);
  st_close(file);
}

/* What makes one file of another, applied, looked through and folded. */
static void deltas(const char *path) {
  static const char delta[] = "lifecycle-delta.safetensors", tuned[] = "lifecycle-tuned.safetensors";
  const char *const list[1] = {delta};
  const float fresh[6] = {5, 4, 3, 2, 1, 0};
  float got[6];
  st_delta_create_options create = {.struct_size = sizeof create};
  st_delta_apply_options apply = {.struct_size = sizeof apply};
  st_delta_info info = {.struct_size = sizeof info};
  st_plan done = {.struct_size = sizeof done};
  st_open_options open = {.struct_size = sizeof open};
  st_file *file = NULL;
  st_tensor t;
  CHECK(write_file(path) && write_file(tuned));
  open.flags = ST_OPEN_READ_WRITE;
  CHECK_STATUS(ST_OK, st_open(tuned, &open, &file));
  if (!file) return;
  CHECK_STATUS(ST_OK, st_get(file, "weight", ST_NTS, &t));
  t.data = fresh;
  CHECK_STATUS(ST_OK, st_update(file, "weight", ST_NTS, &t));
  st_close(file);
  CHECK_STATUS(ST_OK, st_delta_create(path, tuned, delta, &create));
  CHECK_STATUS(ST_OK, st_delta_describe(delta, &info));
  CHECK(info.changed == 1 && info.added == 0 && info.deleted == 0 && info.data_bytes == sizeof fresh);
  CHECK_STATUS(ST_E_DELTA, st_delta_describe(path, &info));
  file = NULL;
  open.flags = 0;
  open.deltas = list;
  open.delta_count = 1;
  CHECK_STATUS(ST_OK, st_open(path, &open, &file));
  CHECK_STATUS(ST_OK, st_read(file, "weight", ST_NTS, got, sizeof got, NULL));
  CHECK(memcmp(got, fresh, sizeof fresh) == 0);
  st_close(file);
  CHECK_STATUS(ST_OK, st_delta_merge(path, list, 1, tuned, NULL));
  CHECK_STATUS(ST_OK, st_delta_apply(path, delta, &apply, &done));
  CHECK(done.kind == ST_PLAN_PATCH && done.how[0] != '\0');
  CHECK_STATUS(ST_E_DELTA_BASE, st_delta_apply(path, delta, NULL, NULL));
  CHECK(write_file(path));
  file = NULL;
  CHECK_STATUS(ST_OK, st_open(path, NULL, &file));
  CHECK_STATUS(ST_E_READ_ONLY, st_apply_delta(file, delta, NULL, NULL));
  st_close(file);
  file = NULL;
  open.flags = ST_OPEN_READ_WRITE;
  open.deltas = NULL;
  open.delta_count = 0;
  CHECK_STATUS(ST_OK, st_open(path, &open, &file));
  apply.flags = ST_TXN_JOURNAL_ONLY;
  CHECK_STATUS(ST_OK, st_apply_delta(file, delta, &apply, &done));
  CHECK_STATUS(ST_OK, st_read(file, "weight", ST_NTS, got, sizeof got, NULL));
  CHECK(memcmp(got, fresh, sizeof fresh) == 0);
  CHECK_STATUS(ST_OK, st_sync(file));
  st_close(file);
  CHECK(remove(delta) == 0 && remove(tuned) == 0);
}

/* A checkpoint in shards, and back in one file. */
static void shards(const char *path) {
  static const char one[] = "lifecycle-shards/model-00001-of-00002.safetensors",
                    two[] = "lifecycle-shards/model-00002-of-00002.safetensors",
                    index[] = "lifecycle-shards/model.safetensors.index.json",
                    joined[] = "lifecycle-joined.safetensors";
  st_file *file = NULL;
  const char *of = NULL;
  st_tensor t;
  CHECK_STATUS(ST_E_INVALID_ARGUMENT, st_reshard(path, "lifecycle-shards", 0, NULL));
  CHECK_STATUS(ST_OK, st_reshard(path, "lifecycle-shards", 24, NULL));
  CHECK_STATUS(ST_OK, st_open("lifecycle-shards", NULL, &file));
  if (!file) return;
  CHECK(st_shard_count(file) == 2 && st_count(file) == 2);
  CHECK_STATUS(ST_OK, st_get(file, "bias", ST_NTS, &t));
  CHECK(t.shard == 1 && memcmp(t.data, bias, sizeof bias) == 0);
  CHECK_STATUS(ST_OK, st_shard_path(file, 1, &of));
  CHECK(strstr(of, "model-00002-of-00002.safetensors") != NULL);
  CHECK_STATUS(ST_E_OUT_OF_RANGE, st_shard_path(file, 2, &of));
  st_close(file);
  CHECK_STATUS(ST_OK, st_join(index, joined, NULL));
  CHECK(remove(joined) == 0 && remove(index) == 0 && remove(one) == 0 && remove(two) == 0);
  CHECK(remove_folder("lifecycle-shards") == 0);
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "lifecycle.safetensors";
  st_file *file = NULL, *second = NULL;
  if (!write_file(path)) {
    fprintf(stderr, "cannot write %s\n", path);
    return 2;
  }
  names();
  CHECK_STATUS(ST_OK, st_open(path, NULL, &file));
  if (file) {
    catalogue(file);
    reading(file);
    snapshots(file);
    errors();
    observing(file);
    CHECK_STATUS(ST_OK, st_reopen(file, ST_REOPEN_COPY_ON_WRITE, &second));
    if (second) reading(second);
    st_close(second);
    second = NULL;
    CHECK_STATUS(ST_OK, st_reopen(file, 0, &second));
    st_close(file);
    if (second) {
      reading(second);
      bulk(second);
    }
    st_close(second);
  }
  changing(path);
  recovering(path);
  memory(path);
  source(path);
  reshaping(path);
  deltas(path);
  shards(path);
  CHECK(remove(path) == 0);
  if (failures) fprintf(stderr, "%d failures\n", failures);
  return failures != 0;
}
