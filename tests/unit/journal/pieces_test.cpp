// Pieces that follow each other in the file: read, compared and written together, and still each for itself.
#include "crash_scene.h"
#include "fault_env.h"
#include "journal/pieces.h"
#include "located.h"

namespace st::write {
namespace {

using namespace testing;

class PiecesTest : public testing::CrashScene {
 protected:
  // Staged in this order; `places` in the file ascend.
  void stage(const std::vector<size_t> &order) {
    pieces.resize(lengths.size());
    for (const size_t i : order) {
      const std::string bytes = with(changes()).substr(places()[i], lengths[i]);
      auto payload = journal->append(bytes.data(), bytes.size(), {});
      ASSERT_TRUE(is_ok(payload));
      pieces[i] = {places()[i], *payload};
    }
    ASSERT_TRUE(is_ok(journal->flush()));
  }
  Result<void> write() {
    StillOurs ours;
    return write_pieces(*data, *journal, pieces, chunk_for(pieces), ours);
  }
  size_t writes() const {
    return static_cast<size_t>(std::count(faults.calls.begin(), faults.calls.end(), Call::pwrite));
  }

  std::vector<uint64_t> places() const {
    std::vector<uint64_t> found{a_at};
    for (const size_t n : lengths) found.push_back(found.back() + n + gap);
    return found;
  }
  std::vector<Change> changes() const {
    std::vector<Change> found;
    for (size_t i = 0; i < lengths.size(); ++i)
      found.push_back({places()[i], pattern(lengths[i], 60 + static_cast<int>(i))});
    return found;
  }

  FaultEnv faults{env};
  const std::vector<size_t> lengths = {1000, 24, 512, 3000, 1};
  uint64_t gap = 0;
  std::unique_ptr<os::File> data =
      std::make_unique<os::File>(os::File::open(faults, AT_FDCWD, path, O_RDWR, 0, path).value());
  JournalFolder journals{testing::located(env, path), *data->stat()};
  JournalFolder::Taken taken = journals.take().value();
  Journal *const journal = taken.journal.get();
  std::vector<Piece> pieces;
};

TEST_F(PiecesTest, WithoutAGapAreOneWrite) {
  stage({0, 1, 2, 3, 4});
  const size_t before = writes();
  ASSERT_TRUE(is_ok(write()));
  EXPECT_EQ(writes() - before, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes())));
}

TEST_F(PiecesTest, LieInTheJournalAsTheyWereStaged) {
  stage({4, 1, 0, 3, 2});
  ASSERT_TRUE(is_ok(write()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes())));
}

TEST_F(PiecesTest, WhatIsBetweenThemStays) {
  gap = 7;
  stage({0, 1, 2, 3, 4});
  ASSERT_TRUE(is_ok(write()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes())));
}

TEST_F(PiecesTest, OneThatChangedInTheJournalKeepsAllOutOfTheFile) {
  stage({0, 1, 2, 3, 4});
  const std::byte other = std::byte{static_cast<unsigned char>(~changes()[3].bytes.back())};
  ASSERT_TRUE(is_ok(journal->file().write(&other, 1, pieces[3].payload.offset + lengths[3] - 1)));
  const auto written = write();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().status, Status::journal);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

}  // namespace
}  // namespace st::write
