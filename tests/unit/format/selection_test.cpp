// Parts of tensors that are to be changed: ranges as slices, and rows by their indices.
#include "format/selection.h"
#include "test_files.h"

namespace st {
namespace {

using testing::fails_with;
using testing::is_ok;

struct Copied {
  uint64_t source, destination, length;
  bool operator==(const Copied &) const = default;
};

std::vector<Copied> runs_of(const Selection &selection) {
  std::vector<Copied> runs;
  selection.each_run([&](uint64_t source, uint64_t destination, uint64_t length) {
    runs.push_back({source, destination, length});
  });
  return runs;
}

const uint64_t shape[] = {5, 3, 4};

TEST(Selection, OfRangesIsTheSlice) {
  const Range ranges[] = {{4, 0, -2}, {1, 3, 1}};
  auto made = Selection::make(Dtype::U16, shape, {ranges});
  ASSERT_TRUE(is_ok(made));
  EXPECT_EQ(made->shape(), (std::vector<uint64_t>{2, 2, 4}));
  EXPECT_EQ(made->nbytes(), 32u);
  EXPECT_EQ(runs_of(*made), (std::vector<Copied>{{56, 16, 16}, {104, 0, 16}}));
}

TEST(Selection, OfNoRangesIsTheTensor) {
  auto made = Selection::make(Dtype::F32, shape, {});
  ASSERT_TRUE(is_ok(made));
  EXPECT_EQ(runs_of(*made), (std::vector<Copied>{{0, 0, 240}}));
}

TEST(Selection, RowsComeInTheOrderOfTheirArrayAndAsOften) {
  const int64_t rows[] = {3, -5, 3, 4};
  auto made = Selection::make(Dtype::U8, shape, {{}, rows});
  ASSERT_TRUE(is_ok(made));
  EXPECT_EQ(made->shape(), (std::vector<uint64_t>{4, 3, 4}));
  EXPECT_EQ(runs_of(*made), (std::vector<Copied>{{36, 0, 12}, {0, 12, 12}, {36, 24, 12}, {48, 36, 12}}));
}

TEST(Selection, RangesBesideRowsAreForTheDimensionsBehindTheFirst) {
  const int64_t rows[] = {1, 0};
  const Range ranges[] = {{2, 3, 1}, {3, INT64_MIN, -3}};
  auto made = Selection::make(Dtype::U8, shape, {ranges, rows});
  ASSERT_TRUE(is_ok(made));
  EXPECT_EQ(made->shape(), (std::vector<uint64_t>{2, 1, 2}));
  EXPECT_EQ(runs_of(*made), (std::vector<Copied>{{20, 1, 1}, {23, 0, 1}, {8, 3, 1}, {11, 2, 1}}));
}

TEST(Selection, OfNoRowsIsNothing) {
  auto made = Selection::make(Dtype::U8, shape, {{}, std::span<const int64_t>()});
  ASSERT_TRUE(is_ok(made));
  EXPECT_EQ(made->shape(), (std::vector<uint64_t>{0, 3, 4}));
  EXPECT_EQ(made->nbytes(), 0u);
  EXPECT_TRUE(runs_of(*made).empty());
}

TEST(Selection, RefusesWhatIsNotThere) {
  const auto with_row = [](std::span<const uint64_t> of, int64_t row) {
    return Selection::make(Dtype::U8, of, {{}, std::span(&row, 1)});
  };
  EXPECT_TRUE(is_ok(with_row(shape, -5)));
  EXPECT_TRUE(fails_with(Status::out_of_range, with_row(shape, -6)));
  EXPECT_TRUE(is_ok(with_row(shape, 4)));
  EXPECT_TRUE(fails_with(Status::out_of_range, with_row(shape, 5)));
  EXPECT_TRUE(fails_with(Status::out_of_range, with_row(shape, INT64_MIN)));
  EXPECT_TRUE(fails_with(Status::out_of_range, with_row({}, 0)));
  const Range three[] = {{0, 1, 1}, {0, 1, 1}, {0, 1, 1}}, zero[] = {{0, 1, 0}};
  const int64_t row = 0;
  EXPECT_TRUE(fails_with(Status::out_of_range, Selection::make(Dtype::U8, shape, {three, std::span(&row, 1)})));
  EXPECT_TRUE(fails_with(Status::invalid_argument, Selection::make(Dtype::U8, shape, {zero, std::span(&row, 1)})));
}

TEST(Selection, RefusesRowsThatAreNoWholeBytes) {
  const int64_t row = 0;
  const uint64_t odd[] = {2, 3}, even[] = {3, 2};
  EXPECT_TRUE(fails_with(Status::subbyte, Selection::make(Dtype::F4, odd, {{}, std::span(&row, 1)})));
  EXPECT_TRUE(is_ok(Selection::make(Dtype::F4, even, {{}, std::span(&row, 1)})));
  const Range half[] = {{0, 1, 1}};
  EXPECT_TRUE(fails_with(Status::subbyte, Selection::make(Dtype::F4, even, {half, std::span(&row, 1)})));
  // Whole bytes of a row, but the next row begins inside a byte.
  const uint64_t nine[] = {4, 9};
  const Range eight[] = {{0, 8, 1}};
  EXPECT_TRUE(fails_with(Status::subbyte, Selection::make(Dtype::F4, nine, {eight, std::span(&row, 1)})));
}

TEST(Selection, RefusesMoreBytesThanThereAreNumbers) {
  const uint64_t wide[] = {2, uint64_t{1} << 60};
  const int64_t rows[16] = {};
  EXPECT_TRUE(fails_with(Status::out_of_range, Selection::make(Dtype::U8, wide, {{}, rows})));
  EXPECT_TRUE(is_ok(Selection::make(Dtype::U8, wide, {{}, std::span(rows).first(15)})));
}

}  // namespace
}  // namespace st
