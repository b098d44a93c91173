// Bytes of a file, taken one after the other in small pieces. From a server they come in long reads, as each read takes
// a round trip. The disks of this machine are read by the piece: their kernel reads ahead. One thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "os/file.h"

namespace st::store {

class ReadAhead {
 public:
  // For n bytes from `begin` on. `side_by_side`: so many share the memory of one.
  ReadAhead(const os::File &file, uint64_t begin, uint64_t n, size_t side_by_side)
      : next_(begin), left_(n), at_once_(std::min(n, share_of(file.env().long_read(), side_by_side))) {}

  // The next n of the bytes, of which no more are asked for than there are. `file` is the same file, which need not
  // stay open between two reads.
  Result<void> read(const os::File &file, void *to, uint64_t n) {
    if (n > have_ + left_)
      return fail(Status::internal, "more bytes of ", in_quotes(file.path()), " than are its part");
    auto *out = static_cast<std::byte *>(to);
    while (n > 0) {
      if (have_ == 0 && n >= at_once_) return fetch(file, out, n);
      if (have_ == 0) {
        if (!ahead_) ahead_ = std::make_unique_for_overwrite<std::byte[]>(at_once_);
        const uint64_t more = std::min(at_once_, left_);
        ST_TRY(fetch(file, ahead_.get(), more));
        taken_ = 0;
        have_ = more;
      }
      const uint64_t piece = std::min(n, have_);
      std::memcpy(out, ahead_.get() + taken_, piece);
      taken_ += piece;
      have_ -= piece;
      out += piece;
      n -= piece;
    }
    return {};
  }

 private:
  // A read is still worth its round trip, and hundreds of layers are still no memory to speak of.
  static constexpr uint64_t least = uint64_t{256} << 10;
  static uint64_t share_of(uint64_t long_read, size_t side_by_side) {
    return long_read == 0 ? 0 : std::max(long_read / side_by_side, least);
  }

  Result<void> fetch(const os::File &file, void *to, uint64_t n) {
    ST_TRY(file.read(to, n, next_));
    next_ += n;
    left_ -= n;
    return {};
  }

  uint64_t next_, left_;  // of the file
  const uint64_t at_once_;
  std::unique_ptr<std::byte[]> ahead_;
  uint64_t taken_ = 0, have_ = 0;  // of what is ahead
};

}  // namespace st::store
