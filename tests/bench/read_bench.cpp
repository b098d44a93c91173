// Reading a local file whole, and finding a tensor. One measurement a line, "<what> <nanoseconds>".
//   read_bench load FILE N       N times, in turn: st_open + st_load + st_close ("load"); the same from a cold cache
//                                is the caller's to arrange, with N = 1
//   read_bench direct FILE N     the same past the page cache (ST_BULK_DIRECT)
//   read_bench raw FILE N        two threads pread a half each into fresh memory ("fresh"), and into memory that has
//                                been touched ("touched"); st_read_many into the same ("many")
//   read_bench source FILE N     st_read of every tensor into touched memory: of the file ("file"), and of a source of
//                                st_open_source that preads it ("source"), in turn
//   read_bench first FILE N      st_open, a view of the first tensor, a byte of it ("first")
//   read_bench lookup FILE N     of all names in random order: st_get ("st_get") and a std::unordered_map of the same
//                                names and descriptions ("map"); nanoseconds of one lookup, in thousandths
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "clock.h"

namespace {

constexpr uint64_t block = 4 << 20;

void say(const char *what, long long ns) {
  std::printf("%s %lld\n", what, ns);
  std::fflush(stdout);
}

st_file *open_file(const char *path) {
  st_file *file;
  REQUIRE_OK(st_open(path, nullptr, &file));
  return file;
}

unsigned char *fresh_memory(size_t size) {
  void *p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(p != MAP_FAILED, "mmap");
  return static_cast<unsigned char *>(p);
}

void load(const char *path, int rounds, uint32_t flags) {
  for (int i = 0; i < rounds; ++i)
    say("load", nanoseconds([&] {
          st_file *file = open_file(path);
          auto options = sized<st_bulk_options>();
          options.flags = flags;
          REQUIRE_OK(st_load(file, nullptr, 0, &options));
          st_close(file);
        }));
}

void read_half(int fd, unsigned char *to, uint64_t begin, uint64_t end) {
  while (begin < end) {
    const ssize_t n = ::pread(fd, to + begin, std::min(block, end - begin), static_cast<off_t>(begin));
    if (n <= 0) std::perror("pread"), std::exit(1);
    begin += static_cast<uint64_t>(n);
  }
}

void read_by_two(const char *path, unsigned char *to, uint64_t size) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) std::perror(path), std::exit(1);
  std::thread other(read_half, fd, to, size / 2, size);
  read_half(fd, to, 0, size / 2);
  other.join();
  ::close(fd);
}

void read_all(const char *path, unsigned char *to) {
  st_file *file = open_file(path);
  std::vector<st_read_request> requests(st_count(file));
  for (size_t i = 0; i < requests.size(); ++i) {
    st_tensor tensor;
    REQUIRE_OK(st_at(file, i, 1, &tensor));
    requests[i] = {nullptr, 0, i, to + tensor.file_offset, tensor.nbytes, nullptr, 0, 0};
  }
  REQUIRE_OK(st_read_many(file, requests.data(), requests.size(), nullptr));
  st_close(file);
}

void raw(const char *path, int rounds) {
  struct stat s;
  if (::stat(path, &s) != 0) std::perror(path), std::exit(1);
  const auto size = static_cast<size_t>(s.st_size);
  unsigned char *touched = fresh_memory(size);
  std::memset(touched, 1, size);
  for (int i = 0; i < rounds; ++i) {
    say("fresh", nanoseconds([&] {
          unsigned char *fresh = fresh_memory(size);
          read_by_two(path, fresh, size);
          ::munmap(fresh, size);
        }));
    say("touched", nanoseconds([&] { read_by_two(path, touched, size); }));
    say("many", nanoseconds([&] { read_all(path, touched); }));
  }
}

