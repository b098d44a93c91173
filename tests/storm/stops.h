// Where a test may stop or kill a worker inside libst. The test program defines
// pwrite, pread and fdatasync itself; the linker prefers them to the C library's.
// They tell a watcher before each call that matters.
#pragma once

#include <functional>

namespace st::testing {

enum class Point {
  journal_read,      // of any journal, also when only looking at it
  journal_was_read,  // the call has returned
  payload_sync,      // the payload is written
  commit_record,     // the payload is durable: nothing is promised yet
  commit_sync,       // the commit record is written: the point of no return
  data_write,        // for each piece and each MiB of it; small pieces without a gap are one
  data_sync,
  invalidate,  // the change is durable; the commit record is about to be cleared
  retire_sync,
};

// Replaces the watcher of this process. Called on the thread that makes the call.
void watch(std::function<void(Point)> watcher);

}  // namespace st::testing
