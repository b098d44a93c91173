#include "os/win32/nt.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error_number.h"
#include "os/path.h"
#include "os/vocabulary.h"

namespace st::os {
namespace {

struct Meaning {
  DWORD error;
  int number;
};
constexpr Meaning meanings[] = {
    {ERROR_FILE_NOT_FOUND, ENOENT},
    {ERROR_PATH_NOT_FOUND, ENOENT},
    {ERROR_INVALID_DRIVE, ENOENT},
    {ERROR_BAD_NETPATH, ENOENT},
    {ERROR_BAD_NET_NAME, ENOENT},
    {ERROR_INVALID_NAME, ENOENT},
    {ERROR_BAD_PATHNAME, ENOENT},
    {ERROR_DELETE_PENDING, ENOENT},
    {ERROR_ACCESS_DENIED, EACCES},
    {ERROR_PRIVILEGE_NOT_HELD, EPERM},
    {ERROR_SHARING_VIOLATION, EBUSY},
    {ERROR_USER_MAPPED_FILE, EBUSY},
    {ERROR_LOCK_VIOLATION, EAGAIN},
    {ERROR_FILE_EXISTS, EEXIST},
    {ERROR_ALREADY_EXISTS, EEXIST},
    {ERROR_DISK_FULL, ENOSPC},
    {ERROR_HANDLE_DISK_FULL, ENOSPC},
    {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
    {ERROR_OUTOFMEMORY, ENOMEM},
    {ERROR_COMMITMENT_LIMIT, ENOMEM},
    {ERROR_NO_SYSTEM_RESOURCES, ENOMEM},
    {ERROR_INVALID_PARAMETER, EINVAL},
    {ERROR_INVALID_FUNCTION, EOPNOTSUPP},
    {ERROR_NOT_SUPPORTED, EOPNOTSUPP},
    {ERROR_INVALID_LEVEL, EOPNOTSUPP},
    {ERROR_CALL_NOT_IMPLEMENTED, EOPNOTSUPP},
    {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
    {ERROR_DIRECTORY, ENOTDIR},
    {ERROR_WRITE_PROTECT, EROFS},
    {ERROR_NOACCESS, EFAULT},
    {ERROR_PARTIAL_COPY, EFAULT},
    {ERROR_INVALID_HANDLE, EBADF},
    {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
    {ERROR_NOT_SAME_DEVICE, EXDEV},
    {ERROR_CANT_RESOLVE_FILENAME, ELOOP},
    {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
};

}  // namespace

int of_error(DWORD error) {
  for (const Meaning &m : meanings)
    if (m.error == error) return -m.number;
  return -EIO;
}

int of_status(NTSTATUS status) {
  if (status >= 0) return 0;
  switch (static_cast<ULONG>(status)) {
    case 0xC00000BA: return -EISDIR;      // STATUS_FILE_IS_A_DIRECTORY
    case 0xC0000056:                      // STATUS_DELETE_PENDING
    case 0xC0000123: return -ENOENT;      // STATUS_FILE_DELETED
    case 0xC0000121: return -EBUSY;       // STATUS_CANNOT_DELETE: it is mapped
    case 0xC0000002:                      // STATUS_NOT_IMPLEMENTED
    case 0xC0000003: return -EOPNOTSUPP;  // STATUS_INVALID_INFO_CLASS
    default: return of_error(::RtlNtStatusToDosError(status));
  }
}

std::wstring wide(std::string_view utf8) {
  std::wstring out(utf8.size(), L'\0');
  const auto n = static_cast<int>(utf8.size());
  out.resize(static_cast<size_t>(::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), n, out.data(), n)));
  return out;
}

std::string narrow(std::wstring_view utf16) {
  std::string out(utf16.size() * 3, '\0');
  out.resize(static_cast<size_t>(::WideCharToMultiByte(CP_UTF8, 0, utf16.data(), static_cast<int>(utf16.size()),
                                                       out.data(), static_cast<int>(out.size()), nullptr, nullptr)));
  return out;
}

std::wstring nt_path(const char *path) {
  std::wstring given = wide(plain_path(path));
  std::replace(given.begin(), given.end(), L'/', L'\\');
  std::wstring full(::GetFullPathNameW(given.c_str(), 0, nullptr, nullptr), L'\0');
  full.resize(::GetFullPathNameW(given.c_str(), static_cast<DWORD>(full.size()), full.data(), nullptr));
  if (full.starts_with(L"\\\\.\\")) return L"\\??\\" + full.substr(4);  // a device
  if (full.starts_with(L"\\\\")) return L"\\??\\UNC\\" + full.substr(2);
  return L"\\??\\" + full;
}

int path_of_handle(HANDLE handle, std::string *out) {
  std::wstring path(300, L'\0');
  DWORD n = ::GetFinalPathNameByHandleW(handle, path.data(), static_cast<DWORD>(path.size()), 0);
  if (n > path.size()) {
    path.resize(n);
    n = ::GetFinalPathNameByHandleW(handle, path.data(), n, 0);
  }
  if (n == 0 || n > path.size()) return of_last_error();
  path.resize(n);
  *out = plain_path(narrow(path));
  return 0;
}

std::optional<std::wstring> target_of_link(const void *kept, size_t n) {
  struct Begin {
    ULONG tag;
    USHORT length, reserved, target_at, target_bytes, shown_at, shown_bytes;
  } begin;
  if (n < sizeof begin) return {};
  std::memcpy(&begin, kept, sizeof begin);
  // A symbolic link has flags before its names.
  const size_t names = sizeof begin + (begin.tag == IO_REPARSE_TAG_SYMLINK ? sizeof(ULONG) : 0);
  const size_t at = names + begin.target_at;
  if (at + begin.target_bytes > n) return {};
  std::wstring target(begin.target_bytes / sizeof(wchar_t), L'\0');
  std::memcpy(target.data(), static_cast<const std::byte *>(kept) + at, target.size() * sizeof(wchar_t));
  return target;
}

namespace {

ULONG disposition_of(int flags) {
  if (flags & O_CREAT) return flags & O_EXCL ? FILE_CREATE : flags & O_TRUNC ? FILE_OVERWRITE_IF : FILE_OPEN_IF;
  return flags & O_TRUNC ? FILE_OVERWRITE : FILE_OPEN;
}

}  // namespace

// FILE_TRAVERSE is wanted of a folder in which names are opened. For a file it is the right to execute it. Servers and
// access lists may refuse that right to a user that may read.
Opening opening_of(int flags) {
  Opening how;
  how.disposition = disposition_of(flags);
  const int access = flags & O_ACCMODE;
  if (flags & O_DIRECTORY) how.options |= FILE_DIRECTORY_FILE;
  if (flags & O_NOFOLLOW) how.options |= FILE_OPEN_REPARSE_POINT;
  if (flags & O_PATH) {
    how.access = FILE_READ_ATTRIBUTES | FILE_TRAVERSE;
  } else if (access == O_RDONLY) {
    how.access = flags & O_DIRECTORY ? FILE_GENERIC_READ | FILE_TRAVERSE : FILE_GENERIC_READ;
  } else {
    how.access = access == O_RDWR ? FILE_GENERIC_READ | FILE_GENERIC_WRITE : FILE_GENERIC_WRITE | FILE_READ_ATTRIBUTES;
    how.options |= FILE_NON_DIRECTORY_FILE;
  }
  return how;
}

int open_at(HANDLE root, const std::wstring &name, const Opening &how, HANDLE *out) {
  UNICODE_STRING shown = {};
  shown.Buffer = const_cast<wchar_t *>(name.data());
  if (name.size() > 32000) return -ENAMETOOLONG;
  shown.Length = shown.MaximumLength = static_cast<USHORT>(name.size() * sizeof(wchar_t));
  OBJECT_ATTRIBUTES attributes;
  InitializeObjectAttributes(&attributes, &shown, OBJ_CASE_INSENSITIVE, root, nullptr);
  IO_STATUS_BLOCK done;
  return of_status(::NtCreateFile(
      out, how.access | SYNCHRONIZE, &attributes, &done, nullptr, FILE_ATTRIBUTE_NORMAL, how.share, how.disposition,
      how.options | FILE_SYNCHRONOUS_IO_NONALERT | FILE_OPEN_FOR_BACKUP_INTENT, nullptr, 0));
}

}  // namespace st::os
