// --new-names: shards that are rewritten get new names. Tells which are new, and which are old and until when they
// stay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command_line.h"
#include "handle.h"
#include "json.h"

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
  void write(Json &json) const;  // the fields "new_shards", "old_shards", "old_until", if new names were wanted

 private:
  const NewNamesOptions options_;
  std::vector<std::string> before_, new_, old_;
  std::string until_;
};

}  // namespace stctl
