#include "newfile/write_out.h"

#include <cerrno>

#include "os/missing_call.h"

namespace st::write {

Result<bool> WriteOut::start_slice() {
  os::Env &env = file_.env();
  env.sync_range(file_.fd(), started_, slice);
  started_ += slice;
  if (started_ - done_ <= ahead) return false;
  const int r = env.wait_range(file_.fd(), done_, slice);
  if (r < 0 && !os::is_missing(r) && r != -ESPIPE) return Failure(file_.error(-r, "sync"));
  done_ += slice;
  return true;
}

Result<void> write_out(const os::File &file, uint64_t begin, uint64_t end, const Control &control) {
  return WriteOut(file, begin).reached(end, [&] { return control.check(end - begin, end - begin); });
}

}  // namespace st::write
