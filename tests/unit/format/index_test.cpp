// The catalogue of a file: names to tensors, in the order of their bytes.
#include <random>

#include "parse.h"

namespace st {
namespace {

using testing::is_ok;
using testing::parse;

TEST(Index, TensorsComeInTheOrderOfTheirBytes) {
  auto r = parse(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[6,8]},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("c":{"dtype":"I16","shape":[1],"data_offsets":[4,6]}})",
      8);
  ASSERT_TRUE(is_ok(r));
  ASSERT_EQ(r->index.size(), 3u);
  EXPECT_EQ(r->index.at(0).name, "b");
  EXPECT_EQ(r->index.at(1).name, "c");
  EXPECT_EQ(r->index.at(2).name, "a");
  EXPECT_EQ(r->index.at(2).begin, 6u);
  EXPECT_EQ(r->index.data_bytes(), 8u);
  EXPECT_EQ(r->index.find("a"), 2u);
}

TEST(Index, ZeroSizeTensorsLieBeforeTheTensorThatBeginsThere) {
  auto r = parse(
      R"({"full":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"z1":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
      R"("z2":{"dtype":"F64","shape":[3,0,2],"data_offsets":[4,4]},"z3":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
      4);
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->index.at(0).name, "z1");  // equal offsets: in the order of the header
  EXPECT_EQ(r->index.at(1).name, "z3");
  EXPECT_EQ(r->index.at(2).name, "full");
  EXPECT_EQ(r->index.at(3).name, "z2");
  EXPECT_EQ(r->index.at(3).nbytes, 0u);
  EXPECT_EQ(r->index.at(3).shape.size(), 3u);
}

TEST(Index, AScalarHasAShapePointer) {
  auto r = parse(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4);
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->index.at(0).shape.size(), 0u);
  EXPECT_NE(r->index.at(0).shape.data(), nullptr);
}

TEST(Index, NamesMayHoldNulAndAreTerminatedAnyway) {
  auto r = parse(
      R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
      R"("a\u0000":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
      3);
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->index.find(std::string_view("a\0b", 3)), 0u);
  EXPECT_EQ(r->index.find("a"), 1u);
  EXPECT_EQ(r->index.find(std::string_view("a\0", 2)), 2u);
  EXPECT_EQ(r->index.find(std::string_view("a\0c", 3)), std::nullopt);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(r->index.at(i).name.data()[r->index.at(i).name.size()], '\0');
}

TEST(Index, NamesAreOnePieceWhereTheyLieInTheirOrder) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})",
                    metadata = R"("__metadata__":{"k":"v"})",
                    bc = R"("bc":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
  const auto names = [](const std::string &entries, size_t bytes) -> std::optional<std::string> {
    auto r = parse("{" + entries + "}", bytes);
    EXPECT_TRUE(is_ok(r));
    if (!r || !r->index.names()) return std::nullopt;
    return std::string(*r->index.names());
  };
  const std::string both("a\0bc\0", 5);
  EXPECT_EQ(names(a + "," + bc, 2), both);
  EXPECT_EQ(names(metadata + "," + a + "," + bc, 2), both);
  EXPECT_EQ(names(a + "," + bc + "," + metadata, 2), both);
  EXPECT_EQ(names(a + "," + metadata + "," + bc, 2), std::nullopt);
  EXPECT_EQ(names(bc + "," + a, 2), std::nullopt);
  EXPECT_EQ(names("", 0), std::nullopt);
}

TEST(Index, MissingNamesAreNotFound) {
  auto empty = parse("{}", 0);
  ASSERT_TRUE(is_ok(empty));
  EXPECT_EQ(empty->index.size(), 0u);
  EXPECT_EQ(empty->index.find(""), std::nullopt);
  EXPECT_EQ(empty->index.find("a"), std::nullopt);
  auto one = parse(R"({"abc":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  ASSERT_TRUE(is_ok(one));
  for (const char *name : {"", "a", "ab", "abcd", "ABC", "__metadata__"})
    EXPECT_EQ(one->index.find(name), std::nullopt) << name;
}

TEST(Index, MetadataKeepsItsOrderAndTheLastOfEqualKeys) {
  auto r = parse(R"({"__metadata__":{"z":"1","a":"2","z":"3","m\u0000":"","b":"x\u0000y"}})", 0);
  ASSERT_TRUE(is_ok(r));
  const Index &index = r->index;
  ASSERT_EQ(index.metadata_size(), 4u);
  EXPECT_EQ(index.metadata_at(0).first, "a");
  EXPECT_EQ(index.metadata_at(1).first, "z");
  EXPECT_EQ(index.metadata_at(1).second, "3");
  EXPECT_EQ(index.metadata_find("z"), "3");
  EXPECT_EQ(index.metadata_find("a"), "2");
  EXPECT_EQ(index.metadata_find(std::string_view("m\0", 2)), "");
  EXPECT_EQ(index.metadata_find("m"), std::nullopt);
  EXPECT_EQ(index.metadata_find("b"), std::string_view("x\0y", 3));
  EXPECT_EQ(index.metadata_find(""), std::nullopt);
  EXPECT_EQ(index.metadata_at(0).second.data()[index.metadata_at(0).second.size()], '\0');
}

TEST(Index, ATensorMayBeNamedAsAMetadataKey) {
  auto r = parse(R"({"__metadata__":{"a":"text"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->index.find("a"), 0u);
  EXPECT_EQ(r->index.find("text"), std::nullopt);
  EXPECT_EQ(r->index.metadata_find("a"), "text");
}

// At every size around the powers of two where the table grows.
TEST(Index, FindsEveryNameAtEverySize) {
  for (size_t count = 1; count < 300; ++count) {
    std::string json = "{";
    for (size_t i = 0; i < count; ++i)
      json += text(i ? "," : "", "\"t", i * 7919, "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[",
                   count - 1 - i, ",", count - i, "]}");
    auto r = parse(json + "}", count, count);
    ASSERT_TRUE(is_ok(r));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(r->index.find(text("t", i * 7919)), count - 1 - i);
      ASSERT_EQ(r->index.find(text("t", i * 7919 + 1)), std::nullopt);
    }
  }
}

}  // namespace
}  // namespace st
