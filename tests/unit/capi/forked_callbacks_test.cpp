// Progress functions that fork, and return in the child, too.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string_view>

#include "scene.h"

namespace st::testing {
namespace {

// Whose n-th call forks, and returns in the child.
struct ForksOnce {
  static int tell(void *user, uint64_t done, uint64_t total) {
    return static_cast<ForksOnce *>(user)->fork(done == total);
  }
  int fork(bool all_is_done) {
    if (++calls != nth) return 0;
    is_last = all_is_done;
    child = ::fork();
    if (child == 0)
      ::alarm(20);  // ends it where it hangs
    else
      ::waitpid(child, &status, 0);
    return 0;
  }
  // In the parent, what the child says. It ends here, and is right if the call was ended.
  int status_after(st_status answered) {
    if (child == 0) {
      const bool is_told =
          answered == ST_E_FORKED && std::string_view(st_last_error()).find("forked") != std::string::npos;
      ::_exit(is_told || (answered == ST_OK && is_last) ? 0 : 1);
    }
    EXPECT_ST(ST_OK, answered);
    return status;
  }
  const int nth;
  bool is_last = false;
  int calls = 0, status = 0;
  pid_t child = -1;
};

class CapiForkedCallbacks : public CapiScene {
 protected:
  CapiForkedCallbacks() {
    put_bytes(path, file_of(std::vector{u8_tensor("long", length, 1)}));
    std::vector changed{u8_tensor("long", length, 1)};
    for (size_t i = 0; i < length; i += 1000) changed[0].bytes[i] ^= 1;
    put_bytes(other, file_of(changed));
    base = bytes_of(path);
  }
  st_status create(ForksOnce &forks) {
    auto options = sized<st_delta_create_options>();
    options.progress = ForksOnce::tell;
    options.progress_user = &forks;
    return st_delta_create(path.c_str(), other.c_str(), delta.c_str(), &options);
  }
  st_status apply(ForksOnce &forks, uint32_t flags) {
    auto options = sized<st_delta_apply_options>();
    options.progress = ForksOnce::tell;
    options.progress_user = &forks;
    options.flags = flags;
    options.reverse = back.c_str();
    return st_delta_apply(path.c_str(), delta.c_str(), &options, nullptr);
  }
  // At each call of the progress function: the child's call ends, and the parent's goes on. Threads leave more or less
  // to the calling one, so that the calls may be fewer.
  void fork_at_each(const std::function<st_status(ForksOnce &)> &call, int at_least = 5) {
    ForksOnce counts{0};
    ASSERT_ST(ST_OK, call(counts));
    ASSERT_GE(counts.calls, at_least);
    for (int nth = 1; nth <= counts.calls; ++nth) {
      ForksOnce forks{nth};
      EXPECT_EQ(forks.status_after(call(forks)), 0) << nth;
    }
  }

  // In two shards.
  std::string sharded() {
    put_bytes(path, file_of(std::vector{u8_tensor("long", length, 1), u8_tensor("wide", length, 2)}));
    const std::string folder = dir / "shards";
    EXPECT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), length, nullptr));
    return folder + "/model.safetensors.index.json";
  }

  static constexpr size_t length = 6 << 20;
  const std::string other = dir / "other.safetensors", delta = dir / "delta.safetensors", back = dir / "back";
  std::string base;
};

TEST_F(CapiForkedCallbacks, ADiffGoesOnInTheParentAlone) {
  fork_at_each([&](ForksOnce &forks) { return create(forks); });
}

TEST_F(CapiForkedCallbacks, APatchGoesOnInTheParentAlone) {
  ASSERT_ST(ST_OK, st_delta_create(path.c_str(), other.c_str(), delta.c_str(), nullptr));
  for (const uint32_t flags : {0u, ST_TXN_PUBLISH})
    fork_at_each([&](ForksOnce &forks) {
      put_bytes(path, base);
      const st_status answered = apply(forks, flags);
      if (forks.child != 0) {
        EXPECT_TRUE(same_bytes(bytes_of(path), bytes_of(other))) << forks.nth;
      }
      return answered;
    });
}

TEST_F(CapiForkedCallbacks, ACommitOfShardsGoesOnInTheParentAlone) {
  const std::string index = sharded();
  int round = 0;
  for (const uint32_t flags : {0u, ST_TXN_PUBLISH})
    fork_at_each([&](ForksOnce &forks) {
      ++round;
      const std::string bytes = pattern(length, 100 + round);
      const uint64_t shape = length;
      st_tensor value = {};
      value.dtype = ST_DTYPE_U8;
      value.rank = 1;
      value.shape = &shape;
      value.data = bytes.data();
      value.nbytes = length;
      st_file *file = open_at(index);
      auto options = sized<st_txn_options>();
      options.flags = flags;
      options.progress = ForksOnce::tell;
      options.progress_user = &forks;
      st_txn *txn = nullptr;
      EXPECT_ST(ST_OK, st_txn_begin(file, &options, &txn));
      st_status answered = st_txn_update(txn, "long", ST_NTS, &value);
      if (answered == ST_OK) answered = st_txn_update(txn, "wide", ST_NTS, &value);
      if (answered == ST_OK) answered = st_txn_commit(txn);
      const std::string told = st_last_error();
      st_txn_free(txn);
      if (forks.child != 0) {
        EXPECT_EQ(answered, ST_OK) << told << forks.nth;
        EXPECT_EQ(seen(file, "long"), bytes) << forks.nth;
        EXPECT_EQ(seen(file, "wide"), bytes) << forks.nth;
      }
      st_close(file);
      return answered;
    });
}

TEST_F(CapiForkedCallbacks, AReshardGoesOnInTheParentAlone) {
  sharded();
  const std::string folder = dir / "others";
  fork_at_each([&](ForksOnce &forks) {
    std::filesystem::remove_all(folder);
    auto options = sized<st_save_options>();
    options.progress = ForksOnce::tell;
    options.progress_user = &forks;
    const st_status answered = st_reshard(path.c_str(), folder.c_str(), length, &options);
    if (forks.child != 0) {
      EXPECT_ST(ST_OK, st_verify((folder + "/model.safetensors.index.json").c_str(), nullptr));
    }
    return answered;
  });
}

TEST_F(CapiForkedCallbacks, AReadByThreadsGoesOnInTheParentAlone) {
  const std::string index = sharded();
  for (const std::string &from : {path, index})
    fork_at_each(
        [&](ForksOnce &forks) {
          auto opening = sized<st_open_options>();
          opening.io_threads = 4;
          opening.block_size = 1 << 20;
          st_file *file = nullptr;
          EXPECT_ST(ST_OK, st_open(from.c_str(), &opening, &file));
          std::string a(length, 0), b(length, 0);
          const st_read_request both[] = {{"long", ST_NTS, 0, a.data(), length, nullptr, 0, 0},
                                          {"wide", ST_NTS, 0, b.data(), length, nullptr, 0, 0}};
          auto options = sized<st_bulk_options>();
          options.progress = ForksOnce::tell;
          options.progress_user = &forks;
          const st_status answered = st_read_many(file, both, 2, &options);
          if (forks.child != 0) {
            EXPECT_TRUE(a == u8_tensor("long", length, 1).bytes && b == u8_tensor("wide", length, 2).bytes)
                << forks.nth;
          }
          st_close(file);
          return answered;
        },
        1);
}

}  // namespace
}  // namespace st::testing
