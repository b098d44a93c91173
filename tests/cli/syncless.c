/* LD_PRELOAD: a disk that takes writes, and fails when they are to be durable. */
#include <errno.h>

int fsync(int fd) {
  (void)fd;
  errno = EIO;
  return -1;
}
