// What a program prints must not go into a model, or to a server: no descriptor of libst's has the number of a standard
// stream.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace st {

// The same file by a number above theirs, or -errno. Where the program has closed a standard stream, /dev/null has its
// number from then on: another thread's print could meet a file that has the number for a moment.
inline int above_standard_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int above = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (above < 0) above = -errno;
  ::close(fd);
  int nothing;
  do nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  while (nothing >= 0 && nothing <= STDERR_FILENO);
  if (nothing >= 0) ::close(nothing);
  return above;
}

}  // namespace st
