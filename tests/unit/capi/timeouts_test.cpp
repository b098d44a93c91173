// How long calls wait for locks, and old shards stay: zero is the default, and what is neither a time nor a name of one
// is refused.
#include <atomic>
#include <functional>
#include <thread>

#include "lock_of_file.h"
#include "scene.h"

namespace st::testing {
namespace {

namespace fs = std::filesystem;

class CapiTimeouts : public CapiScene {
 protected:
  CapiTimeouts() {
    put_bytes(other, file_of({tensors[0], u8_tensor("b", 10007, 9)}, metadata));
    EXPECT_ST(ST_OK, st_delta_create(path.c_str(), other.c_str(), delta.c_str(), nullptr));
    put_bytes(to, old);
  }

  using Lock = LockOfFile;

  template <class T>
  static T waiting(int32_t lock_timeout_ms) {
    T options = sized<T>();
    options.lock_timeout_ms = lock_timeout_ms;
    return options;
  }
  static st_file *open_with(const std::string &of, int32_t lock_timeout_ms) {
    auto options = waiting<st_open_options>(lock_timeout_ms);
    options.flags = ST_OPEN_READ_WRITE;
    st_file *file = nullptr;
    EXPECT_ST(ST_OK, st_open(of.c_str(), &options, &file));
    return file;
  }
  // Every call that takes such a time, on `path`, or to replace `to`.
  struct Call {
    const char *name;
    std::function<st_status(int32_t)> call;
    bool locks;  // what it changes
  };
  std::vector<Call> calls() {
    return {
        {"st_open",
         [&](int32_t ms) {
           const auto options = waiting<st_open_options>(ms);
           st_file *file = nullptr;
           const st_status status = st_open(path.c_str(), &options, &file);
           return st_close(file), status;
         },
         false},
        {"st_update",
         [&](int32_t ms) {
           auto options = waiting<st_open_options>(ms);
           options.flags = ST_OPEN_READ_WRITE;
           st_file *file = nullptr;
           st_status status = st_open(path.c_str(), &options, &file);
           if (status == ST_OK) status = st_update(file, "a", ST_NTS, &a);
           return st_close(file), status;
         },
         true},
        {"st_txn_commit",
         [&](int32_t ms) {
           const auto options = waiting<st_txn_options>(ms);
           st_file *file = open_with(path, ST_TIMEOUT_FOREVER);  // which is not the transaction's
           st_txn *txn = nullptr;
           st_status status = st_txn_begin(file, &options, &txn);
           if (status == ST_OK) status = st_txn_update(txn, "a", ST_NTS, &a);
           if (status == ST_OK) status = st_txn_commit(txn);
           st_txn_free(txn);
           return st_close(file), status;
         },
         true},
        {"st_compact",
         [&](int32_t ms) {
           const auto options = waiting<st_txn_options>(ms);
           return st_compact(to.c_str(), &options);
         },
         true},
        {"st_save",
         [&](int32_t ms) {
           const auto options = waiting<st_save_options>(ms);
           return st_save(to.c_str(), nullptr, 0, nullptr, 0, &options);
         },
         true},
        {"st_writer_finish",
         [&](int32_t ms) {
           const auto options = waiting<st_save_options>(ms);
           st_writer *writer = nullptr;
           st_status status = st_writer_open(to.c_str(), nullptr, 0, nullptr, 0, &options, &writer);
           if (status == ST_OK) status = st_writer_finish(writer);
           return st_writer_free(writer), status;
         },
         true},
        {"st_join",
         [&](int32_t ms) {
           const auto options = waiting<st_save_options>(ms);
           return st_join(path.c_str(), to.c_str(), &options);
         },
         true},
        {"st_reshard",
         [&](int32_t ms) {
           const auto options = waiting<st_save_options>(ms);
           const st_status status = st_reshard(path.c_str(), folder.c_str(), 5000, &options);
           return fs::remove_all(folder), status;
         },
         false},
        {"st_delta_create",
         [&](int32_t ms) {
           const auto options = waiting<st_delta_create_options>(ms);
           return st_delta_create(path.c_str(), other.c_str(), to.c_str(), &options);
         },
         true},
        {"st_delta_apply",
         [&](int32_t ms) {
           const auto options = waiting<st_delta_apply_options>(ms);
           return st_delta_apply(to.c_str(), delta.c_str(), &options, nullptr);
         },
         true},
        {"st_delta_merge",
         [&](int32_t ms) {
           const auto options = waiting<st_save_options>(ms);
           const char *deltas[] = {delta.c_str()};
           return st_delta_merge(path.c_str(), deltas, 1, to.c_str(), &options);
         },
         true},
        {"st_recover",
         [&](int32_t ms) {
           const auto options = waiting<st_recover_options>(ms);
           return st_recover(path.c_str(), &options);
         },
         false},
    };
  }
  void as_it_was() {
    put_bytes(path, old);
    put_bytes(to, old);
  }
  std::vector<std::string> files() const { return names_in(dir.path()); }

