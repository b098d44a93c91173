// Slices against a model that visits every element, as numpy would.
#include <random>

#include "format/slice.h"
#include "test_files.h"

namespace st {
namespace {

using namespace testing;

// The indices that Python's start:stop:step takes of a dimension.
std::vector<uint64_t> indices(const Range &r, uint64_t dim) {
  const auto n = static_cast<int64_t>(dim);
  auto place = [&](int64_t i) { return i < 0 ? i + n : i; };
  std::vector<uint64_t> out;
  const int64_t start = place(r.start), stop = place(r.stop);
  int64_t i = r.step > 0 ? std::max<int64_t>(start, 0) : std::min(start, n - 1);
  const auto is_inside = [&] { return r.step > 0 ? i < std::min(stop, n) : i > std::max<int64_t>(stop, -1); };
  while (is_inside()) {
    out.push_back(static_cast<uint64_t>(i));
    if (__builtin_add_overflow(i, r.step, &i)) break;
  }
  return out;
}

// Elements of the result in C order, as element numbers of the tensor.
std::vector<uint64_t> model(const std::vector<uint64_t> &shape, const std::vector<Range> &ranges,
                            std::vector<uint64_t> *out_shape) {
  std::vector<uint64_t> elements{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto picked = indices(d < ranges.size() ? ranges[d] : Range{0, INT64_MAX, 1}, shape[d]);
    out_shape->push_back(picked.size());
    std::vector<uint64_t> next;
    for (uint64_t e : elements)
      for (uint64_t i : picked) next.push_back(e * shape[d] + i);
    elements = std::move(next);
  }
  return elements;
}

// Copies by the plan, checking on the way that sources ascend and nothing is
// written twice.
std::string gather(const SlicePlan &plan, const std::string &tensor) {
  std::string out(plan.nbytes(), '\0');
  std::vector<bool> written(plan.nbytes());
  uint64_t runs = 0, least = 0;
  for (SlicePlan::Cursor run(plan); !run.done(); run.next(), ++runs) {
    EXPECT_GE(run.source(), least);
    least = run.source() + plan.run_bytes();
    EXPECT_LE(least, tensor.size());
    EXPECT_LE(run.destination() + plan.run_bytes(), out.size());
    if (::testing::Test::HasFailure()) return out;
    for (uint64_t i = 0; i < plan.run_bytes(); ++i) {
      EXPECT_FALSE(written[run.destination() + i]);
      written[run.destination() + i] = true;
      out[run.destination() + i] = tensor[run.source() + i];
    }
  }
  EXPECT_EQ(runs, plan.run_count());
  EXPECT_EQ(std::count(written.begin(), written.end(), true), static_cast<std::ptrdiff_t>(plan.nbytes()));
  return out;
}

uint64_t bits_at(const std::string &bytes, uint64_t bit, uint32_t n) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < n; ++i, ++bit)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[bit / 8]) >> bit % 8 & 1) << i;
  return value;
}

void compare_with_model(Dtype dtype, const std::vector<uint64_t> &shape, const std::vector<Range> &ranges,
                        bool *cut = nullptr) {
  auto nbytes = tensor_nbytes(dtype, shape);
  if (!nbytes) return;
  std::vector<uint64_t> wanted_shape;
  const auto elements = model(shape, ranges, &wanted_shape);
  auto plan = SlicePlan::make(dtype, shape, ranges);
  if (!plan) {
    ASSERT_TRUE(fails_with(Status::subbyte, plan));
    ASSERT_LT(dtype_bits(dtype), 8u);
    if (cut) *cut = true;
    return;
  }
  ASSERT_TRUE(std::ranges::equal(plan->shape(), wanted_shape));
  const uint64_t bits = dtype_bits(dtype);
  ASSERT_EQ(plan->nbytes(), elements.size() * bits / 8);
  const std::string tensor = testing::pattern(*nbytes, 3);
  const std::string got = gather(*plan, tensor);
  for (size_t i = 0; i < elements.size(); ++i)
    for (uint64_t b = 0; b < bits; b += 16) {
      const auto n = static_cast<uint32_t>(std::min<uint64_t>(16, bits - b));
      ASSERT_EQ(bits_at(got, i * bits + b, n), bits_at(tensor, elements[i] * bits + b, n)) << "element " << i;
    }
}

