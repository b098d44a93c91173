#include "newfile/stream.h"

#include <algorithm>

#include "os/given_memory.h"

namespace st::write {
namespace {

constexpr uint64_t piece = uint64_t{4} << 20;   // of a write
constexpr uint64_t few = uint64_t{32} << 10;    // bytes that are copied faster than written
constexpr uint64_t room = uint64_t{256} << 10;  // for those of several

}  // namespace

Result<void> WriteStream::write(const void *bytes, uint64_t n) {
  if (n >= few) return write_through(bytes, n);
  if (n == 0) return {};
  if (!few_) few_ = std::make_unique_for_overwrite<std::byte[]>(room);
  if (n > room - waiting_) ST_TRY(flush());
  if (auto copied = os::copy_given(to_.env(), bytes, n, few_.get() + waiting_); !copied)
    return Failure(std::move(copied.error()).at_offset(at_ + waiting_));
  waiting_ += n;
  return {};
}

Result<void> WriteStream::write_through(const void *bytes, uint64_t n) {
  ST_TRY(flush());
  return write_out(static_cast<const std::byte *>(bytes), n);
}

Result<void> WriteStream::flush() {
  return write_out(few_.get(), std::exchange(waiting_, 0));
}

Result<void> WriteStream::write_out(const std::byte *bytes, uint64_t n) {
  for (uint64_t done = 0; done < n;) {
    const uint64_t take = std::min(piece, n - done);
    ST_TRY(to_.write(bytes + done, take, at_));
    done += take;
    at_ += take;
    ST_TRY(tell_(take));
    ST_TRY(out_.reached(at_, [&] { return tell_(0); }));
  }
  return {};
}

Result<void> write_stream(const os::File &to, const void *bytes, uint64_t n, uint64_t offset,
                          const WriteStream::Tell &tell) {
  return WriteStream(to, offset, tell).write_through(bytes, n);
}

}  // namespace st::write
