// What becomes of shards. Without more ado those that are rewritten keep their names: tells which. With --new-names
// they get new names: tells which are new, and which are old and until when they stay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command_line.h"
#include "handle.h"
#include "json.h"
#include "system.h"

namespace stctl {

struct NewNamesOptions {
  bool wanted = false;
  uint32_t grace_s = 3600;
};
void add_new_names_options(const Command &command, NewNamesOptions &options);

// The shards of a checkpoint before and after a change.
class ShardNames {
 public:
  ShardNames(const File &file, const NewNamesOptions &options);
  // The change is made: what has become new and old by it.
  void compare(const File &file);
  void tell(Output &out) const;
  // The field "changed_shards" of what has shards and was compared; if new names were wanted also "new_shards",
  // "old_shards", "old_until".
  void write(Json &json) const;

 private:
  struct Shard {
    std::string path, name;
    FileState file;
  };
  static std::vector<Shard> shards_of(const File &file);
  bool has_shards() const { return before_.size() > 1; }

  const NewNamesOptions options_;
  const std::vector<Shard> before_;  // none of one file
  bool compared_ = false;
  std::vector<std::string> changed_, new_, old_;
  std::string until_;
};

}  // namespace stctl
