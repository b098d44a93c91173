// The words of Env on macOS: those of Linux that Darwin's headers lack, or have by another name. What is of Linux alone
// (extents, huge pages) is there to be asked for, and is answered by -EINVAL or -ENOSYS.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>

#include "os/linux_words.h"

#define st_atim st_atimespec
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec

#define O_PATH 0             // folders are opened to be read, which takes the right to list them
#define O_DIRECT 0x08000000  // none of Darwin's

#define MAP_HUGETLB 0x40000000  // none of Darwin's
#define MADV_HUGEPAGE 1014      // nor these
#define MADV_NOHUGEPAGE 1015
#define MADV_POPULATE_READ 1022
#define MADV_POPULATE_WRITE 1023
#define POSIX_FADV_SEQUENTIAL 2
#define POSIX_FADV_WILLNEED 3
#define POSIX_FADV_DONTNEED 4

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 90
#define F_OFD_GETLK 92
#endif

namespace st::os {
inline constexpr const char *never_in_names = "/";
inline constexpr bool attributes_have_namespaces = false;  // but for the system's: com.apple.*
}  // namespace st::os
