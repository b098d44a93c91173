#include "store/shards.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "format/header.h"
#include "hash.h"
#include "huge_memory.h"
#include "os/range_lock.h"
#include "store/shard_transaction.h"
#include "store/shown_shards.h"
#include "write/super_recover.h"

namespace st::store {

// Not the inode alone: a file that comes later may have its number.
uint64_t Shards::state_of(const struct stat &s) {
  const uint64_t parts[] = {s.st_dev, s.st_ino, static_cast<uint64_t>(s.st_size),
                            static_cast<uint64_t>(s.st_mtim.tv_sec), static_cast<uint64_t>(s.st_mtim.tv_nsec)};
  return hash64(parts, sizeof parts);
}

Result<ReadIndex> Shards::read_index(os::Env &env, const std::string &real_path) {
  auto file = open_regular(env, real_path, O_RDONLY);
  if (!file) return Failure(std::move(file.error()));
  auto s = file->stat();
  if (!s) return Failure(std::move(s.error()));
  const auto size = static_cast<uint64_t>(s->st_size);
  if (size > max_index_bytes)
    return fail(Status::shard_index, "the index of shards ", in_quotes(real_path), " has ", size,
                " bytes, more than the ", max_index_bytes, " that are read");
  const HugeBuffer bytes(size + header_padding);
  if (auto read = file->read(bytes.get(), size, 0); !read) return Failure(std::move(read.error()));
  std::memset(bytes.get() + size, 0, header_padding);
  uint64_t seed = 0;
  env.random(&seed, sizeof seed);
  auto index = ShardIndex::parse(bytes.get(), size, seed);
  if (!index) {
    index.error().message += text(" (", in_quotes(real_path), ")");
    return Failure(std::move(index.error()));
  }
  return ReadIndex{std::move(*index), *s, hash64(bytes.get(), size)};
}

Result<std::unique_ptr<Shards>> Shards::open(os::Env &env, const std::string &path, OpenOptions options) {
  std::unique_ptr<Shards> shards(new Shards(env, std::move(options)));
  if (const int r = env.realpath(path.c_str(), &shards->real_path_); r < 0) return Failure(os_error(-r, "open", path));
  const auto [folder, base] = os::split_path(path);
  if (const int r = env.realpath(folder.c_str(), &shards->folder_); r < 0) return Failure(os_error(-r, "open", folder));
  shards->path_ = shards->folder_ + "/" + base;
  if (auto shown = shards->show_anew(); !shown) return Failure(std::move(shown.error()));
  return shards;
}

Result<void> Shards::show_anew() {
  if (auto recovered = recover_if_needed({options().lock_timeout_ms, nullptr, nullptr}); !recovered) return recovered;
  auto read = read_index(env(), real_path_);
  if (!read) return Failure(std::move(read.error()));
  if (auto there = check_all_there(read->index); !there) return there;
  auto shown = make_catalogue(std::move(*read));
  show(std::move(shown));
  return {};
}

// One look at the folder, not one at each shard.
Result<void> Shards::check_all_there(const ShardIndex &index) const {
  auto dir = os::File::open(env(), AT_FDCWD, folder_, O_RDONLY | O_DIRECTORY, 0, folder_);
  if (!dir) return Failure(std::move(dir.error()));
  std::vector<std::string> names;
  if (const int r = env().list(dir->fd(), &names); r < 0) return Failure(dir->error(-r, "list"));
  const std::unordered_set<std::string_view> there(names.begin(), names.end());
  for (uint32_t i = 0; i < index.shards().size(); ++i)
    if (!there.contains(index.shards()[i])) return Failure(missing(i, folder_ + "/" + index.shards()[i]));
  return {};
}

Error Shards::missing(uint32_t number, const std::string &shard) const {
  Error e = error(Status::shard_missing, "shard ", in_quotes(shard), ", which ", in_quotes(path_),
                  " names, is not there; fetch it, or the checkpoint, again");
  e.shard = number;
  return e;
}

std::unique_ptr<ShownShards> Shards::make_catalogue(ReadIndex read) {
  std::vector<Member *> members;
  std::lock_guard lock(mutex_);
  for (const std::string &name : read.index.shards()) {
    auto found = by_name_.find(name);
    if (found == by_name_.end()) found = by_name_.emplace(name, add_member(folder_ + "/" + name)).first;
    members.push_back(found->second);
  }
  return std::make_unique<ShownShards>(*this, std::move(read), std::move(members));
}

write::Findings Shards::told() const {
  return [this](const write::Finding &f) {
    if (options().log) options().log(f.level, f.message);
    return true;
  };
}

Result<void> Shards::recover_if_needed(const os::LockWait &wait) {
  auto recovered = write::recover_super_if_needed(env(), real_path_, wait, options().writable, told());
  if (!recovered) return Failure(std::move(recovered.error()));
  return {};
}

Result<void> Shards::recover(const os::LockWait &wait) {
  auto recovered = write::recover_super_or_fail(env(), real_path_, wait, told());
  if (!recovered) return Failure(std::move(recovered.error()));
  return {};
}

const ShownShards &Shards::now() const {
  return static_cast<const ShownShards &>(shown());
}

Result<void> Shards::check_unchanged(const struct stat &read) const {
  struct stat by_path;
  const int r = env().fstatat(AT_FDCWD, real_path_.c_str(), &by_path, 0);
  if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "look at", real_path_));
  if (r == 0 && (state_of(by_path) == state_of(read) || state_of(by_path) == own_index_)) return {};
  return fail(Status::file_changed, "the index of shards ", in_quotes(path_),
              " was replaced since it was read; refresh the handle, or open it anew");
}

