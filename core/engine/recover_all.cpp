#include "engine/recover_all.h"

#include "engine/locate.h"
#include "engine/shard_folder.h"
#include "journal/hot_journal.h"
#include "journal/super_recover.h"
#include "newfile/names.h"
#include "newfile/temporary_file.h"
#include "os/path.h"
#include "shards/old_shards.h"
#include "shards/shards.h"

namespace st::store {
namespace {

// Writers that died over shards left them; the index does not name these shards any more.
void remove_temporaries(const os::Location &index, os::Neighbours *listed, const write::Findings &findings) {
  for (const std::string &name : listed->beginning_with(index, "."))
    if (write::target_of_temporary(name, write::temporary_infix).ends_with(".safetensors") &&
        write::remove_unlocked(index.beside(name)) &&
        !findings({LogLevel::info, Status::ok, write::removed_new_file(name)}))
      return;
}

// A writer died before its new file had the name, and no other file has it. False: none did.
bool remove_unnamed(os::Env &env, const std::string &path, const write::Findings &findings) {
  const auto target = os::Location::find_new(env, path);
  if (!target) return false;
  std::vector<std::string> removed = write::TemporaryFile::remove_stale(*target);
  for (std::string &told : removed)
    if (!findings({LogLevel::info, Status::ok, std::move(told)})) break;
  return !removed.empty();
}

Result<write::Recovered> recover_file(os::Env &env, const std::string &path, const os::LockWait &wait,
                                      const write::Findings &findings) {
  const auto recovered = [&]() -> Result<write::Recovered> {
    ST_TRY(auto file, os::Location::find(env, path));
    return write::recover(file, wait, findings);
  };
  auto done = recovered();
  if (done && done->held) return Failure(std::move(*done->held));
  if (!done && done.error().status == Status::no_file && remove_unnamed(env, path, findings)) return write::Recovered{};
  return done;
}

Result<write::Recovered> recover_each(os::Env &env, const std::string &path, const os::LockWait &wait,
                                      const write::Findings &findings, const bool &stopped) {
  ST_TRY(auto located, locate(env, path));
  if (!located.is_index) return recover_file(env, located.path, wait, findings);

  // The index first: it decides about the parts that its shards have.
  const auto [in, base] = os::split_path(located.path);
  ST_TRY(auto folder, os::Directory::find(env, in));
  ST_TRY(auto index, os::Location::find_in(folder, base));
  ST_TRY(auto sum, write::recover_super(index, wait, findings));
  if (stopped) return sum;
  ST_TRY(auto read, Shards::read_index(index, wait));
  os::Neighbours listed;
  const std::vector<std::string> &shards = read.index().shards();
  for (uint32_t i = 0; i < shards.size(); ++i) {
    ST_TRY(auto shard, os::Location::find_in(folder, shards[i]));
    auto done = write::recover(shard, wait, findings, &listed);
    if (!done && done.error().status == Status::no_file)
      return Failure(Shards::missing(index.path(), i, folder->path_of(shards[i])));
    if (!done) return done;
    if (stopped) return sum;
    if (done->held) return Failure(std::move(*done->held));
    sum.applied += done->applied;
    sum.undone += done->undone;
    sum.dropped += done->dropped;
    sum.aside += done->aside;
    if (done->aside > 0) sum.why_aside = std::move(done->why_aside);
  }
  // Where a link leads to the index, no shard has got a new name.
  if (!index.folder()->is(*folder)) return sum;
  remove_temporaries(index, &listed, findings);
  if (stopped) return sum;
  ST_TRY(remove_old_shards(index, wait, findings));
  return sum;
}

// Nothing that is a model stands there.
bool leads_to_nothing(const Error &e) {
  return e.status == Status::no_file || e.status == Status::not_regular;
}

// Given a folder without an index, or the path of an index that is not there: a reshard may have died.
Result<bool> recover_reshard(os::Env &env, const std::string &given, const os::LockWait &wait,
                             const write::Findings &findings) {
  std::string path = os::plain_path(given);
  if (is_index_name(path)) {
    const auto [folder, name] = os::split_path(path);
    if (name != ShardFolder::index_name) return false;
    path = folder;
  }
  struct stat s;
  if (env.fstatat(AT_FDCWD, path.c_str(), &s, 0) < 0 || !S_ISDIR(s.st_mode)) return false;
  return ShardFolder::recover(env, path, wait, findings);
}

}  // namespace

Result<write::Recovered> recover_all(os::Env &env, const std::string &path, const os::LockWait &wait,
                                     const write::Findings &findings) {
  bool stopped = false;
  const write::Findings told = [&](const write::Finding &f) {
    stopped = stopped || (findings && !findings(f));
    return !stopped;
  };
  auto done = recover_each(env, path, wait, told, stopped);
  if (!done && leads_to_nothing(done.error())) {
    ST_TRY(const bool is_reshards, recover_reshard(env, path, wait, told));
    if (is_reshards) done = recover_each(env, path, wait, told, stopped);  // it may have lived, and finished
    if (is_reshards && !done && leads_to_nothing(done.error())) done = write::Recovered{};
  }
  if (done && stopped) return Failure(write::recovery_stopped());
  return done;
}

}  // namespace st::store
