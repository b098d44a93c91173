// Workers that want different tensors do not wait for each other; workers that
// want the same one do. Threads and processes alike.
#include "encounter.h"

using namespace st::testing;

namespace {

class SideBySide : public Arena, public ::testing::WithParamInterface<Worker::Kind> {};

INSTANTIATE_TEST_SUITE_P(, SideBySide, ::testing::Values(Worker::thread, Worker::process),
                         [](const auto &info) { return info.param == Worker::thread ? "Threads" : "Processes"; });

TEST_P(SideBySide, AnotherTensorIsUpdatedWhileACommitStandsStill) {
  Worker stopped(GetParam(), [this](Line &line) { commit_stopping(line, {0, 2}, 1); });
  ASSERT_EQ(stopped.hear(), 'i');
  Worker other(GetParam(), [this](Line &) {
    const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
    DEMAND(file);
    for (uint32_t t : {1, 3, 4, 5}) DEMAND_OK(update(file.get(), t, 2));  // 1 and 3 share sectors with 0 and 2
  });
  EXPECT_TRUE(other.join());
  EXPECT_EQ(versions(), (Versions{0, 2, 0, 2, 2, 2, 0, 0}));
  stopped.tell('g');
  EXPECT_EQ(stopped.hear(), 'd');
  EXPECT_TRUE(stopped.join());
  EXPECT_EQ(versions(), (Versions{1, 2, 1, 2, 2, 2, 0, 0}));
  EXPECT_FALSE(journal_folder_exists());
}

TEST_P(SideBySide, TheSameTensorWaitsUntilTheOtherHasCommitted) {
  Worker first(GetParam(), [this](Line &line) { commit_stopping(line, {2, 0}, 1); });
  ASSERT_EQ(first.hear(), 'i');
  Worker second(GetParam(), [this](Line &line) {
    const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_FOREVER);
    DEMAND(file);
    std::thread observer([&] {
      auto stats = sized<st_stats>();
      eventually([&] { return st_file_stats(file.get(), &stats) == ST_OK && stats.lock_waits > 0; });
      line.tell('w');  // it waits
    });
    const st_status status = update(file.get(), 2, 2);
    observer.join();
    DEMAND_OK(status);
    line.tell('d');
  });
  ASSERT_EQ(second.hear(), 'w');
  EXPECT_EQ(versions()[2], 0u);
  first.tell('g');
  EXPECT_EQ(first.hear(), 'd');
  EXPECT_EQ(second.hear(), 'd');
  EXPECT_TRUE(first.join());
  EXPECT_TRUE(second.join());
  EXPECT_EQ(versions(), (Versions{1, 0, 2, 0, 0, 0, 0, 0}));
}

TEST_P(SideBySide, WorkersOnTensorsOfTheirOwnAreNeverBusy) {
  constexpr uint32_t workers = 8, rounds = 100;
  std::vector<std::unique_ptr<Worker>> all;
  for (uint32_t w = 0; w < workers; ++w)
    all.push_back(std::make_unique<Worker>(GetParam(), [this, w](Line &line) {
      const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
      DEMAND(file);
      line.tell('r');
      DEMAND(line.hear() == 'g');
      for (uint32_t round = 1; round <= rounds; ++round) DEMAND_OK(update(file.get(), w, round));
    }));
  for (auto &w : all) ASSERT_EQ(w->hear(), 'r');
  for (auto &w : all) w->tell('g');
  for (auto &w : all) EXPECT_TRUE(w->join());
  EXPECT_EQ(versions(), Versions(workers, rounds));
  EXPECT_FALSE(journal_folder_exists());
}

TEST_P(SideBySide, OppositeOrdersNeverDeadlock) {
  constexpr uint64_t rounds = 1000;
  auto work = [this](std::vector<uint32_t> order, uint64_t first_version) {
    return [this, order, first_version](Line &) {
      const FileHandle file = open();
      DEMAND(file);
      for (uint64_t i = 0; i < rounds; ++i)
        DEMAND_OK(commit(begin(file.get(), order, first_version + i, ST_TIMEOUT_FOREVER)));
    };
  };
  Worker forwards(GetParam(), work({0, 2, 4}, 1));
  Worker backwards(GetParam(), work({4, 2, 0}, 10001));
  EXPECT_TRUE(forwards.join());
  EXPECT_TRUE(backwards.join());
  const Versions found = versions();
  EXPECT_EQ(found[0], found[2]);
  EXPECT_EQ(found[0], found[4]);
  EXPECT_TRUE(found[0] == rounds || found[0] == 10000 + rounds) << found[0].value_or(0);
}

