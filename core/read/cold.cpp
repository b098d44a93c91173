#include "read/cold.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "os/mapping.h"

namespace st::read {
namespace {

constexpr uint64_t worth_it = uint64_t{64} << 20;  // bytes: a smaller load is over before it matters
constexpr uint64_t some = 8;                       // part of them in memory already: 1 / some
constexpr size_t places = 8;                       // to look at

// What the kernel tells of a file that has bytes. mincore counts pages, but of a file that is another user's, and may
// not be written, it says that all are in memory. There a byte is asked for, which must not wait for the disk. A system
// that knows no such question has a mincore that tells the truth.
class Residency {
 public:
  static std::optional<Residency> of(const os::File &file) {
    auto now = file.stat();
    if (!now || now->st_size <= 0) return std::nullopt;
    const uid_t user = file.env().geteuid();
    return Residency(file, static_cast<uint64_t>(now->st_size), user != 0 && user != now->st_uid);
  }

  // May every request be asked about? Asking for a byte may make the kernel read what lies around it.
  bool counts() const { return !by_byte_; }
  uint64_t last() const { return size_ - 1; }
  // Bytes of the file that are in memory; nullopt: nobody tells. By a byte, it is all of them or none.
  std::optional<uint64_t> of(uint64_t offset, uint64_t length) {
    if (offset + length > size_) return 0;
    if (by_byte_) {
      std::byte byte;
      const ssize_t n = file_->env().pread_cached(file_->fd(), &byte, 1, offset + length - 1);
      if (n == 1) return length;
      if (n == -EAGAIN) return 0;
      if (n != -ENOSYS) return std::nullopt;
      by_byte_ = false;
    }
    if (!mapping_) {
      auto mapping = os::Mapping::of_file(*file_, size_, os::MapKind::shared);
      if (!mapping) return std::nullopt;
      mapping_ = std::move(*mapping);
    }
    return mapping_->resident(offset, length);
  }

 private:
  Residency(const os::File &file, uint64_t size, bool by_byte) : file_(&file), size_(size), by_byte_(by_byte) {}

  const os::File *file_;
  uint64_t size_;
  bool by_byte_;
  std::optional<os::Mapping> mapping_;
};

}  // namespace

bool is_first_load(const os::File &file, const Plan &plan) {
  if (plan.wanted < worth_it) return false;
  auto residency = Residency::of(file);
  if (!residency || residency->of(residency->last(), 1).value_or(1) > 0) return false;
  std::byte mark;
  if (!file.read(&mark, 1, residency->last())) return false;
  const size_t step = residency->counts() ? 1 : std::max<size_t>(plan.requests.size() / places, 1);
  uint64_t looked_at = 0, in_memory = 0;
  for (size_t i = 0; i < plan.requests.size(); i += step) {
    const Request &r = plan.requests[i];
    looked_at += r.length;
    in_memory += residency->of(r.offset, r.length).value_or(r.length);
  }
  return in_memory < looked_at / some;
}

bool is_in_memory(const os::File &file, const Plan &plan) {
  auto residency = Residency::of(file);
  if (!residency) return false;
  for (size_t i = 0; i < places; ++i) {
    const Request &r = plan.requests[plan.requests.size() * i / places];
    if (residency->of(r.offset, r.length).value_or(0) < r.length) return false;
  }
  return true;
}

}  // namespace st::read
