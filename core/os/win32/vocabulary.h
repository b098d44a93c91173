// The words of Env on Windows: those of POSIX that mingw's headers lack, or have in another size. What is of Linux
// alone (magics of filesystems, extents) is there to be compared with, and is never answered.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "os/linux_words.h"

// Macros that would rename methods of Env.
#undef stat
#undef fstat
#undef ftruncate
#undef lseek

#define O_DIRECTORY 0x00100000
#define O_NOFOLLOW 0x00200000
#define O_PATH 0x00400000
#define O_NONBLOCK 0x00800000
#define O_NOCTTY 0x01000000
#define O_DIRECT 0x02000000
#define O_CLOEXEC 0
#ifndef O_ACCMODE
#define O_ACCMODE (O_RDONLY | O_WRONLY | O_RDWR)
#endif

#define AT_FDCWD (-100)
#define AT_SYMLINK_NOFOLLOW 0x100
#define AT_REMOVEDIR 0x200

#ifndef S_IFLNK
#define S_IFLNK 0xA000
#endif
#ifndef S_ISLNK
#define S_ISLNK(mode) (((mode)&S_IFMT) == S_IFLNK)
#endif
#ifndef S_IROTH
#define S_IROTH 0004
#define S_IWOTH 0002
#endif
#ifndef S_ISUID
#define S_ISUID 04000
#define S_ISGID 02000
#endif

#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 0x20
#define MAP_NORESERVE 0x4000
#define MAP_HUGETLB 0x40000
#define MADV_WILLNEED 3
#define MADV_DONTNEED 4
#define MADV_HUGEPAGE 14
#define MADV_NOHUGEPAGE 15
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#define POSIX_FADV_SEQUENTIAL 2
#define POSIX_FADV_WILLNEED 3
#define POSIX_FADV_DONTNEED 4

#define F_RDLCK 0
#define F_WRLCK 1
#define F_UNLCK 2
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37

struct iovec {
  void *iov_base;
  size_t iov_len;
};

// In namespace st, where they are found before those of mingw's headers, whose numbers are too small.
namespace st {

using dev_t = uint64_t;
using ino_t = uint64_t;
using mode_t = uint32_t;
using uid_t = uint32_t;
using gid_t = uint32_t;
using blkcnt_t = int64_t;
using blksize_t = int64_t;

struct stat {
  dev_t st_dev;
  ino_t st_ino;
  mode_t st_mode;
  uint32_t st_nlink;
  uid_t st_uid;
  gid_t st_gid;
  int64_t st_size;
  blksize_t st_blksize;
  blkcnt_t st_blocks;  // of 512 bytes
  struct timespec st_atim, st_mtim, st_ctim;
};

struct statfs {
  uint32_t f_type;  // as Linux numbers filesystems
  uint64_t f_bsize, f_blocks, f_bfree, f_bavail;
};

struct flock {
  short l_type, l_whence;
  int64_t l_start, l_len;
  pid_t l_pid;
};

// A disk of this machine has a number above, as on Linux; what lies on a server has 0 there.
constexpr uint32_t major(dev_t dev) {
  return static_cast<uint32_t>(dev >> 32);
}
constexpr uint32_t minor(dev_t dev) {
  return static_cast<uint32_t>(dev);
}
constexpr dev_t makedev(uint32_t major, uint32_t minor) {
  return dev_t{major} << 32 | minor;
}

namespace os {
inline constexpr const char *never_in_names = "/\\:";     // a colon leads to a stream of a file, or to a drive
inline constexpr bool attributes_have_namespaces = true;  // extended ones: user., system. and others
}  // namespace os

}  // namespace st
