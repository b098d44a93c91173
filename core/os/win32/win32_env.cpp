// Env on Windows (x64): each method is its call, and says -ENOSYS or -EOPNOTSUPP where there is none. Descriptors are
// handles. README.md has the table, and what Windows cannot promise.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/forever.h"
#include "os/env.h"
#include "os/path.h"
#include "os/process.h"
#include "os/win32/nt.h"
#include "os/win32/range_locks.h"
#include "os/win32/replace.h"

#include <bcrypt.h>
#include <winioctl.h>

#ifndef FSCTL_DUPLICATE_EXTENTS_TO_FILE
#define FSCTL_DUPLICATE_EXTENTS_TO_FILE 0x00098344
struct DUPLICATE_EXTENTS_DATA {
  HANDLE FileHandle;
  LARGE_INTEGER SourceFileOffset, TargetFileOffset, ByteCount;
};
#endif

namespace st::os {
namespace {

constexpr uid_t some_user = 1000;  // whoever asks, and the owner of every file: what one may is left to Windows
constexpr uint32_t ntfs = 0x5346544e, refs = 0x73666572, fat = 0x4d44, exfat = 0x2011BAB0, cifs = 0xFF534D42;

struct timespec time_of(const FILETIME &t) {
  constexpr int64_t until_1970 = 116444736000000000;
  const int64_t ticks = static_cast<int64_t>(uint64_t{t.dwHighDateTime} << 32 | t.dwLowDateTime) - until_1970;
  const int64_t seconds = ticks >= 0 ? ticks / 10000000 : -((9999999 - ticks) / 10000000);
  return {static_cast<time_t>(seconds), static_cast<long>((ticks - seconds * 10000000) * 100)};
}

bool is_remote(HANDLE handle) {
  FILE_REMOTE_PROTOCOL_INFO remote = {};
  return ::GetFileInformationByHandleEx(handle, FileRemoteProtocolInfo, &remote, sizeof remote);
}

// The kind of a link, where the handle is at the link itself. Else 0.
DWORD link_tag(HANDLE handle, DWORD attributes) {
  FILE_ATTRIBUTE_TAG_INFO tag = {};
  if (!(attributes & FILE_ATTRIBUTE_REPARSE_POINT)) return 0;
  if (!::GetFileInformationByHandleEx(handle, FileAttributeTagInfo, &tag, sizeof tag)) return 0;
  return tag.ReparseTag == IO_REPARSE_TAG_SYMLINK || tag.ReparseTag == IO_REPARSE_TAG_MOUNT_POINT ? tag.ReparseTag : 0;
}

// Not by GetFileInformationByHandle, which fails in wine when the volume is not found, as files come and go.
DWORD volume_of(HANDLE handle) {
  struct {
    LARGE_INTEGER made;
    ULONG serial, bytes_of_label;
    WCHAR label[64];
  } volume = {};
  constexpr int volume_information = 1;
  IO_STATUS_BLOCK done;
  ::NtQueryVolumeInformationFile(handle, &done, &volume, sizeof volume,
                                 static_cast<FS_INFORMATION_CLASS>(volume_information));
  return volume.serial;
}

// wine forgets the volume of a file that was renamed while it was open, and knows that of its folder. Where even that
// is not told it is the one that was told last.
DWORD volume_told_of(HANDLE handle) {
  static std::atomic<DWORD> last{0};
  DWORD serial = volume_of(handle);
  std::string path;
  if (serial == 0 && path_of_handle(handle, &path) >= 0) {
    path.resize(std::min(path.rfind('/'), path.size()));
    OwnHandle folder;
    if (open_at(nullptr, nt_path((path + "/").c_str()), {FILE_READ_ATTRIBUTES}, folder.out()) >= 0)
      serial = volume_of(folder.get());
  }
  if (serial == 0) return last;
  last = serial;
  return serial;
}

FILETIME as_filetime(LARGE_INTEGER t) {
  return {t.LowPart, static_cast<DWORD>(t.HighPart)};
}

int look_at(HANDLE handle, struct stat *out) {
  FILE_BASIC_INFO basic;
  FILE_STANDARD_INFO standard;
  if (!::GetFileInformationByHandleEx(handle, FileBasicInfo, &basic, sizeof basic)) return of_last_error();
  if (!::GetFileInformationByHandleEx(handle, FileStandardInfo, &standard, sizeof standard)) return of_last_error();
  constexpr int internal_information = 6;
  LARGE_INTEGER index = {};
  IO_STATUS_BLOCK done;
  if (const NTSTATUS r = ::NtQueryInformationFile(handle, &done, &index, sizeof index,
                                                  static_cast<FILE_INFORMATION_CLASS>(internal_information));
      r < 0)
    return of_status(r);
  *out = {};
  const bool is_folder = basic.FileAttributes & FILE_ATTRIBUTE_DIRECTORY;
  const bool is_fixed = basic.FileAttributes & FILE_ATTRIBUTE_READONLY;
  out->st_dev = makedev(is_remote(handle) ? 0 : 1, volume_told_of(handle));
  out->st_ino = static_cast<uint64_t>(index.QuadPart);
  out->st_mode = is_folder ? S_IFDIR | 0755 : S_IFREG | (is_fixed ? 0444 : 0644);
  if (link_tag(handle, basic.FileAttributes) != 0) out->st_mode = S_IFLNK | 0777;
  const bool is_gone = standard.DeletePending || is_removed_by(as_filetime(basic.LastWriteTime));
  out->st_nlink = is_gone ? 0 : standard.NumberOfLinks;
  out->st_uid = out->st_gid = some_user;
  out->st_size = standard.EndOfFile.QuadPart;
  out->st_blksize = 4096;
  out->st_blocks = (standard.AllocationSize.QuadPart + 511) / 512;
  out->st_atim = time_of(as_filetime(basic.LastAccessTime));
  out->st_mtim = time_of(as_filetime(basic.LastWriteTime));
  out->st_ctim = time_of(as_filetime(basic.CreationTime));
  return 0;
}

constexpr size_t most_of_a_call = size_t{1} << 30;

int64_t size_of(HANDLE handle) {
  LARGE_INTEGER size;
  return ::GetFileSizeEx(handle, &size) ? size.QuadPart : of_last_error();
}

int set_end(HANDLE handle, uint64_t size) {
  FILE_END_OF_FILE_INFO end;
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(size);
  return ::SetFileInformationByHandle(handle, FileEndOfFileInfo, &end, sizeof end) ? 0 : of_last_error();
}

class Win32Env final : public Env {
 public:
  int openat(int dir, const char *path, int flags, mode_t) override {
    if ((flags & O_CREAT) && !is_entry(dir, path)) return -EINVAL;
    if (flags & O_DIRECT) return -EINVAL;  // as of a filesystem that has no such reads
    OwnHandle opened;
    if (const int r = open(dir, path, opening_of(flags), &opened); r < 0) return r;
    if (flags & O_NOFOLLOW) {
      FILE_BASIC_INFO info;
      if (!::GetFileInformationByHandleEx(opened.get(), FileBasicInfo, &info, sizeof info)) return of_last_error();
      if (link_tag(opened.get(), info.FileAttributes) != 0) return -ELOOP;
    }
    return opened.release();
  }
  int openat_without_links(int, const char *, int) override { return -ENOSYS; }
  int close(int fd) override {
    locks_.forget(fd);
    // If it is a folder: the thread that ends the last mapping closes its folder after it.
    if (has_left_something()) sweep(handle_of(fd));
    return ::CloseHandle(handle_of(fd)) ? 0 : -EBADF;
  }
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    OVERLAPPED at = overlapped_at(offset);
    DWORD got = 0;
    if (::ReadFile(handle_of(fd), buffer, static_cast<DWORD>(std::min(n, most_of_a_call)), &got, &at)) return got;
    const DWORD error = ::GetLastError();
    return error == ERROR_HANDLE_EOF ? 0 : error == ERROR_INVALID_FUNCTION ? -EISDIR : of_error(error);
  }
  ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
    size_t done = 0;
    for (int i = 0; i < count; ++i) {
      const ssize_t got = pread(fd, parts[i].iov_base, parts[i].iov_len, offset + done);
      if (got < 0) return done > 0 ? static_cast<ssize_t>(done) : got;
      done += static_cast<size_t>(got);
      if (static_cast<size_t>(got) < parts[i].iov_len) break;
    }
    return static_cast<ssize_t>(done);
  }
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    OVERLAPPED at = overlapped_at(offset);
    DWORD put = 0;
    if (!::WriteFile(handle_of(fd), buffer, static_cast<DWORD>(std::min(n, most_of_a_call)), &put, &at))
      return of_last_error();
    return put;
  }
  // A flush takes a handle that may write.
  int fsync(int fd) override {
    if (::FlushFileBuffers(handle_of(fd))) return 0;
    if (::GetLastError() != ERROR_ACCESS_DENIED) return of_last_error();
    struct stat s;
    if (const int r = look_at(handle_of(fd), &s); r < 0) return r;
    const Opening how{static_cast<ACCESS_MASK>(S_ISDIR(s.st_mode) ? FILE_ADD_FILE : FILE_WRITE_DATA)};
    OwnHandle writable;
    const int r = open_at(handle_of(fd), L"", how, writable.out());
    if (r < 0) return S_ISDIR(s.st_mode) ? 0 : r;
    if (::FlushFileBuffers(writable.get()) || S_ISDIR(s.st_mode)) return 0;
    return of_last_error();
  }
  int fdatasync(int fd) override { return fsync(fd); }
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override {
    if (mode != 0) return -EOPNOTSUPP;
    const int64_t now = size_of(handle_of(fd));
    if (now < 0) return static_cast<int>(now);
    if (offset + n <= static_cast<uint64_t>(now)) return 0;
    FILE_ALLOCATION_INFO wanted;
    wanted.AllocationSize.QuadPart = static_cast<LONGLONG>(offset + n);
    if (!::SetFileInformationByHandle(handle_of(fd), FileAllocationInfo, &wanted, sizeof wanted) &&
        ::GetLastError() == ERROR_DISK_FULL)
      return -ENOSPC;
    return set_end(handle_of(fd), offset + n);
  }
  int sync_range(int, uint64_t, uint64_t) override { return -ENOSYS; }
  int wait_range(int, uint64_t, uint64_t) override { return -ENOSYS; }
  int fadvise(int, uint64_t, uint64_t, int) override { return 0; }
  int64_t seek_hole(int fd, uint64_t offset) override;
  int extents(int, struct fiemap *) override { return -EOPNOTSUPP; }
  int realtime_blocks(int, uint64_t *) override { return -EOPNOTSUPP; }
  int fstat(int fd, struct stat *out) override { return look_at(handle_of(fd), out); }
  int set_direct(int) override { return -ENOSYS; }
  int fstat_synced(int, struct stat *) override { return -ENOSYS; }
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    OwnHandle opened;
    const Opening how{FILE_READ_ATTRIBUTES, FILE_OPEN,
                      flags & AT_SYMLINK_NOFOLLOW ? ULONG{FILE_OPEN_REPARSE_POINT} : ULONG{0}};
    if (const int r = open(dir, path, how, &opened); r < 0) return r;
    return look_at(opened.get(), out);
  }
  int renew_name(int, const char *) override { return -ENOSYS; }
  int fstatfs(int fd, struct statfs *out) override;
  // Rights are access lists here: a new file has those that its folder gives.
  int fchmod(int, mode_t) override { return 0; }
  int fchown(int, uid_t, gid_t) override { return 0; }
  int ftruncate(int fd, uint64_t size) override { return set_end(handle_of(fd), size); }
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    DUPLICATE_EXTENTS_DATA wanted = {};
    wanted.FileHandle = handle_of(from_fd);
    wanted.SourceFileOffset.QuadPart = static_cast<LONGLONG>(from);
    wanted.TargetFileOffset.QuadPart = static_cast<LONGLONG>(to);
    wanted.ByteCount.QuadPart = static_cast<LONGLONG>(n);
    DWORD none = 0;
    return ::DeviceIoControl(handle_of(to_fd), FSCTL_DUPLICATE_EXTENTS_TO_FILE, &wanted, sizeof wanted, nullptr, 0,
                             &none, nullptr)
               ? 0
               : of_last_error();
  }
  ssize_t copy_range(int, int, uint64_t, uint64_t, uint64_t) override { return -ENOSYS; }
  ssize_t flistxattr(int, char *, size_t) override { return 0; }
  ssize_t fgetxattr(int, const char *, void *, size_t) override { return -EOPNOTSUPP; }
  int fsetxattr(int, const char *, const void *, size_t) override { return -EOPNOTSUPP; }

  int realpath(const char *path, std::string *out) override {
    OwnHandle opened;
    if (const int r = open(AT_FDCWD, path, {FILE_READ_ATTRIBUTES}, &opened); r < 0) return r;
    return path_of_handle(opened.get(), out);
  }
  int readlinkat(int dir, const char *name, std::string *out) override;
  int list(int dir, std::vector<std::string> *out) override {
    std::vector<std::wstring> names;
    if (const int r = list_names(handle_of(dir), &names); r < 0) return r;
    out->clear();
    bool any_aside = false;
    for (const std::wstring &name : names) {
      any_aside |= is_aside(name);
      if (!is_aside(name)) out->push_back(narrow(name));
    }
    if (any_aside) sweep(handle_of(dir));
    return 0;
  }
  int mkdirat(int dir, const char *name, mode_t) override {
    if (!is_entry(dir, name)) return -EINVAL;
    // Where one of that name is removed and a process has it open still, its name goes soon: a process closes a folder
    // that it finds removed.
    constexpr int attempts = 20;
    int r = -ENOENT;
    for (int i = 0; r == -ENOENT && i < attempts; ++i) {
      if (i > 0) ::Sleep(1);
      OwnHandle made;
      r = open(dir, name, {FILE_READ_ATTRIBUTES, FILE_CREATE, FILE_DIRECTORY_FILE}, &made);
    }
    return r;
  }
  int unlinkat(int dir, const char *name, int flags) override {
    if (!is_entry(dir, name)) return -EINVAL;
    const bool is_folder = flags & AT_REMOVEDIR;
    const Opening how{
        DELETE | FILE_READ_ATTRIBUTES | FILE_WRITE_ATTRIBUTES, FILE_OPEN,
        FILE_OPEN_REPARSE_POINT | (is_folder ? ULONG{FILE_DIRECTORY_FILE} : ULONG{FILE_NON_DIRECTORY_FILE})};
    OwnHandle opened;
    if (const int r = open(dir, name, how, &opened); r < 0) return r;
    return remove_entry(opened.get(), handle_of(dir), is_folder);
  }
  // By a handle that writes through: then NTFS has the new name in its log before it answers.
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
    if (!is_entry(from_dir, from) || !is_entry(to_dir, to)) return -EINVAL;
    const Opening how{DELETE | FILE_READ_ATTRIBUTES, FILE_OPEN, FILE_OPEN_REPARSE_POINT | FILE_WRITE_THROUGH};
    OwnHandle opened;
    if (const int r = open(from_dir, from, how, &opened); r < 0) return r;
    const int r = rename_entry(opened.get(), wide(from), handle_of(to_dir), wide(to));
    return r == -EBUSY ? -ETXTBSY : r;  // another program keeps it to itself
  }
  int lock(int fd, int command, struct flock *lock) override {
    return command == F_OFD_SETLK ? locks_.set(fd, *lock) : locks_.ask(fd, lock);
  }

  int mmap(size_t n, int protection, int flags, int fd, void **out) override;
  int munmap(void *address, size_t) override {
    MEMORY_BASIC_INFORMATION info;
    if (::VirtualQuery(address, &info, sizeof info) == 0) return of_last_error();
    const BOOL done = info.Type == MEM_MAPPED ? ::UnmapViewOfFile(address) : ::VirtualFree(address, 0, MEM_RELEASE);
    return done ? 0 : of_last_error();
  }
  int madvise(void *address, size_t n, int advice) override {
    if (advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE) return 0;
    if (advice != MADV_WILLNEED && advice != MADV_POPULATE_READ) return -EINVAL;
    WIN32_MEMORY_RANGE_ENTRY range = {address, n};
    ::PrefetchVirtualMemory(::GetCurrentProcess(), 1, &range, 0);  // a hint
    return 0;
  }
  int mincore(void *, size_t, unsigned char *) override { return -ENOSYS; }
  ssize_t copy_memory(void *to, const void *from, size_t n) override {
    SIZE_T copied = 0;
    return ::ReadProcessMemory(::GetCurrentProcess(), from, to, n, &copied) ? static_cast<ssize_t>(copied)
                                                                            : ssize_t{of_last_error()};
  }

  int random(void *out, size_t n) override {
    const NTSTATUS r =
        ::BCryptGenRandom(nullptr, static_cast<PUCHAR>(out), static_cast<ULONG>(n), BCRYPT_USE_SYSTEM_PREFERRED_RNG);
    return r >= 0 ? static_cast<int>(n) : of_status(r);
  }
  pid_t getpid() override { return static_cast<pid_t>(::GetCurrentProcessId()); }
  uint64_t fork_generation() override { return 0; }
  unsigned cpus() override {
    DWORD_PTR mine = 0, all = 0;
    if (::GetProcessAffinityMask(::GetCurrentProcess(), &mine, &all) && mine != 0)
      return static_cast<unsigned>(std::popcount(uint64_t{mine}));
    return std::max<unsigned>(::GetActiveProcessorCount(ALL_PROCESSOR_GROUPS), 1);
  }
  uid_t geteuid() override { return some_user; }
  uint64_t largest_file() override { return os::largest_file(); }
  uint64_t most_files() override { return os::most_files(); }
  uint64_t monotonic_ms() override {  // GetTickCount64 goes by steps of 16
    LARGE_INTEGER now, a_second;
    ::QueryPerformanceCounter(&now);
    ::QueryPerformanceFrequency(&a_second);
    const auto ticks = static_cast<uint64_t>(now.QuadPart), rate = static_cast<uint64_t>(a_second.QuadPart);
    return ticks / rate * 1000 + ticks % rate * 1000 / rate;
  }
  uint64_t thread_ns() override {
    FILETIME begun, ended, kernel, user;
    ::GetThreadTimes(::GetCurrentThread(), &begun, &ended, &kernel, &user);
    const auto ticks = [](FILETIME t) { return uint64_t{t.dwHighDateTime} << 32 | t.dwLowDateTime; };
    return (ticks(kernel) + ticks(user)) * 100;
  }
  uint64_t unix_time() override {
    FILETIME now;
    ::GetSystemTimePreciseAsFileTime(&now);
    return static_cast<uint64_t>(time_of(now).tv_sec);
  }
  void sleep_us(uint32_t microseconds) override { ::Sleep((microseconds + 999) / 1000); }
  const char *getenv(const char *name) override { return std::getenv(name); }

 private:
  int open(int dir, const char *path, const Opening &how, OwnHandle *out) const {
    if (dir == AT_FDCWD) return open_at(nullptr, nt_path(path), how, out->out());
    const std::string_view name = path;
    if (name == "..") {
      std::string here;
      if (const int r = path_of_handle(handle_of(dir), &here); r < 0) return r;
      return open_at(nullptr, nt_path((here + "/..").c_str()), how, out->out());
    }
    if (name.empty() || !is_entry(dir, path)) return name.empty() ? -ENOENT : -EINVAL;
    const std::wstring entry = name == "." ? std::wstring() : wide(name);
    const int r = open_at(handle_of(dir), entry, how, out->out());
    const bool may_be_aside = r == -ENOENT && how.disposition == FILE_OPEN && !name.starts_with('.') &&
                              (name.ends_with(".safetensors") || name.ends_with(".json"));
    if (!may_be_aside) return r;
    int again = r;
    // Another process that replaces it comes to an end, and may do it again and again.
    for (int i = 0, most = 1; again == -ENOENT && i < most; ++i) {
      const Aside found = restore_replaced(handle_of(dir), entry);
      again = open_at(handle_of(dir), entry, how, out->out());
      if (again != -ENOENT || found == Aside::none) break;
      most = found == Aside::undecided ? 2000 : 20;
      ::Sleep(found == Aside::undecided ? 1 : 0);
    }
    return again;
  }

  RangeLocks locks_;
};

