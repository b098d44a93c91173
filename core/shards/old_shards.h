// What commits under new names leave beside an index: old shards, for readers of an older index, until the time that
// the list `<index>.st-old` says; and new shards of writers that died before the index named them. What any index in
// the folder names is never removed, nor what is not the file that was listed. A file that is not the list's maker's
// stays. But the maker may be the user that removes it, or may unlink all that lies there.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "format/shard_index.h"
#include "journal/recover.h"
#include "journal/verdict.h"
#include "shards/old_list.h"

namespace st::store {

class OldShards {
 public:
  // As they are now. `now` is what the index says. Nothing is touched.
  static Result<OldShards> look(const os::Location &index, const ShardIndex &now);

  // Those that the list names and that still are what it says. A list that cannot be believed names none.
  const std::vector<write::OldShard> &listed() const { return listed_; }
  const std::vector<std::string> &unnamed() const { return unnamed_; }  // of writers that died, or are dying
  const write::Verdict &verdict() const { return verdict_; }            // on the list
  // What remove() would remove then, at most.
  std::set<std::string> due(uint64_t now) const;
  bool only_list() const { return has_list_ && verdict_.is_good() && unnamed_.empty() && listed_.empty(); }
  bool nothing() const { return !has_list_ && unnamed_.empty() && temporary_.empty(); }
  // The largest number in the name of a shard that the index or the list names, or of a file that is there.
  uint64_t generation() const { return generation_; }

  // Empty journals of writers that died, beside shards that went: nobody opens these, and so nobody else would drop
  // them.
  void drop_journals(const write::Findings &findings) const;
  // The rest under the exclusive lock on the index, `locked`. Removes the unnamed, and the old ones whose time ends
  // before `now`; what is left is in listed() and unnamed(). Afterwards a list without them may be written. `wait`: for
  // a lease on another index.
  Result<void> remove(uint64_t now, const os::File &locked, const os::LockWait &wait, const write::Findings &findings);
  // What the list would be with more in it. Status unsupported if that is too long.
  Result<std::string> spell(const std::vector<write::OldShard> &more) const;
  // Takes the list's place, durable but for its name, with the rights of the index to read it; of no text: there is
  // none any more. Only its owner may write to it, as what it names is removed.
  Result<void> write_list(const std::string &text, const os::File &index, const Log &log) const;

  // To be listed, as it stands under its name now.
  static Result<write::OldShard> shard_at(const os::Location &at, uint64_t until);

 private:
  explicit OldShards(const os::Location &index) : index_(index) {}
  os::Location list_at() const;
  Result<void> read_list(const ShardIndex &now);
  bool is_other(const std::string &name) const;
  bool is_temporary(const struct stat &file) const;
  void look_at(const struct stat &folder);
  bool may_name(const struct stat &file) const;
  Result<bool> is_strangers(const std::string &name) const;
  Result<write::Verdict> judge_list(const os::File &file, std::vector<write::OldShard> *list);
  Result<void> take_in(std::vector<write::OldShard> list, const ShardIndex &now);
  void put_list_aside(const write::Findings &findings);
  std::optional<std::set<std::string>> named_by_others(const os::LockWait &wait, const write::Findings &findings) const;
  Result<bool> take_new_index(const os::File &locked) const;
  bool remove(const std::string &name, const write::OldShard *listed, const write::Findings &findings) const;

  os::Location index_;
  bool has_list_ = false;
  uid_t maker_ = 0;  // of the list
  bool maker_may_unlink_ = false;
  write::Verdict verdict_;
  uint64_t generation_ = 0;
  std::vector<write::OldShard> listed_;
  std::vector<std::string> unnamed_, temporary_;  // shards, whole and not, which no index names
  std::vector<std::string> others_;               // indexes
  std::vector<std::string> without_file_;         // old shards that went, and left journals
};

// All old shards of an index whatever their time, and what dead writers left.
Result<void> remove_old_shards(const os::Location &index, const os::LockWait &wait, const write::Findings &findings);

}  // namespace st::store
