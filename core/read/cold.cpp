#include "read/cold.h"

#include "os/mapping.h"

namespace st::read {
namespace {

constexpr uint64_t worth_it = uint64_t{64} << 20;  // bytes: a smaller load is over before it matters
constexpr uint64_t some = 8;                       // part of them in memory already: 1 / some
constexpr size_t places = 8;                       // to look at

}  // namespace

bool is_first_load(const os::File &file, const Plan &plan) {
  if (plan.wanted < worth_it) return false;
  auto now = file.stat();
  if (!now || now->st_size <= 0) return false;
  const auto size = static_cast<uint64_t>(now->st_size);
  auto mapping = os::Mapping::of_file(file, size, os::MapKind::shared);
  if (!mapping || mapping->resident(size - 1, 1) > 0) return false;
  std::byte mark;
  if (!file.read(&mark, 1, size - 1)) return false;
  uint64_t in_memory = 0;
  for (const Request &r : plan.requests)
    if (r.offset + r.length <= size) in_memory += mapping->resident(r.offset, r.length);
  return in_memory < plan.wanted / some;
}

bool is_in_memory(const os::File &file, const Plan &plan) {
  auto now = file.stat();
  if (!now || now->st_size <= 0) return false;
  const auto size = static_cast<uint64_t>(now->st_size);
  auto mapping = os::Mapping::of_file(file, size, os::MapKind::shared);
  if (!mapping) return false;
  for (size_t i = 0; i < places; ++i) {
    const Request &r = plan.requests[plan.requests.size() * i / places];
    if (r.offset + r.length > size || mapping->resident(r.offset, r.length) < r.length) return false;
  }
  return true;
}

}  // namespace st::read
