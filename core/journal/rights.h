// What users may do with a data file, by its mode or its ACL; and the same rights to what is made beside it. A journal
// holds nothing that the file does not, or will not. So every reader of the file may read the journal too, and can
// tell whether the file is whole; and nobody else.
#pragma once

#include <cstdint>
#include <vector>

#include "os/file.h"
#include "os/location.h"

namespace st::write {

// An entry of an ACL (linux/posix_acl.h).
struct AclEntry {
  enum Tag : uint16_t { owner = 1, user = 2, owning_group = 4, group = 8, mask = 16, others = 32 };
  static constexpr uint16_t search = 1, write = 2, read = 4;
  uint16_t tag, may;
  uint32_t id;  // of a user or a group that has a name
};

struct Rights {
  Rights() = default;  // nobody's but the owner's
  // As a mode says them, and no ACL.
  Rights(const struct stat &of);  // NOLINT(google-explicit-constructor)

  struct stat data = {};
  uint16_t group = 0, others = 0;
  std::vector<AclEntry> named;  // users and groups, by what they really may: the mask is applied
  bool has_acl = false;
  bool are_guessed = false;  // another file had taken the name
};

// `data` is of the handle's file, which stands at `file` unless another has taken its name. Where the rights cannot be
// known they are nobody's but the owner's.
Rights rights_of(const os::Location &file, const struct stat &data);

// To what was just made, for its maker alone. Readers of the file may read it.
void open_to_readers(const os::File &made, const Rights &rights);

}  // namespace st::write
