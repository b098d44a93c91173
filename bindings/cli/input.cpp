#include "input.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "failure.h"
#include "interrupt.h"
#include "system.h"

namespace stctl {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd > STDERR_FILENO) close(fd);
  }
};

// Once: a named pipe is waited for until somebody writes to it, and those bytes are gone if it is closed.
int open_to_wait(const std::string &path) {
  const Blocking guard;
  return open_to_read(path);
}

// For so many bytes and one more, where memory can be had: else it comes as it is needed.
void reserve_for(std::string &memory, uint64_t bytes) {
  try {
    if (bytes < memory.max_size()) memory.reserve(static_cast<size_t>(bytes) + 1);
  } catch (const std::bad_alloc &) {
    return;
  }
}

}  // namespace

std::optional<Input> Input::map(const std::string &path) {
  const Descriptor file{open_to_read(path)};
  return map(file.fd);
}

std::optional<Input> Input::map(int fd) {
  struct stat st = {};
  if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return std::nullopt;
  if (!std::in_range<size_t>(st.st_size)) return std::nullopt;  // more than there are addresses
  const size_t size = static_cast<size_t>(st.st_size);
  void *mapping = map_file(fd, size);
  if (!mapping) return std::nullopt;
  Input input;
  input.mapping_ = mapping;
  input.data_ = static_cast<const char *>(mapping);
  input.size_ = size;
  return input;
}

Input Input::read(const std::string &path, const Most &most, bool into_memory) {
  const bool standard = path == "-";
  const Descriptor file{standard ? STDIN_FILENO : open_to_wait(path)};
  if (file.fd < 0) throw Failure::of_errno(errno, "read", path);
  if (!standard && !into_memory) {
    if (std::optional<Input> mapped = map(file.fd)) return std::move(*mapped);
  }
  Input input;
  std::vector<char> block(1 << 20);
  uint64_t wanted = 0;  // at most
  while (true) {
    if (input.memory_.size() >= wanted) {
      wanted = most(input.memory_);
      if (input.memory_.size() > wanted) break;
      reserve_for(input.memory_, wanted);
    }
    const uint64_t left = wanted - input.memory_.size();
    const Blocking guard;
    const ssize_t n = ::read(file.fd, block.data(), left < block.size() ? static_cast<size_t>(left) + 1 : block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure::of_errno(errno, "read", path);
    if (n == 0) break;
    input.memory_.append(block.data(), static_cast<size_t>(n));
  }
  input.data_ = input.memory_.data();
  input.size_ = input.memory_.size();
  return input;
}

Input::Input(Input &&other) noexcept
    : memory_(std::move(other.memory_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      data_(mapping_ ? other.data_ : memory_.data()),
      size_(other.size_) {}

Input::~Input() {
  if (mapping_) unmap_file(mapping_, size_);
}

}  // namespace stctl
