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

bool parse(std::string_view word, uint64_t *out) {
  const auto [end, ec] = std::from_chars(word.data(), word.data() + word.size(), *out);
  return ec == std::errc() && end == word.data() + word.size();
}

bool is_number(const std::string &name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool holds(Env &env, const std::string &fdinfo, uint64_t inode, const LockRange &range) {
  auto dir = File::open(env, AT_FDCWD, fdinfo, O_RDONLY | O_DIRECTORY, 0, fdinfo);
  if (!dir) return false;
  std::vector<std::string> descriptors;
  if (env.list(dir->fd(), &descriptors) < 0) return false;
  for (const std::string &d : descriptors) {
    auto file = File::open(env, dir->fd(), d, O_RDONLY, 0, d);
    if (!file) continue;
    char text[4096];
    auto got = file->read_up_to(text, sizeof text, 0);
    if (!got) continue;
    for (std::string_view rest(text, *got); !rest.empty();) {
      const size_t newline = std::min(rest.find('\n'), rest.size());
      if (line_locks(rest.substr(0, newline), inode, range)) return true;
      rest.remove_prefix(std::min(newline + 1, rest.size()));
    }
  }
  return false;
}

}  // namespace

bool line_locks(std::string_view line, uint64_t inode, const LockRange &range) {
  if (!line.starts_with("lock:")) return false;
  line.remove_prefix(5);
  for (int skip = 0; skip < 5; ++skip) next_word(line);  // number, kind, ADVISORY, READ or WRITE, pid
  std::string_view place = next_word(line);
  uint64_t its_inode, begin, end = UINT64_MAX;
  if (!parse(place.substr(std::min(place.rfind(':') + 1, place.size())), &its_inode) || its_inode != inode)
    return false;
  if (!parse(next_word(line), &begin)) return false;
  const std::string_view last = next_word(line);
  if (last != "EOF" && !parse(last, &end)) return false;
  const uint64_t wanted_end = range.length == 0 ? UINT64_MAX : range.begin + range.length - 1;
  return begin <= wanted_end && range.begin <= end;
}

pid_t find_lock_holder(const File &file, const LockRange &range) {
  Env &env = file.env();
  auto s = file.stat();
  auto proc = File::open(env, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY, 0, "/proc");
  std::vector<std::string> names;
  if (!s || !proc || env.list(proc->fd(), &names) < 0) return 0;
  const std::string self = text(env.getpid());
  for (const std::string &name : names)
    if (is_number(name) && name != self && holds(env, "/proc/" + name + "/fdinfo", s->st_ino, range))
      return static_cast<pid_t>(std::atoll(name.c_str()));
  return 0;
}

Error tell_holder(Error busy, const File &file, const LockRange &wanted) {
  if (busy.status != Status::busy) return busy;
  const bool waits_too = busy.offset != no_offset && busy.offset >= turnstile_begin;
  busy.holder_pid = find_lock_holder(file, waits_too ? LockRange{busy.offset, 1, true} : wanted);
  busy.message = text(busy.holder_pid ? text("process ", busy.holder_pid) : std::string("another worker"),
                      waits_too ? " waits for its turn to change " : " holds a lock on ", in_quotes(file.path()),
                      waits_too ? ", and comes first" : "", "; try again, or allow more time");
  busy.offset = no_offset;
  return busy;
}

}  // namespace st::os