using OneHandle = Arena;

TEST_F(OneHandle, IsUpdatedFromManyThreads) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  ASSERT_TRUE(file) << st_last_error();
  constexpr uint64_t rounds = 100;
  std::vector<std::unique_ptr<Worker>> all;
  for (uint32_t t = 0; t < layout_.count(); ++t)
    all.push_back(std::make_unique<Worker>(Worker::thread, [&, t](Line &) {
      for (uint64_t round = 1; round <= rounds; ++round) {
        DEMAND_OK(update(file.get(), t, round));
        DEMAND(read_version(file.get(), layout_, t) == round);
      }
    }));
  for (auto &w : all) EXPECT_TRUE(w->join());
  EXPECT_EQ(versions(), Versions(layout_.count(), rounds));
  auto stats = sized<st_stats>();
  EXPECT_OK(st_file_stats(file.get(), &stats));
  EXPECT_EQ(stats.commits, rounds * layout_.count());
}

TEST_F(OneHandle, ThreadsThatWantTheSameTensorTakeTurns) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_FOREVER);
  ASSERT_TRUE(file) << st_last_error();
  std::vector<std::unique_ptr<Worker>> all;
  for (uint64_t w = 1; w <= 4; ++w)
    all.push_back(std::make_unique<Worker>(Worker::thread, [&, w](Line &) {
      for (uint64_t i = 0; i < 50; ++i) DEMAND_OK(commit(begin(file.get(), {1, 3}, w * 1000 + i, ST_TIMEOUT_FOREVER)));
    }));
  for (auto &w : all) EXPECT_TRUE(w->join());
  const Versions found = versions();
  ASSERT_TRUE(found[1] && found[3]);
  EXPECT_EQ(found[1], found[3]);
  EXPECT_EQ(*found[1] % 1000, 49u);
}

using SeveralTransactions = Arena;

TEST_F(SeveralTransactions, LiveAtOnceOnSeveralHandlesOfOneProcess) {
  std::vector<FileHandle> files;
  for (int i = 0; i < 3; ++i) files.push_back(open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE));
  std::vector<st_txn *> txns;
  for (uint32_t t = 0; t < 6; ++t) txns.push_back(begin(files[t % 3].get(), {t}, t + 1, ST_TIMEOUT_NONE));
  st_txn *rival =
      begin(files[0].get(), {5, 6}, 99, ST_TIMEOUT_NONE);  // stages what another has staged: no lock is held yet
  EXPECT_EQ(journals().size(), 7u);
  for (uint32_t t : {4, 2, 0, 5, 3}) EXPECT_OK(commit(txns[t]));
  st_txn_free(txns[1]);
  EXPECT_EQ(versions(), (Versions{1, 0, 3, 4, 5, 6, 0, 0}));
  EXPECT_OK(commit(rival));
  EXPECT_EQ(versions(), (Versions{1, 0, 3, 4, 5, 99, 99, 0}));
  for (const FileHandle &file : files)
    for (uint32_t t = 0; t < 8; ++t) EXPECT_EQ(read_version(file.get(), layout_, t), versions()[t]);
  files.clear();
  EXPECT_FALSE(journal_folder_exists());
}

TEST_F(SeveralTransactions, AreEndedByClose) {
  FileHandle first = open(), second = open();
  st_txn *const over[] = {begin(first.get(), {0}, 1), begin(first.get(), {0, 1}, 2)};
  st_txn *stays = begin(second.get(), {1}, 3);
  first.reset();
  EXPECT_EQ(journals().size(), 1u);
  for (st_txn *txn : over) EXPECT_EQ(commit(txn), ST_E_TXN_FAILED);
  EXPECT_OK(commit(stays));
  second.reset();
  EXPECT_EQ(versions(), (Versions{0, 3, 0, 0, 0, 0, 0, 0}));
  EXPECT_FALSE(journal_folder_exists());
}

}  // namespace