Result<void> Shards::await_writers() const {
  auto file = open_regular(env(), real_path_, O_RDONLY);
  if (!file) return {};  // whoever looks at the index next will tell
  auto lock = os::RangeLock::acquire(*file, {{0, 0, false}}, {options().lock_timeout_ms, nullptr, nullptr});
  // Where nothing can be locked nobody changes shards.
  if (!lock && lock.error().status != Status::lock_unsupported) return Failure(std::move(lock.error()));
  return {};
}

std::string Shards::name_of(const std::string &real_path, const ShownShards &shown) const {
  for (const Member *m : shown.members())
    if (m->opened() && m->opened()->path() == real_path) return os::split_path(m->path()).second;
  return os::split_path(real_path).second;
}

void Shards::used_journals(Checkpoint &shard) {
  constexpr size_t most = 16;
  std::lock_guard lock(mutex_);
  std::erase(with_journals_, &shard);
  with_journals_.push_back(&shard);
  if (with_journals_.size() <= most) return;
  with_journals_.front()->let_journals_go();
  with_journals_.erase(with_journals_.begin());
}

Result<std::unique_ptr<Collection>> Shards::reopen() const {
  auto again = open(env(), path_, options());
  if (!again) return Failure(std::move(again.error()));
  return std::move(*again);
}

Result<void> Shards::refresh() {
  for (const Checkpoint *c : opened())
    if (auto fresh = const_cast<Checkpoint *>(c)->refresh(); !fresh && fresh.error().status != Status::no_file)
      return fresh;
  return show_anew();
}

Result<std::unique_ptr<AnyTransaction>> Shards::begin(TransactionOptions options) {
  auto begun = ShardTransaction::begin(*this, std::move(options));
  if (!begun) return Failure(std::move(begun.error()));
  return std::move(*begun);
}

size_t Shards::members() const {
  return now().members().size();
}

std::string_view Shards::member_path(size_t i) const {
  return now().members()[i]->path();
}

Result<const Checkpoint *> Shards::member(size_t i) const {
  if (i >= members()) return fail(Status::out_of_range, "shard ", i, " was asked for, of ", members());
  auto pinned = now().pin(static_cast<uint32_t>(i));
  if (!pinned) return Failure(std::move(pinned.error()));
  return pinned->member;
}

size_t Shards::index_bytes() const {
  return now().index().memory_bytes();
}

}  // namespace st::store