int64_t Win32Env::seek_hole(int fd, uint64_t offset) {
  const int64_t size = size_of(handle_of(fd));
  if (size < 0 || static_cast<uint64_t>(size) <= offset) return size < 0 ? size : -ENXIO;
  FILE_ALLOCATED_RANGE_BUFFER asked, found[64];
  asked.FileOffset.QuadPart = static_cast<LONGLONG>(offset);
  asked.Length.QuadPart = size - static_cast<LONGLONG>(offset);
  DWORD bytes = 0;
  if (!::DeviceIoControl(handle_of(fd), FSCTL_QUERY_ALLOCATED_RANGES, &asked, sizeof asked, found, sizeof found, &bytes,
                         nullptr) &&
      ::GetLastError() != ERROR_MORE_DATA)
    return of_last_error();
  auto at = static_cast<LONGLONG>(offset);
  for (size_t i = 0; i < bytes / sizeof found[0] && found[i].FileOffset.QuadPart <= at; ++i)
    at = found[i].FileOffset.QuadPart + found[i].Length.QuadPart;
  return std::min<int64_t>(at, size);
}

int Win32Env::fstatfs(int fd, struct statfs *out) {
  WCHAR name[64] = L"";
  ::GetVolumeInformationByHandleW(handle_of(fd), nullptr, 0, nullptr, nullptr, nullptr, name, 64);
  *out = {};
  const std::wstring_view type = name;
  out->f_type = is_remote(handle_of(fd))   ? cifs
                : type == L"NTFS"          ? ntfs
                : type == L"ReFS"          ? refs
                : type == L"exFAT"         ? exfat
                : type.starts_with(L"FAT") ? fat
                                           : 0;
  IO_STATUS_BLOCK done;
  struct {
    LARGE_INTEGER total, available_to_caller, available;
    ULONG sectors_per_unit, bytes_per_sector;
  } size = {};
  constexpr int full_size_information = 7;
  const NTSTATUS r = ::NtQueryVolumeInformationFile(handle_of(fd), &done, &size, sizeof size,
                                                    static_cast<FS_INFORMATION_CLASS>(full_size_information));
  if (r < 0) return of_status(r);
  out->f_bsize = uint64_t{size.sectors_per_unit} * size.bytes_per_sector;
  out->f_blocks = static_cast<uint64_t>(size.total.QuadPart);
  out->f_bfree = static_cast<uint64_t>(size.available.QuadPart);
  out->f_bavail = static_cast<uint64_t>(size.available_to_caller.QuadPart);
  return 0;
}

