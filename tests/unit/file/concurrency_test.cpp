// Many at once: threads on one handle, handles in one process, processes. No
// update is lost, none is half there.
#include <sys/wait.h>

#include <thread>

#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;

class Concurrency : public testing::StoreScene {
 protected:
  static constexpr unsigned workers = 6, rounds = 12;
  static constexpr size_t size = 20'000;

  // A tensor for each worker.
  void make_many() {
    std::vector<testing::TestTensor> many;
    for (unsigned w = 0; w < workers; ++w) many.push_back(testing::u8_tensor(text("t", w), size, w));
    testing::put_bytes(path, testing::file_of(many));
  }
  static unsigned seed_of(unsigned worker, unsigned round) { return 1000 + worker * 100 + round; }
  bool updates(DataFile &c, unsigned worker, std::string_view name, size_t n) {
    for (unsigned r = 0; r < rounds; ++r) {
      TransactionOptions options;
      options.lock_timeout_ms = -1;
      options.copy = r % 2;
      if (!update(c, name, pattern(n, seed_of(worker, r)), std::move(options))) return false;
    }
    return true;
  }
  static void in_threads(const std::function<void(unsigned)> &body) {
    std::vector<std::thread> threads;
    for (unsigned w = 0; w < workers; ++w) threads.emplace_back(body, w);
    for (std::thread &t : threads) t.join();
  }
  void expect_every_last_value(const DataFile &c) {
    for (unsigned w = 0; w < workers; ++w)
      EXPECT_TRUE(seen(c, text("t", w)) == pattern(size, seed_of(w, rounds - 1))) << w;
  }
  // One of the values that somebody wrote last, and whole.
  void expect_one_whole_value(const std::string &bytes) {
    bool found = false;
    for (unsigned w = 0; w < workers; ++w) found |= bytes == pattern(bytes.size(), seed_of(w, rounds - 1));
    EXPECT_TRUE(found);
  }
};

TEST_F(Concurrency, ThreadsOnOneHandleUpdateDifferentTensors) {
  make_many();
  auto c = open();
  std::atomic<unsigned> failed = 0;
  in_threads([&](unsigned w) { failed += !updates(*c, w, text("t", w), size); });
  EXPECT_EQ(failed, 0u);
  expect_every_last_value(*c);
  EXPECT_EQ(c->counters().commits, workers * rounds);
  EXPECT_EQ(c->counters().bytes_written, workers * rounds * size);
  c.reset();
  expect_every_last_value(*open({}));
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(Concurrency, HandlesUpdateDifferentTensors) {
  make_many();
  std::atomic<unsigned> failed = 0;
  in_threads([&](unsigned w) {
    auto c = DataFile::open(env, path, writable());
    failed += !c || !updates(**c, w, text("t", w), size);
  });
  EXPECT_EQ(failed, 0u);
  expect_every_last_value(*open({}));
}

TEST_F(Concurrency, ThreadsUpdateTheSameTensorOneAfterTheOther) {
  auto c = open();
  std::atomic<unsigned> failed = 0;
  in_threads([&](unsigned w) { failed += !updates(*c, w, "b", 10007); });
  EXPECT_EQ(failed, 0u);
  expect_one_whole_value(seen(*c, "b"));
  EXPECT_EQ(c->counters().commits, workers * rounds);
  EXPECT_TRUE(same_bytes(bytes_of(path).substr(0, b_at), old.substr(0, b_at)));
  EXPECT_TRUE(same_bytes(bytes_of(path).substr(c_at), old.substr(c_at)));
}

TEST_F(Concurrency, TransactionsOverSeveralTensorsDoNotMixOrLockUp) {
  auto c = open();
  std::atomic<unsigned> failed = 0;
  in_threads([&](unsigned w) {
    for (unsigned r = 0; r < rounds; ++r) {
      TransactionOptions options;
      options.lock_timeout_ms = -1;
      auto t = Transaction::begin(*c, std::move(options));
      const std::string a = pattern(4000, seed_of(w, r)), b = pattern(10007, seed_of(w, r)),
                        last = pattern(3000, seed_of(w, r));
      std::vector<std::pair<const char *, const std::string *>> order = {{"a", &a}, {"b", &b}, {"c", &last}};
      std::rotate(order.begin(), order.begin() + w % 3, order.end());  // staged in different orders
      for (const auto &[name, bytes] : order) failed += !(*t)->update(name, value(*c, name, *bytes));
      failed += !(*t)->commit();
    }
  });
  EXPECT_EQ(failed, 0u);
  const std::string a = seen(*c, "a");
  bool one = false;
  for (unsigned w = 0; w < workers; ++w) {
    const unsigned seed = seed_of(w, rounds - 1);
    one |= a == pattern(4000, seed) && seen(*c, "b") == pattern(10007, seed) && seen(*c, "c") == pattern(3000, seed);
  }
  EXPECT_TRUE(one) << "the three tensors are of different transactions";
}

TEST_F(Concurrency, ProcessesUpdateTheSameFile) {
  make_many();
  std::vector<pid_t> children;
  for (unsigned w = 0; w < workers; ++w) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto c = DataFile::open(env, path, writable());
      const bool well = c && updates(**c, w, text("t", w), size) && updates(**c, w, "t0", size) &&
                        updates(**c, w, text("t", w), size);
      if (c) c->reset();
      ::_exit(well ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  auto c = open({});
  for (unsigned w = 1; w < workers; ++w)
    EXPECT_TRUE(seen(*c, text("t", w)) == pattern(size, seed_of(w, rounds - 1))) << w;
  expect_one_whole_value(seen(*c, "t0"));
  EXPECT_EQ(c->counters().recoveries, 0u);
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(Concurrency, OpeningAndClosingBesideWritersNeverFails) {
  auto writer = open();
  std::atomic<unsigned> failed = 0;
  std::atomic<bool> done = false;
  std::thread opener([&] {
    while (!done) {
      for (bool write : {true, false}) {
        OpenOptions options;
        options.writable = write;
        auto c = DataFile::open(env, path, std::move(options));
        if (!c || (write && !update(**c, "c", new_c, {false, -1, {}}))) ++failed;
      }
    }
  });
  for (int i = 0; i < 30; ++i) failed += !updates(*writer, 0, "a", 4000) ? 1 : 0;
  done = true;
  opener.join();
  EXPECT_EQ(failed, 0u);
  EXPECT_TRUE(same_bytes(seen(*writer, "a"), pattern(4000, seed_of(0, rounds - 1))));
}

TEST_F(Concurrency, ReadersOnOneHandleNeedNoOrder) {
  for (read::MapMode mode : {read::MapMode::shared, read::MapMode::none}) {
    OpenOptions options;
    options.map = mode;
    auto c = open(std::move(options));
    std::atomic<unsigned> wrong = 0;
    in_threads([&](unsigned w) {
      for (unsigned i = 0; i < 100; ++i) {
        const size_t k = (w + i) % 3;
        std::string copy(tensors[k].bytes.size(), '?');
        wrong += !c->read(c->snapshot(), k, copy.data()) || copy != tensors[k].bytes;
        auto view = c->view(c->snapshot(), k);
        wrong += !view || std::string_view(reinterpret_cast<const char *>(*view), copy.size()) != tensors[k].bytes;
      }
    });
    EXPECT_EQ(wrong, 0u);
  }
}

}  // namespace
}  // namespace st::store
