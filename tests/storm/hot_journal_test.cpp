// What is left when writers are killed inside their commit, and what cleans it
// up: one open, several at once, or the next writer before its own change.
#include "encounter.h"

#include "stops.h"

using namespace st::testing;

namespace {

class HotJournal : public Arena {
 protected:
  // Says 'p' and waits before the n-th arrival at `point`.
  static void stop_at(Line &line, Point point, int n = 1) {
    watch([&line, point, n](Point at) mutable {
      if (at == point && --n == 0) line.tell('p'), line.hear();
    });
  }
  // A process that commits `tensors` and stands still before the n-th arrival at `point`.
  std::unique_ptr<Worker> writer_at(Point point, std::vector<uint32_t> tensors, uint64_t version, int n = 1) {
    auto worker = std::make_unique<Worker>(Worker::process, [=, this](Line &line) {
      const FileHandle file = open();
      DEMAND(file);
      st_txn *txn = begin(file.get(), tensors, version);
      stop_at(line, point, n);
      commit(txn);
    });
    EXPECT_EQ(worker->hear(), 'p');
    return worker;
  }
  void leave_an_hot_journal(Point point, std::vector<uint32_t> tensors, uint64_t version, int n = 1) {
    writer_at(point, std::move(tensors), version, n)->kill();
  }
  static uint64_t recoveries(st_file *file) {
    auto stats = sized<st_stats>();
    EXPECT_OK(st_file_stats(file, &stats));
    return stats.recoveries;
  }
};

struct Death {
  const char *name;
  Point point;
  int n;
  bool committed;
};

class KilledWriter : public HotJournal, public ::testing::WithParamInterface<Death> {};

INSTANTIATE_TEST_SUITE_P(, KilledWriter,
                         ::testing::Values(Death{"BeforeItsPayloadIsDurable", Point::payload_sync, 1, false},
                                           Death{"BeforeItsCommitRecord", Point::commit_record, 1, false},
                                           Death{"AfterItsCommitRecord", Point::commit_sync, 1, true},
                                           Death{"BeforeItsFirstWrite", Point::data_write, 1, true},
                                           Death{"BetweenTwoWrites", Point::data_write, 2, true},
                                           Death{"InsideATensor", Point::data_write, 3, true},
                                           Death{"BeforeItsDataIsDurable", Point::data_sync, 1, true},
                                           Death{"BeforeItsJournalIsCleared", Point::invalidate, 1, true},
                                           Death{"BeforeThatIsDurable", Point::retire_sync, 1, true}),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(KilledWriter, LeavesAllOrNothing) {
  leave_an_hot_journal(GetParam().point, {1, 7}, 1, GetParam().n);  // 7 is more than one write
  const uint64_t now = GetParam().committed ? 1 : 0;
  {
    const FileHandle reader = open(0);
    ASSERT_TRUE(reader) << st_last_error();
    EXPECT_EQ(read_version(reader.get(), layout_, 1), now);
    EXPECT_EQ(read_version(reader.get(), layout_, 7), now);
  }
  EXPECT_TRUE(open());
  EXPECT_EQ(versions(), (Versions{0, now, 0, 0, 0, 0, 0, now}));
  EXPECT_FALSE(journal_folder_exists());
}

TEST_P(KilledWriter, IsFinishedByTheNextWriterThatWantsItsTensors) {
  const FileHandle file = open();  // before the hot journal is there
  leave_an_hot_journal(GetParam().point, {1, 7}, 1, GetParam().n);
  EXPECT_OK(update(file.get(), 1, 2));
  EXPECT_EQ(versions(), (Versions{0, 2, 0, 0, 0, 0, 0, GetParam().committed ? 1 : 0}));
  EXPECT_OK(st_recover(path_.c_str(), nullptr));
  EXPECT_EQ(versions(), (Versions{0, 2, 0, 0, 0, 0, 0, GetParam().committed ? 1 : 0}));
}

TEST_F(HotJournal, IsFinishedBeforeATransactionThatWasStagedEarlier) {
  const FileHandle file = open();
  st_txn *txn = begin(file.get(), {7, 6}, 2);
  leave_an_hot_journal(Point::data_write, {1, 7}, 1, 2);
  EXPECT_OK(commit(txn));
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 0, 2, 2}));
  EXPECT_EQ(recoveries(file.get()), 1u);
}