int64_t random_bound(std::mt19937_64 &random, uint64_t dim) {
  switch (random() % 8) {
    case 0: return INT64_MIN;
    case 1: return INT64_MAX;
    default: return static_cast<int64_t>(random() % (2 * dim + 4)) - static_cast<int64_t>(dim) - 2;
  }
}

TEST(Slice, IsWhatPythonWouldTake) {
  std::mt19937_64 random(11);
  constexpr Dtype dtypes[] = {Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::F64};
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint64_t> shape(random() % 5);
    for (uint64_t &dim : shape) dim = random() % 7;
    std::vector<Range> ranges(random() % (shape.size() + 1));
    for (size_t d = 0; d < ranges.size(); ++d) {
      constexpr int64_t steps[] = {1, 1, 1, 2, 3, -1, -1, -2, -5, INT64_MAX, INT64_MIN, INT64_MIN + 1};
      ranges[d] = {random_bound(random, shape[d]), random_bound(random, shape[d]), steps[random() % std::size(steps)]};
    }
    ASSERT_NO_FATAL_FAILURE(compare_with_model(dtypes[round % 4], shape, ranges)) << round;
  }
}

TEST(Slice, OfSubByteElementsIsRightOrRefused) {
  std::mt19937_64 random(12);
  constexpr Dtype dtypes[] = {Dtype::F4, Dtype::F6_E2M3, Dtype::F6_E3M2};
  size_t refused = 0, taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint64_t> shape(1 + random() % 3);
    for (uint64_t &dim : shape) dim = 1 + random() % 8;
    std::vector<Range> ranges(shape.size());
    for (size_t d = 0; d < ranges.size(); ++d) {
      constexpr int64_t steps[] = {1, 1, 1, 2, 4, -1, -4};
      ranges[d] = {random_bound(random, shape[d]), random_bound(random, shape[d]), steps[random() % std::size(steps)]};
    }
    bool cut = false;
    ASSERT_NO_FATAL_FAILURE(compare_with_model(dtypes[round % 3], shape, ranges, &cut)) << round;
    (cut ? refused : taken)++;
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(taken, 1000u);
}

TEST(Slice, OfSubByteElementsIsRefusedOnlyWhereItCutsAByte) {
  const uint64_t row[] = {8}, matrix[] = {4, 4}, odd_rows[] = {2, 3};
  auto make = [](Dtype dtype, std::span<const uint64_t> shape, std::vector<Range> ranges) {
    return SlicePlan::make(dtype, shape, ranges);
  };
  EXPECT_TRUE(is_ok(make(Dtype::F4, row, {{0, 2, 1}})));
  EXPECT_TRUE(is_ok(make(Dtype::F4, row, {{2, 8, 1}})));
  EXPECT_TRUE(fails_with(Status::subbyte, make(Dtype::F4, row, {{1, 3, 1}})));
  EXPECT_TRUE(fails_with(Status::subbyte, make(Dtype::F4, row, {{0, 1, 1}})));
  EXPECT_TRUE(fails_with(Status::subbyte, make(Dtype::F4, row, {{0, 8, 2}})));
  EXPECT_TRUE(fails_with(Status::subbyte, make(Dtype::F4, row, {{7, INT64_MIN, -1}})));
  EXPECT_TRUE(is_ok(make(Dtype::F4, matrix, {{3, INT64_MIN, -1}})));  // whole rows, backwards
  EXPECT_TRUE(is_ok(make(Dtype::F6_E3M2, matrix, {{1, 2, 1}})));
  EXPECT_TRUE(fails_with(Status::subbyte, make(Dtype::F6_E3M2, matrix, {{0, 4, 1}, {0, 2, 1}})));
  EXPECT_TRUE(fails_with(Status::subbyte, make(Dtype::F4, odd_rows, {{0, 1, 1}})));
  EXPECT_TRUE(is_ok(make(Dtype::F4, odd_rows, {{0, 2, 1}})));
  EXPECT_TRUE(is_ok(make(Dtype::F4, row, {{3, 3, 1}})));  // nothing cuts nothing
}