int pread_ranges(void *user, const st_source_range *ranges, size_t n) {
  const int fd = *static_cast<const int *>(user);
  for (size_t i = 0; i < n; ++i) {
    auto *to = static_cast<unsigned char *>(ranges[i].dst);
    for (uint64_t at = ranges[i].offset, end = at + ranges[i].nbytes; at < end;) {
      const ssize_t got = ::pread(fd, to, end - at, static_cast<off_t>(at));
      if (got <= 0) return got < 0 ? errno : EIO;
      to += got, at += static_cast<uint64_t>(got);
    }
  }
  return 0;
}

void source(const char *path, int rounds) {
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  struct stat s;
  if (fd < 0 || ::fstat(fd, &s) != 0) std::perror(path), std::exit(1);
  auto held = sized<st_source>();
  held.size = static_cast<uint64_t>(s.st_size);
  held.read = pread_ranges;
  held.user = &fd;
  st_file *files[2] = {open_file(path), nullptr};
  REQUIRE_OK(st_open_source(&held, nullptr, &files[1]));
  uint64_t longest = 0;
  st_tensor tensor;
  for (size_t i = 0; i < st_count(files[0]); ++i) {
    REQUIRE_OK(st_at(files[0], i, 1, &tensor));
    longest = std::max(longest, tensor.nbytes);
  }
  std::vector<unsigned char> to(longest, 1);
  for (int i = 0; i < rounds; ++i)
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (i + turn) % 2;
      say(which ? "source" : "file", nanoseconds([&] {
            for (size_t k = 0; k < st_count(files[which]); ++k) {
              REQUIRE_OK(st_at(files[which], k, 1, &tensor));
              REQUIRE_OK(st_read(files[which], tensor.name, tensor.name_len, to.data(), tensor.nbytes, nullptr));
            }
          }));
    }
  for (st_file *file : files) st_close(file);
  ::close(fd);
}

void first(const char *path, int rounds) {
  volatile unsigned char sink = 0;
  for (int i = 0; i < rounds; ++i)
    say("first", nanoseconds([&] {
          st_file *file = open_file(path);
          st_tensor tensor;
          REQUIRE_OK(st_get_at(file, 0, &tensor));
          sink = *static_cast<const unsigned char *>(tensor.data);
          st_close(file);
        }));
  (void)sink;
}

void lookup(const char *path, int rounds) {
  st_file *file = open_file(path);
  std::unordered_map<std::string, st_tensor> map;
  std::vector<std::string> names;
  for (size_t i = 0; i < st_count(file); ++i) {
    st_tensor tensor;
    REQUIRE_OK(st_get_at(file, i, &tensor));
    names.emplace_back(tensor.name, tensor.name_len);
    map.emplace(names.back(), tensor);
  }
  std::shuffle(names.begin(), names.end(), std::mt19937(1));
  uint64_t seen = 0;
  st_tensor out;
  const auto each = static_cast<long long>(names.size());
  // In turns, because the second finds the names in the cache.
  for (int i = 0; i < rounds; ++i) {
    long long ours = 0, theirs = 0;
    for (int turn = 0; turn < 2; ++turn) {
      if ((i + turn) % 2 == 0)
        ours = nanoseconds([&] {
          for (const std::string &name : names)
            REQUIRE_OK(st_get(file, name.c_str(), ST_NTS, &out)), seen += out.nbytes;
        });
      else
        theirs = nanoseconds([&] {
          for (const std::string &name : names) out = map.find(name)->second, seen += out.nbytes;
        });
    }
    say("st_get", ours * 1000 / each);
    say("map", theirs * 1000 / each);
  }
  require(seen > 0, "st_get");
  st_close(file);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const std::string_view mode = argv[1];
  const char *path = argv[2];
  const int rounds = std::atoi(argv[3]);
  if (mode == "load")
    load(path, rounds, 0);
  else if (mode == "direct")
    load(path, rounds, ST_BULK_DIRECT);
  else if (mode == "raw")
    raw(path, rounds);
  else if (mode == "source")
    source(path, rounds);
  else if (mode == "first")
    first(path, rounds);
  else if (mode == "lookup")
    lookup(path, rounds);
  else
    return 2;
}
