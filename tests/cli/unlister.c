/* LD_PRELOAD: the call of readdir whose number is $FAIL_READDIR_AT fails, as on a broken disk. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

struct dirent *readdir(DIR *folder) {
  static int calls;
  const char *at = getenv("FAIL_READDIR_AT");
  if (at && ++calls == atoi(at)) {
    errno = EIO;
    return NULL;
  }
  return ((struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir"))(folder);
}
