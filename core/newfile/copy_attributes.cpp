#include "newfile/copy_attributes.h"

#include <algorithm>
#include <cerrno>
#include <vector>

namespace st::write {
namespace {

constexpr std::string_view acl = "system.posix_acl_access";

bool has_none(ssize_t r) {
  return r == -EOPNOTSUPP || r == -ENOSYS || r == -EINVAL || r == -ENOTTY;
}

// Attribute names, each NUL-terminated; or with `name`, its value.
Result<std::string> read_whole(const os::File &file, const char *name) {
  os::Env &env = file.env();
  constexpr int attempts = 100;  // it may grow between the two calls
  ssize_t r = 0;
  for (int i = 0; i < attempts; ++i) {
    r = name ? env.fgetxattr(file.fd(), name, nullptr, 0) : env.flistxattr(file.fd(), nullptr, 0);
    if (r <= 0) break;
    std::string out(static_cast<size_t>(r), '\0');
    r = name ? env.fgetxattr(file.fd(), name, out.data(), out.size())
             : env.flistxattr(file.fd(), out.data(), out.size());
    if (r == -ERANGE) continue;
    if (r < 0) break;
    out.resize(static_cast<size_t>(r));
    return out;
  }
  if (r >= 0 || r == -ENODATA || has_none(r)) return std::string();
  return Failure(file.error(static_cast<int>(-r), "read the attributes of"));
}

std::vector<std::string> split(std::string_view names) {
  std::vector<std::string> out;
  for (; !names.empty(); names.remove_prefix(out.back().size() + 1))
    out.emplace_back(names.substr(0, std::min(names.find('\0'), names.size() - 1)));
  return out;
}

// Labels of security modules and of the filesystem are theirs to give.
bool is_users(std::string_view name) {
  if (!os::attributes_have_namespaces) return !name.starts_with("com.apple.");
  return name.starts_with("user.") || name.starts_with("system.");
}

// An ACL that says no more than a mode (linux/posix_acl_xattr.h): takes away
// what the folder's default ACL gave the new file.
Result<void> drop_acl(const os::File &to, mode_t mode) {
  const auto allows = [mode](int shift) { return static_cast<char>(mode >> shift & 7); };
  const char none = '\xff';
  const char minimal[] = {2,    0, 0,         0,                           // version
                          0x01, 0, allows(6), 0, none, none, none, none,   // the owner
                          0x04, 0, allows(3), 0, none, none, none, none,   // the group
                          0x20, 0, allows(0), 0, none, none, none, none};  // others
  const int r = to.env().fsetxattr(to.fd(), acl.data(), minimal, sizeof minimal);
  if (r < 0) return Failure(to.error(-r, "reset the ACL of"));
  return {};
}

// rclone has no attributes, and says EIO for that, of each file.
bool says_eio_of_any(const Error &e, const os::File &other) {
  return e.os_errno == EIO && other.env().flistxattr(other.fd(), nullptr, 0) == -EIO;
}

Result<void> copy_extended_attributes(const os::File &from, const os::File &to, mode_t mode) {
  const auto listed = read_whole(from, nullptr);
  if (!listed && says_eio_of_any(listed.error(), to)) return {};
  if (!listed) return Failure(listed.error());
  std::vector<std::string> names = split(*listed);
  // ACLs, whatever their kind, come last: they may forbid to write, and then to set another attribute, too.
  std::stable_partition(names.begin(), names.end(), [](const auto &name) { return !name.starts_with("system."); });
  bool has_acl = false;
  for (const std::string &name : names) {
    has_acl |= name == acl;
    ST_TRY(auto value, read_whole(from, name.c_str()));
    const int r = to.env().fsetxattr(to.fd(), name.c_str(), value.data(), value.size());
    if (r < 0 && is_users(name))
      return Failure(to.error(-r, text("carry the attribute ", in_quotes(name), " over to")));
  }
  if (has_acl) return {};
  ST_TRY(auto given, read_whole(to, acl.data()));
  return given.empty() ? Result<void>() : drop_acl(to, mode);
}

}  // namespace

Result<void> copy_attributes(const os::File &from, const os::File &to, const Log &log) {
  ST_TRY(auto old, from.stat());
  ST_TRY(auto made, to.stat());
  constexpr mode_t permissions = 07777;
  mode_t mode = old.st_mode & permissions;
  os::Env &env = to.env();
  if (old.st_gid != made.st_gid && env.fchown(to.fd(), static_cast<uid_t>(-1), old.st_gid) < 0) {
    // The members of the group that it has instead were among the others.
    mode &= static_cast<mode_t>(~(S_IRWXG | S_ISGID) | (mode & S_IRWXO) << 3);
    log(LogLevel::warning, text("the new ", in_quotes(from.path()), " could not be given to group ", old.st_gid,
                                "; its own group has no more rights to it than others"));
  }
  if (old.st_uid != made.st_uid && env.fchown(to.fd(), old.st_uid, static_cast<gid_t>(-1)) < 0) {
    mode &= static_cast<mode_t>(~S_ISUID);
    log(LogLevel::warning, text("the new ", in_quotes(from.path()), " will belong to user ", made.st_uid,
                                ", as it could not be given to user ", old.st_uid));
  }
  ST_TRY(copy_extended_attributes(from, to, mode));
  const int r = env.fchmod(to.fd(), mode);
  if (r == 0) return {};
  // Some filesystems have one mode for all files, and refuse to set any.
  ST_TRY(made, to.stat());
  return (made.st_mode & permissions) == mode ? Result<void>() : Failure(to.error(-r, "set the mode of"));
}

}  // namespace st::write