TEST_F(HotJournal, SeveralAreRecoveredByOneOpen) {
  // All of them inside their commits at the same time, for the later would recover the earlier.
  std::vector<std::unique_ptr<Worker>> writers;
  for (uint32_t t = 0; t < 6; ++t)
    writers.push_back(writer_at(t % 2 ? Point::data_write : Point::invalidate, {t}, t + 1));
  writers.push_back(writer_at(Point::commit_record, {6, 7}, 9));
  for (auto &w : writers) w->kill();
  EXPECT_EQ(versions(), (Versions{1, 0, 3, 0, 5, 0, 0, 0}));
  const FileHandle file = open();
  ASSERT_TRUE(file) << st_last_error();
  EXPECT_GE(recoveries(file.get()), 6u);
  EXPECT_EQ(versions(), (Versions{1, 2, 3, 4, 5, 6, 0, 0}));
  EXPECT_FALSE(journal_folder_exists());
}

TEST_F(HotJournal, IsNotMadeOfAWriterThatIsMerelySlow) {
  auto slow = writer_at(Point::data_write, {1, 7}, 1, 2);
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  ASSERT_TRUE(file) << st_last_error();
  EXPECT_EQ(recoveries(file.get()), 0u);
  EXPECT_OK(update(file.get(), 0, 2));
  EXPECT_EQ(update(file.get(), 7, 2), ST_E_BUSY);
  slow->tell('g');
  EXPECT_TRUE(slow->join());
  EXPECT_OK(update(file.get(), 7, 2));
  EXPECT_EQ(versions(), (Versions{2, 1, 0, 0, 0, 0, 0, 2}));
}

TEST_F(HotJournal, WaitsUntilLiveWritersAreDone) {
  auto slow = writer_at(Point::data_write, {3}, 5);
  leave_an_hot_journal(Point::data_write, {1, 7}, 1, 2);
  EXPECT_FALSE(open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE));
  EXPECT_EQ(last_error().status, ST_E_BUSY);
  EXPECT_FALSE(open(0, ST_TIMEOUT_NONE));
  EXPECT_EQ(last_error().status, ST_E_BUSY);
  slow->tell('g');
  EXPECT_TRUE(slow->join());
  EXPECT_TRUE(open(0, ST_TIMEOUT_NONE));
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 5, 0, 0, 0, 1}));
}

TEST_F(HotJournal, DoesNotMakeATransactionWaitLongerThanItMay) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_FOREVER);
  auto slow = writer_at(Point::data_write, {3}, 5);
  leave_an_hot_journal(Point::data_write, {1, 7}, 1, 2);
  Worker impatient(Worker::thread, [&](Line &line) {
    st_txn *txn = begin(file.get(), {1}, 2, ST_TIMEOUT_NONE);
    const st_status status = commit(txn);
    line.tell(status == ST_E_BUSY ? 'b' : '?');
    if (status == ST_E_BUSY) DEMAND_OK(commit((line.hear(), txn)));
  });
  EXPECT_EQ(impatient.hear(), 'b');
  slow->tell('g');
  EXPECT_TRUE(slow->join());
  impatient.tell('g');
  EXPECT_TRUE(impatient.join());
  EXPECT_EQ(versions(), (Versions{0, 2, 0, 5, 0, 0, 0, 1}));
}

// ---- two that find the same hot journal

TEST_F(HotJournal, IsNotPassedOverWhileAnotherRecoversIt) {
  leave_an_hot_journal(Point::data_write, {1, 7}, 1, 2);
  Worker recoverer(Worker::process, [this](Line &line) {
    stop_at(line, Point::data_write, 2);
    DEMAND_OK(st_recover(path_.c_str(), nullptr));
  });
  ASSERT_EQ(recoverer.hear(), 'p');
  EXPECT_NE(versions()[7], 1u);
  for (const uint32_t flags : {0u, ST_OPEN_READ_WRITE}) {
    EXPECT_FALSE(open(flags, ST_TIMEOUT_NONE)) << "opened a half-recovered file, with flags " << flags;
    EXPECT_EQ(last_error().status, ST_E_BUSY);
  }
  auto options = sized<st_recover_options>();
  options.lock_timeout_ms = ST_TIMEOUT_NONE;
  EXPECT_EQ(st_recover(path_.c_str(), &options), ST_E_BUSY);
  recoverer.tell('g');
  EXPECT_TRUE(recoverer.join());
  EXPECT_TRUE(open(0, ST_TIMEOUT_NONE));
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 0, 0, 1}));
}