  const std::string other = dir / "other.safetensors", delta = dir / "delta.safetensors", to = dir / "to.safetensors",
                    folder = dir / "shards";
  const st_tensor a = value(0, new_a);
};

TEST_F(CapiTimeouts, AreTimesOrTheirNames) {
  const auto before = files();
  for (const Call &call : calls()) {
    SCOPED_TRACE(call.name);
    for (const int32_t ms : {ST_TIMEOUT_DEFAULT, ST_TIMEOUT_NONE, ST_TIMEOUT_FOREVER, 1, INT32_MAX}) {
      EXPECT_ST(ST_OK, call.call(ms)) << ms;
      as_it_was();
    }
    for (const int32_t ms : {-3, -10000, INT32_MIN}) {
      EXPECT_ST(ST_E_INVALID_ARGUMENT, call.call(ms)) << ms;
      EXPECT_NE(std::string_view(st_last_error()).find(std::to_string(ms)), std::string_view::npos) << st_last_error();
      EXPECT_TRUE(same_bytes(bytes_of(path), old));
      EXPECT_TRUE(same_bytes(bytes_of(to), old));
    }
    EXPECT_EQ(files(), before);
  }
}

TEST_F(CapiTimeouts, OfNoneAndOfSomeMillisecondsEndBusy) {
  const auto before = files();
  for (const Call &call : calls()) {
    if (!call.locks) continue;
    SCOPED_TRACE(call.name);
    const Lock changed(path), replaced(to);
    for (const int32_t ms : {ST_TIMEOUT_NONE, 1}) EXPECT_ST(ST_E_BUSY, call.call(ms)) << ms;
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
    EXPECT_TRUE(same_bytes(bytes_of(to), old));
    EXPECT_EQ(files(), before);
  }
}

// What has none of its own has the handle's.
TEST_F(CapiTimeouts, OfTransactionsAndDeltasAreTheHandles) {
  st_file *file = open_with(path, ST_TIMEOUT_NONE);
  const Lock changed(path);
  const auto commit = [&](const st_txn_options *options) {
    st_txn *txn = nullptr;
    st_status status = st_txn_begin(file, options, &txn);
    if (status == ST_OK) status = st_txn_update(txn, "a", ST_NTS, &a);
    if (status == ST_OK) status = st_txn_commit(txn);
    return st_txn_free(txn), status;
  };
  const auto options = sized<st_txn_options>();
  const auto of_delta = sized<st_delta_apply_options>();
  EXPECT_ST(ST_E_BUSY, commit(nullptr));
  EXPECT_ST(ST_E_BUSY, commit(&options));
  EXPECT_ST(ST_E_BUSY, st_apply_delta(file, delta.c_str(), nullptr, nullptr));
  EXPECT_ST(ST_E_BUSY, st_apply_delta(file, delta.c_str(), &of_delta, nullptr));
  st_close(file);
}

TEST_F(CapiTimeouts, OfADefaultAndForEverWait) {
  struct Timeouts {
    int32_t handle, transaction;
    bool is_update = false;
  };
  for (const Timeouts ms :
       {Timeouts{ST_TIMEOUT_DEFAULT, 0, true}, Timeouts{ST_TIMEOUT_FOREVER, 0, true},
        Timeouts{ST_TIMEOUT_DEFAULT, ST_TIMEOUT_DEFAULT}, Timeouts{ST_TIMEOUT_FOREVER, ST_TIMEOUT_DEFAULT},
        Timeouts{ST_TIMEOUT_NONE, ST_TIMEOUT_FOREVER}}) {
    put_bytes(path, old);
    st_file *file = open_with(path, ms.handle);
    Lock lock(path);
    st_status status = ST_E_INTERNAL;
    std::atomic<bool> over = false;
    const auto change = [&] {
      if (ms.is_update) {
        status = st_update(file, "a", ST_NTS, &a);
        return;
      }
      const auto options = waiting<st_txn_options>(ms.transaction);
      st_txn *txn = nullptr;
      status = st_txn_begin(file, &options, &txn);
      if (status == ST_OK) status = st_txn_update(txn, "a", ST_NTS, &a);
      if (status == ST_OK) status = st_txn_commit(txn);
      st_txn_free(txn);
    };
    std::thread waits([&] { change(), over = true; });
    auto stats = sized<st_stats>();
    while (!over && st_file_stats(file, &stats) == ST_OK && stats.lock_waits == 0) std::this_thread::yield();
    EXPECT_FALSE(over) << st_status_name(status);
    lock.close();
    waits.join();
    EXPECT_STREQ(st_status_name(status), "ST_OK") << ms.handle << ms.transaction;
    EXPECT_TRUE(same_bytes(seen(file, "a"), new_a));
    st_close(file);
  }
}

// A recovery of shards waits for each of them, and is told so 20 times a second.
TEST_F(CapiTimeouts, AreOfAllWaitsOfACallTogether) {
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), 5000, nullptr));
  std::vector<std::string> shards;
  for (const std::string &name : names_in(folder))
    if (name.ends_with(".safetensors")) shards.push_back(folder + "/" + name);
  ASSERT_GE(shards.size(), 2u);
  for (const std::string &shard : shards) fs::create_directory(shard + ".st-journal");
  struct Waits {
    Lock first, second;
    int told = 0;
  };
  auto options = waiting<st_recover_options>(1000);
  options.progress = [](void *user, uint64_t, uint64_t) {
    auto &w = *static_cast<Waits *>(user);
    if (++w.told == 4) w.first.close();
    return 0;
  };
  for (int told = 0; told < 5; options.lock_timeout_ms *= 2) {  // on a busy machine a second may not be enough
    ASSERT_LT(options.lock_timeout_ms, 100'000);
    Waits waits{Lock(shards[0]), Lock(shards[1])};
    options.progress_user = &waits;
    EXPECT_ST(ST_E_BUSY, st_recover(folder.c_str(), &options));
    told = waits.told;
    EXPECT_LE(told, options.lock_timeout_ms / 50);
  }
  EXPECT_FALSE(fs::exists(shards[0] + ".st-journal"));
  EXPECT_ST(ST_OK, st_recover(folder.c_str(), nullptr));
  fs::remove_all(folder);
}

