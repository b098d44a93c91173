// Renames over files, and removals, also of files that are open: as POSIX has it, where the system can. Else (Windows
// before 10 1709, FAT, wine 8) what is removed gets a name aside first, so that its own name is free at once. A file
// that is open can only be replaced in two steps then: the old one goes aside, and the new one takes its name. Between
// them there is no file, and if the process dies there, restore_replaced() gives the old one its name back.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "os/win32/nt.h"
#include "os/win32/replace.h"

namespace st::os {
namespace {

constexpr int rename_information = 10, rename_information_ex = 65, disposition_information = 13,
              disposition_information_ex = 64;
constexpr std::wstring_view gone_prefix = L".st-gone-", replaced = L".st-replaced-by-", journals = L".st-journal";
constexpr size_t digits = 16;  // at the end of the name of a temporary, and of what it replaced
constexpr LONGLONG time_of_removed = 119651168960000000;  // 1980-02-29 03:34:56, when hardly a file was changed

std::atomic<bool> left_aside{false};

int set_information(HANDLE handle, void *what, size_t n, int kind) {
  IO_STATUS_BLOCK done;
  return of_status(
      ::NtSetInformationFile(handle, &done, what, static_cast<ULONG>(n), static_cast<FILE_INFORMATION_CLASS>(kind)));
}

struct RenameInformation {
  ULONG flags;  // 1: replace, 2: by POSIX; or a BOOLEAN
  HANDLE root;
  ULONG length;
  WCHAR name[1];
};

int rename_as(HANDLE handle, HANDLE to_dir, const std::wstring &to, ULONG flags, int kind) {
  const size_t bytes = to.size() * sizeof(wchar_t), all = sizeof(RenameInformation) + bytes;
  const auto memory = std::make_unique<std::byte[]>(all);
  auto *wanted = new (memory.get()) RenameInformation{flags, to_dir, static_cast<ULONG>(bytes), {}};
  std::copy(to.begin(), to.end(), wanted->name);
  return set_information(handle, wanted, all, kind);
}

// Does the volume remove and replace open files as POSIX has it (NTFS, from Windows 10 1709 on)? Known by what it
// answered, and asked each time, as the next volume may be another one.
bool has_posix_semantics(int r) {
  return r != -EOPNOTSUPP && r != -EINVAL;
}

int rename_plainly(HANDLE handle, HANDLE to_dir, const std::wstring &to, bool replaces) {
  return rename_as(handle, to_dir, to, replaces, rename_information);
}

int dispose(HANDLE handle, bool yes = true) {
  BOOLEAN wanted = yes;
  return set_information(handle, &wanted, sizeof wanted, disposition_information);
}

void mark_removed(HANDLE handle) {
  FILE_BASIC_INFO times = {};
  times.LastWriteTime.QuadPart = time_of_removed;
  ::SetFileInformationByHandle(handle, FileBasicInfo, &times, sizeof times);
}

std::wstring unused_name() {
  constexpr wchar_t hex[] = L"0123456789abcdef";
  static std::atomic<uint64_t> count{0};
  LARGE_INTEGER now;
  ::QueryPerformanceCounter(&now);
  uint64_t number =
      (static_cast<uint64_t>(now.QuadPart) * 0x9E3779B97F4A7C15u) ^ (uint64_t{::GetCurrentProcessId()} << 40) ^ ++count;
  std::wstring name(gone_prefix);
  for (int i = 0; i < 16; ++i, number >>= 4) name += hex[number & 15];
  return name;
}

// The folder that what is removed from `dir` goes to: out of a journal folder, which must be empty to be removed.
HANDLE place_aside(HANDLE dir, OwnHandle *other) {
  std::string path;
  if (path_of_handle(dir, &path) < 0 || !wide(path).ends_with(journals)) return dir;
  path.resize(path.rfind('/'));
  const Opening how{FILE_LIST_DIRECTORY | FILE_TRAVERSE | FILE_ADD_FILE, 1, FILE_DIRECTORY_FILE};
  return open_at(nullptr, nt_path(path.c_str()), how, other->out()) < 0 ? dir : other->get();
}

constexpr Opening to_remove{DELETE | FILE_READ_ATTRIBUTES | FILE_WRITE_ATTRIBUTES, 1, FILE_OPEN_REPARSE_POINT};

std::wstring_view digits_of(std::wstring_view name) {
  return name.size() > digits && name[name.size() - digits - 1] == L'-' ? name.substr(name.size() - digits)
                                                                        : std::wstring_view();
}

bool is_replaced(std::wstring_view name) {
  return name.starts_with(L'.') && name.size() > replaced.size() + digits &&
         name.substr(0, name.size() - digits).ends_with(replaced);
}

bool is_temporary(std::wstring_view name) {
  return name.starts_with(L'.') && name.find(L".st-", 1) != std::wstring_view::npos && !is_replaced(name) &&
         !digits_of(name).empty();
}

// The temporary that is to replace it, or has replaced it.
bool is_temporary_for(std::wstring_view name, std::wstring_view old) {
  return is_temporary(name) && digits_of(name) == digits_of(old);
}

// Where what is replaced goes, up to the digits: with the name, or what fits of it and the hash of all of it.
std::wstring place_of_replaced(const std::wstring &name) {
  constexpr size_t longest = 255, most = longest - 1 - replaced.size() - digits;
  std::string fitting = narrow(name);
  if (fitting.size() > most) {
    constexpr char hex[] = "0123456789abcdef";
    uint64_t hash = hash64(fitting.data(), fitting.size());
    size_t n = most - digits - 1;
    while (n > 0 && (static_cast<unsigned char>(fitting[n]) & 0xC0) == 0x80) --n;
    fitting.resize(n);
    fitting += '~';
    for (size_t i = 0; i < digits; ++i, hash >>= 4) fitting += hex[hash & 15];
  }
  return L"." + wide(fitting) + std::wstring(replaced);
}

int exchange(HANDLE handle, std::wstring_view from, HANDLE to_dir, const std::wstring &to) {
  constexpr int attempts = 200;
  if (digits_of(from).empty()) return -EBUSY;
  const std::wstring aside = place_of_replaced(to) + std::wstring(digits_of(from));
  int r = -EBUSY;
  for (int i = 0; i < attempts; ++i) {
    OwnHandle old;
    r = open_at(to_dir, to, to_remove, old.out());
    if (r < 0 && r != -ENOENT) return r;
    if (r >= 0 && (r = rename_plainly(old.get(), to_dir, aside, true)) < 0) return r;
    r = rename_plainly(handle, to_dir, to, false);
    if (r == -EEXIST) continue;  // somebody has given the old one its name back
    if (r < 0) {
      if (old.get()) rename_plainly(old.get(), to_dir, to, false);
      return r;
    }
    if (old.get()) {
      mark_removed(old.get());
      if (dispose(old.get()) < 0) left_aside = true;
      old.close();
    }
    sweep(to_dir);
    return 0;
  }
  return r;
}

int remove_by_name_aside(HANDLE handle, HANDLE dir) {
  OwnHandle other;
  const HANDLE aside = place_aside(dir, &other);
  if (const int r = rename_plainly(handle, aside, unused_name(), false); r < 0) return r;
  mark_removed(handle);
  if (dispose(handle) < 0) left_aside = true;
  sweep(aside);
  return 0;
}

}  // namespace

bool has_left_something() {
  return left_aside.load(std::memory_order_relaxed);
}

bool is_aside(std::wstring_view name) {
  return name.starts_with(gone_prefix) || is_replaced(name);
}

// What was replaced may go when its temporary is gone, which then has its name. To look for that later than for the
// file itself is right: a temporary goes once, and comes never.
void sweep(HANDLE dir) {
  std::vector<std::wstring> names, later;
  if (list_names(dir, &names) < 0) return;
  std::erase_if(names, [](const std::wstring &name) { return !is_aside(name); });
  if (names.empty() || list_names(dir, &later) < 0) return;
  for (const std::wstring &name : names) {
    const bool undecided = is_replaced(name) && std::any_of(later.begin(), later.end(), [&](const std::wstring &n) {
                             return is_temporary_for(n, name);
                           });
    OwnHandle left;
    if (!undecided && open_at(dir, name, to_remove, left.out()) >= 0) dispose(left.get());  // unless it is mapped
  }
}

int rename_entry(HANDLE handle, const std::wstring &from, HANDLE to_dir, const std::wstring &to) {
  constexpr ULONG replace = 1, posix = 2;
  int r = rename_as(handle, to_dir, to, replace | posix, rename_information_ex);
  if (has_posix_semantics(r) && r != -EACCES && r != -EBUSY) return r;
  r = rename_plainly(handle, to_dir, to, true);
  if (r != -EACCES && r != -EBUSY) return r;
  OwnHandle folder;
  const Opening look{FILE_READ_ATTRIBUTES, 1, FILE_DIRECTORY_FILE | FILE_OPEN_REPARSE_POINT};
  return open_at(to_dir, to, look, folder.out()) >= 0 ? -EISDIR : exchange(handle, from, to_dir, to);
}

int remove_entry(HANDLE handle, HANDLE dir, bool is_folder) {
  ULONG wanted = 1 | 2;  // delete, by POSIX
  const int r = set_information(handle, &wanted, sizeof wanted, disposition_information_ex);
  if (has_posix_semantics(r) && r != -EBUSY) return r;
  return is_folder ? dispose(handle) : remove_by_name_aside(handle, dir);
}

bool is_removed_by(const FILETIME &changed) {
  return changed.dwLowDateTime == static_cast<DWORD>(time_of_removed) &&
         changed.dwHighDateTime == static_cast<DWORD>(time_of_removed >> 32);
}

Aside restore_replaced(HANDLE dir, const std::wstring &name) {
  const std::wstring aside = place_of_replaced(name);
  std::vector<std::wstring> names;
  if (list_names(dir, &names) < 0) return Aside::none;
  // It has come meanwhile, and may have gone aside again; or a temporary may be about to replace it.
  const bool may_change =
      std::any_of(names.begin(), names.end(), [&](const std::wstring &n) { return n == name || is_temporary(n); });
  Aside found = may_change ? Aside::changing : Aside::none;
  for (const std::wstring &old : names) {
    if (!is_replaced(old) || !old.starts_with(aside) || old.size() != aside.size() + digits) continue;
    const auto temporary =
        std::find_if(names.begin(), names.end(), [&](const std::wstring &n) { return is_temporary_for(n, old); });
    if (temporary == names.end()) {
      found = std::max(found, Aside::changing);
      continue;
    }
    found = Aside::undecided;
    // A process that is at it has the temporary open to rename it, and then this fails. Else none may, until it is
    // closed.
    const Opening alone{FILE_READ_DATA, 1, FILE_OPEN_REPARSE_POINT, FILE_SHARE_READ | FILE_SHARE_WRITE};
    OwnHandle kept, file;
    if (open_at(dir, *temporary, alone, kept.out()) >= 0 && open_at(dir, old, to_remove, file.out()) >= 0)
      rename_plainly(file.get(), dir, name, false);
  }
  return found;
}

}  // namespace st::os
