#include "format/base_identity.h"

#include <algorithm>
#include <cstddef>

#include "base/little_endian.h"

namespace st {
namespace {

thread_local uint64_t identities_so_far = 0;

}  // namespace

uint64_t identities_taken() {
  return identities_so_far;
}

Hash128 identity_of(const TensorList &listing) {
  ++identities_so_far;
  Hasher128 hasher;
  const auto add_number = [&](uint64_t n) {
    std::byte bytes[8];
    store_u64le(bytes, n);
    hasher.add(bytes, sizeof bytes);
  };
  const auto add_string = [&](std::string_view s) {
    add_number(s.size());
    hasher.add(s.data(), s.size());
  };
  std::vector<const ListedTensor *> tensors;
  tensors.reserve(listing.tensors.size());
  for (const ListedTensor &t : listing.tensors) tensors.push_back(&t);
  std::sort(tensors.begin(), tensors.end(), [](const auto *a, const auto *b) { return a->name < b->name; });
  add_number(tensors.size());
  for (const ListedTensor *t : tensors) {
    add_string(t->name);
    add_string(dtype_name(t->dtype));
    add_number(t->shape.size());
    for (const uint64_t dim : t->shape) add_number(dim);
  }
  auto metadata = listing.metadata;
  std::sort(metadata.begin(), metadata.end());
  add_number(metadata.size());
  for (const auto &[key, value] : metadata) {
    add_string(key);
    add_string(value);
  }
  return hasher.digest();
}

}  // namespace st