TEST_F(HotJournal, IsRecoveredAgainIfItsRecovererIsKilled) {
  leave_an_hot_journal(Point::data_write, {1, 7}, 1);
  for (const auto &[point, n] :
       {std::pair(Point::data_write, 1), std::pair(Point::data_write, 2), std::pair(Point::data_write, 3),
        std::pair(Point::data_sync, 1), std::pair(Point::invalidate, 1)}) {
    Worker recoverer(Worker::process, [this, point = point, n = n](Line &line) {
      stop_at(line, point, n);
      st_recover(path_.c_str(), nullptr);
    });
    ASSERT_EQ(recoverer.hear(), 'p');
    recoverer.kill();
  }
  EXPECT_TRUE(open());
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 0, 0, 1}));
}

// A process stands still while it looks at the hot journal, as an opener of the file may.
class LookedAtHotJournal : public HotJournal {
 protected:
  void SetUp() override {
    file_ = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
    leave_an_hot_journal(Point::data_write, {1, 7}, 1, 2);
    looker_ = std::make_unique<Worker>(Worker::process, [this](Line &line) {
      stop_at(line, Point::journal_read);
      const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_FOREVER);
      DEMAND(file);
      for (uint32_t t : {1, 7}) DEMAND(read_version(file.get(), layout_, t).has_value());
    });
    ASSERT_EQ(looker_->hear(), 'p');
  }
  void close_idle() {
    looker_->tell('g');
    EXPECT_TRUE(looker_->join());
  }
  FileHandle file_;
  std::unique_ptr<Worker> looker_;
};

TEST_F(LookedAtHotJournal, IsNotOvertakenByAWriter) {
  const st_status status = update(file_.get(), 7, 2);
  EXPECT_TRUE(status == ST_OK || status == ST_E_BUSY) << st_last_error();
  close_idle();
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 0, 0, status == ST_OK ? 2 : 1}));
  EXPECT_OK(st_recover(path_.c_str(), nullptr));
}

TEST_F(LookedAtHotJournal, IsNotPassedOverByAnOpen) {
  for (const uint32_t flags : {0u, ST_OPEN_READ_WRITE}) {
    const FileHandle file = open(flags, ST_TIMEOUT_NONE);
    if (!file) {
      EXPECT_EQ(last_error().status, ST_E_BUSY);
      continue;
    }
    for (uint32_t t : {1, 7})
      EXPECT_EQ(read_version(file.get(), layout_, t), 1u) << "tensor " << t << ", opened with flags " << flags;
  }
  close_idle();
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 0, 0, 1}));
}

TEST_F(LookedAtHotJournal, IsNotPassedOverByRecover) {
  auto options = sized<st_recover_options>();
  options.lock_timeout_ms = ST_TIMEOUT_NONE;
  const st_status status = st_recover(path_.c_str(), &options);
  EXPECT_TRUE(status == ST_OK || status == ST_E_BUSY) << st_last_error();
  if (status == ST_OK) {
    EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 0, 0, 1}));
  }
  close_idle();
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 0, 0, 1}));
}

// A looker has read one thing of a journal, and stands still while it becomes another.

TEST_F(HotJournal, IsNotMadeOfAWriterThatEndsWhileOneLooks) {
  for (const uint32_t flags : {0u, ST_OPEN_READ_WRITE}) {
    auto writer = writer_at(Point::data_write, {1, 7}, 1);
    Worker looker(Worker::process, [this, flags](Line &line) {
      stop_at(line, Point::journal_was_read);
      DEMAND(open(flags, ST_TIMEOUT_NONE));
    });
    ASSERT_EQ(looker.hear(), 'p');  // it has seen a commit record
    const FileHandle other = open();
    st_txn *txn = begin(other.get(), {4}, 2);  // so that the folder stays
    writer->tell('g');
    EXPECT_TRUE(writer->join());
    const Hold other_writer(path_, layout_, 3);  // so that there can be no recovery now
    looker.tell('g');
    EXPECT_TRUE(looker.join()) << "opened with flags " << flags;
    st_txn_free(txn);
  }
}

