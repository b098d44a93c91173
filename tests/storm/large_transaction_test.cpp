// What a transaction may cost: no more memory than its pieces, and no room on
// the disk once it is done.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "encounter.h"
#include "sanitizers.h"

using namespace st::testing;

namespace {

constexpr uint64_t MiB = 1 << 20;
constexpr uint32_t pieces = 40;
constexpr uint64_t piece_bytes = 16 * MiB;

class LargeTransaction : public Arena {
 protected:
  LargeTransaction() : Arena(std::vector<uint64_t>(pieces, piece_bytes), true) {}
};

// This process's "VmHWM:", the most memory it ever had; "VmSize:", its address space.
uint64_t bytes_of(std::string_view what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(what)) return std::strtoull(line.c_str() + what.size(), nullptr, 10) * 1024;
  return 0;
}

void limit(int resource, uint64_t bytes) {
  const rlimit both = {bytes, bytes};
  DEMAND(::setrlimit(static_cast<__rlimit_resource_t>(resource), &both) == 0);
}

class ParkedJournals : public Arena {};

TEST_F(LargeTransaction, IsLargerThanMemory) {
  Worker worker(Worker::process, [this](Line &line) {
    limit(RLIMIT_AS,
          bytes_of("VmSize:") + pieces * piece_bytes + 64 * MiB);  // the mapping, and a tenth of what will be staged
    FileHandle file = open();
    DEMAND(file);
    auto options = sized<st_txn_options>();
    options.flags = ST_TXN_COPY;
    st_txn *txn = nullptr;
    DEMAND_OK(st_txn_begin(file.get(), &options, &txn));
    Bytes bytes(piece_bytes);
    for (uint32_t t = 0; t < pieces; ++t) {
      fill(bytes, t, 1);
      const st_tensor value = layout_.described(t, bytes.data());
      DEMAND_OK(st_txn_update(txn, layout_.name(t), ST_NTS, &value));
    }
    DEMAND_OK(commit(txn));
#if !defined(ST_UNDER_ASAN) && !defined(ST_UNDER_TSAN)  // which have memory of their own
    DEMAND(bytes_of("VmHWM:") > piece_bytes && bytes_of("VmHWM:") < 64 * MiB);
#endif
    line.tell('c');
    DEMAND(line.hear() == 'g');
  });
  ASSERT_EQ(worker.hear(), 'c');
  EXPECT_TRUE(journals().empty()) << "a journal of this size is not kept, even while the handle is open";
  worker.tell('g');
  EXPECT_TRUE(worker.join());
  EXPECT_FALSE(journal_folder_exists());
  const FileHandle file = open(0);
  for (uint32_t t = 0; t < pieces; t += 13) EXPECT_EQ(read_version(file.get(), layout_, t), 1u);
}

TEST_F(LargeTransaction, MayBeOnAFileLargerThanTheAddressSpace) {
  Worker worker(Worker::process, [this](Line &) {
    limit(RLIMIT_AS, bytes_of("VmSize:") + 64 * MiB);
    const FileHandle file = open();
    DEMAND(file);
    DEMAND_OK(update(file.get(), 7, 1));
    DEMAND(read_version(file.get(), layout_, 7) == 1u);
  });
  EXPECT_TRUE(worker.join());
}

TEST_F(ParkedJournals, ServeTheNextTransaction) {
  FileHandle file = open();
  EXPECT_OK(update(file.get(), 3, 1));
  const auto first = journals();
  EXPECT_EQ(first.size(), 1u);
  EXPECT_OK(update(file.get(), 7, 1));
  EXPECT_OK(commit(begin(file.get(), {1, 2}, 1)));
  EXPECT_EQ(journals(), first);
  file.reset();
  EXPECT_FALSE(journal_folder_exists());
}

TEST_F(ParkedJournals, AreFew) {
  FileHandle file = open();
  std::vector<st_txn *> txns;
  for (uint64_t i = 0; i < 20; ++i) txns.push_back(begin(file.get(), {static_cast<uint32_t>(i % 8)}, i));
  EXPECT_EQ(journals().size(), 20u);
  for (size_t i = 0; i < txns.size(); i += 2) {
    EXPECT_OK(commit(txns[i]));
    st_txn_free(txns[i + 1]);
  }
  EXPECT_LE(journals().size(), 4u);
  file.reset();
  EXPECT_FALSE(journal_folder_exists());
}

TEST_F(ParkedJournals, OfTheDeadAreClearedAwayByTheNextWriter) {
  Worker worker(Worker::process, [this](Line &line) {
    const FileHandle file = open();
    for (uint32_t t : {0, 1}) DEMAND_OK(update(file.get(), t, 1));
    begin(file.get(), {2, 3}, 1), begin(file.get(), {3, 4}, 1);
    line.tell('r');
    line.hear();
  });
  ASSERT_EQ(worker.hear(), 'r');
  EXPECT_EQ(journals().size(), 2u);
  EXPECT_TRUE(open());
  EXPECT_EQ(journals().size(), 2u) << "they are not the dead's yet";
  worker.kill();
  EXPECT_TRUE(open(0));
  EXPECT_TRUE(open());
  EXPECT_FALSE(journal_folder_exists());
  EXPECT_EQ(versions(), (Versions{1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST_F(ParkedJournals, OfAnotherHandleKeepTheFolder) {
  FileHandle first = open(), second = open();
  EXPECT_OK(update(first.get(), 0, 1));
  EXPECT_OK(update(second.get(), 1, 1));
  first.reset();
  EXPECT_EQ(journals().size(), 1u);
  EXPECT_OK(update(second.get(), 2, 1));
  second.reset();
  EXPECT_FALSE(journal_folder_exists());
}

TEST_F(ParkedJournals, ThatSomebodyRemovedAreMadeAnew) {
  FileHandle file = open();
  EXPECT_OK(update(file.get(), 0, 1));
  std::filesystem::remove_all(path_ + ".st-journal");
  EXPECT_OK(update(file.get(), 0, 2));
  EXPECT_EQ(journals().size(), 1u);
  EXPECT_EQ(versions()[0], 2u);
  file.reset();
  EXPECT_FALSE(journal_folder_exists());
}

}  // namespace
