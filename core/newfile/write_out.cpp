#include "newfile/write_out.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "os/missing_call.h"

namespace st::write {

Result<bool> WriteOut::start_slice() {
  constexpr uint64_t quick_ms = 20, slow_ms = 100;
  os::Env &env = file_.env();
  const uint64_t before = started_, began = std::exchange(began_ms_, env.monotonic_ms());
  env.sync_range(file_.fd(), before, slice_);
  started_ += slice_;
  if (done_ == before) return false;  // it is the first
  const int r = env.wait_range(file_.fd(), done_, before - done_);
  if (r < 0 && !os::is_missing(r) && r != -ESPIPE) return Failure(file_.error(-r, "sync"));
  done_ = before;
  const uint64_t took = env.monotonic_ms() - began;
  if (took < quick_ms) slice_ *= 2;
  if (took > slow_ms) slice_ /= 2;
  slice_ = std::clamp(slice_, least, most);
  return true;
}

Result<void> write_out(const os::File &file, uint64_t begin, uint64_t end, const Control &control) {
  return WriteOut(file, begin).reached(end, [&] { return control.check(end - begin, end - begin); });
}

}  // namespace st::write
