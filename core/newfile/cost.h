// What a change of files costs the disk. Reckoned beforehand, with the functions that the change is made by.
#pragma once

#include <cstdint>

namespace st::write {

struct Cost {
  uint64_t written = 0;  // bytes, by the process
  uint64_t shared = 0;   // bytes, in blocks that another file has as well
  uint64_t copied = 0;   // bytes of other files, by the kernel
  uint64_t room = 0;     // bytes of free blocks that are taken at once
  // Parts of the shared and the copied: what was staged, and comes from a journal.
  uint64_t staged_shared = 0, staged_copied = 0;

  uint64_t moved() const { return written + shared + copied; }
  Cost &operator+=(const Cost &more) {
    written += more.written;
    shared += more.shared;
    copied += more.copied;
    room += more.room;
    staged_shared += more.staged_shared;
    staged_copied += more.staged_copied;
    return *this;
  }
};

}  // namespace st::write
