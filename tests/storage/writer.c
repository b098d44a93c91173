/* Changes a file of the storage tests and tells what libst promised: one line
 * before each operation ("begin 7 0,2,4") and one after it ("ack 7", or "fail 7
 * ST_E_IO ..."). Lines go out with one write(2) each, before anything else
 * happens. So a reader of them knows what a user could know at that moment.
 *
 *   writer FILE [--tensors 0,2,4] [--first VERSION] [--count N] [--seed S]
 *          [--reopen M] [--after-failure N] [--lines PATH]
 *          [--steps N --deltas FOLDER] [--later N]
 *
 * Tensor i is named "t<i>"; version v of it is the pattern of model.py. Which
 * tensors an operation changes follows from the seed and the version alone.
 * N in ten operations are steps of training ("begin 7 0,2,4 step"): a delta, which
 * is made in FOLDER, changes some words of these tensors. With --later N in ten
 * of the other transactions are durable by their journal (ST_TXN_JOURNAL_ONLY),
 * and some are followed by st_sync.
 * Ends with 0; with 3 if an operation failed. --after-failure: how many more to
 * try on the same handle then. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <st/st.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MOST 64

static int lines = 1;
static uint64_t later;

static void say(const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line - 1, format, args);
  va_end(args);
  if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
  line[n++] = '\n';
  if (write(lines, line, (size_t)n) != n) {
    perror("writer: cannot say what it did");
    _exit(4);
  }
}

static uint64_t next(uint64_t *state) { /* splitmix64 */
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* The pattern: see model.py. */
static void *fill(uint64_t tensor, uint64_t version, uint64_t nbytes) {
  const uint64_t words = nbytes / 8 + 1;
  uint64_t *bytes = malloc(words * 8);
  if (!bytes) abort();
  const uint64_t base = version * 0x9E3779B97F4A7C15u + tensor * 0xC2B2AE3D27D4EB4Fu;
  for (uint64_t i = 0; i < words; ++i) bytes[i] = base + i * 0x165667B19E3779F9u;
  return bytes;
}

/* The words that a step changes: a few of most pages, and none of others. */
static int changes(uint64_t word) {
  return word / 1024 % 3 != 1 && word % 61 == 7;
}

static st_file *open_file(const char *path) {
  st_open_options options = {.struct_size = sizeof options};
  options.flags = ST_OPEN_READ_WRITE;
  st_file *file = NULL;
  const st_status status = st_open(path, &options, &file);
  if (status != ST_OK) say("open %s %s", st_status_name(status), st_last_error());
  return file;
}

static st_status describe(st_file *file, int tensor, uint64_t version, st_tensor *out) {
  char name[16];
  snprintf(name, sizeof name, "t%d", tensor);
  size_t index;
  st_status status = st_find(file, name, strlen(name), &index);
  if (status == ST_OK) status = st_at(file, index, 1, out);
  if (status == ST_OK) out->data = fill((uint64_t)tensor, version, out->nbytes);
  return status;
}

static void release(st_tensor *values, int n) {
  for (int i = 0; i < n; ++i) free((void *)values[i].data);
}

static st_status change(st_file *file, const int *chosen, int n, uint64_t version, uint64_t *random) {
  st_tensor values[MOST];
  memset(values, 0, sizeof values);
  st_status status = ST_OK;
  for (int i = 0; i < n && status == ST_OK; ++i) status = describe(file, chosen[i], version, &values[i]);
  if (status == ST_OK && n == 1 && next(random) % 2) {
    status = st_update(file, values[0].name, ST_NTS, &values[0]);
  } else if (status == ST_OK) {
    st_txn_options options = {.struct_size = sizeof options};
    if (next(random) % 2) options.flags = ST_TXN_COPY;
    if (later && next(random) % 10 < later) options.flags |= ST_TXN_JOURNAL_ONLY;
    st_txn *txn = NULL;
    status = st_txn_begin(file, &options, &txn);
    if (status == ST_OK && next(random) % 3 == 0) { /* a value that the last one replaces */
      st_tensor wrong;
      status = describe(file, chosen[0], version + 1000000, &wrong);
      if (status == ST_OK) status = st_txn_update(txn, wrong.name, ST_NTS, &wrong);
      if (!(options.flags & ST_TXN_COPY))
        values[MOST - 1].data = wrong.data;
      else
        free((void *)wrong.data);
    }
    for (int i = 0; i < n && status == ST_OK; ++i) status = st_txn_update(txn, values[i].name, ST_NTS, &values[i]);
    if (status == ST_OK) status = st_txn_commit(txn);
    st_txn_free(txn);
  }
  release(values, MOST);
  return status;
}

static int put_file(const char *path, const char *bytes, size_t n) {
  FILE *file = fopen(path, "wb");
  const int done = file && fwrite(bytes, 1, n, file) == n;
  return file && fclose(file) == 0 && done ? 0 : -1;
}

static char *get_file(const char *path, size_t *n) {
  FILE *file = fopen(path, "rb");
  char *bytes = NULL;
  long size;
  if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && (bytes = malloc((size_t)size + 1))) {
    rewind(file);
    *n = fread(bytes, 1, (size_t)size, file);
    if (ferror(file)) free(bytes), bytes = NULL;
  }
  if (file) fclose(file);
  return bytes;
}

