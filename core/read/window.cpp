#include "read/window.h"

#include <algorithm>

namespace st::read {
namespace {

constexpr uint64_t least_block = uint64_t{4} << 20;

}  // namespace

Window::Window(const os::File &file, uint64_t end, bool ahead)
    : file_(file),
      end_(end),
      ahead_(ahead),
      block_bytes_(ahead ? std::max(least_block, file.env().long_read()) : least_block) {}

Result<std::span<const std::byte>> Window::at(uint64_t offset, uint64_t n) {
  if (offset < begin_ || offset >= begin_ + have_) {
    if (!block_) block_ = std::make_unique_for_overwrite<std::byte[]>(block_bytes_);
    have_ = 0;
    const uint64_t take = std::min(block_bytes_, ahead_ ? std::max(n, end_ - offset) : n);
    ST_TRY(file_.read(block_.get(), take, offset));
    begin_ = offset;
    have_ = take;
  }
  const uint64_t skip = offset - begin_;
  return std::span<const std::byte>(block_.get() + skip, std::min(n, have_ - skip));
}

}  // namespace st::read