// Found by fuzzing: one element backwards is one element.
TEST(Slice, OfOneElementBackwardsCutsNothing) {
  const uint64_t shape[] = {8, 1, 5, 5};
  const Range ranges[] = {{-9, 8, 1}, {INT64_MAX, INT64_MIN + 1, -1}};
  auto plan = SlicePlan::make(Dtype::F6_E2M3, shape, ranges);
  ASSERT_TRUE(is_ok(plan));
  EXPECT_EQ(plan->run_count(), 1u);
  EXPECT_EQ(plan->nbytes(), 150u);
}

TEST(Slice, ContiguousPiecesAreOneRun) {
  const uint64_t shape[] = {10, 20, 30};
  auto whole = SlicePlan::make(Dtype::F32, shape, {});
  ASSERT_TRUE(is_ok(whole));
  EXPECT_EQ(whole->run_count(), 1u);
  const Range rows[] = {{2, 5, 1}};
  auto some = SlicePlan::make(Dtype::F32, shape, rows);
  ASSERT_TRUE(is_ok(some));
  EXPECT_EQ(some->run_count(), 1u);
  EXPECT_EQ(some->run_bytes(), 3u * 20 * 30 * 4);
  EXPECT_EQ(SlicePlan::Cursor(*some).source(), 2u * 20 * 30 * 4);
  const Range columns[] = {{0, 10, 1}, {3, 4, 1}};
  auto column = SlicePlan::make(Dtype::F32, shape, columns);
  ASSERT_TRUE(is_ok(column));
  EXPECT_EQ(column->run_count(), 10u);
  EXPECT_EQ(column->run_bytes(), 30u * 4);
}

TEST(Slice, RefusesStepZeroAndTooManyRanges) {
  const uint64_t shape[] = {4};
  const Range zero[] = {{0, 4, 0}}, two[] = {{0, 4, 1}, {0, 4, 1}}, one[] = {{0, 1, 1}};
  EXPECT_TRUE(fails_with(Status::invalid_argument, SlicePlan::make(Dtype::U8, shape, zero)));
  EXPECT_TRUE(fails_with(Status::out_of_range, SlicePlan::make(Dtype::U8, shape, two)));
  EXPECT_TRUE(fails_with(Status::out_of_range, SlicePlan::make(Dtype::U8, {}, one)));
  const uint64_t empty[] = {0, 4};
  const Range late_zero[] = {{0, 1, 1}, {0, 4, 0}};
  EXPECT_TRUE(fails_with(Status::invalid_argument, SlicePlan::make(Dtype::U8, empty, late_zero)));
}

TEST(Slice, OfAScalarIsTheScalar) {
  auto plan = SlicePlan::make(Dtype::F64, {}, {});
  ASSERT_TRUE(is_ok(plan));
  EXPECT_EQ(plan->nbytes(), 8u);
  EXPECT_EQ(plan->run_count(), 1u);
  EXPECT_TRUE(plan->shape().empty());
}

TEST(Slice, OfNothingIsNothing) {
  const uint64_t shape[] = {5, 0, 3};
  auto plan = SlicePlan::make(Dtype::F32, shape, {});
  ASSERT_TRUE(is_ok(plan));
  EXPECT_EQ(plan->nbytes(), 0u);
  EXPECT_TRUE(SlicePlan::Cursor(*plan).done());
  EXPECT_TRUE(std::ranges::equal(plan->shape(), shape));
}

TEST(Slice, DimensionsBeyondTheSignedRangeAreLegalWhereATensorIsEmpty) {
  const uint64_t shape[] = {0, UINT64_MAX};
  const Range ranges[] = {{0, INT64_MAX, 1}, {-1, INT64_MIN, -1}};
  auto plan = SlicePlan::make(Dtype::U8, shape, ranges);
  ASSERT_TRUE(is_ok(plan));
  EXPECT_EQ(plan->nbytes(), 0u);
  EXPECT_EQ(plan->shape()[0], 0u);
}

}  // namespace
}  // namespace st
