#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#ifdef __linux__
#include <sys/xattr.h>
#endif
#include <unistd.h>

#include <charconv>
#include <string_view>
#include <vector>

#include "system.h"

namespace stctl {
namespace {

constexpr int most_links = 40;  // as Linux has it

// "" where there is nothing.
std::string real_path(const std::string &path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) ? real : "";
}

bool can_be_written(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

#ifdef __linux__
// Labels of security modules are theirs to give. ACLs come last: they may forbid to set another attribute.
int copy_attributes(const std::string &path, int fd) {
  fremovexattr(fd, "system.posix_acl_access");  // which the folder may have given
  const ssize_t n = listxattr(path.c_str(), nullptr, 0);
  if (n <= 0) return n == 0 || errno == ENOTSUP ? 0 : -1;
  std::string names(static_cast<size_t>(n), '\0');
  const ssize_t listed = listxattr(path.c_str(), names.data(), names.size());
  if (listed < 0) return -1;
  names.resize(static_cast<size_t>(listed));
  for (const std::string_view kind : {"user.", "system."}) {
    for (size_t at = 0; at < names.size(); at += strlen(&names[at]) + 1) {
      const char *name = &names[at];
      if (!std::string_view(name).starts_with(kind)) continue;
      const ssize_t length = getxattr(path.c_str(), name, nullptr, 0);
      if (length < 0 && (errno == EACCES || errno == ENODATA)) continue;  // a file that may not be read
      if (length < 0) return -1;
      std::string value(static_cast<size_t>(length), '\0');
      const ssize_t got = getxattr(path.c_str(), name, value.data(), value.size());
      if (got < 0 || fsetxattr(fd, name, value.data(), static_cast<size_t>(got), 0) != 0) return -1;
    }
  }
  return 0;
}
#else
int copy_attributes(const std::string &, int) {
  return 0;
}
#endif

}  // namespace

void prepare_standard_descriptors() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDONLY);  // takes the lowest that is free
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

void await_handler() {}

void handle_signals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;  // without SA_RESTART: a blocked read or write returns EINTR
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // One that was ignored stays so: `nohup stctl …`, or a shell's background job.
    struct sigaction old = {};
    if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) {
      sigaction(signal, &action, nullptr);
    }
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void end_by_signal(int number) {
  signal(number, SIG_DFL);
  sigset_t it;
  sigemptyset(&it);
  sigaddset(&it, number);
  raise(number);
  sigprocmask(SIG_UNBLOCK, &it, nullptr);  // in its handler it is blocked
}

