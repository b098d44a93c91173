// What durability costs: st_update of a tensor against a bare pwrite + fdatasync of the same bytes.
//   update_bench FILE TENSOR ROUNDS
// Prints "<what> <nanoseconds>" a line: the two alternate on one warm handle ("raw", "steady"), then
// fresh handles follow ("fresh-first": the first st_update alone; "fresh-whole": open, update, close).
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "clock.h"

namespace {

struct Subject {
  const char *path;
  const char *name;
  st_open_options options = sized<st_open_options>();

  Subject(const char *p, const char *n) : path(p), name(n) { options.flags = ST_OPEN_READ_WRITE; }

  st_file *open() const {
    st_file *file;
    REQUIRE_OK(st_open(path, &options, &file));
    return file;
  }
};

// Other bytes every time, so that no layer can find that nothing changed.
void renew(std::vector<unsigned char> &bytes) {
  static uint64_t state = 88172645463325252u;
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(&bytes[i], &state, 8);
  }
}

void write_raw(int fd, const std::vector<unsigned char> &bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n <= 0) std::perror("pwrite"), std::exit(1);
    done += static_cast<size_t>(n);
  }
  if (::fdatasync(fd)) std::perror("fdatasync"), std::exit(1);
}

void say(const char *what, long long ns) {
  std::printf("%s %lld\n", what, ns);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const Subject subject(argv[1], argv[2]);
  const int rounds = std::atoi(argv[3]);

  st_file *file = subject.open();
  size_t index;
  st_tensor tensor;
  REQUIRE_OK(st_find(file, subject.name, std::strlen(subject.name), &index));
  REQUIRE_OK(st_at(file, index, 1, &tensor));
  std::vector<unsigned char> bytes(tensor.nbytes);
  tensor.data = bytes.data();
  const int fd = ::open(subject.path, O_WRONLY | O_CLOEXEC);
  require(fd >= 0, "open");

  const auto update = [&](st_file *f) { REQUIRE_OK(st_update(f, subject.name, ST_NTS, &tensor)); };
  renew(bytes), write_raw(fd, bytes, tensor.file_offset);  // both are warm
  renew(bytes), update(file);
  for (int i = 0; i < rounds; ++i) {
    renew(bytes), say("raw", nanoseconds([&] { write_raw(fd, bytes, tensor.file_offset); }));
    renew(bytes), say("steady", nanoseconds([&] { update(file); }));
  }

  for (int i = 0; i < rounds; ++i) {
    renew(bytes);
    long long first = 0;
    const long long whole = nanoseconds([&] {
      st_file *fresh = subject.open();
      first = nanoseconds([&] { update(fresh); });
      st_close(fresh);
    });
    say("fresh-first", first);
    say("fresh-whole", whole);
  }

  // What was timed must also be true.
  std::vector<unsigned char> seen(bytes.size());
  REQUIRE_OK(st_read(file, subject.name, ST_NTS, seen.data(), seen.size(), nullptr));
  require(seen == bytes, "the last update is not what is read; update");
  st_close(file);
  ::close(fd);
}
