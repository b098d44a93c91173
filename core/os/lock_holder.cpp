#include "os/lock_holder.h"

#include <algorithm>
#include <charconv>

#include "os/turnstile.h"

namespace st::os {
namespace {

std::string_view next_word(std::string_view &rest) {
  const size_t begin = std::min(rest.find_first_not_of(" \t"), rest.size());
  const size_t end = std::min(rest.find_first_of(" \t", begin), rest.size());
  const std::string_view word = rest.substr(begin, end - begin);
  rest.remove_prefix(end);
  return word;
}

bool parse(std::string_view word, uint64_t *out, int base = 10) {
  const auto [end, ec] = std::from_chars(word.data(), word.data() + word.size(), *out, base);
  return ec == std::errc() && end == word.data() + word.size();
}

bool is_number(const std::string &name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "fe:00:1234", the device in hexadecimal.
Locks is_place_of(std::string_view place, const struct stat &file) {
  const size_t first = std::min(place.find(':'), place.size()), last = place.rfind(':');
  uint64_t of_kind, of_device, inode;
  if (first == place.size() || first == last || !parse(place.substr(0, first), &of_kind, 16) ||
      !parse(place.substr(first + 1, last - first - 1), &of_device, 16) || !parse(place.substr(last + 1), &inode) ||
      inode != file.st_ino)
    return Locks::no;
  const auto kind = static_cast<uint64_t>(major(file.st_dev)), device = static_cast<uint64_t>(minor(file.st_dev));
  if (of_kind == kind && of_device == device) return Locks::yes;
  return of_kind == 0 && kind == 0 ? Locks::maybe : Locks::no;
}

Locks holds(Env &env, const std::string &fdinfo, const struct stat &locked, const LockRange &range) {
  Locks found = Locks::no;
  auto dir = File::open(env, AT_FDCWD, fdinfo, O_RDONLY | O_DIRECTORY, 0, fdinfo);
  if (!dir) return found;
  std::vector<std::string> descriptors;
  if (env.list(dir->fd(), &descriptors) < 0) return found;
  for (const std::string &d : descriptors) {
    auto file = File::open(env, dir->fd(), d, O_RDONLY, 0, d);
    if (!file) continue;
    char text[4096];
    auto got = file->read_up_to(text, sizeof text, 0);
    if (!got) continue;
    for (std::string_view rest(text, *got); !rest.empty();) {
      const size_t newline = std::min(rest.find('\n'), rest.size());
      found = std::max(found, line_locks(rest.substr(0, newline), locked, range));
      if (found == Locks::yes) return found;
      rest.remove_prefix(std::min(newline + 1, rest.size()));
    }
  }
  return found;
}

}  // namespace

Locks line_locks(std::string_view line, const struct stat &file, const LockRange &range) {
  if (!line.starts_with("lock:")) return Locks::no;
  line.remove_prefix(5);
  for (int skip = 0; skip < 5; ++skip) next_word(line);  // number, kind, ADVISORY, READ or WRITE, pid
  const Locks of_file = is_place_of(next_word(line), file);
  uint64_t begin, end = UINT64_MAX;
  if (!parse(next_word(line), &begin)) return Locks::no;
  const std::string_view last = next_word(line);
  if (last != "EOF" && !parse(last, &end)) return Locks::no;
  const uint64_t wanted_end = range.length == 0 ? UINT64_MAX : range.begin + range.length - 1;
  return begin <= wanted_end && range.begin <= end ? of_file : Locks::no;
}

pid_t find_lock_holder(const File &file, const LockRange &range) {
  Env &env = file.env();
  auto s = file.stat();
  auto proc = File::open(env, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY, 0, "/proc");
  std::vector<std::string> names;
  if (!s || !proc || env.list(proc->fd(), &names) < 0) return 0;
  const std::string self = text(env.getpid());
  pid_t perhaps = 0;
  for (const std::string &name : names) {
    if (!is_number(name) || name == self) continue;
    const Locks locks = holds(env, "/proc/" + name + "/fdinfo", *s, range);
    const auto pid = static_cast<pid_t>(std::atoll(name.c_str()));
    if (locks == Locks::yes) return pid;
    if (locks == Locks::maybe) perhaps = pid;
  }
  return perhaps;
}

std::string name_of_holder(pid_t pid) {
  return pid ? text("process ", pid) : std::string("another worker");
}

Error tell_holder(Error busy, const File &file, const LockRange &wanted) {
  if (busy.status != Status::busy) return busy;
  const bool waits_too = busy.offset != no_offset && busy.offset >= turnstile_begin;
  busy.holder_pid = find_lock_holder(file, waits_too ? LockRange{busy.offset, 1, true} : wanted);
  busy.message =
      text(name_of_holder(busy.holder_pid), waits_too ? " waits for its turn to change " : " holds a lock on ",
           in_quotes(file.path()), waits_too ? ", and comes first" : "", "; try again, or allow more time");
  busy.offset = no_offset;
  return busy;
}

}  // namespace st::os
