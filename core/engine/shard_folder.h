// The folder that st_reshard fills. Until the index is in it, it holds no checkpoint. What a writer that died has put
// there, the next one knows and removes:
//
//   .model-00001-of-00003.safetensors.st-tmp-<16 digits>   a shard; it gets its name when all are written
//   .model.safetensors.index.json.st-new-<16 digits>       locked while its writer lives; before shards get their
//                                                          names it lists them, as `<index>.st-old` lists (old_list.h)
//
// A shard that is not as the list says, and whatever no list names, is somebody else's, and stays. So does all of it
// where an index lies, or the journals of one.
#pragma once

#include <memory>
#include <string>
#include <vector>

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
  // Removes what writers that died have left, and tells of each. False: there is nothing. Status busy if one lives.
  static Result<bool> recover(os::Env &env, const std::string &path, const write::Findings &findings);
  ShardFolder(ShardFolder &&other) noexcept
      : at_(std::move(other.at_)),
        made_in_(other.made_in_),
        path_(std::move(other.path_)),
        inside_(std::move(other.inside_)),
        made_(std::exchange(other.made_, false)),
        findings_(std::move(other.findings_)),
        list_(std::move(other.list_)),
        written_(std::move(other.written_)) {}
  ~ShardFolder();

  // Where a shard is to be written, before it has its name.
  os::Location place_of(const std::string &shard) const;
  // It is about to be. Noted before, as there may be no memory for that afterwards.
  void begin(const std::string &shard) { written_.push_back({shard, place_of(shard).name()}); }
  // All get their names, durably. No journal of a file that had such a name meets them. Status busy: its writer lives.
  Result<void> name_all(const os::LockWait &wait, const Log &log);
  // A file in it, to ask about its filesystem.
  const os::File &probe() const { return list_->file(); }
  const std::string &path() const { return path_; }
  os::Location index() const { return {inside_, index_name}; }
  // What is in it is durable under a name that is.
  Result<void> sync_name() const { return made_ ? at_.folder()->sync() : Result<void>(); }
  // The index names them.
  void keep();

 private:
  explicit ShardFolder(os::Env &env) : made_in_(env) {}
  Result<bool> has_index() const;
  Result<void> remove_left();
  Result<void> remove_listed(const os::Location &list);
  Result<void> tell(LogLevel level, const std::string &message) const;
  Result<void> check_empty() const;

  os::Location at_;
  const os::MadeIn made_in_;
  std::string path_;  // as it was given
  std::shared_ptr<const os::Directory> inside_;
  bool made_ = false;
  write::Findings findings_;  // of a recovery
  std::unique_ptr<write::TemporaryFile> list_;
  struct Written {
    std::string shard, now;  // the name that it has
  };
  std::vector<Written> written_;
};

}  // namespace st::store
