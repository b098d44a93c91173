// What an answer means: to be taken, asked again, looked for elsewhere, or the end. Pure.
#pragma once

#include <optional>

#include "remote/site.h"

namespace st::remote {

struct ContentRange {
  uint64_t first = 0, last = 0;   // both inclusive; of "bytes */SIZE" 1 and 0
  std::optional<uint64_t> total;  // none: "*"

  bool empty() const { return last < first; }
};
// Nothing where it is no such field.
std::optional<ContentRange> parse_content_range(std::string_view field);
std::optional<uint64_t> parse_length(std::string_view field);

// Bytes [first, first + n) of one version.
struct Asked {
  uint64_t first, n;
  const Version &version;
};

// Does the body of the answer with this head belong where `asked` is to go?
bool fits(const Head &head, const Asked &asked);
// The same of the first request, of `room` bytes from 0 on, whose version nobody knows.
bool fits_first(const Head &head, uint64_t room);

enum class Next {
  take,
  again,      // after a while
  elsewhere,  // as Site::after says
  give_up,
};
struct Verdict {
  Next next = Next::take;
  Error error = {};      // of again and give_up; its sentence has no subject that names the object
  uint64_t wait_ms = 0;  // of again: the server wants this, and it is heeded
  uint64_t said_s = 0;   // the server wants this, which may be longer
};

// Judges an answer to `asked`; a part of the body may have come, which is good where `answer.fitted`.
Verdict judge(const Answer &answer, const Asked &asked, const Site &site);
// Can the server not answer now, and may do so later?
bool passes(const Answer &answer);
// The checksum that an answer to a HEAD says of that version; none: it says none.
std::optional<Checksum> judge_head(const Answer &answer, const Version &version);
// Judges the answer to the first request; fills the version where it is taken.
Verdict judge_first(const Answer &answer, uint64_t room, const Site &site, Version *version);

}  // namespace st::remote
