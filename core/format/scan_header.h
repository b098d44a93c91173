// A fast reader for headers as writers really spell them: plain strings without
// escapes, the three fields of a tensor in any order, numbers of ordinary size.
// It never refuses: whatever it does not expect it leaves to the full parser.
#pragma once

#include <optional>
#include <string_view>

#include "format/index.h"

namespace st {

// Reads a header in windows, so that one of megabytes needs no memory of its own.
class HeaderScanner {
 public:
  explicit HeaderScanner(IndexBuilder &builder) : builder_(builder) {}

  // The next part of the header, from where the last call stopped; `last` if
  // it goes to the header's end. Takes whole entries and answers how many bytes
  // that were; nothing if the header is not of the plain form, or an entry does
  // not fit the window: start over with a fresh builder and the full parser,
  // which decides what is wrong, if anything. header_padding bytes after the
  // window must be readable, the first of them a NUL.
  std::optional<size_t> take(std::string_view window, bool last);
  // All of it was taken, and the builder holds it.
  bool finished() const { return state_ == State::after; }

 private:
  enum class State { before, entries, after } state_ = State::before;
  bool metadata_seen_ = false;
  IndexBuilder &builder_;
};

// The same, of a whole header at once.
bool scan_header(std::string_view json, IndexBuilder &builder);

}  // namespace st
