// The list of ranges of a journal that was found, read window by window: however
// long it is, or says that it is, it takes no more memory than one window. Each
// range is checked before the next is read, so that a hole ends it at once.
#pragma once

#include <functional>

#include "journal/journal_layout.h"
#include "journal/verdict.h"
#include "os/file.h"

namespace st::write {

class Manifest {
 public:
  Manifest(const os::File &journal, uint64_t journal_bytes, const CommitRecord &record)
      : Manifest(journal, journal_bytes, record, journal_bytes) {}
  // For a journal that was cut off: its ranges may refer to what is not there.
  static Manifest of_torn(const os::File &journal, uint64_t journal_bytes, const CommitRecord &record) {
    return {journal, journal_bytes, record, UINT64_MAX};
  }

  // Gives each range to `take`, in order, and ends with the first bad verdict.
  // A good one is about all ranges and the hash of all, which is known last:
  // what must not be done for a damaged list waits for a second time.
  using Take = std::function<Result<Verdict>(const RangeRecord &)>;
  Result<Verdict> each(const Take &take) const;

 private:
  Manifest(const os::File &journal, uint64_t journal_bytes, const CommitRecord &record, uint64_t end_of_references)
      : journal_(journal), journal_bytes_(journal_bytes), record_(record), end_of_references_(end_of_references) {}

  const os::File &journal_;
  const uint64_t journal_bytes_;
  const CommitRecord &record_;
  const uint64_t end_of_references_;
};

}  // namespace st::write
