// The words in which Env asks and is answered: flags, structs and errors of POSIX and Linux. On Windows they are our
// own, on macOS some are, and mean the same; so nothing above this room asks for the platform.
#pragma once

#ifdef _WIN32
#include "os/win32/vocabulary.h"
#elif defined(__APPLE__)
#include "os/darwin/vocabulary.h"
#else
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifndef MADV_POPULATE_READ  // newer than Debian 12's headers
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace st::os {
inline constexpr const char *never_in_names = "/";
inline constexpr bool attributes_have_namespaces = true;  // extended ones: user., system. and others
}  // namespace st::os
#endif
