// How long a worker waits for a lock, what may end the wait, and what it is told.
#include "encounter.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

using namespace st::testing;

namespace {

class LockWait : public Arena {
 protected:
  std::string tensor_of_last_error() {
    const st_error_info info = last_error();
    return info.tensor ? std::string(info.tensor, info.tensor_len) : "(none)";
  }
  bool nobody_holds_a_lock() { return Hold(path_, 0, 0).had(); }
};

double seconds(const std::function<void()> &work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST_F(LockWait, OfNoTimeAnswersBusyAndNamesTheTensor) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  const Hold hold(path_, layout_, 3);
  ASSERT_TRUE(hold.had());
  EXPECT_EQ(update(file.get(), 3, 1), ST_E_BUSY);
  EXPECT_EQ(tensor_of_last_error(), "t03");
  EXPECT_EQ(last_error().os_errno, 0);
  EXPECT_OK(update(file.get(), 2, 1));  // neighbours are free
  EXPECT_OK(update(file.get(), 4, 1));
  EXPECT_EQ(versions(), (Versions{0, 0, 1, 0, 1, 0, 0, 0}));
}

TEST_F(LockWait, NamesTheOneOfManyTensorsThatIsHeld) {
  const FileHandle file = open();
  const Hold hold(path_, layout_, 5);
  st_txn *txn = begin(file.get(), {7, 5, 1}, 1, ST_TIMEOUT_NONE);
  EXPECT_EQ(commit(txn), ST_E_BUSY);
  EXPECT_EQ(tensor_of_last_error(), "t05");
  st_txn_free(txn);
}

TEST_F(LockWait, NamesTheTensorAlsoIfOnlyItsLastByteIsHeld) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  const Hold hold(path_, layout_.offset(1) + layout_.size(1) - 1, 1, F_RDLCK);
  EXPECT_EQ(update(file.get(), 1, 1), ST_E_BUSY);
  EXPECT_EQ(tensor_of_last_error(), "t01");
  EXPECT_OK(update(file.get(), 2, 1));
}

TEST_F(LockWait, TellsTheProcessThatHoldsTheLock) {
  Worker holder(Worker::process, [this](Line &line) { commit_stopping(line, {1}, 1); });
  ASSERT_EQ(holder.hear(), 'i');
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  EXPECT_EQ(update(file.get(), 1, 2), ST_E_BUSY);
  EXPECT_EQ(last_error().holder_pid, holder.pid());
  holder.tell('g');
  EXPECT_TRUE(holder.join());
}

TEST_F(LockWait, OfSomeMillisecondsLastsThatLong) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, 60);
  const Hold hold(path_, layout_, 3);
  EXPECT_GE(seconds([&] { EXPECT_EQ(update(file.get(), 3, 1), ST_E_BUSY); }), 0.06);
  st_txn *txn = begin(file.get(), {3}, 1, 90);
  EXPECT_GE(seconds([&] { EXPECT_EQ(commit(txn), ST_E_BUSY); }), 0.09);
  st_txn_free(txn);
}

TEST_F(LockWait, OfATransactionIsItsOwnAndNotTheHandles) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_FOREVER);
  const Hold hold(path_, layout_, 3);
  st_txn *txn = begin(file.get(), {3}, 1, ST_TIMEOUT_NONE);
  EXPECT_EQ(commit(txn), ST_E_BUSY);
  st_txn_free(txn);
}

TEST_F(LockWait, ForEverEndsWhenTheLockIsFree) {
  const FileHandle file = open();
  Hold hold(path_, layout_, 3);
  Worker waiter(Worker::thread, [&](Line &) { DEMAND_OK(commit(begin(file.get(), {3}, 1, ST_TIMEOUT_FOREVER))); });
  auto stats = sized<st_stats>();
  EXPECT_TRUE(eventually([&] { return st_file_stats(file.get(), &stats) == ST_OK && stats.lock_waits == 1; }));
  hold.release();
  EXPECT_TRUE(waiter.join());
  EXPECT_EQ(versions()[3], 1u);
}

