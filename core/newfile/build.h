// A new file made of a header and of segments: bytes in memory, and bytes of
// other files, which are shared or copied without passing through the process.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "newfile/cost.h"
#include "newfile/transfer.h"

namespace st::write {

// To a file that is opened when it is wanted, and may be closed when that is let go.
using Reach = std::function<Result<std::shared_ptr<const os::File>>()>;

struct Segment {
  uint64_t to = 0;  // in the new file
  uint64_t length = 0;
  const os::File *file = nullptr;  // with file: bytes from `from` on
  uint64_t from = 0;
  const void *bytes = nullptr;  // else: these
  Reach reach = {};             // instead of `file`
};

struct Built {
  uint64_t written = 0, shared = 0, copied = 0;
};

// `segments` ascend, touch each other and begin where the header ends. `block`
// as shareable_block() said. Nothing is durable yet.
Result<Built> build(const os::File &to, std::string_view header, std::span<const Segment> segments, uint64_t block,
                    const Control &control);

// What build() will do, on a disk that allots blocks of `disk_block` bytes.
Cost expect_build(std::string_view header, std::span<const Segment> segments, uint64_t block, uint64_t disk_block);

// Where the filesystem can, the room that a new file of `size` bytes takes is set aside. `shares`: some of its blocks
// will be another file's.
Result<void> set_room_aside(const os::File &made, uint64_t size, bool shares);
// The same after a look whether there is so much: status no_space if not.
Result<void> reserve_space_for(const os::File &made, uint64_t size, uint64_t shared);

}  // namespace st::write
