// By what a delta knows the model that it was made for.
#pragma once

#include "format/tensor_list.h"

namespace st {

// Equal for files that have the same names with the same dtypes and shapes, and
// the same metadata, in whatever order and layout. Says nothing of bytes.
Hash128 identity_of(const TensorList &listing);
// How often this thread took one, which sorts all names.
uint64_t identities_taken();

}  // namespace st
