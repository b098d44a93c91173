// Written bytes on their way to the disk, slice by slice, as more are written or before a sync. At most two slices are
// on their way. They grow while a slice is on the disk 20 ms after its start, and shrink where it takes more than 100.
// So a sync that follows is short, and a call can be stopped between two slices, when it has little to wait for.
// Nothing of it is durable before that sync. But a failure here is that sync's own, which would not tell it again: the
// caller must take the sync for failed.
#pragma once

#include "base/control.h"
#include "os/file.h"

namespace st::write {

class WriteOut {
 public:
  // From `begin` on.
  WriteOut(const os::File &file, uint64_t begin) : file_(file), started_(begin), done_(begin) {}
  // All before `end` is written. `go_on` is asked after each slice that the disk has.
  template <class GoOn>
  Result<void> reached(uint64_t end, const GoOn &go_on) {
    while (end - started_ >= slice_) {
      ST_TRY(auto waited, start_slice());
      if (!waited) continue;
      ST_TRY(go_on());
    }
    return {};
  }

 private:
  static constexpr uint64_t least = uint64_t{1} << 20, most = uint64_t{128} << 20;

  Result<bool> start_slice();  // has it waited for the one before?

  const os::File &file_;
  uint64_t started_, done_, slice_ = least;
  uint64_t began_ms_ = 0;  // when the last slice was started
};

// All of [begin, end) but for the last two slices.
Result<void> write_out(const os::File &file, uint64_t begin, uint64_t end, const Control &control);

}  // namespace st::write
