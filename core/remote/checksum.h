// A checksum of a whole object, held against what was read of it: in any order, by any calls. It is compared when every
// byte has come; an object that is read in part is not checked.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "base/error.h"
#include "remote/crc.h"
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

// Any thread.
class WholeCheck {
 public:
  // `begin` came with the first answer, and is not read again.
  WholeCheck(Checksum expected, uint64_t size, std::span<const std::byte> begin)
      : expected_(expected), size_(size), begin_{begin.size(), crc_of(expected.kind, begin)} {}

  // The begin is all of it, and wrong? Status checksum.
  Result<void> check_begin() const;
  // These bytes came, behind the begin. Status checksum: they were the last ones, and the whole is not what was stored.
  Result<void> came(uint64_t offset, std::span<const std::byte> bytes);

 private:
  struct Run {
    uint64_t end, crc;
  };
  void add(uint64_t begin, Run run);
  Result<void> compare(uint64_t crc) const;

  const Checksum expected_;
  const uint64_t size_;
  const Run begin_;
  std::mutex mutex_;
  std::map<uint64_t, Run> runs_;  // by where they begin, apart from each other, behind the begin
};

}  // namespace st::remote