/* The delta from the file to one in which some words of these tensors are of this version. */
static st_status make_step(const char *path, st_file *file, const char *folder, const int *chosen, int n,
                           uint64_t version, char *delta, size_t room) {
  char from[4096], to[4096];
  snprintf(from, sizeof from, "%s/from-%d", folder, chosen[0]);
  snprintf(to, sizeof to, "%s/to-%d", folder, chosen[0]);
  snprintf(delta, room, "%s/delta-%d", folder, chosen[0]);
  size_t size;
  char *bytes = get_file(path, &size);
  st_status status = bytes && put_file(from, bytes, size) == 0 ? ST_OK : ST_E_IO;
  for (int i = 0; i < n && status == ST_OK; ++i) {
    st_tensor t;
    status = describe(file, chosen[i], version, &t);
    if (status != ST_OK) break;
    for (uint64_t at = 0; at < t.nbytes; at += 8)
      if (changes(at / 8))
        memcpy(bytes + t.file_offset + at, (const char *)t.data + at, t.nbytes - at < 8 ? t.nbytes - at : 8);
    release(&t, 1);
  }
  if (status == ST_OK && put_file(to, bytes, size) != 0) status = ST_E_IO;
  free(bytes);
  return status == ST_OK ? st_delta_create(from, to, delta, NULL) : status;
}

/* A transaction that never commits: nothing of it may ever show. */
static void abandon(st_file *file, int tensor) {
  st_tensor wrong;
  st_txn *txn = NULL;
  if (describe(file, tensor, 7777777, &wrong) != ST_OK) return;
  if (st_txn_begin(file, NULL, &txn) == ST_OK) {
    st_txn_update(txn, wrong.name, ST_NTS, &wrong);
    st_txn_free(txn);
  }
  free((void *)wrong.data);
}

static int parse_list(const char *text, int *out) {
  int n = 0;
  for (char *end; *text && n < MOST; text = *end ? end + 1 : end) out[n++] = (int)strtol(text, &end, 10);
  return n;
}

int main(int argc, char **argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc < 2) return 2;
  int tensors[MOST], tensor_count = parse_list("0", tensors);
  uint64_t first = 1, count = 1, seed = 1, reopen = 0, after_failure = 0, steps = 0;
  const char *deltas = NULL;
  for (int i = 2; i + 1 < argc; i += 2) {
    const char *option = argv[i], *value = argv[i + 1];
    if (!strcmp(option, "--tensors"))
      tensor_count = parse_list(value, tensors);
    else if (!strcmp(option, "--first"))
      first = strtoull(value, NULL, 10);
    else if (!strcmp(option, "--count"))
      count = strtoull(value, NULL, 10);
    else if (!strcmp(option, "--seed"))
      seed = strtoull(value, NULL, 10);
    else if (!strcmp(option, "--reopen"))
      reopen = strtoull(value, NULL, 10);
    else if (!strcmp(option, "--after-failure"))
      after_failure = strtoull(value, NULL, 10);
    else if (!strcmp(option, "--steps"))
      steps = strtoull(value, NULL, 10);
    else if (!strcmp(option, "--later"))
      later = strtoull(value, NULL, 10);
    else if (!strcmp(option, "--deltas"))
      deltas = value;
    else if (!strcmp(option, "--lines"))
      lines = open(value, O_WRONLY | O_APPEND | O_CLOEXEC);
    else
      return 2;
  }
  if (lines < 0 || (steps && !deltas)) return 2;

  st_file *file = open_file(argv[1]);
  if (!file) return 3;
  int failed = 0;
  for (uint64_t version = first; version < first + count; ++version) {
    uint64_t random = seed * 1000003 + version;
    if (reopen && version > first && (version - first) % reopen == 0 && !failed) {
      st_close(file);
      if (!(file = open_file(argv[1]))) return 3;
    }
    int chosen[MOST], n = 0;
    const uint64_t kind = next(&random) % 10;
    /* After a failure nobody knows what the file holds, so no delta would fit. */
    const int is_step = steps && !failed && next(&random) % 10 < steps;
    if (kind >= 8 && !is_step) abandon(file, tensors[next(&random) % (uint64_t)tensor_count]);
    for (int i = 0; i < tensor_count; ++i)
      if (kind == 0 || (kind < 6 && next(&random) % 2)) chosen[n++] = tensors[i];
    if (n == 0) chosen[n++] = tensors[next(&random) % (uint64_t)tensor_count];

    char list[256];
    int at = 0;
    for (int i = 0; i < n; ++i) at += snprintf(list + at, sizeof list - (size_t)at, "%s%d", i ? "," : "", chosen[i]);
    say("begin %llu %s%s", (unsigned long long)version, list, is_step ? " step" : "");
    st_status status;
    if (is_step) {
      char delta[4096];
      status = make_step(argv[1], file, deltas, chosen, n, version, delta, sizeof delta);
      if (status == ST_OK) status = st_delta_apply(argv[1], delta, NULL, NULL);
    } else {
      status = change(file, chosen, n, version, &random);
    }
    if (status == ST_OK) {
      say("ack %llu", (unsigned long long)version);
      if (later && next(&random) % 6 == 0) st_sync(file); /* what fails now is left to the next open */
      continue;
    }
    say("fail %llu %s %s", (unsigned long long)version, st_status_name(status), st_last_error());
    failed = 1;
    if (after_failure-- == 0) break;
  }
  st_close(file);
  say("closed");
  return failed ? 3 : 0;
}
