#include "store/recover_all.h"

#include "store/locate.h"
#include "store/shards.h"
#include "write/super_recover.h"

namespace st::store {

Result<write::Recovered> recover_all(os::Env &env, const std::string &path, const os::LockWait &wait,
                                     const write::Findings &findings) {
  auto located = locate(env, path);
  if (!located) return Failure(std::move(located.error()));
  std::string real;
  if (const int r = env.realpath(located->path.c_str(), &real); r < 0) return Failure(os_error(-r, "open", path));
  if (!located->is_index) return write::recover(env, real, wait, findings);

  // The index first: it decides about the parts that its shards have.
  auto sum = write::recover_super(env, real, wait, findings);
  if (!sum) return sum;
  auto read = Shards::read_index(env, real);
  if (!read) return Failure(std::move(read.error()));
  const std::string folder = os::split_path(located->path).first;
  for (const std::string &name : read->index.shards()) {
    const std::string path = text(folder, "/", name);
    std::string shard;
    if (const int r = env.realpath(path.c_str(), &shard); r < 0) return Failure(os_error(-r, "open", path));
    auto done = write::recover(env, shard, wait, findings);
    if (!done) return done;
    sum->applied += done->applied;
    sum->undone += done->undone;
    sum->dropped += done->dropped;
    sum->aside += done->aside;
    if (done->aside > 0) sum->why_aside = std::move(done->why_aside);
  }
  return sum;
}

}  // namespace st::store
