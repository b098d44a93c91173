// Time to open a file through the C ABI. The driver, which holds the peer, asks for
// one measurement at a time, so that the two alternate. The driver was busy meanwhile, and this program asleep. A
// processor takes hundreds of milliseconds to be fast again: so the work is done a while before it is timed.
//   open_bench FILE     for each number N on standard input, opens the file N times and prints
//                       the nanoseconds of st_open + st_count + st_close, then of the same with st_at of every tensor
#include "clock.h"

namespace {

size_t open_and_count(const char *path) {
  st_file *file;
  REQUIRE_OK(st_open(path, nullptr, &file));
  const size_t count = st_count(file);
  st_close(file);
  return count;
}

uint64_t open_and_describe_all(const char *path) {
  st_file *file;
  REQUIRE_OK(st_open(path, nullptr, &file));
  uint64_t seen = 0;
  for (size_t i = 0, n = st_count(file); i < n; ++i) {
    st_tensor tensor;
    REQUIRE_OK(st_at(file, i, 1, &tensor));
    seen += tensor.name_len + tensor.nbytes;
  }
  st_close(file);
  return seen;
}

void warm_up(const char *path) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < until) open_and_describe_all(path);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  volatile uint64_t sink = 0;
  for (int n; std::scanf("%d", &n) == 1;) {
    warm_up(argv[1]);
    const long long counted = nanoseconds([&] {
      for (int i = 0; i < n; ++i) sink = open_and_count(argv[1]);
    });
    const long long described = nanoseconds([&] {
      for (int i = 0; i < n; ++i) sink = open_and_describe_all(argv[1]);
    });
    std::printf("%lld %lld\n", counted / n, described / n);
    std::fflush(stdout);
  }
  (void)sink;
}
