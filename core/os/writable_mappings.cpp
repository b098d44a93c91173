#include "os/writable_mappings.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/round.h"
#include "os/own_pages.h"
#include "os/process.h"
#include "os/whole_over_fork.h"

namespace st::os {
namespace {

struct Noted {
  Env *env;
  struct stat file;
  std::byte *data;
  size_t size;
};

struct List {
  std::mutex mutex;
  std::vector<Noted> mappings;
  std::vector<const BytesUnderChange *> changes;
  // What the parent changes is another process's now, and where it noted that, the child may have other things.
  void in_child() { changes.clear(); }
};

List &list() {
  return whole_over_fork<List>();
}

Result<void> make_private(const Noted &m, const File &file, const struct stat &now, uint64_t offset, uint64_t n) {
  // Beyond its end there is nothing to keep, and a touch would be a signal.
  const uint64_t end = std::min({offset + n, uint64_t{m.size}, static_cast<uint64_t>(now.st_size)});
  const uint64_t from = round_down(offset, page_size());
  if (offset >= end) return {};
  if (const int r = own_pages(*m.env, m.data + from, end - from); r < 0)
    return Failure(file.error(-r, "keep the old bytes for copy-on-write views of"));
  return {};
}

}  // namespace

Result<void> note_writable_mapping(const File &file, std::byte *data, size_t size) {
  ST_TRY(auto now, file.stat());
  const Noted made{&file.env(), now, data, size};
  std::vector<BytesUnderChange::Range> changing;
  {
    std::lock_guard lock(list().mutex);
    list().mappings.push_back(made);
    for (const BytesUnderChange *change : list().changes)
      if (same_inode(change->which_, now))
        changing.insert(changing.end(), change->ranges_.begin(), change->ranges_.end());
  }
  // It may take long, and others need the list meanwhile. Nobody unmaps it, and what changes next finds it in the list.
  for (const auto &range : changing) ST_TRY(make_private(made, file, now, range.offset, range.length));
  return {};
}

void forget_writable_mapping(const std::byte *data) {
  std::lock_guard lock(list().mutex);
  std::erase_if(list().mappings, [&](const Noted &m) { return m.data == data; });
}

BytesUnderChange::~BytesUnderChange() {
  if (ranges_.empty()) return;
  std::lock_guard lock(list().mutex);
  std::erase(list().changes, this);
}

// No server need be asked which file it is.
Result<void> BytesUnderChange::begin() {
  if (is_known_) return {};
  if (const int r = file_.env().fstat(file_.fd(), &which_); r < 0) return Failure(file_.error(-r, "stat"));
  is_known_ = true;
  return {};
}

Result<void> BytesUnderChange::keep(uint64_t offset, uint64_t n) {
  ST_TRY(begin());
  const bool is_first = ranges_.empty();
  std::lock_guard lock(list().mutex);
  ranges_.push_back({offset, n});
  if (is_first) list().changes.push_back(this);
  if (list().mappings.empty()) return {};
  ST_TRY(auto now, file_.stat());
  for (const Noted &m : list().mappings)
    if (same_inode(m.file, which_)) ST_TRY(make_private(m, file_, now, offset, n));
  return {};
}

}  // namespace st::os
