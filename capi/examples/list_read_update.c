/* List the tensors of a safetensors file, read one, change one in place. C99.
 *
 *   list_read_update FILE                what is in the file
 *   list_read_update FILE TENSOR         its first elements, if it is F32
 *   list_read_update FILE TENSOR FACTOR  multiply them all, durably
 *
 *   cc -std=c99 list_read_update.c $(pkg-config --cflags --libs libst) -o list_read_update
 */
#include <inttypes.h>
#include <st/st.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every failure has a sentence that says what, where, and what to do. */
static int complain(void) {
  fprintf(stderr, "%s\n", st_last_error());
  return 1;
}

static int list(st_file *file) {
  for (size_t i = 0; i < st_count(file); ++i) {
    st_tensor t;
    if (st_at(file, i, 1, &t) != ST_OK) return complain();
    printf("%s %s [", t.name, st_dtype_name(t.dtype));
    for (uint32_t d = 0; d < t.rank; ++d) printf("%s%" PRIu64, d ? ", " : "", t.shape[d]);
    printf("] %" PRIu64 " bytes\n", t.nbytes);
  }
  return 0;
}

/* t is a view: its data is the file itself, mapped. It may be unaligned, so elements are copied out of it. */
static int show(const st_tensor *t) {
  for (uint64_t i = 0; i < t->nbytes / sizeof(float) && i < 8; ++i) {
    float value;
    memcpy(&value, (const char *)t->data + i * sizeof value, sizeof value);
    printf("%s%g", i ? " " : "", (double)value);
  }
  printf("\n");
  return 0;
}

static int scale(st_file *file, const st_tensor *t, float factor) {
  const size_t n = (size_t)(t->nbytes / sizeof(float));
  float *values = malloc(n ? (size_t)t->nbytes : 1);
  st_tensor changed = *t; /* the same dtype and shape */
  st_status status;
  if (!values) return perror("malloc"), 1;
  if (n) memcpy(values, t->data, (size_t)t->nbytes);
  for (size_t i = 0; i < n; ++i) values[i] *= factor;
  changed.data = values;
  status = st_update(file, t->name, t->name_len, &changed); /* on the disk, or as if it had never been */
  free(values);
  return status == ST_OK ? 0 : complain();
}

int main(int argc, char **argv) {
  st_open_options options = {.struct_size = sizeof options};
  st_file *file;
  st_tensor t;
  int failed;
  if (argc < 2 || argc > 4) {
    fprintf(stderr, "usage: %s FILE [TENSOR [FACTOR]]\n", argv[0]);
    return 2;
  }
  if (argc == 4) options.flags = ST_OPEN_READ_WRITE;
  if (st_open(argv[1], &options, &file) != ST_OK) return complain();
  if (argc == 2) {
    failed = list(file);
  } else if (st_get(file, argv[2], ST_NTS, &t) != ST_OK) {
    failed = complain();
  } else if (t.dtype != ST_DTYPE_F32) {
    fprintf(stderr, "%s is %s; this program knows F32 only\n", argv[2], st_dtype_name(t.dtype));
    failed = 1;
  } else {
    failed = argc == 3 ? show(&t) : scale(file, &t, strtof(argv[3], NULL));
  }
  st_close(file); /* every view ends here */
  return failed;
}
