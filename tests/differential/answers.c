/* What libst says of files, for far_abi.py: so that the suite, which is a program of this machine, compares what libst
 * says on another machine (tests/emulated). Reads requests, a line each, and answers each with the name of a status,
 * the last error, and whatever was asked for: numbers as lines, bytes after their number. */
#include <st/st.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static st_file *file;
static char *memory; /* borrowed by the handle until it is closed */

static void fail(const char *why) {
  fprintf(stderr, "answers: %s\n", why);
  exit(2);
}

static void put_number(uint64_t n) {
  printf("%" PRIu64 "\n", n);
}

static void put_bytes(const void *bytes, uint64_t n) {
  put_number(n);
  if (n && fwrite(bytes, 1, (size_t)n, stdout) != n) fail("the answer was not taken");
}

static int put_status(st_status status) {
  const char *name = st_status_name(status), *error = status ? st_last_error() : "";
  put_bytes(name, strlen(name));
  put_bytes(error, strlen(error));
  return status == ST_OK;
}

static char *get_bytes(size_t n) {
  char *bytes = malloc(n + 1);
  if (!bytes || fread(bytes, 1, n, stdin) != n) fail("a request was cut off");
  bytes[n] = 0;
  return bytes;
}

static size_t get_number(void) {
  uint64_t n;
  if (scanf("%" SCNu64, &n) != 1 || getchar() != '\n') fail("a number was wanted");
  return (size_t)n;
}

static void open_path(void) {
  st_open_options options = {0};
  char *path;
  options.struct_size = sizeof options;
  options.map = (uint32_t)get_number();
  options.flags = (uint32_t)get_number();
  path = get_bytes(get_number());
  put_status(st_open(path, &options, &file));
  free(path);
}

static void open_memory(void) {
  const size_t n = get_number();
  memory = get_bytes(n);
  put_status(st_open_memory(memory, n, &file));
}

static void list(int with_data) {
  const size_t n = st_count(file);
  size_t i, found;
  uint32_t d;
  st_tensor t;
  put_number(n);
  for (i = 0; i < n; ++i) {
    if (!put_status(with_data ? st_get_at(file, i, &t) : st_at(file, i, 1, &t))) return;
    if (!put_status(st_find(file, t.name, t.name_len, &found))) return;
    put_number(found);
    put_bytes(t.name, t.name_len + 1); /* with its NUL */
    put_bytes(st_dtype_name(t.dtype), strlen(st_dtype_name(t.dtype)));
    put_number(t.rank);
    for (d = 0; d < t.rank; ++d) put_number(t.shape[d]);
    put_number(t.file_offset);
    put_number(t.shard);
    put_bytes(t.data, t.data ? t.nbytes : 0);
  }
}

static void metadata(void) {
  const size_t n = st_metadata_count(file);
  const char *key, *value;
  size_t i, key_len, value_len;
  put_number(n);
  for (i = 0; i < n; ++i) {
    if (!put_status(st_metadata_at(file, i, &key, &key_len, &value, &value_len))) return;
    put_bytes(key, key_len);
    if (!put_status(st_metadata_get(file, key, key_len, &value, &value_len))) return;
    put_bytes(value, value_len);
  }
}

static void update(void) {
  const size_t name_len = get_number();
  char *name = get_bytes(name_len);
  const size_t n = get_number();
  char *bytes = get_bytes(n);
  st_tensor t;
  st_status status = st_describe(file, name, name_len, &t);
  if (status == ST_OK) {
    t.data = bytes;
    t.nbytes = n;
    status = st_update(file, name, name_len, &t);
  }
  put_status(status);
  free(bytes);
  free(name);
}

static void verify(void) {
  char *path = get_bytes(get_number());
  put_status(st_verify(path, NULL));
  free(path);
}

int main(void) {
  char word[16];
  while (scanf("%15s", word) == 1 && getchar() == '\n') {
    if (!strcmp(word, "path"))
      open_path();
    else if (!strcmp(word, "memory"))
      open_memory();
    else if (!strcmp(word, "tensors"))
      list(1);
    else if (!strcmp(word, "descriptions"))
      list(0);
    else if (!strcmp(word, "metadata"))
      metadata();
    else if (!strcmp(word, "update"))
      update();
    else if (!strcmp(word, "verify"))
      verify();
    else if (!strcmp(word, "close")) {
      st_close(file);
      free(memory);
      file = NULL;
      memory = NULL;
    } else
      fail("an unknown request");
    if (fflush(stdout)) fail("the answer was not taken");
  }
  return 0;
}
