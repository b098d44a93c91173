#include "base/error.h"

#include <cerrno>
#include <cstring>

#include "base/visible.h"

namespace st {

std::string in_quotes(std::string_view name) {
  constexpr size_t longest = 160;
  constexpr char hex[] = "0123456789abcdef";
  std::string out = "'";
  std::string_view left = name;
  while (!left.empty() && name.size() - left.size() < longest) {
    const Character c = take_character(&left);
    if (c.is_visible) {
      out += c.bytes;
      continue;
    }
    for (const unsigned char byte : c.bytes) {
      out += "\\x";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    }
  }
  out += left.empty() ? "'" : "...'";
  return out;
}

namespace {

// strerror_r is thread-safe. That of glibc answers the text and may ignore the buffer; that of POSIX, which musl has,
// fills the buffer and answers 0.
[[maybe_unused]] std::string_view reason_in(const char * /*buffer*/, const char *answer) {
  return answer;
}
[[maybe_unused]] std::string_view reason_in(const char *buffer, int answer) {
  return answer == 0 ? buffer : "an error that has no name";
}

#if defined(_WIN32)
constexpr std::string_view limit_of_process = "; close some files", limit_of_system = limit_of_process;
#elif defined(__APPLE__)
constexpr std::string_view limit_of_process = "; close some files, or raise the limit (ulimit -n)",
                           limit_of_system = "; raise the limit of the system (kern.maxfiles)";
#else
constexpr std::string_view limit_of_process = "; close some files, or raise the limit (ulimit -n)",
                           limit_of_system = "; raise the limit of the system (fs.file-max)";
#endif

#ifdef _WIN32  // the same by another name
int strerror_r(int err, char *buffer, size_t n) {
  return ::strerror_s(buffer, n, err);
}
#endif

std::string_view what_to_do(int err) {
  switch (err) {
    case EMFILE: return limit_of_process;
    case ENFILE: return limit_of_system;
    case ENOSPC: return "; free some room";
    case EDQUOT: return "; free some room, or have the quota raised";
    case EOVERFLOW: return "; on an id-mapped mount only a user who has an id there makes files";
    case ESPIPE: return "; the filesystem takes bytes in order only: write on a disk, and copy the file";
    default: return {};
  }
}

}  // namespace

Error os_error(int err, std::string_view what, std::string_view path) {
  char buffer[128];
  const std::string_view reason = reason_in(buffer, strerror_r(err, buffer, sizeof buffer));
  Error e = error(status_of_errno(err), "cannot ", what, " ", in_quotes(path), ": ", reason, what_to_do(err));
  e.os_errno = err;
  return e;
}

Error naming_tensor(std::string_view name, Error e) {
  e.message = text("tensor ", in_quotes(name), ": ", e.message);
  return std::move(e).about_tensor(name);
}

}  // namespace st
