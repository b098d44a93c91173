#include "os/mapping.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "base/round.h"
#include "os/own_pages.h"
#include "os/process.h"
#include "os/writable_mappings.h"

namespace st::os {

Result<Mapping> Mapping::of_file(const File &file, uint64_t nbytes, MapKind kind) {
  Mapping m;
  void *address = nullptr;
  // What may be written is seldom all written: no room is reserved for it.
  const bool writable = kind == MapKind::copy_on_write;
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = kind == MapKind::shared ? MAP_SHARED : writable ? MAP_PRIVATE | MAP_NORESERVE : MAP_PRIVATE;
  const auto size = static_cast<size_t>(nbytes);
  if (const int r = nbytes > PTRDIFF_MAX ? -ENOMEM : file.env().mmap(size, protection, flags, file.fd(), &address);
      r < 0)
    return Failure(file.error(-r, kind == MapKind::shared ? "map (shared)"
                                  : writable              ? "map (copy-on-write)"
                                                          : "map (private)"));
  m.env_ = &file.env();
  m.kind_ = kind;
  m.data_ = static_cast<std::byte *>(address);
  m.size_ = size;
  if (writable) ST_TRY(note_writable_mapping(file, m.data_, size));  // its end takes it off the list
  return m;
}

Mapping::~Mapping() {
  if (!data_) return;
  if (kind_ == MapKind::copy_on_write) forget_writable_mapping(data_);
  env_->munmap(data_, size_);
}

uint64_t Mapping::resident(size_t offset, size_t n) const {
  if (n == 0) return 0;
  const size_t page = page_size();
  constexpr size_t window = size_t{1} << 30;  // so that the answer of a huge file needs little memory
  const size_t from = round_down(offset, page), end = offset + n;
  std::vector<unsigned char> in_core(std::min(end - from, window) / page + 1);
  uint64_t pages = 0;
  for (size_t at = from; at < end; at += window) {
    const size_t length = std::min(window, end - at);
    if (env_->mincore(data_ + at, length, in_core.data()) < 0) return 0;
    const size_t count = (length + page - 1) / page;
    pages += static_cast<uint64_t>(std::count_if(in_core.begin(), in_core.begin() + static_cast<std::ptrdiff_t>(count),
                                                 [](unsigned char c) { return c & 1; }));
  }
  return std::min<uint64_t>(pages * page, n);
}

namespace {

Failure cannot_bring_in(int r) {
  if (r == -EFAULT) return fail(Status::file_changed, "the file was truncated while it was open; open it anew");
  return Failure(os_error(-r, "bring into memory", "a mapped file"));
}

}  // namespace

Result<void> Mapping::populate(size_t offset, size_t n) const {
  if (n == 0) return {};
  const size_t page = page_size();
  const size_t from = round_down(offset, page);
  const size_t length = std::min(offset + n, size_) - from;
  int r = repeat_interrupted([&] { return env_->madvise(data_ + from, length, MADV_POPULATE_READ); });
  if (r == -EINVAL) r = env_->madvise(data_ + from, length, MADV_WILLNEED);  // Linux before 5.14
  return r < 0 ? cannot_bring_in(r) : Result<void>();
}

Result<void> Mapping::own(const File &file, size_t offset, size_t n) const {
  if (n == 0) return {};
  ST_TRY(auto now, file.stat());
  if (static_cast<uint64_t>(now.st_size) < offset + n) return cannot_bring_in(-EFAULT);
  const size_t from = round_down(offset, page_size());
  const int r = own_pages(*env_, data_ + from, offset + n - from);
  return r < 0 ? cannot_bring_in(r) : Result<void>();
}

uint64_t Mapping::private_dirty() const {
  if (kind_ != MapKind::copy_on_write) return 0;
  auto pagemap = File::open(*env_, AT_FDCWD, "/proc/self/pagemap", O_RDONLY, 0, "/proc/self/pagemap");
  if (!pagemap) return 0;
  constexpr uint64_t present = uint64_t{1} << 63, swapped = uint64_t{1} << 62, of_file = uint64_t{1} << 61;
  const size_t page = page_size();
  std::vector<uint64_t> entries(512);
  uint64_t pages = 0;
  for (size_t at = 0, count = (size_ + page - 1) / page; at < count; at += entries.size()) {
    entries.resize(std::min(entries.size(), count - at));
    const uint64_t first = reinterpret_cast<uintptr_t>(data_) / page + at;
    if (!pagemap->read(entries.data(), entries.size() * sizeof(uint64_t), first * sizeof(uint64_t))) return 0;
    pages += static_cast<uint64_t>(std::count_if(
        entries.begin(), entries.end(), [](uint64_t e) { return (e & (present | swapped)) && !(e & of_file); }));
  }
  return std::min<uint64_t>(pages * page, size_);
}

void Mapping::drop(size_t offset, size_t n) const {
  if (n == 0) return;
  const size_t page = page_size();
  const size_t from = round_down(offset, page);
  env_->madvise(data_ + from, offset + n - from, MADV_DONTNEED);
}

}  // namespace st::os
