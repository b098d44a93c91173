#include "engine/recover_all.h"

#include "engine/locate.h"
#include "journal/super_recover.h"
#include "newfile/names.h"
#include "newfile/replacement.h"
#include "shards/old_shards.h"
#include "shards/shards.h"

namespace st::store {
namespace {

// Writers that died over shards left them; the index does not name these shards any more.
void remove_temporaries(const os::Location &index, os::Neighbours *listed) {
  for (const std::string &name : listed->beginning_with(index, "."))
    if (write::target_of_temporary(name, write::temporary_infix).ends_with(".safetensors"))
      write::remove_unlocked(index.beside(name));
}

}  // namespace

Result<write::Recovered> recover_all(os::Env &env, const std::string &path, const os::LockWait &wait,
                                     const write::Findings &findings) {
  auto located = locate(env, path);
  if (!located) return Failure(std::move(located.error()));
  if (!located->is_index) {
    auto file = os::Location::find(env, located->path);
    if (!file) return Failure(std::move(file.error()));
    return write::recover(*file, wait, findings);
  }

  // The index first: it decides about the parts that its shards have.
  const auto [in, base] = os::split_path(located->path);
  auto folder = os::Directory::find(env, in);
  if (!folder) return Failure(std::move(folder.error()));
  auto index = os::Location::find_in(*folder, base);
  if (!index) return Failure(std::move(index.error()));
  auto sum = write::recover_super(*index, wait, findings);
  if (!sum) return sum;
  auto read = Shards::read_index(*index);
  if (!read) return Failure(std::move(read.error()));
  os::Neighbours listed;
  for (const std::string &name : read->index.shards()) {
    auto shard = os::Location::find_in(*folder, name);
    if (!shard) return Failure(std::move(shard.error()));
    auto done = write::recover(*shard, wait, findings, &listed);
    if (!done) return done;
    sum->applied += done->applied;
    sum->undone += done->undone;
    sum->dropped += done->dropped;
    sum->aside += done->aside;
    if (done->aside > 0) sum->why_aside = std::move(done->why_aside);
  }
  // Where a link leads to the index, no shard has got a new name.
  if (!index->folder()->is(**folder)) return sum;
  remove_temporaries(*index, &listed);
  if (auto removed = remove_old_shards(*index, wait, findings); !removed) return Failure(std::move(removed.error()));
  return sum;
}

}  // namespace st::store
