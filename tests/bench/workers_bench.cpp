// Processes that load one file together, from when all are ready until all have every byte.
//   workers_bench plain FILE             one reader, in file order, by pread of 1 MiB into one buffer
//   workers_bench shared FILE N UNIT     N processes on one descriptor: process p reads units p, p + N, ...
//   workers_bench contiguous FILE N      libst: each opens the file as worker p of N, prefetches, touches its part
//   workers_bench strided FILE N         libst: each loads tensors p, p + N, ... into memory of its own
// Prints the nanoseconds. Opening counts.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "processes.h"

namespace {

constexpr uint64_t MiB = 1 << 20, page = 4096;

int open_plainly(const char *path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) std::perror(path), std::exit(1);
  return fd;
}

uint64_t size_of(int fd) {
  struct stat s;
  if (::fstat(fd, &s) != 0) std::perror("fstat"), std::exit(1);
  return static_cast<uint64_t>(s.st_size);
}

void read_range(int fd, uint64_t begin, uint64_t end, std::vector<unsigned char> *buffer) {
  while (begin < end) {
    const ssize_t n =
        ::pread(fd, buffer->data(), std::min<uint64_t>(buffer->size(), end - begin), static_cast<off_t>(begin));
    if (n <= 0) std::perror("pread"), std::exit(1);
    begin += static_cast<uint64_t>(n);
  }
}

long long plain(const char *path) {
  return by_processes(1, [&](int, auto ready) {
    std::vector<unsigned char> buffer(MiB);
    ready();
    const int fd = open_plainly(path);
    read_range(fd, 0, size_of(fd), &buffer);
  });
}

long long shared(const char *path, int workers, uint64_t unit) {
  const int fd = open_plainly(path);
  const uint64_t size = size_of(fd);
  return by_processes(workers, [&](int p, auto ready) {
    std::vector<unsigned char> buffer(unit);
    ready();
    for (uint64_t at = unit * static_cast<uint64_t>(p); at < size; at += unit * static_cast<uint64_t>(workers))
      read_range(fd, at, std::min(at + unit, size), &buffer);
  });
}

// A byte of every page: as much as it takes to have them all.
void touch(const st_tensor &tensor) {
  volatile unsigned char sink = 0;
  for (uint64_t i = 0; i < tensor.nbytes; i += page) sink = static_cast<const unsigned char *>(tensor.data)[i];
  (void)sink;
}

// Those tensors whose first byte lies in the worker's part, as st_prefetch divides them.
bool is_in_part(const st_tensor &t, uint64_t data_begin, uint64_t data_size, uint32_t worker, uint32_t workers) {
  const uint64_t at = t.file_offset - data_begin, share = data_size / workers;
  return at >= share * worker && (worker + 1 == workers || at < share * (worker + 1));
}

long long contiguous(const char *path, uint32_t workers) {
  return by_processes(static_cast<int>(workers), [&](int p, auto ready) {
    auto options = sized<st_open_options>();
    options.worker_index = static_cast<uint32_t>(p);
    options.worker_count = workers;
    ready();
    st_file *file;
    REQUIRE_OK(st_open(path, &options, &file));
    REQUIRE_OK(st_prefetch(file, nullptr, 0, nullptr));
    auto info = sized<st_io_info>();
    REQUIRE_OK(st_file_io_info(file, &info));
    for (size_t i = 0; i < st_count(file); ++i) {
      st_tensor tensor;
      REQUIRE_OK(st_get_at(file, i, &tensor));
      if (is_in_part(tensor, info.data_offset, info.file_size - info.data_offset, options.worker_index, workers))
        touch(tensor);
    }
    st_close(file);
  });
}

long long strided(const char *path, uint32_t workers) {
  return by_processes(static_cast<int>(workers), [&](int p, auto ready) {
    ready();
    st_file *file;
    REQUIRE_OK(st_open(path, nullptr, &file));
    std::vector<size_t> mine;
    for (size_t i = static_cast<size_t>(p); i < st_count(file); i += workers) mine.push_back(i);
    REQUIRE_OK(st_load(file, mine.data(), mine.size(), nullptr));
    for (const size_t i : mine) {
      st_tensor tensor;
      REQUIRE_OK(st_get_at(file, i, &tensor));
      touch(tensor);
    }
    st_close(file);
  });
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const std::string_view mode = argv[1];
  const char *path = argv[2];
  const auto number = [&](int i) { return static_cast<uint32_t>(argc > i ? std::strtoul(argv[i], nullptr, 10) : 0); };
  const uint32_t workers = number(3);
  if (mode != "plain" && workers == 0) return 2;
  long long ns;
  if (mode == "plain")
    ns = plain(path);
  else if (mode == "shared")
    ns = shared(path, static_cast<int>(workers), number(4));
  else if (mode == "contiguous")
    ns = contiguous(path, workers);
  else if (mode == "strided")
    ns = strided(path, workers);
  else
    return 2;
  std::printf("%lld\n", ns);
}
