#include "os/rename_over.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <vector>

namespace st::os {
namespace {

constexpr std::string_view temporaries[] = {".st-tmp-", ".st-new-"};
constexpr size_t digits = 16, longest_name = 255;

std::string_view digits_of(std::string_view name) {
  if (name.size() < digits) return {};
  const std::string_view last = name.substr(name.size() - digits);
  return last.find_first_not_of("0123456789abcdef") == std::string_view::npos ? last : std::string_view();
}

// Empty, if the name is too long for that.
std::string second_name(const std::string &name, std::string_view temporary) {
  const std::string_view its = digits_of(temporary);
  std::string second = text(".", name, second_name_infix, its);
  return its.empty() || second.size() > longest_name ? std::string() : second;
}

bool is_there(const Location &at) {
  struct stat s;
  return at.stat(&s) != -ENOENT;
}

bool may_be_there(const Result<std::vector<std::string>> &listed, const std::string &name) {
  return !listed || std::ranges::find(*listed, name) != listed->end();
}

// Nobody has the name, and those that would replace its file were kept out. A program without locks may make a file of
// that name meanwhile: a link does not take its place.
int give_back(const Location &at, const std::string &second) {
  const int r = repeat_interrupted([&] { return at.env().linkat(at.dir(), second.c_str(), at.name().c_str()); });
  if (r == -EEXIST) return 0;
  if (r == 0) return at.env().unlinkat(at.dir(), second.c_str(), 0), 0;
  return repeat_interrupted([&] { return at.env().renameat(at.dir(), second.c_str(), at.dir(), at.name().c_str()); });
}

// Has its temporary not taken the name?
bool is_amid(const std::vector<std::string> &listed, std::string_view second) {
  return std::ranges::any_of(temporaries, [&](std::string_view infix) {
    return std::ranges::find(listed, text(".", had_name(second), infix, digits_of(second))) != listed.end();
  });
}

// Without the right to list the folder there is none to tell of.
Result<std::vector<std::string>> amid(const Location &at) {
  const auto listed = at.folder()->list();
  std::vector<std::string> found;
  if (!listed && listed.error().os_errno != EACCES) return Failure(listed.error());
  if (!listed) return found;
  std::ranges::copy_if(*listed, std::back_inserter(found),
                       [&](const std::string &name) { return had_name(name) == at.name() && is_amid(*listed, name); });
  return found;
}

// A reader's lock keeps a writer out, too.
Result<File> open_second(const Location &old, bool *writes) {
  constexpr int flags = O_NONBLOCK | O_NOCTTY;
  auto file = old.open(O_RDWR | flags);
  *writes =
      file || (file.error().os_errno != EACCES && file.error().os_errno != EPERM && file.error().os_errno != EROFS);
  return *writes ? std::move(file) : old.open(O_RDONLY | flags);
}

// Under a lock that its writer has while it lives. Status busy: it lives.
Result<bool> lock_and_give_back(const Location &at, const std::string &second) {
  const Location old = at.beside(second);
  bool writes = false;
  auto file = open_second(old, &writes);
  if (!file) return file.error().status == Status::no_file ? Result<bool>(true) : Failure(std::move(file.error()));
  auto lock = RangeLock::acquire(*file, {whole_file(writes)}, {});
  if (!lock && lock.error().status != Status::lock_unsupported) return Failure(std::move(lock.error()));
  at.renew();
  if (const int r = is_there(at) ? 0 : give_back(at, second); r < 0 && r != -ENOENT)
    return Failure(os_error(-r, "give its name back to", at.path()));
  return true;
}

}  // namespace

std::string_view had_name(std::string_view entry) {
  const std::string_view its = digits_of(entry);
  if (its.empty() || !entry.starts_with('.')) return {};
  const std::string_view rest = entry.substr(1, entry.size() - 1 - digits);
  const bool is_one = rest.size() > second_name_infix.size() && rest.ends_with(second_name_infix);
  return is_one ? rest.substr(0, rest.size() - second_name_infix.size()) : std::string_view();
}

void add_replaced(std::vector<std::string> *listed) {
  std::vector<std::string> more;
  for (const std::string &name : *listed)
    if (const std::string_view had = had_name(name); !had.empty() && is_amid(*listed, name))
      if (std::ranges::find(*listed, had) == listed->end() && std::ranges::find(more, had) == more.end())
        more.emplace_back(had);
  listed->insert(listed->end(), more.begin(), more.end());
}

Result<bool> is_replaced_in_two_steps(const Location &at) {
  ST_TRY(const auto own, at.folder()->storage());
  return replaces_in_two_steps(own->filesystem.type);
}

Result<bool> is_too_long_to_replace(const Location &at) {
  ST_TRY(const auto own, at.folder()->storage());
  return removes_what_it_cannot_replace(own->filesystem.type) &&
         second_name(at.name(), std::string(digits, '0')).empty();
}

int rename_over(const Location &to, int from_dir, const std::string &temporary, bool *needed) {
  const auto own = to.folder()->storage();
  if (!own) return -own.error().os_errno;
  const std::string &type = (*own)->filesystem.type;
  const bool moves = removes_what_it_cannot_replace(type);
  std::string second = replaces_in_two_steps(type) ? second_name(to.name(), temporary) : std::string();
  struct stat s;
  if (moves && second.empty() && to.stat(&s) != -ENOENT) return -ENAMETOOLONG;
  const auto name = [&] {
    return moves ? to.env().renameat(to.dir(), to.name().c_str(), to.dir(), second.c_str())
                 : to.env().linkat(to.dir(), to.name().c_str(), second.c_str());
  };
  const int named = second.empty() ? 0 : repeat_interrupted(name);
  const auto rename = [&] { return to.env().renameat(from_dir, temporary.c_str(), to.dir(), to.name().c_str()); };
  // Or there is no old file, which a client is not believed at once: it would remove that.
  const bool has_moved = named >= 0 || (named == -ENOENT && moves && to.stat(&s) == -ENOENT);
  const int r = moves && !has_moved ? named : repeat_interrupted(rename);
  if (second.empty() || (r >= 0 && named == -ENOENT)) return r;
  if (r < 0) {
    to.renew();
    const int there = to.stat(&s);
    // A name that cannot be given back now is given back by the next open. A server that does not answer may have given
    // the old file no other name; or it has, and its answer was lost.
    const bool stands = there == 0 || (there == -ENOENT && give_back(to, second) == 0);
    if (needed) *needed = !stands && may_be_there(to.folder()->list(), second);
    if (there < 0) return r;
  }
  to.env().unlinkat(to.dir(), second.c_str(), 0);
  return r;
}

Result<bool> await_rename_over(const Location &at, const LockWait &wait) {
  ST_TRY(const bool in_two_steps, is_replaced_in_two_steps(at));
  if (!in_two_steps) return false;
  const File closed = File::closed(at.env(), at.path());
  Patience patience(closed, wait);
  for (bool found = false;; found = true) {
    ST_TRY(const auto all, amid(at));
    at.renew();
    if (is_there(at)) return true;
    if (all.empty()) return found;
    auto back = lock_and_give_back(at, all.front());
    if (back || back.error().status != Status::busy) return back;
    ST_TRY(patience.check(0));
    patience.sleep();
  }
}

Result<struct stat> look_up(const Location &at, const LockWait &wait) {
  struct stat s;
  int r = at.stat(&s);
  for (int left = 10; r == -ENOENT && left > 0; --left) {
    ST_TRY(const bool changed, await_rename_over(at, wait));
    if (!changed) break;
    r = at.stat(&s);
  }
  if (r < 0) return Failure(os_error(-r, "look at", at.path()));
  return s;
}

void remove_second_names(const Location &at) {
  struct stat named, other;
  if (!is_replaced_in_two_steps(at).value_or(false)) return;
  const auto listed = at.folder()->list();
  if (!listed || at.stat(&named) != 0) return;
  for (const std::string &name : *listed)
    if (had_name(name) == at.name() && at.beside(name).stat(&other) == 0 && same_inode(named, other))
      at.env().unlinkat(at.dir(), name.c_str(), 0);
}

}  // namespace st::os
