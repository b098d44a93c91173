// Set several tensors to zero, all of them or none: a transaction from C++11, where handles free themselves.
//
//   clear_many FILE TENSOR...
//
//   c++ clear_many.cpp $(pkg-config --cflags --libs libst) -o clear_many
#include <st/st.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(st_status status) {
  if (status != ST_OK) throw std::runtime_error(std::string(st_status_name(status)) + ": " + st_last_error());
}

struct Close {
  void operator()(st_file *file) const { st_close(file); }
  void operator()(st_txn *txn) const { st_txn_free(txn); }
};
using File = std::unique_ptr<st_file, Close>;
using Transaction = std::unique_ptr<st_txn, Close>;

File open(const char *path) {
  st_open_options options = {};
  options.struct_size = sizeof options;
  options.flags = ST_OPEN_READ_WRITE;
  st_file *file = nullptr;
  check(st_open(path, &options, &file));
  return File(file);
}

Transaction begin(const File &file) {
  st_txn_options options = {};
  options.struct_size = sizeof options;
  options.flags = ST_TXN_COPY;  // values need not live until the commit
  st_txn *txn = nullptr;
  check(st_txn_begin(file.get(), &options, &txn));
  return Transaction(txn);
}

}  // namespace

int main(int argc, char **argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s FILE TENSOR...\n", argv[0]);
    return 2;
  }
  const File file = open(argv[1]);
  const Transaction txn = begin(file);
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    st_tensor tensor;
    check(st_get(file.get(), name.data(), name.size(), &tensor));
    const std::vector<unsigned char> zeros(tensor.nbytes);
    tensor.data = zeros.data();
    check(st_txn_update(txn.get(), name.data(), name.size(), &tensor));
  }
  check(st_txn_commit(txn.get()));
  std::printf("%d tensors are zero\n", argc - 2);
  return 0;
} catch (const std::exception &e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
