// The old bytes of what a patch changes, read a chunk at a time, or four from a server. So a thousand small tensors in
// a row take few reads. The patch has locked them all: what was read ahead is still true when it is asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "newfile/units.h"
#include "os/file.h"

namespace st::write {

class OldBytes {
 public:
  explicit OldBytes(const os::File &data)
      : data_(data), chunk_(data.reads_past_cache() ? server_chunk_bytes : write_chunk_bytes) {}

  // What is asked for next goes on without a gap up to `end`, and is locked.
  void expect_until(uint64_t end) { expected_ = end; }

  // n bytes, at most a chunk; they stay until the next call.
  Result<const std::byte *> read(uint64_t at, uint64_t n) {
    if (at < begin_ || at + n > begin_ + held_) {
      const uint64_t ahead = std::min(chunk_, std::max(expected_, at) - at);
      const uint64_t take = std::max(n, ahead);
      if (take > room_) {
        bytes_ = std::make_unique_for_overwrite<std::byte[]>(take);
        room_ = take;
      }
      held_ = 0;
      ST_TRY(data_.read(bytes_.get(), take, at));
      begin_ = at;
      held_ = take;
    }
    return bytes_.get() + (at - begin_);
  }

 private:
  // One long request to a server takes a third of the time that four short ones take: its client sends parts of it at
  // once.
  static constexpr uint64_t server_chunk_bytes = uint64_t{4} << 20;

  const os::File &data_;
  const uint64_t chunk_;
  std::unique_ptr<std::byte[]> bytes_;
  uint64_t room_ = 0, expected_ = 0;
  uint64_t begin_ = 0, held_ = 0;  // what it has of the file
};

}  // namespace st::write
