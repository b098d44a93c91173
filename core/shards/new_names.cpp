// The commit of a transaction on shards whose new files take no other's name (`ST_TXN_NEW_NAMES`). What the old index
// names stays as it is, so readers of it find all that they look for; and the rename of the index is the only step that
// counts. Before it nothing names the new files, and after it nothing is left to do. So no journal decides; see
// Participant::raise_fence.
#include <algorithm>
#include <cerrno>
#include <new>

#include "base/open_outcome.h"
#include "newfile/names.h"
#include "newfile/room.h"
#include "os/turnstile.h"
#include "shards/shard_commit.h"

namespace st::store {

std::string ShardCommit::name_after(const std::string &shard) const {
  return work_.grace_s ? new_names_.at(shard) : shard;
}

// One number for all: larger than any before it, and that of no file that is there. Names that differ in their numbers
// alone get one each.
Result<void> ShardCommit::choose_names() {
  constexpr int attempts = 1000;
  ST_TRY(auto read, Shards::read_index(shards_.location(), {work_.timeout_ms}, &shown_.read()));
  ST_TRY(old_, OldShards::look(shards_.location(), read.index()));
  for (uint64_t number = old_->generation() + 1, end = number + attempts; number < end; ++number) {
    std::map<std::string, uint64_t> next;  // of each name without its number
    new_names_.clear();
    bool is_free = true;
    for (const auto &part : parts_) {
      const std::string shard = name_of(*part);
      uint64_t &own = next.try_emplace(write::with_generation(shard, 0), number).first->second;
      const os::Location at = shards_.location().beside(write::with_generation(shard, own++));
      new_names_[shard] = at.name();
      struct stat s;
      const int r = at.stat(&s);
      if (r == -ENAMETOOLONG)
        return fail(Status::unsupported, "the name of shard ", in_quotes(shard), " is too long for a new one");
      if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "look at", at.path()));
      const os::Location journals = at.beside(write::journal_folder_name(at.name()));
      is_free &= r < 0 && journals.stat(&s) == -ENOENT;  // those of a file that was removed
    }
    if (is_free) return {};
  }
  return fail(Status::unsupported, "the folder of ", in_quotes(shards_.path()), " has a file under each of ", attempts,
              " new names");
}

Result<std::vector<write::OldShard>> ShardCommit::will_be_old() const {
  std::vector<write::OldShard> old;
  const uint64_t until = shards_.env().unix_time() + *work_.grace_s;
  std::vector<std::string> names = old_->unnamed();  // a writer that is only dying had them locked
  for (const auto &part : parts_) names.push_back(name_of(*part));
  for (const std::string &name : names) {
    if (!write::may_be_listed(name))
      return fail(Status::unsupported, "shard ", in_quotes(name),
                  name.ends_with(".safetensors") ? " has a line break in its name" : " is not named *.safetensors",
                  ", so it cannot get a new name");
    ST_TRY(auto shard, OldShards::shard_at(shards_.location().beside(name), until));
    old.push_back(std::move(shard));
  }
  return old;
}

// The old files stay, so what is written is what is taken.
Result<CommitPlan> ShardCommit::reckon_new_names(const os::File &beside) {
  ST_TRY(choose_names());
  CommitPlan sum;
  sum.kind = CommitPlan::publish;
  moves_.clear();
  for (const auto &part : parts_) {
    ST_TRY(auto plan, part->plan(nullptr));
    moves_.push_back(part->keeps_any() ? plan.cost.moved() : 0);
    if (!part->keeps_any()) continue;
    sum.file_size += plan.file_size;
    sum.data_offset = std::max(sum.data_offset, plan.data_offset);
    sum.cost += plan.cost;
  }
  ST_TRY(auto index, new_index());
  if (parts_.empty() && !index) return nothing();
  ST_TRY(auto old, will_be_old());
  ST_TRY(auto list, old_->spell(old));
  const uint64_t block = write::room_of(beside).block;
  if (index) sum.cost += {index->size(), 0, 0, write::room_of_new_file(index->size(), 0, block)};
  if (!parts_.empty()) sum.cost += {list.size(), 0, 0, write::room_of_new_file(list.size(), 0, block)};
  sum.space_needed = write::room_with_metadata(os::probe_filesystem(beside).type, sum.cost.room);
  const size_t n = parts_.size();
  sum.how = n == 0 ? std::string("a new index takes the old one's place; no shard is changed")
                   : text(n, n == 1 ? " shard is" : " shards are", " written under new names, and a new index names ",
                          n == 1 ? "it" : "them", "; the old ", n == 1 ? "one stays " : "ones stay ", *work_.grace_s,
                          " s for readers of the old index");
  return sum;
}

