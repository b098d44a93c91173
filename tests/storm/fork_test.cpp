// After fork() two processes hold the same handle, the same transactions, the
// same descriptors and locks. They stay the parent's: the child may read, free what it
// inherited, and open anew; nothing that it does reaches the parent's changes.
#include "encounter.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stops.h"

using namespace st::testing;

namespace {

class Fork : public Arena {
 protected:
  // An open for writing clears away the journals of dead processes.
  void let_another_process_look_around() {
    Worker other(Worker::process, [this](Line &) {
      DEMAND(open());
      DEMAND_OK(st_recover(path_.c_str(), nullptr));
    });
    EXPECT_TRUE(other.join());
  }
  bool in_a_child(std::function<void(Line &)> work) {
    Worker child(Worker::process, std::move(work));
    return child.join();
  }
};

// The process that forks is itself killed, half way through a commit.
class ForkThenKill : public Fork, public ::testing::WithParamInterface<const char *> {};

INSTANTIATE_TEST_SUITE_P(, ForkThenKill, ::testing::Values("ChildEnds", "ChildClosesTheHandle", "ChildLivesOn"),
                         [](const auto &info) { return std::string(info.param); });

TEST_F(Fork, AParentsTransactionAnswersForkedInTheChild) {
  const FileHandle file = open();
  st_txn *txn = begin(file.get(), {0}, 1);
  EXPECT_TRUE(in_a_child([&](Line &) {
    const Bytes bytes = layout_.value(1, 2);
    const st_tensor value = layout_.described(1, bytes.data());
    DEMAND(st_txn_update(txn, layout_.name(1), ST_NTS, &value) == ST_E_FORKED);
    DEMAND(commit(txn) == ST_E_FORKED);
  }));
  EXPECT_EQ(versions(), Versions(8, 0));
  EXPECT_OK(commit(txn));
  EXPECT_EQ(versions()[0], 1u);
}

TEST_F(Fork, AChildsAbortLeavesTheParentsTransactionsAlone) {
  FileHandle file = open();
  std::vector<st_txn *> txns;  // more than a handle parks
  for (uint32_t t = 0; t < 8; ++t) txns.push_back(begin(file.get(), {t}, t + 1));
  EXPECT_TRUE(in_a_child([&](Line &) {
    for (st_txn *txn : txns) st_txn_free(txn);
  }));
  let_another_process_look_around();
  EXPECT_EQ(journals().size(), 8u);
  for (st_txn *txn : txns) EXPECT_OK(commit(txn));
  EXPECT_EQ(versions(), (Versions{1, 2, 3, 4, 5, 6, 7, 8}));
  file.reset();
  EXPECT_FALSE(journal_folder_exists());
}

TEST_F(Fork, AChildsCloseLeavesTheParentsJournalsAlone) {
  FileHandle file = open();
  EXPECT_OK(update(file.get(), 5, 9));
  st_txn *parked = begin(file.get(), {0}, 1), *fresh = begin(file.get(), {3}, 1);
  EXPECT_TRUE(in_a_child([&](Line &) { file.reset(); }));
  let_another_process_look_around();
  EXPECT_EQ(journals().size(), 2u);
  EXPECT_OK(commit(fresh));
  EXPECT_OK(commit(parked));
  EXPECT_OK(update(file.get(), 7, 2));
  EXPECT_EQ(versions(), (Versions{1, 0, 0, 1, 0, 9, 0, 2}));
  file.reset();
  EXPECT_FALSE(journal_folder_exists());
}

TEST_F(Fork, AChildsCloseLeavesAJournalAloneThatServesAgain) {
  FileHandle file = open();
  EXPECT_OK(update(file.get(), 5, 9));
  Worker child(Worker::process, [&](Line &line) {  // while the journal is parked
    DEMAND(line.hear() == 'g');
    file.reset();
  });
  st_txn *txn = begin(file.get(), {0}, 1);
  const auto before = journals();
  EXPECT_EQ(before.size(), 1u);
  child.tell('g');
  EXPECT_TRUE(child.join());
  EXPECT_EQ(journals(), before);
  EXPECT_OK(commit(txn));
}

TEST_F(Fork, AChildClearsAwayItsOwnJournals) {
  FileHandle file = open();
  EXPECT_OK(update(file.get(), 5, 9));
  const auto before = journals();
  EXPECT_TRUE(in_a_child([&](Line &) {
    const st_status status = update(file.get(), 3, 1);
    DEMAND(status == ST_OK || status == ST_E_FORKED);
    file.reset();
  }));
  EXPECT_EQ(journals(), before);
}

TEST_F(Fork, AChildsCloseEndsNoLockOfACommitUnderWay) {
  // Forked while another thread of the parent stands in its commit.
  Worker committing(Worker::thread, [this](Line &line) { commit_stopping(line, {1}, 1); });
  ASSERT_EQ(committing.hear(), 'i');
  EXPECT_TRUE(in_a_child([](Line &) {}));
  EXPECT_FALSE(Hold(path_, layout_, 1).had());
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  EXPECT_EQ(update(file.get(), 1, 2), ST_E_BUSY);
  committing.tell('g');
  EXPECT_TRUE(committing.join());
}

TEST_F(Fork, ALockIsFreeAfterTheCommitThoughAChildStillHoldsTheDescriptor) {
  Worker committing(Worker::thread, [this](Line &line) { commit_stopping(line, {1}, 1); });
  ASSERT_EQ(committing.hear(), 'i');
  Worker bystander(Worker::process, [](Line &line) { line.hear(); });
  committing.tell('g');
  EXPECT_TRUE(committing.join());
  const FileHandle file = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
  EXPECT_OK(update(file.get(), 1, 2));
  bystander.tell('e');
  EXPECT_TRUE(bystander.join());
}

TEST_F(Fork, AChildReadsThroughWhatItInherited) {
  const FileHandle file = open();
  EXPECT_OK(update(file.get(), 3, 1));
  EXPECT_TRUE(in_a_child([&](Line &) {
    DEMAND(read_version(file.get(), layout_, 3) == 1u);
    st_tensor view;
    DEMAND_OK(st_get(file.get(), layout_.name(3), ST_NTS, &view));
    DEMAND(version_of({static_cast<const std::byte *>(view.data), view.nbytes}, 3) == 1u);
  }));
}

TEST_F(Fork, AChildThatOpensAnewWorksBesideItsParent) {
  const FileHandle file = open();
  st_txn *txn = begin(file.get(), {0}, 1);
  EXPECT_TRUE(in_a_child([&](Line &) {
    FileHandle own = open(ST_OPEN_READ_WRITE, ST_TIMEOUT_NONE);
    DEMAND(own);
    DEMAND_OK(update(own.get(), 0, 2));
    DEMAND_OK(commit(begin(own.get(), {1, 2}, 2, ST_TIMEOUT_NONE)));
    own.reset();
    st_file *again = nullptr;
    DEMAND_OK(st_reopen(file.get(), 0, &again));
    DEMAND_OK(update(again, 3, 2));
    st_close(again);
  }));
  EXPECT_OK(commit(txn));
  EXPECT_EQ(versions(), (Versions{1, 2, 2, 2, 0, 0, 0, 0}));
}

// The handle has a journal parked, which both processes now have open. Whatever
// a change through the inherited handle answers, no byte may come from the other process.
TEST_F(Fork, AnInheritedHandleNeverMixesTheTwoProcesses) {
  FileHandle file = open();
  ASSERT_OK(update(file.get(), 3, 1));
  Worker child(Worker::process, [&](Line &line) {
    auto options = sized<st_txn_options>();
    options.flags = ST_TXN_COPY;
    st_txn *txn = nullptr;
    st_status status = st_txn_begin(file.get(), &options, &txn);
    if (status == ST_OK) {
      const Bytes bytes = layout_.value(3, 2);
      const st_tensor value = layout_.described(3, bytes.data());
      status = st_txn_update(txn, layout_.name(3), ST_NTS, &value);
      line.tell('s');
      DEMAND(line.hear() == 'g');
      if (status == ST_OK)
        status = commit(txn);
      else
        st_txn_free(txn);
    } else {
      line.tell('s');
      DEMAND(line.hear() == 'g');
    }
    DEMAND(status == ST_OK || status == ST_E_FORKED);
    line.tell(status == ST_OK ? 'c' : 'f');
  });
  ASSERT_EQ(child.hear(), 's');
  st_txn *txn = begin(file.get(), {7}, 3);  // staged over the same place, if the journal were shared
  child.tell('g');
  const char outcome = child.hear();
  EXPECT_TRUE(child.join());
  EXPECT_EQ(versions()[3], outcome == 'c' ? 2u : 1u);
  EXPECT_OK(commit(txn));
  EXPECT_EQ(versions()[7], 3u);
  EXPECT_EQ(versions()[3], outcome == 'c' ? 2u : 1u);
}

// The journal had served before the fork, so that the child has it open too,
// and with it the parent's lock.
TEST_P(ForkThenKill, TheParentsHalfDoneCommitIsRecovered) {
  const std::string fate = GetParam();
  int leash[2];  // the child lives until the test lets go
  ASSERT_EQ(::pipe2(leash, O_CLOEXEC), 0);
  Worker parent(Worker::process, [&](Line &line) {
    FileHandle file = open();
    DEMAND(file);
    DEMAND_OK(update(file.get(), 5, 9));
    st_txn *txn = begin(file.get(), {1, 3}, 1);  // with a gap, so that each is a write of its own
    const pid_t child = ::fork();
    DEMAND(child >= 0);
    if (child == 0) {
      ::close(leash[1]);
      if (fate == "ChildClosesTheHandle") file.reset();
      line.tell('c');  // it runs, so it has let go of its parent's locks
      char end;
      if (fate != "ChildEnds") static_cast<void>(::read(leash[0], &end, 1));
      ::_exit(0);
    }
    if (fate == "ChildEnds") DEMAND(::waitpid(child, nullptr, 0) == child);
    watch([&, n = 0](Point at) mutable {
      if (at == Point::data_write && ++n == 2) line.tell('h'), line.hear();
    });
    commit(txn);
  });
  ::close(leash[0]);
  // The child is done, and tensor 1 is written, in either order.
  ASSERT_NE(parent.hear(), 0);
  ASSERT_NE(parent.hear(), 0);
  parent.kill();
  EXPECT_EQ(versions(), (Versions{0, 1, 0, 0, 0, 9, 0, 0}));

  for (const uint32_t flags : {0u, ST_OPEN_READ_WRITE}) {
    const FileHandle file = open(flags);
    ASSERT_TRUE(file) << st_last_error();
    EXPECT_EQ(read_version(file.get(), layout_, 3), 1u) << "opened with flags " << flags;
  }
  EXPECT_OK(update(open().get(), 1, 2));
  EXPECT_OK(st_recover(path_.c_str(), nullptr));
  EXPECT_EQ(versions(), (Versions{0, 2, 0, 1, 0, 9, 0, 0}));
  EXPECT_FALSE(journal_folder_exists());
  ::close(leash[1]);
}

}  // namespace
