// A decided transaction on several files is finished: every file is brought to its
// new state, in the order in which its writer would have. What was done before is
// not done again, but made durable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "journal/hot_journal.h"
#include "journal/super_journal.h"
#include "os/named_lock.h"

namespace st::write {

// All is checked, and locked, before the first file is touched.
class RollForward {
 public:
  RollForward(std::shared_ptr<const os::Directory> dir, const SuperManifest &list, uint64_t transaction,
              const os::LockWait &wait)
      : dir_(std::move(dir)), list_(list), transaction_(transaction), wait_(wait) {}

  // May it go on? `index` is locked by the caller, `decision` is the super-journal. Status needs_recovery if its maker
  // is not to be trusted with a shard, and no part beside that says that it decides: then it waits for its maker. The
  // same if a file is still the old one, and what has the name of the new one is not to be trusted.
  Result<Verdict> judge(const os::File &index, const Found &decision);
  // Then the parts are done, durably.
  Result<void> apply(StillOurs &ours);
  // The super-journal is empty, durably: the parts' journals mean nothing any more.
  void drop_parts();

 private:
  // A file of the transaction, with all that recovery needs to know of it.
  struct Target {
    struct Opened {
      os::File file;
      os::RangeLock lock;  // of file: dies first
    };
    struct Temporary {
      bool is_there = false;
      Verdict verdict = Verdict::good();  // may it be the new file?
      std::unique_ptr<Opened> opened;     // then
    };
    const SuperParticipant *entry = nullptr;
    std::unique_ptr<os::LockedFile> locked;
    std::unique_ptr<Opened> first, second;  // those that have not taken their place yet
    std::optional<Folder> folder;
    std::unique_ptr<Found> journal;  // of this transaction
    std::string journal_name;        // by now
    bool done() const { return journal && journal->is_done(); }
    std::unique_ptr<Replay> replay;
  };

  Result<Verdict> look_at_temporaries(Target &target, const os::File &now, bool is_index);
  Result<Verdict> look_at_journal(Target &target);
  Result<Verdict> look_at_patch(Target &target);
  Verdict judge_strange() const;
  Result<Verdict> look_at_part(Target &shard, const Found &decision);
  Verdict may_be_new(const struct stat &made, const struct stat &old) const;
  Result<Target::Temporary> open_temporary(const std::string &name, const struct stat &old);
  Error is_awaited(const std::string &name, const std::string &file, const Verdict &verdict) const;
  Result<void> rename_to(const std::string &temporary, const std::string &file);

  os::Location at(const std::string &name) const { return {dir_, name}; }

  const std::shared_ptr<const os::Directory> dir_;
  const SuperManifest &list_;
  const uint64_t transaction_;
  const os::LockWait wait_;
  Target index_;
  std::vector<Target> targets_;
  bool has_begun_ = false;  // a file of it has new bytes, or its new form, or its part is done
};

// The form of an index: its size, and the hash of all its bytes.
Result<Form> form_of_index(const os::File &file);

}  // namespace st::write
