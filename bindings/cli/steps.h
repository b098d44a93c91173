// What put, rm, mv, meta and plan share: changes of a file's layout as one
// transaction, from the command line to a plan and a commit.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "command_line.h"
#include "handle.h"
#include "input.h"
#include "new_names.h"
#include "npy.h"

namespace stctl {

// How the new file is laid out, and what may be broken for it.
struct LayoutOptions {
  int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT;
  uint32_t alignment = 0;
  uint64_t reserve = 0;
  bool canonical = false;
  bool break_links = false;
  NewNamesOptions new_names;
};
void add_layout_options(const Command &command, LayoutOptions &options);
// Is one given that only a new file can have?
bool are_given(const LayoutOptions &options);
st_txn_options txn_options(const LayoutOptions &options);

class Steps {
 public:
  // All or some tensors of another file. Failure if an earlier one gave the same name. One tensor of a .npy file; one
  // of raw bytes.
  void put_from(Session &session, const std::string &path, const std::vector<std::string> &names);
  // `dtype` is that of elements which the .npy file may not name, or "". Failure if it names another.
  // `will_cast`: cast_puts() comes, with another dtype.
  void put_npy(const std::string &name, const std::string &path, const std::string &dtype, bool will_cast);
  void put_raw(const std::string &name, const std::string &path, const std::string &dtype, const std::string &shape,
               bool will_cast);
  // All that is put so far, as elements of another dtype.
  void cast_puts(st_dtype dtype);
  // Names, or else patterns that match some. Removes come before renames.
  void remove(const Session &session, const File &file, const std::vector<std::string> &names);
  // As what was removed and renamed before leaves them.
  void rename(const Session &session, const File &file, const std::string &from, const std::string &to);
  void set_metadata(const std::string &pair);    // KEY=VALUE
  void remove_metadata(const std::string &key);  // UsageFailure if it is set, too

  // Stages them, tells the plan, and unless it is a dry run commits. Answers an exit code.
  int run(Session &session, const File &file, const LayoutOptions &options, const char *label, bool dry_run) const;

 private:
  struct Source {
    std::unique_ptr<File> file;
    std::optional<Input> input;
    std::optional<Npy> npy;
    std::vector<uint64_t> shape;
  };
  struct Put {
    std::string name;
    st_tensor value;
    const File *from = nullptr;  // whose view `value` is
    st_dtype cast_to = 0;        // if it is to be cast
    st_dtype dtype() const { return cast_to ? cast_to : value.dtype; }
  };
  std::vector<std::string> &names_left(const File &file);
  static void stage(st_txn *txn, const Put &put);
  void stage(Transaction &transaction) const;
  void tell(Session &session, const File &file, const st_plan &plan, bool dry_run, const ShardNames &shards) const;

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<Put> puts_;
  std::unordered_map<std::string, const File *> put_from_;  // the names that files gave
  std::vector<std::string> removed_;
  std::unordered_set<std::string> is_removed_;  // the same
  std::vector<std::pair<std::string, std::string>> renamed_;
  std::optional<std::vector<std::string>> names_;  // once one is renamed: those of the file by now, in its order
  std::vector<std::pair<std::string, std::optional<std::string>>> metadata_;
};

}  // namespace stctl
