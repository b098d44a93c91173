// The first bytes of a file of a test's own, as the library would write them: spelled,
// with at least `reserve` spare bytes, and data at a multiple of `alignment`.
#pragma once

#include <string>

#include "format/header.h"
#include "newfile/layout.h"

namespace st::testing {

inline Result<std::string> serialise_header(std::span<const HeaderTensor> tensors, MetadataPairs metadata,
                                            uint64_t alignment = write::default_alignment, uint64_t reserve = 0) {
  auto out = serialize_header(tensors, metadata);
  if (!out) return out;
  const uint64_t unpadded = out->size() + reserve;
  if (auto padded = pad_header(&*out, (unpadded + alignment - 1) / alignment * alignment); !padded)
    return Failure(std::move(padded.error()));
  return out;
}

}  // namespace st::testing
