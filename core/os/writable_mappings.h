// The copy-on-write mappings of this process. A page of theirs that nobody has written shows the file as it is; so
// before this process changes a file in place, it gives such pages the old bytes for good. The one list that handles
// share, as a patch may go through another handle than the views.
#pragma once

#include <sys/stat.h>

#include <cstddef>

#include "base/error.h"
#include "os/file.h"

namespace st::os {

// `data` is what `size` bytes of that file are mapped at.
void note_writable_mapping(Env &env, const struct stat &file, std::byte *data, size_t size);
void forget_writable_mapping(const std::byte *data);

// In each of them these bytes of `file` become this process's own.
Result<void> keep_in_writable_mappings(const File &file, uint64_t offset, uint64_t n);

}  // namespace st::os
