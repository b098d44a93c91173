#include "read/copy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "base/interrupt.h"

namespace st::read {
namespace {

constexpr uint64_t block = uint64_t{16} << 20;  // between looks at progress, at least
constexpr uint64_t window = uint64_t{1} << 20;  // most that one gathering read fetches
constexpr uint64_t gap = uint64_t{16} << 10;    // cheaper to read through than to read twice
constexpr uint64_t brief = uint64_t{64} << 10;  // one read of so little asks nobody whether to go on

}  // namespace

Result<void> Source::read(void *to, size_t n, uint64_t offset) const {
  if (file) return file->read(to, n, offset);
  std::memcpy(to, memory + offset, n);
  return {};
}

Result<void> copy(const Source &source, uint64_t offset, uint64_t n, void *to, const Control &control) {
  uint64_t done = 0;
  const InterruptScope waits([&] { return control.check(done, n); });
  if (n > 0 && n <= brief) return source.read(to, n, offset);
  const uint64_t at_once = std::max(block, source.file ? source.file->env().long_read() : 0);
  for (; done < n; done += std::min(at_once, n - done)) {
    ST_TRY(control.check(done, n));
    ST_TRY(source.read(static_cast<std::byte *>(to) + done, std::min(at_once, n - done), offset + done));
  }
  return {};
}

Result<uint64_t> copy_slice(const Source &source, uint64_t offset, const SlicePlan &plan, void *to,
                            const Control &control) {
  auto *out = static_cast<std::byte *>(to);
  uint64_t bytes_read = 0, bytes_done = 0, next_check = 0;
  std::unique_ptr<std::byte[]> scratch;
  uint64_t scratch_bytes = 0;  // no more than are used: new memory costs as much as to fill it
  const InterruptScope waits([&] { return control.check(bytes_done, plan.nbytes()); });

  if (plan.run_count() == 1 && plan.nbytes() <= brief) {
    const uint64_t begin = offset + SlicePlan::Cursor(plan).source();
    if (auto got = source.read(out, plan.nbytes(), begin); !got) return Failure(std::move(got.error()));
    return plan.nbytes();
  }
  for (SlicePlan::Cursor run(plan); !run.done();) {
    if (bytes_done >= next_check) {
      ST_TRY(control.check(bytes_done, plan.nbytes()));
      next_check = bytes_done + block;
    }
    // How far one read can go: the window's runs are walked twice, once to see
    // its end and once to scatter it.
    const uint64_t begin = run.source();
    uint64_t end = begin + plan.run_bytes();
    if (plan.run_bytes() < window) {
      for (SlicePlan::Cursor ahead = run; !ahead.done(); ahead.next()) {
        const uint64_t stop = ahead.source() + plan.run_bytes();
        if (ahead.source() > end + gap || stop - begin > window) break;
        end = std::max(end, stop);
      }
    }
    if (end - begin == plan.run_bytes()) {
      ST_TRY(source.read(out + run.destination(), plan.run_bytes(), offset + begin));
      bytes_done += plan.run_bytes();
      bytes_read += plan.run_bytes();
      run.next();
      continue;
    }
    if (end - begin > scratch_bytes) {
      scratch_bytes = std::bit_ceil(end - begin);
      scratch = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes);
    }
    ST_TRY(source.read(scratch.get(), end - begin, offset + begin));
    bytes_read += end - begin;
    for (; !run.done() && run.source() + plan.run_bytes() <= end; run.next()) {
      std::memcpy(out + run.destination(), scratch.get() + (run.source() - begin), plan.run_bytes());
      bytes_done += plan.run_bytes();
    }
  }
  return bytes_read;
}

}  // namespace st::read