TEST_F(LockWait, ThatEndedBusyMayBeTriedAgain) {
  const FileHandle file = open();
  Hold hold(path_, layout_, 3);
  st_txn *txn = begin(file.get(), {0, 3}, 1, ST_TIMEOUT_NONE);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(commit(txn), ST_E_BUSY);  // anything else ends it
  EXPECT_EQ(versions(), Versions(8, 0));
  const Bytes late = layout_.value(4, 1);
  const st_tensor value = layout_.described(4, late.data());
  EXPECT_OK(st_txn_update(txn, layout_.name(4), ST_NTS, &value));  // it may also grow meanwhile
  hold.release();
  EXPECT_OK(commit(txn));
  EXPECT_EQ(versions(), (Versions{1, 0, 0, 1, 1, 0, 0, 0}));
}

TEST_F(LockWait, ThatEndedBusyLeavesNoLockBehind) {
  const FileHandle file = open();
  Hold hold(path_, layout_, 3);
  st_txn *txn = begin(file.get(), {0, 3, 7}, 1, ST_TIMEOUT_NONE);
  EXPECT_EQ(commit(txn), ST_E_BUSY);
  hold.release();
  EXPECT_TRUE(nobody_holds_a_lock());
  EXPECT_OK(commit(txn));
  EXPECT_TRUE(nobody_holds_a_lock());
}

TEST_F(LockWait, IsEndedByAnInterrupt) {
  const FileHandle file = open();
  const Hold hold(path_, layout_, 3);
  Worker waiter(Worker::thread, [&](Line &) {
    DEMAND(commit(begin(file.get(), {0, 3}, 1, ST_TIMEOUT_FOREVER)) == ST_E_INTERRUPTED);
  });
  auto stats = sized<st_stats>();
  EXPECT_TRUE(eventually([&] { return st_file_stats(file.get(), &stats) == ST_OK && stats.lock_waits == 1; }));
  st_interrupt(file.get());
  EXPECT_TRUE(waiter.join());
  EXPECT_EQ(versions(), Versions(8, 0));
  EXPECT_OK(update(file.get(), 0, 2));  // the handle is as good as before, and no lock is left
}

TEST_F(LockWait, OfAnUpdateIsEndedByAnInterrupt) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_FOREVER);
  const Hold hold(path_, layout_, 3);
  Worker waiter(Worker::thread, [&](Line &) { DEMAND(update(file.get(), 3, 1) == ST_E_INTERRUPTED); });
  auto stats = sized<st_stats>();
  EXPECT_TRUE(eventually([&] { return st_file_stats(file.get(), &stats) == ST_OK && stats.lock_waits == 1; }));
  st_interrupt(file.get());
  EXPECT_TRUE(waiter.join());
}

TEST_F(LockWait, IsNotEndedByAnInterruptThatCameBeforeTheCall) {
  const FileHandle file = open();
  Hold hold(path_, layout_, 3);
  st_txn *txn = begin(file.get(), {3}, 1, ST_TIMEOUT_FOREVER);
  st_interrupt(file.get());
  Worker waiter(Worker::thread, [&](Line &) { DEMAND_OK(commit(txn)); });
  auto stats = sized<st_stats>();
  EXPECT_TRUE(eventually([&] { return st_file_stats(file.get(), &stats) == ST_OK && stats.lock_waits == 1; }));
  hold.release();
  EXPECT_TRUE(waiter.join());
}

// It waits for a patch that is under way, and keeps out those that come after it.
TEST_F(LockWait, BehindAStoppedPublisherEndsBusyAndNamesIt) {
  constexpr uint64_t gate = (uint64_t{1} << 62) + 3;
  Worker publisher(Worker::process, [this](Line &line) {
    const FileHandle file = open();
    auto options = sized<st_txn_options>();
    options.flags = ST_TXN_PUBLISH;
    options.lock_timeout_ms = ST_TIMEOUT_FOREVER;
    st_txn *txn = nullptr;
    DEMAND_OK(st_txn_begin(file.get(), &options, &txn));
    const Bytes bytes = layout_.value(1, 1);
    const st_tensor value = layout_.described(1, bytes.data());
    DEMAND_OK(st_txn_update(txn, layout_.name(1), ST_NTS, &value));
    DEMAND(line.hear() == 'g');
    DEMAND_OK(commit(txn));
  });
  Hold hold(path_, layout_, 3);  // a descriptor that the publisher has not inherited
  publisher.tell('g');
  ASSERT_TRUE(eventually([&] { return !Hold(path_, gate, 1, F_RDLCK).had(); }));
  ASSERT_EQ(::kill(publisher.pid(), SIGSTOP), 0);
  {
    const FileHandle file = open(ST_OPEN_READ_WRITE, 20);
    EXPECT_EQ(update(file.get(), 0, 1), ST_E_BUSY);
    EXPECT_EQ(last_error().holder_pid, publisher.pid());
    EXPECT_NE(std::string(st_last_error()).find("comes first"), std::string::npos) << st_last_error();
  }
  ASSERT_EQ(::kill(publisher.pid(), SIGCONT), 0);
  hold.release();
  EXPECT_TRUE(publisher.join());
  const FileHandle file = open();
  EXPECT_OK(update(file.get(), 0, 2));
  EXPECT_EQ(read_version(file.get(), layout_, 0), 2u);
  EXPECT_EQ(read_version(file.get(), layout_, 1), 1u);
}

