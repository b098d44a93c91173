#include "model/model_file.h"

namespace st::store {
namespace {

// It, and not what it leads to.
bool is_link_older(const os::Directory &folder, const std::string &name, uint64_t second) {
  struct stat s;
  if (folder.env().fstatat(folder.fd(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW) < 0) return false;
  return S_ISLNK(s.st_mode) && os::was_changed_before(s, second);
}

// Does it lead to that file with no other link on the way?
bool leads_straight_to(const os::Directory &folder, const std::string &name, const struct stat &file) {
  os::Env &env = folder.env();
  std::string target;
  if (env.readlinkat(folder.fd(), name.c_str(), &target) < 0) return false;
  const int fd = env.openat_without_links(folder.fd(), target.c_str(), O_PATH);
  if (fd < 0) return false;
  struct stat s;
  const int r = env.fstat(fd, &s);
  env.close(fd);
  return r == 0 && os::same_inode(s, file);
}

}  // namespace

// What may have changed, of a link, are the link and the file.
bool Member::is_untouched_since(uint64_t second, const Snapshot &state) const {
  if (!opened()->is_untouched_since(second, state)) return false;
  return !is_link() || (is_link_older(*folder_, name_, second) && leads_straight_to(*folder_, name_, state.identity));
}

Result<bool> Member::was_replaced_by_others(const Snapshot &state) const {
  if (is_link()) {
    auto now = os::Location::find_in(folder_, name_);
    if (now && !(now->folder()->is(*at().folder()) && now->name() == at().name())) return true;
  }
  return opened()->was_replaced_by_others(state);
}

}  // namespace st::store
