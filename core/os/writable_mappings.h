// The copy-on-write mappings of this process. A page of theirs that nobody has written shows the file as it is; so
// before this process changes a file in place, it gives such pages the old bytes for good. The one list that handles
// share, as a patch may go through another handle than the views.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <vector>

#include "base/error.h"
#include "os/file.h"

namespace st::os {

// `data` is what `size` bytes of that file are mapped at, and nobody has looked at it. Bytes that are just being
// changed become this process's own at once. Forget it also where that fails. Status: nomem.
Result<void> note_writable_mapping(const File &file, std::byte *data, size_t size);
void forget_writable_mapping(const std::byte *data);

// Bytes of a file that this process changes, from before it decides to until they are written, or are not to be. A
// mapping that is made in between shows some mix of them, and goes on showing that.
class BytesUnderChange {
 public:
  explicit BytesUnderChange(const File &file) : file_(file) {}
  ~BytesUnderChange();
  BytesUnderChange(const BytesUnderChange &) = delete;
  BytesUnderChange &operator=(const BytesUnderChange &) = delete;

  // Looks which file it is. keep() does so, where nobody has.
  Result<void> begin();
  // These, too: in each mapping there is they become this process's own. Status: nomem.
  Result<void> keep(uint64_t offset, uint64_t n);

 private:
  friend Result<void> note_writable_mapping(const File &file, std::byte *data, size_t size);
  struct Range {
    uint64_t offset, length;
  };

  const File &file_;
  struct stat which_ = {};
  bool is_known_ = false;
  std::vector<Range> ranges_;  // in the list, if there are any
};

}  // namespace st::os
