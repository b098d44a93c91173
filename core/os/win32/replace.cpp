// Renames over files, and removals, also of files that are open: as POSIX has it, where the system can. Else (Windows
// before 10 1709, FAT, wine 8) what is removed gets a name aside first, so that its own name is free at once. A file
// that is open can only be replaced in two steps then: the old one goes aside, and the new one takes its name. Between
// them there is no file, and if the process dies there, restore_replaced() gives the old one its name back.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <vector>

#include "os/win32/nt.h"
#include "os/win32/replace.h"

namespace st::os {
namespace {

constexpr int rename_information = 10, rename_information_ex = 65, disposition_information = 13,
              disposition_information_ex = 64;
constexpr std::wstring_view gone_prefix = L".st-gone-", replaced = L".st-replaced-by-", journals = L".st-journal";
constexpr LONGLONG time_of_removed = 119651168960000000;  // 1980-02-29 03:34:56, when hardly a file was changed

std::atomic<bool> lacks_posix{false};

// Does the system remove and replace open files as POSIX has it (Windows 10 1709, on NTFS)? Known by what it answered.
bool has_posix_semantics() {
  return !lacks_posix.load(std::memory_order_relaxed);
}

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

// False: the system cannot do it.
bool posix_answers(int r) {
  const bool knows = r != -EOPNOTSUPP && r != -EINVAL;
  if (!knows) lacks_posix.store(true, std::memory_order_relaxed);
  return knows;
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

// What lies aside because it was mapped when it was removed.
void sweep(HANDLE dir, std::wstring_view prefix) {
  std::vector<std::wstring> names;
  if (list_names(dir, &names) < 0) return;
  for (const std::wstring &name : names) {
    if (!name.starts_with(prefix)) continue;
    OwnHandle left;
    if (open_at(dir, name, to_remove, left.out()) >= 0) dispose(left.get());
  }
}

// The 16 digits at the end of a temporary's name.
std::wstring_view digits_of(std::wstring_view temporary) {
  constexpr size_t digits = 16;
  return temporary.size() > digits && temporary[temporary.size() - digits - 1] == L'-'
             ? temporary.substr(temporary.size() - digits)
             : std::wstring_view();
}

int exchange(HANDLE handle, std::wstring_view from, HANDLE to_dir, const std::wstring &to) {
  constexpr int attempts = 20;
  const std::wstring_view digits = digits_of(from);
  if (digits.empty()) return -EBUSY;
  const std::wstring aside = L"." + to + std::wstring(replaced);
  int r = -EBUSY;
  for (int i = 0; i < attempts; ++i) {
    OwnHandle old;
    r = open_at(to_dir, to, to_remove, old.out());
    if (r < 0 && r != -ENOENT) return r;
    if (r >= 0 && (r = rename_plainly(old.get(), to_dir, aside + std::wstring(digits), true)) < 0) return r;
    r = rename_plainly(handle, to_dir, to, false);
    if (r == -EEXIST) continue;  // somebody has given the old one its name back
    if (r < 0) {
      if (old.get()) rename_plainly(old.get(), to_dir, to, false);
      return r;
    }
    if (old.get()) {
      mark_removed(old.get());
      dispose(old.get());
      old.close();
    }
    sweep(to_dir, aside);
    return 0;
  }
  return r;
}

int remove_by_name_aside(HANDLE handle, HANDLE dir, const std::wstring &name, bool is_folder) {
  if (is_folder) {  // is it empty?
    if (const int r = dispose(handle); r < 0) return r;
    dispose(handle, false);
  }
  OwnHandle other;
  const HANDLE aside = is_folder ? dir : place_aside(dir, &other);
  if (const int r = rename_plainly(handle, aside, unused_name(), false); r < 0) return r;
  const int r = dispose(handle);
  if (is_folder && r < 0) {  // something came into it meanwhile
    rename_plainly(handle, dir, name, false);
    return r;
  }
  if (!is_folder) mark_removed(handle);
  sweep(aside, gone_prefix);
  return 0;
}

}  // namespace

bool is_aside(std::wstring_view name) {
  return name.starts_with(gone_prefix);
}

int rename_entry(HANDLE handle, const std::wstring &from, HANDLE to_dir, const std::wstring &to) {
  constexpr ULONG replace = 1, posix = 2;
  int r = -EOPNOTSUPP;
  if (has_posix_semantics()) {
    r = rename_as(handle, to_dir, to, replace | posix, rename_information_ex);
    if (posix_answers(r) && r != -EACCES && r != -EBUSY) return r;
  }
  r = rename_plainly(handle, to_dir, to, true);
  return r == -EACCES || r == -EBUSY ? exchange(handle, from, to_dir, to) : r;
}

int remove_entry(HANDLE handle, HANDLE dir, const std::wstring &name, bool is_folder) {
  if (has_posix_semantics()) {
    ULONG wanted = 1 | 2;  // delete, by POSIX
    const int r = set_information(handle, &wanted, sizeof wanted, disposition_information_ex);
    if (posix_answers(r) && r != -EBUSY) return r;
  }
  return remove_by_name_aside(handle, dir, name, is_folder);
}

bool is_removed_by(const FILETIME &changed) {
  return changed.dwLowDateTime == static_cast<DWORD>(time_of_removed) &&
         changed.dwHighDateTime == static_cast<DWORD>(time_of_removed >> 32);
}

bool restore_replaced(HANDLE dir, const std::wstring &name) {
  const std::wstring beside = L"." + name + L".st-", aside = L"." + name + std::wstring(replaced);
  std::vector<std::wstring> names;
  if (list_names(dir, &names) < 0) return false;
  std::erase_if(names, [&](const std::wstring &n) { return !n.starts_with(beside); });
  for (const std::wstring &old : names) {
    if (!old.starts_with(aside)) continue;
    const bool undecided = std::any_of(names.begin(), names.end(), [&](const std::wstring &n) {
      return !n.starts_with(aside) && n.ends_with(digits_of(old));
    });
    OwnHandle file;
    if (undecided && open_at(dir, old, to_remove, file.out()) >= 0 && rename_plainly(file.get(), dir, name, false) >= 0)
      return true;
  }
  return false;
}

}  // namespace st::os
