/* LD_PRELOAD: the first call that asks for one tensor alone finds that the file was changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <st/st.h>

st_status st_at(st_file *file, size_t first, size_t n, st_tensor *out) {
  static int changed;
  if (n == 1 && !changed++) return ST_E_FILE_CHANGED;
  st_status (*next)(st_file *, size_t, size_t, st_tensor *) = dlsym(RTLD_NEXT, "st_at");
  return next(file, first, n, out);
}
