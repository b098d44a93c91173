// The planner: where data begins, what is shared and what is copied.
#include "newfile/publish_plan.h"

#include "newfile/data_offset.h"
#include "parse.h"
#include "test_files.h"

namespace st::testing {
namespace {

using write::PlannedTensor;
using write::PlanOptions;

constexpr uint64_t block = 4096;

// Tensors of these sizes, one after the other, in a file whose data begins at `at`.
struct OldFile {
  uint64_t at;
  std::vector<uint64_t> sizes;
  std::vector<std::string> names = {"a", "b", "c", "d", "e"};

  PlannedTensor kept(size_t i) const {
    uint64_t from = at;
    for (size_t k = 0; k < i; ++k) from += sizes[k];
    return {names[i], Dtype::U8, {&sizes[i], 1}, sizes[i], true, from};
  }
};

PlannedTensor fresh(std::string_view name, const uint64_t &size) {
  return {name, Dtype::U8, {&size, 1}, size, false, 0};
}

write::PublishPlan plan(uint64_t at, std::vector<PlannedTensor> tensors,
                        PlanOptions options = {write::Layout::keep, 0, 0, block}) {
  auto planned = write::plan_publish(at, std::move(tensors), {}, options);
  EXPECT_TRUE(is_ok(planned));
  return planned ? std::move(*planned) : write::PublishPlan();
}

// The segments tile the file, and no byte is counted twice.
void expect_sound(const write::PublishPlan &p) {
  uint64_t end = p.header.size();
  for (const auto &s : p.segments) {
    EXPECT_EQ(s.to, end);
    end += s.length;
  }
  EXPECT_EQ(end, p.size);
  EXPECT_EQ(p.written + p.shared + p.copied, p.size);
  EXPECT_FALSE(p.how.empty());
}

const uint64_t new_size = 10000;

TEST(PublishPlan, AppendSharesAllThatWasThere) {
  const OldFile old{1000, {100000, 200001}};
  const auto p = plan(old.at, {old.kept(0), old.kept(1), fresh("new", new_size)});
  expect_sound(p);
  EXPECT_EQ(p.segments.size(), 2u);  // what was there is one piece
  EXPECT_EQ(p.header.size() % block, old.at % block);
  EXPECT_LT(p.copied, 2 * block);
}

TEST(PublishPlan, HeaderThatFitsStaysInItsSpace) {
  const OldFile old{8000, {100000}};
  EXPECT_EQ(plan(old.at, {old.kept(0)}).header.size(), old.at);
  EXPECT_EQ(plan(old.at, {old.kept(0)}, {write::Layout::keep, 0, 0, 0}).header.size(), old.at);
  EXPECT_EQ(plan(old.at, {old.kept(0)}, {write::Layout::canonical, 0, 0, block}).header.size(), old.at - block);
}

TEST(PublishPlan, HeaderThatOutgrowsItsSpaceMovesDataByWholeBlocks) {
  const OldFile old{104, {100000, 5, 5000}};
  const auto p = plan(old.at, {old.kept(0), old.kept(1), old.kept(2)});
  expect_sound(p);
  EXPECT_EQ(p.header.size(), old.at + block);
  EXPECT_GT(p.shared, 90000u);
}

TEST(PublishPlan, WhatIsBeforeAHoleOfAnySizeIsSharedIfItIsMore) {
  const OldFile old{64, {1000000, 12345, 50000}};
  const auto p = plan(old.at, {old.kept(0), old.kept(2)});
  expect_sound(p);
  EXPECT_GT(p.shared, 1000000 - 2 * block);
  EXPECT_GE(p.copied, 50000u);
  EXPECT_NE(p.how.find("multiple of a block"), std::string::npos);
}

TEST(PublishPlan, WhatIsBehindAHoleIsSharedIfItIsMore) {
  const OldFile old{64, {50000, 12345, 1000000}};
  const auto p = plan(old.at, {old.kept(0), old.kept(2)});
  expect_sound(p);
  EXPECT_GT(p.shared, 1000000 - 2 * block);
}

TEST(PublishPlan, HoleOfWholeBlocksLosesNothing) {
  const OldFile old{64, {1000000, 8 * block, 500000}};
  const auto p = plan(old.at, {old.kept(0), old.kept(2)});
  expect_sound(p);
  EXPECT_LT(p.copied, 4 * block);
}

TEST(PublishPlan, WhereNothingIsSharedDataIsAligned) {
  const OldFile old{104, {1000, 2000}};
  const auto p = plan(old.at, {old.kept(1)}, {write::Layout::keep, 0, 0, 0});
  expect_sound(p);
  EXPECT_EQ(p.shared, 0u);
  EXPECT_EQ(p.copied, 2000u);
  EXPECT_EQ(p.header.size() % 64, 0u);
}

TEST(PublishPlan, AlignmentAndReserveThatWereAskedForAreKept) {
  const OldFile old{104, {100000}};
  for (uint64_t alignment : {8, 64, 4096, 65536}) {
    const auto p = plan(old.at, {old.kept(0)}, {write::Layout::keep, alignment, 5000, block});
    expect_sound(p);
    EXPECT_EQ(p.header.size() % alignment, 0u);
    EXPECT_GE(p.header.size(), 5000u + 60);
  }
  // 104 is a multiple of 8: then all can still be shared.
  EXPECT_GT(plan(old.at, {old.kept(0)}, {write::Layout::keep, 8, 0, block}).shared, 90000u);
  EXPECT_EQ(plan(old.at, {old.kept(0)}, {write::Layout::keep, 64, 0, block}).shared, 0u);
}

// What does not lie so is copied.
TEST(PublishPlan, ACompactBeginsDataAtTheUsualAlignmentAlsoWhereBlocksCanBeShared) {
  const auto compact = [&](uint64_t begin, uint64_t alignment = 0) {
    const OldFile old{begin, {100000}};
    auto p = plan(old.at, {old.kept(0)}, {write::Layout::canonical, alignment, 0, block, false, true});
    expect_sound(p);
    return p;
  };
  EXPECT_EQ(compact(1001).header.size(), 128u);
  EXPECT_EQ(compact(1001).shared, 0u);
  EXPECT_EQ(compact(5 * block + 192).header.size(), 192u);
  EXPECT_GT(compact(5 * block + 192).shared, 90000u);
  EXPECT_EQ(compact(1000, 8).header.size(), 1000u);
  EXPECT_GT(compact(1000, 8).shared, 90000u);
}

TEST(PublishPlan, CanonicalOrderIsByDtypeThenName) {
  const uint64_t n = 8, dims[1] = {1};
  const std::vector<PlannedTensor> tensors = {{"b", Dtype::U8, {&n, 1}, 8, false, 0},
                                              {"z", Dtype::F64, dims, 8, false, 1},
                                              {"a", Dtype::U8, {&n, 1}, 8, false, 2}};
  const auto p = plan(64, tensors, {write::Layout::canonical, 0, 0, 0});
  ASSERT_EQ(p.segments.size(), 3u);
  EXPECT_EQ(p.segments[0].from, 1u);
  EXPECT_EQ(p.segments[1].from, 2u);
  EXPECT_EQ(p.segments[2].from, 0u);
}

TEST(PublishPlan, EmptyFilesAndTensorsHaveNoSegments) {
  expect_sound(plan(64, {}));
  const uint64_t none = 0;
  EXPECT_TRUE(plan(64, {fresh("e", none)}).segments.empty());
}

TEST(PublishPlan, WhatCannotBeIsRefused) {
  const uint64_t huge = uint64_t{1} << 60;  // eight of them end at 2^63, sixteen at 2^64
  const std::vector<std::string> names = {"0", "1", "2", "3", "4", "5", "6", "7",
                                          "8", "9", "a", "b", "c", "d", "e", "f"};
  std::vector<PlannedTensor> tensors;
  for (const std::string &name : names) {
    tensors.push_back(fresh(name, huge));
    if (tensors.size() == 8 || tensors.size() == 16) {
      EXPECT_TRUE(fails_with(Status::offsets, write::plan_publish(64, tensors, {}, {})));
    }
  }
  EXPECT_TRUE(fails_with(Status::invalid_argument, write::plan_publish(64, {}, {}, {write::Layout::keep, 12, 0, 0})));
  EXPECT_TRUE(fails_with(Status::header_too_large,
                         write::plan_publish(64, {}, {}, {write::Layout::keep, 0, max_header_bytes, 0})));
}

// The default alignment, and blocks that could be shared, are wishes: the longest headers have no room for them.
TEST(PublishPlan, AHeaderThatTheFormatAllowsIsNotRefusedForAnAlignmentThatNobodyAskedFor) {
  constexpr uint64_t most = length_bytes + max_header_bytes;
  EXPECT_EQ(write::data_offset_behind(most - 71, 0), most - 8);
  for (const uint64_t end : {most - 7, most - 1, most}) {
    EXPECT_EQ(write::data_offset_behind(end, 0), most);
    EXPECT_EQ(write::data_offset_behind(end, 8), most);
    EXPECT_GT(write::data_offset_behind(end, 64), most);
    const write::PlannedSegment kept{0, 100 * block, true, 1000};
    EXPECT_EQ(write::choose_data_offset(end, 1000, {&kept, 1}, {write::Layout::keep, 0, 0, block}), most);
    EXPECT_EQ(write::choose_data_offset(end, 1000, {&kept, 1}, {write::Layout::keep, 8, 0, block}), most);
    EXPECT_EQ(write::choose_data_offset(end, most, {&kept, 1}, {write::Layout::keep, 0, 0, 0}), most);
  }
}

std::vector<std::string> aligned(std::vector<std::pair<std::string, Dtype>> forms) {
  std::vector<uint64_t> shapes(forms.size(), 3);
  std::vector<PlannedTensor> tensors;
  for (size_t i = 0; i < forms.size(); ++i) {
    const uint64_t nbytes = std::max<uint64_t>(dtype_bits(forms[i].second) * 3 / 8, 1);
    tensors.push_back({forms[i].first, forms[i].second, {&shapes[i], 1}, nbytes, false, i});
  }
  write::align(&tensors);
  EXPECT_TRUE(write::is_aligned(tensors));
  std::vector<std::string> names;
  for (const PlannedTensor &t : tensors) names.emplace_back(t.name);
  return names;
}

TEST(PublishPlan, OnlyAnOrderThatLeavesElementsUnalignedIsChanged) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(aligned({{"z", Dtype::F64}, {"y", Dtype::F16}, {"x", Dtype::U8}}), (Names{"z", "y", "x"}));
  EXPECT_EQ(aligned({{"a", Dtype::F32}, {"b", Dtype::I32}}), (Names{"a", "b"}));
  EXPECT_EQ(aligned({{"a", Dtype::U8}, {"b", Dtype::F16}, {"c", Dtype::BOOL}, {"d", Dtype::C64}, {"e", Dtype::BF16}}),
            (Names{"d", "b", "e", "a", "c"}));
}

}  // namespace
}  // namespace st::testing
