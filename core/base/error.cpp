#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace st {

std::string in_quotes(std::string_view name) {
  constexpr size_t longest = 160;
  constexpr char hex[] = "0123456789abcdef";
  std::string out = "'";
  for (unsigned char c : name.substr(0, longest)) {
    if (c < 0x20 || c == 0x7f) {
      out += "\\x";
      out += hex[c >> 4];
      out += hex[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  out += name.size() > longest ? "...'" : "'";
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

}  // namespace

Error os_error(int err, std::string_view what, std::string_view path) {
  char buffer[128];
  const std::string_view reason = reason_in(buffer, strerror_r(err, buffer, sizeof buffer));
  Error e = error(status_of_errno(err), "cannot ", what, " ", in_quotes(path), ": ", reason);
  if (err == EMFILE) e.message += limit_of_process;
  if (err == ENFILE) e.message += limit_of_system;
  e.os_errno = err;
  return e;
}

}  // namespace st