// Shards that were rewritten under new names.
TEST_F(CapiTimeouts, OldShardsStayAsLongAsTheyAreGiven) {
  for (const auto &[grace, said, stays] : {std::tuple<uint32_t, const char *, bool>(ST_GRACE_DEFAULT, "3600 s", true),
                                           {ST_GRACE_NONE, " 0 s", false},
                                           {1234, "1234 s", true},
                                           {ST_GRACE_NONE - 1, "4294967294 s", true}}) {
    ASSERT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), 5000, nullptr));
    st_file *file = open_with(folder, ST_TIMEOUT_DEFAULT);
    auto options = sized<st_txn_options>();
    options.flags = ST_TXN_NEW_NAMES;
    options.shard_grace_s = grace;
    auto plan = sized<st_plan>();
    const char *shard = nullptr;
    ASSERT_ST(ST_OK, st_shard_path(file, 0, &shard));
    const std::string first = shard;
    for (const auto &[from, new_name] : {std::pair("a", "x"), std::pair("b", "y")}) {
      st_txn *txn = nullptr;
      ASSERT_ST(ST_OK, st_txn_begin(file, &options, &txn));
      EXPECT_ST(ST_OK, st_txn_rename(txn, from, ST_NTS, new_name, ST_NTS));
      EXPECT_ST(ST_OK, st_txn_plan(txn, &plan));
      EXPECT_NE(std::string_view(plan.how).find(said), std::string_view::npos) << plan.how;
      EXPECT_ST(ST_OK, commit(txn));
    }
    EXPECT_EQ(fs::exists(first), stays) << grace;  // the second commit found its time over, or not
    st_close(file);
    fs::remove_all(folder);
  }
}

}  // namespace
}  // namespace st::testing
