// What a look-up costs in C, which the bindings are held against.
//   get_bench FILE NAME     for each number N on standard input, prints the nanoseconds of N st_get
#include <string_view>

#include "clock.h"

// What Rust's black_box does: the compiler must put it into memory, and knows nothing of what it reads there.
template <class T>
void hide(T &value) {
  asm volatile("" : "+m"(value)::"memory");
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  st_file *file;
  REQUIRE_OK(st_open(argv[1], nullptr, &file));
  const std::string_view given = argv[2];
  for (long n; std::scanf(" get %ld", &n) == 1;) {
    std::printf("%lld\n", nanoseconds([&] {
                  for (long i = 0; i < n; ++i) {
                    std::string_view name = given;
                    hide(name);
                    st_tensor tensor;
                    REQUIRE_OK(st_get(file, name.data(), name.size(), &tensor));
                    std::string_view data(static_cast<const char *>(tensor.data), tensor.nbytes);
                    hide(data);
                  }
                }));
    std::fflush(stdout);
  }
  st_close(file);
}
