// The calls of Windows by which Win32Env opens, renames and removes: those of ntdll, which take an open folder and a
// name in it. And how it reads their answers.
#pragma once

#ifndef NOMINMAX  // libstdc++ says so itself
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <winternl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

extern "C" {
NTSYSAPI NTSTATUS NTAPI NtSetInformationFile(HANDLE, PIO_STATUS_BLOCK, PVOID, ULONG, FILE_INFORMATION_CLASS);
NTSYSAPI NTSTATUS NTAPI NtQueryDirectoryFile(HANDLE, HANDLE, PIO_APC_ROUTINE, PVOID, PIO_STATUS_BLOCK, PVOID, ULONG,
                                             FILE_INFORMATION_CLASS, BOOLEAN, PUNICODE_STRING, BOOLEAN);
NTSYSAPI NTSTATUS NTAPI RtlGetVersion(PRTL_OSVERSIONINFOW);
}

namespace st::os {

std::wstring wide(std::string_view utf8);
std::string narrow(std::wstring_view utf16);

// -errno
int of_error(DWORD error);
int of_status(NTSTATUS status);
inline int of_last_error() {
  return of_error(::GetLastError());
}

// Handles have 32 bits that count, and so serve as descriptors.
inline HANDLE handle_of(int fd) {
  return reinterpret_cast<HANDLE>(static_cast<intptr_t>(fd));
}
inline int descriptor_of(HANDLE handle) {
  return static_cast<int>(reinterpret_cast<intptr_t>(handle));
}

// Where a read, a write or a lock is to be.
inline OVERLAPPED overlapped_at(uint64_t offset) {
  OVERLAPPED at = {};
  at.Offset = static_cast<DWORD>(offset);
  at.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return at;
}

// Closed with it.
class OwnHandle {
 public:
  OwnHandle() = default;
  ~OwnHandle() { close(); }
  void close() {
    if (handle_) ::CloseHandle(std::exchange(handle_, nullptr));
  }
  OwnHandle(const OwnHandle &) = delete;
  OwnHandle &operator=(const OwnHandle &) = delete;
  HANDLE get() const { return handle_; }
  HANDLE *out() { return &handle_; }
  int release() { return descriptor_of(std::exchange(handle_, nullptr)); }

 private:
  HANDLE handle_ = nullptr;
};

// As ntdll wants a path: absolute, of any length.
std::wstring nt_path(const char *path);
// Where an open file or folder is: "C:/models", "//server/share/models".
int path_of_handle(HANDLE handle, std::string *out);
// Where a link leads, by the `n` bytes that a filesystem keeps of it. Nothing where they contradict themselves.
std::optional<std::wstring> target_of_link(const void *kept, size_t n);

struct Opening {
  ACCESS_MASK access;
  ULONG disposition = 1;  // FILE_OPEN
  ULONG options = 0;
  ULONG share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
};
// How a file or folder is opened by flags as of open(2).
Opening opening_of(int flags);
// `root` null: `name` is an nt_path. Else a name in that folder, or "" for the folder itself. A handle, or -errno.
int open_at(HANDLE root, const std::wstring &name, const Opening &how, HANDLE *out);

}  // namespace st::os
