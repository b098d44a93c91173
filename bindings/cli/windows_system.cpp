// Paths and arguments are UTF-8, as stctl.manifest says.
#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <mutex>

#include "system.h"

namespace stctl {
namespace {

constexpr int own_bytes = O_BINARY | O_NOINHERIT;

HANDLE handle_of(int fd) {
  return reinterpret_cast<HANDLE>(_get_osfhandle(fd));
}

void (*on_signal)(int) = nullptr;

std::mutex handling;

// In a thread of the system's. When this answers that a window closes or the system ends, the process ends. So it does
// not answer, and the process ends when its command has. That somebody logs off is told to services alone, of any user.
BOOL WINAPI on_event(DWORD event) {
  constexpr int hangup = 1;
  if (event == CTRL_LOGOFF_EVENT) return TRUE;
  const bool is_key = event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
  {
    const std::lock_guard lock(handling);
    on_signal(is_key ? SIGINT : hangup);
  }
  if (!is_key) Sleep(INFINITE);
  return TRUE;
}

}  // namespace

void prepare_standard_descriptors() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) _setmode(fd, O_BINARY);
  SetConsoleOutputCP(CP_UTF8);
}

// Not by signal(), which takes the handler away at the first one.
void handle_signals(void (*handler)(int)) {
  on_signal = handler;
  SetConsoleCtrlHandler(on_event, TRUE);
}

void end_by_signal(int) {}

void await_handler() {
  const std::lock_guard lock(handling);
}

int open_to_read(const std::string &path) {
  return open(path.c_str(), O_RDONLY | own_bytes);
}

int open_itself(const std::string &path) {
  return open_to_read(path);
}

int open_to_write(const std::string &path) {
  return open(path.c_str(), O_WRONLY | own_bytes);
}

bool find_entry(const std::string &path, Entry *entry) {
  entry->path = path.substr(0, path.find_last_of("/\\") + 1);
  entry->name = path.substr(entry->path.size());
  return true;
}

void close_entry(Entry *) {}

int create_file(const Entry &folder, const std::string &name) {
  return open((folder.path + name).c_str(), O_WRONLY | O_CREAT | O_EXCL | own_bytes, _S_IREAD | _S_IWRITE);
}

int create_unnamed(const Entry &) {
  errno = ENOSYS;
  return -1;
}

int name_file(int, const Entry &, const std::string &) {
  errno = ENOSYS;
  return -1;
}

int rename_over(const Entry &folder, const std::string &from, const std::string &to) {
  if (MoveFileExA((folder.path + from).c_str(), (folder.path + to).c_str(), MOVEFILE_REPLACE_EXISTING)) return 0;
  errno = GetLastError() == ERROR_FILE_NOT_FOUND ? ENOENT : EACCES;
  return -1;
}

void remove_file(const Entry &folder, const std::string &name) {
  unlink((folder.path + name).c_str());
}

ssize_t read_at(int fd, void *buffer, size_t n, uint64_t offset) {
  if (_lseeki64(fd, static_cast<int64_t>(offset), SEEK_SET) < 0) return -1;
  return read(fd, buffer, static_cast<unsigned>(n));
}

void *map_file(int fd, size_t n) {
  const HANDLE section = CreateFileMappingW(handle_of(fd), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (!section) return nullptr;
  void *mapping = MapViewOfFile(section, FILE_MAP_READ, 0, 0, n);
  CloseHandle(section);
  return mapping;
}

void unmap_file(void *mapping, size_t) {
  UnmapViewOfFile(mapping);
}

FileState state_of(const std::string &path) {
  constexpr DWORD with_others = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  const HANDLE file = CreateFileA(path.c_str(), FILE_READ_ATTRIBUTES, with_others, nullptr, OPEN_EXISTING,
                                  FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (file == INVALID_HANDLE_VALUE) return {};
  BY_HANDLE_FILE_INFORMATION info = {};
  GetFileInformationByHandle(file, &info);
  CloseHandle(file);
  const auto joined = [](DWORD high, DWORD low) { return uint64_t{high} << 32 | low; };
  const uint64_t ticks = joined(info.ftLastWriteTime.dwHighDateTime, info.ftLastWriteTime.dwLowDateTime);
  return {true, joined(info.nFileIndexHigh, info.nFileIndexLow),
          static_cast<int64_t>(joined(info.nFileSizeHigh, info.nFileSizeLow)), static_cast<int64_t>(ticks / 10000000),
          static_cast<int64_t>(ticks % 10000000)};
}

int sync_file(int fd) {
  return _commit(fd);
}

// Rights are those that the folder gives.
int hand_on_rights(const std::string &, int) {
  return 0;
}

bool find_target(const std::string &path, Target *target) {
  target->path = path;
  return true;
}

bool make_temporary_folder(std::string *path) {
  char base[MAX_PATH + 1];
  const DWORD n = GetTempPathA(sizeof base, base);
  *path = std::string(base, n < sizeof base ? n : 0) + "stctl-" + std::to_string(_getpid());
  return _mkdir(path->c_str()) == 0;
}

void remove_folder(const std::string &path) {
  _rmdir(path.c_str());
}

// No file can be cut that is mapped.
bool touch_pages(const char *bytes, size_t n) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  const volatile char *look = bytes;
  for (size_t at = 0; at < n; at += info.dwPageSize) static_cast<void>(look[at]);
  static_cast<void>(look[n - 1]);
  return true;
}

// isatty takes NUL for a terminal.
bool is_terminal(int fd) {
  DWORD mode = 0;
  return GetConsoleMode(handle_of(fd), &mode);
}

bool obeys_escapes(int fd) {
  DWORD mode = 0;
  return GetConsoleMode(handle_of(fd), &mode) &&
         SetConsoleMode(handle_of(fd), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

size_t terminal_columns() {
  CONSOLE_SCREEN_BUFFER_INFO info;
  if (!GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &info)) return 0;
  return static_cast<size_t>(info.srWindow.Right - info.srWindow.Left + 1);
}

}  // namespace stctl
