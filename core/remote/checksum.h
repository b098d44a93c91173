// A checksum of a whole object, held against what was read of it: in any order, by any calls. It is compared when every
// byte has come; an object that is read in part is not checked.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "remote/crc.h"
#include "remote/this_process.h"
#include "remote/transport.h"

namespace st::remote {

struct Checksum {
  Crc kind;
  uint64_t value;

  bool operator==(const Checksum &) const = default;
};

// What the store says of the whole object. None: nothing, or only checksums that cannot be joined (those of the parts
// of an upload, SHA-256, MD5).
std::optional<Checksum> checksum_of(const Head &head);

using Crcs = std::array<uint64_t, std::size(all_crcs)>;  // by kind; those that are not looked at are 0

// Bytes of the object, [begin, end), as they came: the one after the other.
struct Summed {
  uint64_t begin, end = begin;
  Crcs crcs = {};
};

// Any thread.
class WholeCheck {
 public:
  // `begin` came with the first answer, and is not read again. `expected` none: the store says it where it is asked
  // for it alone. As long as nobody has asked, what comes is noted by each kind.
  WholeCheck(std::optional<Checksum> expected, uint64_t size, std::span<const std::byte> begin);

  // The begin is all of it, and wrong? Status checksum.
  Result<void> check_begin() const;
  // Adds bytes that came behind those: soonest while they lie in the processor's cache.
  void add_to(Summed *sum, std::span<const std::byte> bytes) const;
  // Such a stretch came whole, behind the begin. Status checksum: it was the last one, and the whole is not what was
  // stored.
  Result<void> came(const Summed &sum);

  using Stretch = std::pair<uint64_t, uint64_t>;  // [first, second) of the object
  // Will all have come, once these have?
  bool is_all_with(std::vector<Stretch> stretches) const;
  // Is the store to be asked beside a read? True for one caller, which tells what it was told by said() or not_said().
  bool begins_to_ask();
  // The same where all has come: once more, also while one asks beside a read, which may be stopped.
  bool begins_to_ask_at_the_end();
  // None: there is none that can be joined. The first answer stands, for all that asked. Status checksum: all had come,
  // and is not what was stored.
  Result<void> said(std::optional<Checksum> expected);
  // The store cannot answer now, or was not waited for.
  void not_said();

 private:
  struct Run {
    uint64_t end;
    Crcs crcs;
  };
  // `later`: it was asked in vain, and is asked when all has come.
  enum class Known { no, is_asked, later, is_asked_at_the_end, yes };
  bool looks_at(Crc kind) const { return known_ != Known::yes || (expected_ && expected_->kind == kind); }
  Crcs join(const Crcs &first, const Crcs &second, uint64_t second_bytes) const;
  void add(uint64_t begin, Run run);
  Result<void> compare(const Crcs &crcs) const;

  const uint64_t size_;
  mutable OwnMutex mutex_;  // of all below
  Known known_;
  std::optional<Checksum> expected_;
  Run begin_;
  std::map<uint64_t, Run> runs_;  // by where they begin, apart from each other, behind the begin
  std::optional<Crcs> whole_;     // what came, before the store said what was stored
};

}  // namespace st::remote