int Win32Env::readlinkat(int dir, const char *name, std::string *out) {
  OwnHandle opened;
  if (const int r = open(dir, name, {FILE_READ_ATTRIBUTES, FILE_OPEN, FILE_OPEN_REPARSE_POINT}, &opened); r < 0)
    return r;
  BY_HANDLE_FILE_INFORMATION info;
  if (!::GetFileInformationByHandle(opened.get(), &info)) return of_last_error();
  if (link_tag(opened.get(), info.dwFileAttributes) == 0) return -EINVAL;
  constexpr DWORD most = 16384;  // MAXIMUM_REPARSE_DATA_BUFFER_SIZE
  const auto kept = std::make_unique<std::byte[]>(most);
  DWORD bytes = 0;
  if (!::DeviceIoControl(opened.get(), FSCTL_GET_REPARSE_POINT, nullptr, 0, kept.get(), most, &bytes, nullptr))
    return of_last_error();
  auto target = target_of_link(kept.get(), bytes);
  if (!target) return -EIO;
  if (target->starts_with(L"\\??\\UNC\\"))
    target = L"\\\\" + target->substr(8);
  else if (target->starts_with(L"\\??\\"))
    target->erase(0, 4);
  *out = plain_path(narrow(*target));
  return 0;
}

int Win32Env::mmap(size_t n, int protection, int flags, int fd, void **out) {
  if (flags & MAP_HUGETLB) return -EINVAL;
  if (flags & MAP_ANONYMOUS) {
    *out = ::VirtualAlloc(nullptr, n, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    return *out ? 0 : of_last_error();
  }
  const bool writable = protection & PROT_WRITE;
  if (writable && (flags & MAP_SHARED)) return -EINVAL;  // nobody writes a file by memory
  const HANDLE section =
      ::CreateFileMappingW(handle_of(fd), nullptr, writable ? PAGE_WRITECOPY : PAGE_READONLY, 0, 0, nullptr);
  if (!section) return ::GetLastError() == ERROR_FILE_INVALID ? -EINVAL : of_last_error();  // it is empty
  *out = ::MapViewOfFile(section, writable ? FILE_MAP_COPY : FILE_MAP_READ, 0, 0, n);
  const int r = *out ? 0 : of_last_error();
  ::CloseHandle(section);
  return r;
}

}  // namespace

