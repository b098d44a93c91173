/* Opens and reads what a URL names, with the n-th allocation of the thread failing, for each n, once or from then on:
 * the answer is ST_OK or ST_E_NOMEM. Prints how many there were. */
#include <errno.h>
#include <st/st.h>
#include <stdio.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

static _Thread_local long left = -1; /* until one fails; -1: none does */
static _Thread_local int for_good, failed;

static int fails(void) {
  if (left < 0 || left-- > 0) return 0;
  failed = 1;
  if (for_good) left = 0;
  errno = ENOMEM;
  return 1;
}
void *malloc(size_t n) {
  return fails() ? NULL : __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
  return fails() ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
  return fails() ? NULL : __libc_realloc(p, n);
}

static st_status look(const char *url) {
  static char room[1 << 20];
  st_file *file;
  st_tensor first;
  st_status status = st_open(url, NULL, &file);
  if (status != ST_OK) return status;
  status = st_at(file, 0, 1, &first);
  if (status == ST_OK) status = st_read(file, first.name, first.name_len, room, sizeof room, NULL);
  if (status == ST_E_BUFFER_SIZE) status = st_load(file, NULL, 0, NULL);
  st_close(file);
  return status;
}

int main(int n, char **urls) {
  long most = 0;
  st_file *none;
  for (int i = 1; i < n; ++i) {
    st_open("/nowhere", NULL, &none); /* the thread's last error has its memory */
    if (look(urls[i])) return puts(st_last_error()), 1;
    for (for_good = 0; for_good < 2; ++for_good)
      for (long before = 0;; ++before) {
        failed = 0;
        left = before;
        const st_status status = look(urls[i]);
        left = -1;
        if (status != ST_OK && status != ST_E_NOMEM)
          return printf("%s: %ld: %s: %s\n", urls[i], before, st_status_name(status), st_last_error()), 1;
        if (!failed) {
          if (before > most) most = before;
          break;
        }
      }
  }
  printf("%ld", most);
  return 0;
}
