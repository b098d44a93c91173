#include "journal/rights.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

namespace st::write {
namespace {

using Acl = std::vector<AclEntry>;

constexpr const char *access_acl = "system.posix_acl_access", *default_acl = "system.posix_acl_default";
constexpr uint32_t acl_version = 2, no_id = UINT32_MAX;
constexpr uint16_t every_right = AclEntry::read | AclEntry::write | AclEntry::search;

void put(std::string *out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>(value >> 8 * i & 0xff);
}

uint32_t number_at(const std::string &in, size_t at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(in[at + i]);
  return value;
}

std::string encode(const Acl &acl) {
  std::string out;
  put(&out, acl_version, 4);
  for (const AclEntry &e : acl) {
    put(&out, e.tag, 2);
    put(&out, e.may, 2);
    put(&out, e.id, 4);
  }
  return out;
}

// Empty, if there is none. Nothing, if that cannot be known.
std::optional<Acl> read_acl(const os::File &file, const char *name) {
  constexpr size_t longest = size_t{8} << 10, head = 4, entry = 8;
  std::string bytes(longest, '\0');
  const ssize_t r = file.env().fgetxattr(file.fd(), name, bytes.data(), bytes.size());
  if (r == -ENODATA || r == -EOPNOTSUPP || r == -ENOSYS || r == -ENOTTY || r == -EINVAL) return Acl();
  if (r < 0) return std::nullopt;
  const auto size = static_cast<size_t>(r);
  if (size < head || (size - head) % entry != 0 || number_at(bytes, 0, 4) != acl_version) return std::nullopt;
  Acl acl;
  for (size_t at = head; at < size; at += entry)
    acl.push_back({static_cast<uint16_t>(number_at(bytes, at, 2)), static_cast<uint16_t>(number_at(bytes, at + 2, 2)),
                   number_at(bytes, at + 4, 4)});
  return acl;
}

void take_in(const Acl &acl, Rights *rights) {
  rights->has_acl = true;
  uint16_t mask = every_right;
  for (const AclEntry &e : acl)
    if (e.tag == AclEntry::mask) mask = e.may;
  for (const AclEntry &e : acl) {
    const auto may = static_cast<uint16_t>(e.may & mask);
    if (e.tag == AclEntry::owning_group) rights->group = may;
    if (e.tag == AclEntry::user || e.tag == AclEntry::group) rights->named.push_back({e.tag, may, e.id});
  }
}

// What the folder's default ACL gave to it.
bool drop_given_acl(const os::File &made, const struct stat &s) {
  os::Env &env = made.env();
  if (S_ISDIR(s.st_mode)) {
    const auto given = read_acl(made, default_acl);
    const std::string none = encode({});
    if (!given || !given->empty()) env.fsetxattr(made.fd(), default_acl, none.data(), none.size());
  }
  const auto given = read_acl(made, access_acl);
  if (!given) return false;
  if (given->empty()) return true;
  const auto own = static_cast<uint16_t>(s.st_mode >> 6 & 7);
  const std::string minimal =
      encode({{AclEntry::owner, own, no_id}, {AclEntry::owning_group, 0, no_id}, {AclEntry::others, 0, no_id}});
  return env.fsetxattr(made.fd(), access_acl, minimal.data(), minimal.size()) == 0;
}

}  // namespace

Rights::Rights(const struct stat &of)
    : data(of), group(static_cast<uint16_t>(of.st_mode >> 3 & 7)), others(static_cast<uint16_t>(of.st_mode & 7)) {}

namespace {

// Another file has taken the name of `data` since. A publish may have put it there, which keeps all rights. Or a user
// that wants to read the journal has. So the other file gives no more than `data` gives to all. What the group might,
// nobody knows any more, as a mode does not tell it where there is an ACL.
Rights rights_of_another(const struct stat &now, const Acl &acl, const struct stat &data) {
  constexpr mode_t permissions = 0777;
  Rights rights;
  rights.data = data;
  rights.are_guessed = true;
  const bool is_alike = now.st_uid == data.st_uid && now.st_gid == data.st_gid && acl.empty() &&
                        (now.st_mode & permissions) == (data.st_mode & permissions);
  const Rights by_mode(data);
  if (is_alike) rights.others = rights.group = static_cast<uint16_t>(by_mode.others & by_mode.group);
  return rights;
}

}  // namespace

Rights rights_of(const os::Location &file, const struct stat &data) {
  constexpr mode_t of_others_than_the_owner = 0077;
  if ((data.st_mode & of_others_than_the_owner) == 0) return {data};  // with any ACL
  Rights none;
  none.data = data;
  const auto opened = file.open(O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!opened) return none;
  const auto now = opened->stat();
  const auto acl = read_acl(*opened, access_acl);
  if (!now || !acl || !S_ISREG(now->st_mode)) return none;
  if (!os::same_inode(*now, data)) return rights_of_another(*now, *acl, data);
  Rights rights(*now);
  if (!acl->empty()) take_in(*acl, &rights);
  return rights;
}

void open_to_readers(const os::File &made, const Rights &rights) {
  os::Env &env = made.env();
  const struct stat &data = rights.data;
  const auto s = made.stat();
  if (!s || !drop_given_acl(made, *s)) return;
  const bool is_folder = S_ISDIR(s->st_mode);
  const auto to_read = [&](uint16_t may) -> uint16_t {
    may &= AclEntry::read;
    return is_folder && may ? may | AclEntry::search : may;
  };
  const uint16_t all = AclEntry::read | AclEntry::write | (is_folder ? AclEntry::search : 0);

  // Root's go to the file's owner, so that the owner can recover without root.
  const bool gives = s->st_uid != data.st_uid && env.geteuid() == 0;
  bool is_owners = s->st_uid == data.st_uid, is_groups = s->st_gid == data.st_gid;
  if ((!is_groups || gives) && env.fchown(made.fd(), gives ? data.st_uid : static_cast<uid_t>(-1), data.st_gid) == 0) {
    is_owners |= gives;
    is_groups = true;
  }

  const uint16_t group = to_read(rights.group), others = to_read(rights.others);
  // Its maker's group, where the file's cannot be given: they are others to the file, or of its group too.
  const uint16_t own_group = is_groups ? group : group & others;
  const bool some_may_less = own_group < others || std::any_of(rights.named.begin(), rights.named.end(),
                                                               [&](auto &e) { return to_read(e.may) < others; });
  Acl users, groups;
  if (!is_owners && (!others || some_may_less))
    users.push_back(
        {AclEntry::user, to_read(static_cast<uint16_t>(data.st_mode >> 6)), static_cast<uint32_t>(data.st_uid)});
  for (const AclEntry &e : rights.named)
    if (e.tag == AclEntry::user && e.id != data.st_uid) users.push_back({e.tag, to_read(e.may), e.id});
  if (!is_groups && group) groups.push_back({AclEntry::group, group, static_cast<uint32_t>(data.st_gid)});
  for (const AclEntry &e : rights.named)
    if (e.tag == AclEntry::group) groups.push_back({e.tag, to_read(e.may), e.id});

  if (!users.empty() || !groups.empty()) {
    Acl acl{{AclEntry::owner, all, no_id}};
    acl.insert(acl.end(), users.begin(), users.end());
    acl.push_back({AclEntry::owning_group, own_group, no_id});
    acl.insert(acl.end(), groups.begin(), groups.end());
    uint16_t mask = 0;  // of all but the owner and others
    for (const AclEntry &e : acl)
      if (e.tag != AclEntry::owner) mask |= e.may;
    acl.push_back({AclEntry::mask, mask, no_id});
    acl.push_back({AclEntry::others, others, no_id});
    const std::string bytes = encode(acl);
    if (env.fsetxattr(made.fd(), access_acl, bytes.data(), bytes.size()) == 0 || rights.has_acl) return;
  }
  const auto mode = static_cast<mode_t>(all << 6 | own_group << 3 | others);
  if ((s->st_mode & 0777) != mode) env.fchmod(made.fd(), mode);
}

}  // namespace st::write