// By a handle of its own, as wine reads a folder only once by a handle, also where it is asked to begin again.
int list_names(HANDLE dir, std::vector<std::wstring> *out) {
  OwnHandle listed;
  if (const int r = open_at(dir, L"", opening_of(O_RDONLY | O_DIRECTORY), listed.out()); r < 0) return r;
  constexpr int names_information = 12;
  struct Entry {
    ULONG next, index, bytes;
    WCHAR name[1];
  };
  alignas(8) std::byte memory[4096];
  for (BOOLEAN first = TRUE;; first = FALSE) {
    IO_STATUS_BLOCK done;
    const NTSTATUS r =
        ::NtQueryDirectoryFile(listed.get(), nullptr, nullptr, nullptr, &done, memory, sizeof memory,
                               static_cast<FILE_INFORMATION_CLASS>(names_information), FALSE, nullptr, first);
    if (static_cast<ULONG>(r) == 0x80000006 || static_cast<ULONG>(r) == 0xC000000F) return 0;  // no more files
    if (r < 0) return of_status(r);
    for (size_t at = 0;;) {
      const auto *entry = reinterpret_cast<const Entry *>(memory + at);
      const std::wstring name(entry->name, entry->bytes / sizeof(WCHAR));
      if (name != L"." && name != L"..") out->push_back(name);
      if (entry->next == 0) break;
      at += entry->next;
    }
  }
}

Env &Env::posix() {  // the system's, which speaks the words of POSIX
  return forever<Win32Env>();
}

}  // namespace st::os
