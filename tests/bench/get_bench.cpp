// What a look-up costs in C, which the bindings are held against.
//   get_bench FILE NAME     for each number N on standard input, prints the nanoseconds of N st_get
#include <cstring>

#include "clock.h"

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  st_file *file;
  REQUIRE_OK(st_open(argv[1], nullptr, &file));
  const size_t length = std::strlen(argv[2]);
  const void *volatile data = nullptr;
  volatile uint64_t nbytes = 0;
  for (long n; std::scanf(" get %ld", &n) == 1;) {
    std::printf("%lld\n", nanoseconds([&] {
                  for (long i = 0; i < n; ++i) {
                    st_tensor tensor;
                    REQUIRE_OK(st_get(file, argv[2], length, &tensor));
                    data = tensor.data;
                    nbytes = tensor.nbytes;
                  }
                }));
    std::fflush(stdout);
  }
  (void)data;
  (void)nbytes;
  st_close(file);
}
