// What many writers and many tensors cost.
//   transactions_bench side-by-side FILE PROCESSES ROUNDS
//       each process changes a tensor of its own, ROUNDS times; prints "<what> <nanoseconds>" for all of it:
//       "libst" by st_update, "raw" by pwrite + fdatasync of the same bytes
//   transactions_bench together FILE
//       every tensor of the file is changed once: "first-transaction" and "transaction" all in one; "singles" by
//       st_update, one after the other; "raw" by pwrite of each, and one fdatasync
//   transactions_bench rows FILE ROUNDS
//       ten rows of 4 KiB of the first tensor, ROUNDS times: prints "libst", by st_txn_update_slice, and "raw", by ten
//       pwrites and one fdatasync, a time each
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "clock.h"
#include "processes.h"

namespace {

using Bytes = std::vector<unsigned char>;

Bytes noise(size_t n) {
  static uint64_t state = 88172645463325252u;
  Bytes bytes(n);
  for (size_t i = 0; i + 8 <= n; i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(&bytes[i], &state, 8);
  }
  return bytes;
}

st_file *open_for_writing(const char *path) {
  auto options = sized<st_open_options>();
  options.flags = ST_OPEN_READ_WRITE;
  st_file *file;
  REQUIRE_OK(st_open(path, &options, &file));
  return file;
}

void write_raw(int fd, const st_tensor &tensor) {
  for (uint64_t done = 0; done < tensor.nbytes;) {
    const ssize_t n = ::pwrite(fd, static_cast<const unsigned char *>(tensor.data) + done, tensor.nbytes - done,
                               static_cast<off_t>(tensor.file_offset + done));
    if (n <= 0) std::perror("pwrite"), std::exit(1);
    done += static_cast<uint64_t>(n);
  }
}

st_tensor part_of(const st_tensor &tensor, uint64_t at, const unsigned char *bytes, uint64_t n) {
  st_tensor part = tensor;
  part.data = bytes;
  part.nbytes = n;
  part.file_offset += at;
  return part;
}

void sync(int fd) {
  if (::fdatasync(fd)) std::perror("fdatasync"), std::exit(1);
}

void say(const char *what, long long ns) {
  std::printf("%s %lld\n", what, ns);
  std::fflush(stdout);
}

// Two values by turns, so that every change changes every byte.
void side_by_side(const char *path, int processes, int rounds) {
  auto run = [&](bool raw) {
    return by_processes(processes, [&](int p, auto ready) {
      st_file *file = open_for_writing(path);
      const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
      st_tensor tensor;
      REQUIRE_OK(st_at(file, static_cast<size_t>(p), 1, &tensor));
      const Bytes values[2] = {noise(tensor.nbytes), noise(tensor.nbytes)};
      auto change = [&](int i) {
        tensor.data = values[i % 2].data();
        if (raw)
          write_raw(fd, tensor), sync(fd);
        else
          REQUIRE_OK(st_update(file, tensor.name, ST_NTS, &tensor));
      };
      change(1);  // and all is warm
      ready();
      for (int i = 0; i < rounds; ++i) change(i);
      st_close(file);
    });
  };
  say("libst", run(false));
  say("raw", run(true));
}

void together(const char *path) {
  st_file *file = open_for_writing(path);
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  std::vector<st_tensor> tensors(st_count(file));
  REQUIRE_OK(st_at(file, 0, tensors.size(), tensors.data()));
  std::vector<Bytes> values(tensors.size());
  auto renew = [&] {
    for (size_t i = 0; i < tensors.size(); ++i) {
      values[i] = noise(tensors[i].nbytes);
      tensors[i].data = values[i].data();
    }
  };
  auto check = [&] {
    Bytes seen(tensors.back().nbytes);
    REQUIRE_OK(st_read(file, tensors.back().name, ST_NTS, seen.data(), seen.size(), nullptr));
    require(seen == values.back(), "what was written is not what is read; check");
  };
  auto change_all = [&] {
    st_txn *txn;
    REQUIRE_OK(st_txn_begin(file, nullptr, &txn));
    for (const st_tensor &t : tensors) REQUIRE_OK(st_txn_update(txn, t.name, ST_NTS, &t));
    REQUIRE_OK(st_txn_commit(txn));
    st_txn_free(txn);
  };
  renew();
  say("first-transaction", nanoseconds(change_all));  // which makes the journal as large as it must be
  check(), renew();
  say("transaction", nanoseconds(change_all));
  check(), renew();
  say("raw", nanoseconds([&] {
        for (const st_tensor &t : tensors) write_raw(fd, t);
        sync(fd);
      }));
  check(), renew();
  say("singles", nanoseconds([&] {
        for (const st_tensor &t : tensors) REQUIRE_OK(st_update(file, t.name, ST_NTS, &t));
      }));
  check();
  st_close(file);
  ::close(fd);
}

// Ten rows far apart, others each time. As both are measured in turn, they meet the same disk; each has rows of its
// own, as a disk may take a block faster the second time.
void rows(const char *path, int rounds) {
  constexpr uint64_t row = 4096, count = 10;
  st_file *file = open_for_writing(path);
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  st_tensor tensor;
  REQUIRE_OK(st_at(file, 0, 1, &tensor));
  const uint64_t all = tensor.nbytes / row, shape[] = {count, row};
  require(tensor.rank == 2 && tensor.shape[1] == row, "the tensor has no rows of 4 KiB");
  for (int i = -1; i < rounds; ++i) {  // the first warms
    int64_t indices[count];
    for (uint64_t k = 0; k < count; ++k)
      indices[k] = static_cast<int64_t>((k * (all / count) + static_cast<uint64_t>(i + 1) * 7919) % all);
    const Bytes values[2] = {noise(count * row), noise(count * row)};
    const auto by_libst = nanoseconds([&] {
      st_tensor value = {};
      value.dtype = tensor.dtype;
      value.rank = 2;
      value.shape = shape;
      value.nbytes = count * row;
      value.data = values[0].data();
      st_txn *txn;
      REQUIRE_OK(st_txn_begin(file, nullptr, &txn));
      REQUIRE_OK(st_txn_update_slice(txn, tensor.name, ST_NTS, nullptr, 0, indices, count, &value));
      REQUIRE_OK(st_txn_commit(txn));
      st_txn_free(txn);
    });
    const auto by_hand = nanoseconds([&] {
      for (uint64_t k = 0; k < count; ++k)
        write_raw(fd, part_of(tensor, (static_cast<uint64_t>(indices[k]) + all / count / 2) % all * row,
                              &values[1][k * row], row));
      sync(fd);
    });
    if (i < 0) continue;
    say("libst", by_libst);
    say("raw", by_hand);
  }
  st_close(file);
  ::close(fd);
}

}  // namespace

int main(int argc, char **argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "side-by-side" && argc == 5) return side_by_side(argv[2], std::atoi(argv[3]), std::atoi(argv[4])), 0;
  if (what == "together" && argc == 3) return together(argv[2]), 0;
  if (what == "rows" && argc == 4) return rows(argv[2], std::atoi(argv[3])), 0;
  return 2;
}