// A waiter holds only what lies before: so no two wait for each other.
TEST_F(LockWait, HoldsNothingBehindTheTensorThatItWaitsFor) {
  const FileHandle file = open();
  Hold hold(path_, layout_, 3);
  Worker waiter(Worker::thread, [&](Line &) {
    DEMAND_OK(commit(begin(file.get(), {5, 1, 3, 4}, 1, ST_TIMEOUT_FOREVER)));
  });
  auto stats = sized<st_stats>();
  EXPECT_TRUE(eventually([&] { return st_file_stats(file.get(), &stats) == ST_OK && stats.lock_waits == 1; }));
  EXPECT_FALSE(Hold(path_, layout_, 1).had());
  EXPECT_TRUE(Hold(path_, layout_, 4).had());
  EXPECT_TRUE(Hold(path_, layout_, 5).had());
  hold.release();
  EXPECT_TRUE(waiter.join());
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 1, 1, 1, 0, 0}));
}

// The protocol, as other programs may rely on: the header's bytes shared, against
// a replacement of the file; the tensors' exclusive.
TEST_F(LockWait, OfOneWhoReplacesTheFileIsForEveryCommitUnderWay) {
  Worker inside(Worker::process, [this](Line &line) { commit_stopping(line, {1, 3}, 1); });
  ASSERT_EQ(inside.hear(), 'i');
  EXPECT_FALSE(Hold(path_, 0, layout_.data_offset(), F_WRLCK).had());
  EXPECT_FALSE(Hold(path_, 0, 1, F_WRLCK).had());
  EXPECT_FALSE(Hold(path_, layout_.data_offset() - 1, 1, F_WRLCK).had());
  EXPECT_TRUE(Hold(path_, 0, layout_.data_offset(), F_RDLCK).had());
  for (uint32_t t = 0; t < layout_.count(); ++t) {
    const bool wanted = t == 1 || t == 3;
    EXPECT_NE(Hold(path_, layout_.offset(t), layout_.size(t), F_RDLCK).had(), wanted) << t;
    EXPECT_NE(Hold(path_, layout_.offset(t), 1, F_RDLCK).had(), wanted) << t;
    EXPECT_NE(Hold(path_, layout_.offset(t) + layout_.size(t) - 1, 1, F_RDLCK).had(), wanted) << t;
  }
  inside.tell('g');
  EXPECT_TRUE(inside.join());
  EXPECT_TRUE(nobody_holds_a_lock());
}

TEST_F(LockWait, IsForOneWhoReplacesTheFileToo) {
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  Hold publisher(path_, 0, layout_.data_offset());
  ASSERT_TRUE(publisher.had());
  EXPECT_EQ(update(file.get(), 0, 1), ST_E_BUSY);
  EXPECT_EQ(tensor_of_last_error(), "(none)");  // it is about the whole file
  publisher.release();
  const Hold reader_of_the_header(path_, 0, layout_.data_offset(), F_RDLCK);
  EXPECT_OK(update(file.get(), 0, 1));
}

TEST_F(LockWait, ReadersNeverWait) {
  Worker inside(Worker::process, [this](Line &line) { commit_stopping(line, {1}, 1); });
  ASSERT_EQ(inside.hear(), 'i');
  const Hold publisher_elsewhere(path_, layout_, 6);
  const FileHandle file = open(0, ST_TIMEOUT_NONE);
  ASSERT_TRUE(file) << st_last_error();
  EXPECT_EQ(read_version(file.get(), layout_, 1), 0u);
  EXPECT_EQ(read_version(file.get(), layout_, 6), 0u);
  inside.tell('g');
  EXPECT_EQ(inside.hear(), 'd');
  EXPECT_EQ(read_version(file.get(), layout_, 1), 1u);
  EXPECT_TRUE(inside.join());
}

}  // namespace