TEST_F(HotJournal, IsNotOvertakenThoughItsWriterCommittedWhileOneLooked) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  Worker writer(Worker::process, [this](Line &line) {
    const FileHandle own = open();
    DEMAND(own);
    st_txn *txn = begin(own.get(), {1, 7}, 1);
    watch([&line, writes = 0](Point at) mutable {
      if (at == Point::commit_record || (at == Point::data_write && ++writes == 2)) line.tell('p'), line.hear();
    });
    commit(txn);
  });
  ASSERT_EQ(writer.hear(), 'p');
  Worker looker(Worker::process, [this](Line &line) {
    watch([&line](Point at) {
      if (at == Point::journal_read || at == Point::journal_was_read)
        line.tell(at == Point::journal_read ? 'b' : 'a'), line.hear();
    });
    DEMAND(open(ST_OPEN_READ_WRITE, ST_TIMEOUT_FOREVER));
    line.tell('d');
  });
  ASSERT_EQ(looker.hear(), 'b');
  looker.tell('g');
  ASSERT_EQ(looker.hear(), 'a');  // it has read that nothing is committed
  writer.tell('g');
  ASSERT_EQ(writer.hear(), 'p');
  writer.kill();
  looker.tell('g');
  char at = looker.hear();  // about to read again, with what lock it may hold
  const st_status status = update(file.get(), 7, 2);
  EXPECT_TRUE(status == ST_OK || status == ST_E_BUSY) << st_last_error();
  for (; at == 'a' || at == 'b'; at = looker.hear()) looker.tell('g');
  EXPECT_TRUE(looker.join());
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 0, 0, status == ST_OK ? 2 : 1}));
}

TEST_F(HotJournal, ManyWhoOpenAtOnceAllSeeItFinished) {
  for (uint64_t round = 1; round <= 25; ++round) {
    std::vector<std::unique_ptr<Worker>> dying, opening;
    // Two with others between them, as tensors without a gap are written at once.
    for (uint32_t t = 0; t < 4; ++t) dying.push_back(writer_at(Point::data_write, {t, t + 4}, round, 2));
    for (auto &w : dying) w->kill();
    for (uint32_t i = 0; i < 6; ++i)
      opening.push_back(std::make_unique<Worker>(Worker::process, [this, i, round](Line &line) {
        line.tell('r');
        line.hear();
        if (i % 3 == 0) DEMAND_OK(st_recover(path_.c_str(), nullptr));
        const FileHandle file = open(i % 2 ? ST_OPEN_READ_WRITE : 0, ST_TIMEOUT_FOREVER);
        DEMAND(file);
        for (uint32_t t = 0; t < 8; ++t) DEMAND(read_version(file.get(), layout_, t) == round);
      }));
    for (auto &w : opening) ASSERT_EQ(w->hear(), 'r');
    for (auto &w : opening) w->tell('g');
    for (auto &w : opening) ASSERT_TRUE(w->join()) << "round " << round;
    EXPECT_TRUE(open());
    ASSERT_FALSE(journal_folder_exists());
  }
}

TEST_F(HotJournal, RecoveryWaitsForOneWhoReplacesTheFile) {
  // The recoverer waits for the old file's lock; the journal is no business of the new file.
  leave_an_hot_journal(Point::data_write, {1, 7}, 1, 2);
  Hold publisher(path_, 0, layout_.data_offset());
  EXPECT_FALSE(open(0, ST_TIMEOUT_NONE));
  EXPECT_EQ(last_error().status, ST_E_BUSY);
  Worker recoverer(Worker::process, [this, &publisher](Line &line) {
    publisher.release();  // the child's descriptor, which would keep the lock
    line.tell('r');
    DEMAND(st_recover(path_.c_str(), nullptr) == ST_E_JOURNAL);
  });
  ASSERT_EQ(recoverer.hear(), 'r');
  ASSERT_TRUE(eventually([&] { return has_open(recoverer.pid(), path_); }));
  layout_.write(path_ + ".new");
  std::filesystem::rename(path_ + ".new", path_);
  publisher.release();
  EXPECT_TRUE(recoverer.join());
  EXPECT_EQ(versions(), Versions(8, 0));
}

}  // namespace