int open_to_read(const std::string &path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

int open_itself(const std::string &path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
}

int open_to_write(const std::string &path) {
  return open(path.c_str(), O_WRONLY | O_CLOEXEC);
}

bool find_entry(const std::string &path, Entry *entry) {
#if defined(O_PATH)
  constexpr int to_search = O_PATH;  // without the right to read it
#elif defined(O_SEARCH)
  constexpr int to_search = O_SEARCH;
#else
  constexpr int to_search = O_RDONLY;
#endif
  entry->path = path.substr(0, path.rfind('/') + 1);
  entry->name = path.substr(entry->path.size());
  entry->folder = open(entry->path.empty() ? "." : entry->path.c_str(), to_search | O_DIRECTORY | O_CLOEXEC);
  return entry->folder >= 0;
}

void close_entry(Entry *entry) {
  if (entry->folder >= 0) close(entry->folder);
  entry->folder = -1;
}

int create_file(const Entry &folder, const std::string &name) {
  return openat(folder.folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

int create_unnamed(const Entry &folder) {
#ifdef O_TMPFILE
  if (access("/proc/self/fd", X_OK) == 0) return openat(folder.folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
#else
  static_cast<void>(folder);
#endif
  errno = ENOSYS;
  return -1;
}

int name_file(int fd, const Entry &folder, const std::string &name) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return linkat(AT_FDCWD, link.c_str(), folder.folder, name.c_str(), AT_SYMLINK_FOLLOW);
}

int rename_over(const Entry &folder, const std::string &from, const std::string &to) {
  return renameat(folder.folder, from.c_str(), folder.folder, to.c_str());
}

void remove_file(const Entry &folder, const std::string &name) {
  unlinkat(folder.folder, name.c_str(), 0);
}

ssize_t read_at(int fd, void *buffer, size_t n, uint64_t offset) {
  return pread(fd, buffer, n, static_cast<off_t>(offset));
}

void *map_file(int fd, size_t n) {
  void *mapping = mmap(nullptr, n, PROT_READ, MAP_PRIVATE, fd, 0);
  return mapping == MAP_FAILED ? nullptr : mapping;
}

void unmap_file(void *mapping, size_t n) {
  munmap(mapping, n);
}

FileState state_of(const std::string &path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0) return {};
  return {true, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

int sync_file(int fd) {
#ifdef F_FULLFSYNC
  if (fcntl(fd, F_FULLFSYNC) == 0) return 0;  // fsync leaves bytes in the cache of the disk
#endif
  return fsync(fd);
}

int hand_on_rights(const std::string &path, int fd) {
  struct stat old = {}, made = {};
  if (stat(path.c_str(), &old) != 0 || fstat(fd, &made) != 0) return -1;
  mode_t mode = old.st_mode & 07777;
  if (old.st_gid != made.st_gid && fchown(fd, static_cast<uid_t>(-1), old.st_gid) != 0)
    mode &= static_cast<mode_t>(~(S_IRWXG | S_ISGID) | (mode & S_IRWXO) << 3);
  if (old.st_uid != made.st_uid && fchown(fd, old.st_uid, static_cast<gid_t>(-1)) != 0)
    mode &= static_cast<mode_t>(~S_ISUID);
  if (copy_attributes(path, fd) != 0) return -1;
  return fchmod(fd, mode);
}

bool find_target(const std::string &path, Target *target) {
  struct stat s = {};
  const bool is_file = stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode);
  const auto is_same = [&s](const struct stat &other) { return other.st_dev == s.st_dev && other.st_ino == s.st_ino; };
  const auto goes_to = [target](int fd) { return (target->fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) >= 0; };
  struct stat other = {};
  for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (is_file && fstat(fd, &other) == 0 && is_same(other) && can_be_written(fd)) return goes_to(fd);
  }
  std::string &at = target->path = path;
  for (int links = 0;; ++links) {
    const std::string folder = at.substr(0, at.rfind('/') + 1), name = at.substr(folder.size());
    const std::string real = real_path(folder.empty() ? "." : folder);
    int fd = -1;
    const char *const end = name.data() + name.size();
    const auto [stop, err] = std::from_chars(name.data(), end, fd);
    const bool is_number = err == std::errc() && stop == end && fd >= 0;
    if (is_number && !real.empty()) {
      if (real == real_path("/proc/self/fd") || real == real_path("/proc/thread-self/fd")) return goes_to(fd);
      if (is_file && real.starts_with("/proc/") && real.ends_with("/fd")) {  // of another process
        errno = EOPNOTSUPP;
        return false;
      }
    }
    char link[PATH_MAX];
    const ssize_t n = readlink(at.c_str(), link, sizeof link);
    if (n < 0) break;
    if (n == sizeof link || links == most_links) {
      errno = ELOOP;
      return false;
    }
    const std::string next(link, static_cast<size_t>(n));
    at = next.starts_with('/') ? next : folder + next;
  }
  if (is_file && (stat(at.c_str(), &other) != 0 || !is_same(other))) {
    errno = ENOENT;  // a link of the system's, to what has lost its name
    return false;
  }
  return true;
}

bool make_temporary_folder(std::string *path) {
  const char *base = getenv("TMPDIR");
  *path = std::string(base && *base ? base : "/tmp") + "/stctl-XXXXXX";
  return mkdtemp(path->data()) != nullptr;
}

void remove_folder(const std::string &path) {
  rmdir(path.c_str());
}

// The kernel looks, as it copies a byte of each into a pipe: so few go into any pipe, and into one call.
bool touch_pages(const char *bytes, size_t n) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<iovec> looks;
  const auto look_at = [&looks](const char *at) { looks.push_back({const_cast<char *>(at), 1}); };
  for (size_t at = 0; at < n; at += page) look_at(bytes + at);
  look_at(bytes + n - 1);
  int ends[2];
  if (pipe(ends) != 0) return false;
  const ssize_t done = writev(ends[1], looks.data(), static_cast<int>(looks.size()));
  const int err = done < 0 ? errno : EFAULT;
  close(ends[0]);
  close(ends[1]);
  errno = err;
  return done == static_cast<ssize_t>(looks.size());
}

bool is_terminal(int fd) {
  return isatty(fd) != 0;
}

bool obeys_escapes(int fd) {
  return is_terminal(fd);
}

size_t terminal_columns() {
  struct winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace stctl
