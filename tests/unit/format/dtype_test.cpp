// The 22 element types: their names, numbers, sizes and order are part of the format
// and of the ABI, so they stand here once more.
#include <set>

#include "format/dtype.h"
#include "format/index.h"
#include "newfile/layout.h"
#include "test_files.h"

namespace st {
namespace {

using namespace testing;

struct Known {
  const char *name;
  uint32_t number, bits;
};
constexpr Known known[] = {
    {"BOOL", 1, 8},         {"F4", 2, 4},      {"F6_E2M3", 3, 6}, {"F6_E3M2", 4, 6}, {"U8", 5, 8},
    {"I8", 6, 8},           {"F8_E5M2", 7, 8}, {"F8_E4M3", 8, 8}, {"F8_E8M0", 9, 8}, {"F8_E4M3FNUZ", 10, 8},
    {"F8_E5M2FNUZ", 11, 8}, {"I16", 12, 16},   {"U16", 13, 16},   {"F16", 14, 16},   {"BF16", 15, 16},
    {"I32", 16, 32},        {"U32", 17, 32},   {"F32", 18, 32},   {"C64", 19, 64},   {"F64", 20, 64},
    {"I64", 21, 64},        {"U64", 22, 64},
};

TEST(Dtype, EveryOneHasItsNameNumberAndBits) {
  EXPECT_EQ(std::size(known), dtype_count);
  for (const Known &k : known) {
    SCOPED_TRACE(k.name);
    ASSERT_TRUE(is_dtype(k.number));
    const auto dtype = static_cast<Dtype>(k.number);
    EXPECT_EQ(dtype_name(dtype), k.name);
    EXPECT_EQ(dtype_name(dtype).data()[dtype_name(dtype).size()], '\0');
    EXPECT_EQ(dtype_bits(dtype), k.bits);
    EXPECT_EQ(parse_dtype(k.name), dtype);
  }
}

// As the crate safetensors 0.8 declares them, by which it sorts what it writes.
constexpr const char *reference_order[] = {
    "BOOL", "F4",  "F6_E2M3", "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
    "I16",  "U16", "F16",     "BF16",    "I32", "U32", "F32",     "C64",     "F64",     "I64",         "U64",
};

TEST(Dtype, EveryOneHasARankOfItsOwn) {
  std::set<uint32_t> ranks;
  for (uint32_t number = 1; number <= dtype_count; ++number) ranks.insert(dtype_rank(static_cast<Dtype>(number)));
  EXPECT_EQ(ranks.size(), dtype_count);
  EXPECT_EQ(*ranks.begin(), 0u);
  EXPECT_EQ(*ranks.rbegin(), dtype_count - 1);
}

TEST(Dtype, CanonicalOrderIsTheReferences) {
  ASSERT_EQ(std::size(reference_order), dtype_count);
  for (size_t i = 0; i < std::size(reference_order); ++i)
    for (size_t j = 0; j < std::size(reference_order); ++j) {
      SCOPED_TRACE(text(reference_order[i], " and ", reference_order[j]));
      const auto a = parse_dtype(reference_order[i]), b = parse_dtype(reference_order[j]);
      ASSERT_TRUE(a && b);
      EXPECT_EQ(dtype_rank(*a) < dtype_rank(*b), i < j);
      // From the last to the first, and by name where it is the same.
      EXPECT_EQ(write::canonical_before(*a, "a", *b, "b"), i >= j);
      EXPECT_EQ(write::canonical_before(*a, "b", *b, "a"), i > j);
    }
}

TEST(Dtype, NothingElseIsOne) {
  for (uint32_t number : {0u, dtype_count + 1, 255u, UINT32_MAX}) EXPECT_FALSE(is_dtype(number));
  for (const char *name : {"", "f32", "F32 ", " F32", "F3", "F322", "F8", "BF32", "C128", "BOOL\t", "float32"})
    EXPECT_EQ(parse_dtype(name), std::nullopt) << name;
  EXPECT_EQ(parse_dtype(std::string_view("F32\0", 4)), std::nullopt);
}

TEST(Dtype, SizeOfATensorIsTheProductOfItsShape) {
  for (const Known &k : known) {
    const auto dtype = static_cast<Dtype>(k.number);
    const uint64_t shape[] = {3, 8, 5};
    auto n = tensor_nbytes(dtype, shape);
    ASSERT_TRUE(is_ok(n)) << k.name;
    EXPECT_EQ(*n, 120 * k.bits / 8) << k.name;
    const uint64_t empty[] = {7, 0};
    EXPECT_EQ(tensor_nbytes(dtype, empty).value(), 0u) << k.name;
  }
  EXPECT_EQ(tensor_nbytes(Dtype::F64, {}).value(), 8u);
}

TEST(Dtype, SubByteElementsMustFillWholeBytes) {
  const uint64_t odd[] = {3}, four[] = {4}, six[] = {6};
  EXPECT_TRUE(fails_with(Status::subbyte, tensor_nbytes(Dtype::F4, odd)));
  EXPECT_TRUE(fails_with(Status::subbyte, tensor_nbytes(Dtype::F4, {})));
  EXPECT_EQ(tensor_nbytes(Dtype::F4, four).value(), 2u);
  EXPECT_TRUE(fails_with(Status::subbyte, tensor_nbytes(Dtype::F6_E2M3, six)));
  EXPECT_EQ(tensor_nbytes(Dtype::F6_E3M2, four).value(), 3u);
}

TEST(Dtype, SizesBeyond64BitsOfBitsOverflow) {
  const uint64_t two61[] = {uint64_t{1} << 61}, just_fits[] = {(uint64_t{1} << 61) - 1};
  EXPECT_TRUE(fails_with(Status::shape_overflow, tensor_nbytes(Dtype::U8, two61)));
  EXPECT_EQ(tensor_nbytes(Dtype::U8, just_fits).value(), (uint64_t{1} << 61) - 1);
  // As the reference, in the order of the dimensions: a zero that comes late does not save it.
  const uint64_t late[] = {uint64_t{1} << 63, 4, 0}, early[] = {0, uint64_t{1} << 63, 4};
  EXPECT_TRUE(fails_with(Status::shape_overflow, tensor_nbytes(Dtype::U8, late)));
  EXPECT_EQ(tensor_nbytes(Dtype::U8, early).value(), 0u);
}

}  // namespace
}  // namespace st
