// The mode of a file that a call makes of models: as with cp, a private model makes no public file.
#pragma once

#include <span>

#include "model/model_view.h"

namespace st::store {

// The mode of a new file, subject to the umask: the bits to read and to write that all files have in which the tensors
// lie. As with cp, they are for the group that the new file gets, and an ACL is not copied. Its owner may read and
// write it. What lies behind a URL has no such bits; where all does, the mode is that of any new file. Statuses: those
// of looking at the files.
Result<mode_t> mode_of_copy(std::span<const ModelView *const> of);
inline Result<mode_t> mode_of_copy(const ModelView &of) {
  const ModelView *const one = &of;
  return mode_of_copy({&one, 1});
}

}  // namespace st::store
