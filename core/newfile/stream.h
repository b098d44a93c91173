// Bytes in memory written to a file one behind the other, piece by piece: so that progress can be told, the call be
// stopped, and the disk begin before the last byte is there.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/control.h"
#include "newfile/write_out.h"
#include "os/file.h"

namespace st::write {

class WriteStream {
 public:
  using Tell = std::function<Result<void>(uint64_t done)>;

  // `tell` is asked after each write whether to go on; `done` counts from the one before.
  WriteStream(const os::File &to, uint64_t offset, Tell tell)
      : to_(to), at_(offset), out_(to, offset), tell_(std::move(tell)) {}
  // The next n bytes. Few are copied, and go into one write with those that come before and behind them.
  Result<void> write(const void *bytes, uint64_t n);
  // The next n bytes, not copied, behind those that were.
  Result<void> write_through(const void *bytes, uint64_t n);
  // Those that were copied. To be called at the end.
  Result<void> flush();

 private:
  Result<void> write_out(const std::byte *bytes, uint64_t n);

  const os::File &to_;
  uint64_t at_;  // in the file: where the next write begins
  WriteOut out_;
  const Tell tell_;
  std::unique_ptr<std::byte[]> few_;  // made when first needed
  uint64_t waiting_ = 0;              // bytes in it
};

// Some bytes alone.
Result<void> write_stream(const os::File &to, const void *bytes, uint64_t n, uint64_t offset,
                          const WriteStream::Tell &tell);

}  // namespace st::write