// All that can fail: afterwards everything that is to be is on the disk, and nothing names it.
Result<void> ShardCommit::prepare_new_names(const Asked &at_last) {
  ST_TRY(open_folder());
  const uint64_t now = shards_.env().unix_time();
  shards_.keep_open(old_->due(now));
  ST_TRY(with_room([&] { return old_->remove(now, index_.file(), {work_.timeout_ms}, write::told_to(found_.log())); }));
  ST_TRY(
      prepare_each([&](Participant &part) { return part.prepare_new_name(shards_.location().beside(name_of(part))); }));
  ST_TRY(auto spelled, new_index());
  if (spelled) ST_TRY(make_index(*spelled));
  if (!parts_.empty()) {
    ST_TRY(auto old, with_room([this] { return will_be_old(); }));
    ST_TRY(auto list, old_->spell(old));
    ST_TRY(with_room([&] { return old_->write_list(list, index_.file(), warnings_.log()); }));
    ST_TRY(sync_folder());  // a shard that no index comes to name must lie beside a list
  }
  for (const auto &part : parts_)
    if (part->keeps_any()) ST_TRY(part->take_new_name(name_after(name_of(*part))));
  ST_TRY(sync_folder());
  ST_TRY(with_room(at_last));
  ST_TRY(check_in_place());
  for (const auto &part : parts_) ST_TRY(part->check_fence());
  return {};
}

// Also if that cannot be told.
bool ShardCommit::is_index_in_place() const noexcept try {
  const auto replaced = shards_.location().was_replaced(index_.file());
  return !replaced || *replaced;
} catch (const std::bad_alloc &) {
  return true;
}

Result<void> ShardCommit::commit_new_names(const Asked &at_last) {
  ST_TRY(or_drop_all([&] { return prepare_new_names(at_last); }));
  Result<void> done;
  if (index_.fresh) {
    // Before the new index may stand: whatever becomes of this process, what it names stays.
    for (const auto &part : parts_) part->leave_new_name(true);
    bool renamed = false;
    try {
      done = shards_.rename_index(index_.file(), *index_.fresh);
      renamed = done.has_value();
      if (renamed) ++shards_.shards_newer_;
      if (renamed) done = sync_folder();
    } catch (const std::bad_alloc &) {
      done = Failure(Error{Status::nomem, {}});
    }
    if (done) os::hand_over(index_.file(), index_.held->lock);
    if (!renamed && !is_index_in_place()) {
      for (const auto &part : parts_) part->leave_new_name(false);
      drop_all();
      if (done.error().message.empty()) throw std::bad_alloc();
      return done;
    }
  }
  for (const auto &part : parts_) part->finish_new_name();
  if (index_.fresh) ++shards_.account().counters.commits;
  if (!done) shards_.poison();
  if (done) return done;
  return st::open_outcome(std::move(done.error()), [this](const std::string &why) {
    return text("the new index of ", in_quotes(shards_.path()),
                " is in place, but a power cut may bring the old one back (", why,
                "); close the handle, open the checkpoint anew and look which it is");
  });
}

}  // namespace st::store
