// The number of an error (errno) of a failed system call, and the status that it becomes. Also numbers that a C library
// lacks because its system never answers them.
#pragma once

#include <cerrno>

#include "base/status.h"

#ifndef ESTALE
#define ESTALE 116
#endif
#ifndef EDQUOT
#define EDQUOT 122
#endif
#ifndef EBADFD
#define EBADFD 77
#endif

namespace st {

Status status_of_errno(int err);

}  // namespace st
