// The folder that st_reshard fills. Until the index is in it, it holds no checkpoint. What a writer that died has put
// there, the next one knows and removes:
//
//   .model-00001-of-00003.safetensors.st-tmp-<16 digits>   a shard; it gets its name when all are written
//   .model.safetensors.index.json.st-new-<16 digits>       locked while its writer lives; before shards get their
//                                                          names it lists them, as `<index>.st-old` lists (old_list.h)
//   .model.safetensors.index.json.st-tmp-<16 digits>       the index; made before the list is written
//
// A shard that is not as the list says, and whatever no list names, is somebody else's, and stays. So does all of it
// where an index lies, or the journals of one. Where the third is not there, the index has had its name: then the
// shards stay, too, as somebody may have removed the index by hand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "file/writer.h"
#include "journal/recover.h"
#include "newfile/temporary_file.h"
#include "os/made_in.h"

namespace st::store {

// What was written into it goes again unless it is kept.
class ShardFolder {
 public:
  static constexpr const char *index_name = "model.safetensors.index.json";

  // Made if it is not there. Status invalid_argument if it holds a checkpoint, or shards; busy if somebody is writing
  // some.
  static Result<ShardFolder> make(os::Env &env, const std::string &path);
  // Removes what writers that died have left. Tells of each, and of what stays. Waits for those that live. False: there
  // is nothing. Status busy.
  static Result<bool> recover(os::Env &env, const std::string &path, const os::LockWait &wait,
                              const write::Findings &findings);
  ShardFolder(ShardFolder &&other) noexcept
      : at_(std::move(other.at_)),
        made_in_(other.made_in_),
        path_(std::move(other.path_)),
        inside_(std::move(other.inside_)),
        made_(std::exchange(other.made_, false)),
        found_(other.found_),
        list_(std::move(other.list_)),
        fresh_index_(std::move(other.fresh_index_)),
        written_(std::move(other.written_)) {}
  ~ShardFolder();

  // Where a shard is to be written, before it has its name.
  os::Location place_of(const std::string &shard) const;
  // It is about to be. Noted before, as there may be no memory for that afterwards.
  void begin(const std::string &shard) { written_.push_back({shard, place_of(shard).name()}); }
  // All get their names, and then the index that names them, durably. No journal of a file that had such a name meets
  // them. Status busy: its writer lives; those of replace_file.
  Result<void> finish(const std::string &index, mode_t mode, const write::SaveOptions &options);
  // A file in it, to ask about its filesystem.
  const os::File &probe() const { return list_->file(); }
  const std::string &path() const { return path_; }

 private:
  explicit ShardFolder(os::Env &env, write::KeptFindings *found = nullptr) : made_in_(env), found_(found) {}
  os::Location index() const { return {inside_, index_name}; }
  bool has_index(const std::vector<std::string> &names) const;
  Result<bool> remove_left(const os::LockWait &wait);
  Result<void> await_writer(const os::Location &list, const os::LockWait &wait);
  Result<bool> remove_listed(const os::Location &list, const os::LockWait &wait);
  void tell(LogLevel level, std::string message) const {
    if (found_) found_->keep({level, Status::ok, std::move(message)});
  }
  void tell_what_stays(const std::vector<std::string> &names) const;
  Result<void> check_empty() const;
  Result<void> name_all(const os::LockWait &wait, const Log &log);
  void keep();

  os::Location at_;
  const os::MadeIn made_in_;
  std::string path_;  // as it was given
  std::shared_ptr<const os::Directory> inside_;
  bool made_ = false;
  write::KeptFindings *const found_;  // of a recovery
  std::unique_ptr<write::TemporaryFile> list_, fresh_index_;
  struct Written {
    std::string shard, now;  // the name that it has
  };
  std::vector<Written> written_;
};

}  // namespace st::store
