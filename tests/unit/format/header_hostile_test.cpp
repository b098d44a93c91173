// Headers made to hurt: large, deep, colliding. Each must be answered, and what
// an index keeps must grow no faster than the header.
#include <pthread.h>

#include "base/hash.h"
#include "bound.h"
#include "parse.h"
#include "sanitizers.h"

namespace st {
namespace {

using namespace testing;
using testing::parse;

const uint64_t share = testing::bounded(20, 5, 1);
const uint64_t most = max_header_bytes / share;

// One buffer for all; the helper parse() would copy 100 MB.
Result<Header> parse_filled(std::string_view front, char fill, std::string_view back, uint64_t data_bytes) {
  std::string room(most + header_padding, fill);
  room.replace(0, front.size(), front);
  room.replace(most - back.size(), back.size(), back);
  room[most] = '\0';
  return parse_header(room.data(), most, length_bytes + most + data_bytes, 1);
}

#if !defined(ST_UNDER_ASAN) && !defined(ST_UNDER_TSAN)  // which need more stack
// What nests takes no stack.
TEST(HostileHeader, ADeepOneIsReadOnASmallStack) {
  std::string deep;
  for (int i = 0; i < 60; ++i) deep += R"([{"k":)";
  deep += "1";
  for (int i = 0; i < 60; ++i) deep += "}]";
  const std::string json = R"({"a":{"x":)" + deep + R"(,"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  struct Job {
    const std::string &json;
    bool read = false;
  } job{json};
  pthread_attr_t small;
  pthread_attr_init(&small);
  if (pthread_attr_setstacksize(&small, size_t{64} << 10) != 0) {
    ASSERT_EQ(pthread_attr_setstacksize(&small, size_t{128} << 10), 0);  // the least on aarch64
  }
  pthread_t thread;
  auto body = [](void *given) -> void * {
    auto &j = *static_cast<Job *>(given);
    j.read = parse(j.json, 4).has_value();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &small, body, &job), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&small);
  EXPECT_TRUE(job.read);
}
#endif

TEST(HostileHeader, HundredMillionSpacesCostNoMemory) {
  auto padded = parse_filled("{}", ' ', "", 0);
  ASSERT_TRUE(is_ok(padded));
  EXPECT_LT(padded->index.memory_bytes(), 4096u);
  EXPECT_TRUE(fails_with(Status::header_json, parse_filled("", ' ', "", 0)));
  auto inside = parse_filled("{", ' ', R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  ASSERT_TRUE(is_ok(inside));
  EXPECT_LT(inside->index.memory_bytes(), 4096u);
}

TEST(HostileHeader, HundredMillionBracketsAreRefused) {
  EXPECT_TRUE(fails_with(Status::header_json, parse_filled("", '[', "", 0)));
  EXPECT_TRUE(fails_with(Status::header_json, parse_filled(R"({"a":{"x":)", '[', "", 0)));
  EXPECT_TRUE(fails_with(Status::header_json, parse_filled(R"({"a":{"x":)", '{', "", 0)));
}

TEST(HostileHeader, ANumberOfAHundredMillionDigitsIsRefused) {
  EXPECT_TRUE(fails_with(Status::tensor_info,
                         parse_filled(R"({"a":{"dtype":"U8","shape":[0.)", '0', R"(],"data_offsets":[0,0]}})", 0)));
  EXPECT_TRUE(fails_with(Status::header_json,
                         parse_filled(R"({"a":{"dtype":"U8","shape":[)", '9', R"(],"data_offsets":[0,0]}})", 0)));
  EXPECT_TRUE(fails_with(Status::header_json,
                         parse_filled(R"({"a":{"x":)", '9', R"(,"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0)));
  EXPECT_TRUE(is_ok(parse_filled(R"({"a":{"x":0.)", '9', R"(,"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0)));
}

TEST(HostileHeader, ANameOfFiftyMegabytesIsFound) {
  const std::string name(50'000'000 / share, 'n');
  auto r = parse("{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->index.find(name), 0u);
  EXPECT_EQ(r->index.find(name.substr(1)), std::nullopt);
  EXPECT_LT(r->index.memory_bytes(), 3 * name.size());
  // In a failure it is cut to something that fits a sentence.
  auto bad = parse("{\"" + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1);
  ASSERT_TRUE(fails_with(Status::size_mismatch, bad));
  EXPECT_LT(bad.error().message.size(), 1000u);
}

TEST(HostileHeader, AShapeOfFortyMillionDimensionsIsHeld) {
  auto r = parse_filled(R"({"a":{"dtype":"U8","shape":[0)", ' ', R"(],"data_offsets":[0,0]}})", 0);
  ASSERT_TRUE(is_ok(r));
  std::string ones;
  const size_t count = 20'000'000 / share;
  for (size_t i = 0; i < count; ++i) ones += ",1";
  auto many = parse(R"({"a":{"dtype":"U8","shape":[1)" + ones + R"(],"data_offsets":[0,1]}})", 1);
  ASSERT_TRUE(is_ok(many));
  EXPECT_EQ(many->index.at(0).shape.size(), count + 1);
  EXPECT_LT(many->index.memory_bytes(), 16 * (count + 1) + 4096);
}

std::string header_of(size_t count, bool escaped) {
  std::string json = "{";
  for (size_t i = 0; i < count; ++i)
    json += text(i ? "," : "", "\"", escaped ? "\\u0074" : "t", i,
                 "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[", i, ",", i + 1, "]}");
  return json + "}";
}

TEST(HostileHeader, AMillionTensorsCostMemoryLinearInTheHeader) {
  const size_t count = 1'000'000 / share;
  for (bool escaped : {false, true}) {
    const std::string json = header_of(count, escaped);
    auto r = parse(json, count);
    ASSERT_TRUE(is_ok(r));
    ASSERT_EQ(r->index.size(), count);
    EXPECT_LT(r->index.memory_bytes(), 3 * json.size());
    EXPECT_EQ(r->index.find(text("t", count - 1)), count - 1);
    EXPECT_EQ(r->index.find(text("t", count)), std::nullopt);
  }
}

TEST(HostileHeader, AMillionMetadataPairsOfOneKeyKeepTheLast) {
  std::string json = R"({"__metadata__":{"k":"0")";
  const size_t count = 1'000'000 / share;
  for (size_t i = 1; i < count; ++i) json += text(",\"k\":\"", i, "\"");
  json += "}}";
  auto r = parse(json, 0);
  ASSERT_TRUE(is_ok(r));
  ASSERT_EQ(r->index.metadata_size(), 1u);
  EXPECT_EQ(r->index.metadata_find("k"), text(count - 1));
  EXPECT_LT(r->index.memory_bytes(), 4 * json.size());
}

// Names that collide under one seed do not under another; and either way all
// are found. These collide in the low bits of the hash under seed 1.
TEST(HostileHeader, CollidingNamesAreFoundUnderEverySeed) {
  std::string json = "{";
  std::vector<std::string> names;
  for (size_t i = 0; names.size() < 2000; ++i) {
    const std::string name = text("w", i);
    if ((XXH3_64bits_withSeed(name.data(), name.size(), 1) & 255) != 7) continue;
    json += text(names.empty() ? "" : ",", "\"", name, "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[",
                 names.size(), ",", names.size() + 1, "]}");
    names.push_back(name);
  }
  json += "}";
  for (uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{0}, UINT64_MAX}) {
    auto r = parse(json, names.size(), seed);
    ASSERT_TRUE(is_ok(r));
    for (size_t i = 0; i < names.size(); ++i) ASSERT_EQ(r->index.find(names[i]), i) << names[i];
    for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(r->index.find(text("v", i)), std::nullopt);
  }
}

TEST(HostileHeader, OffsetsAtTheEndOf64BitsDoNotWrap) {
  auto tensor = [](uint64_t begin, uint64_t end, std::string_view shape) {
    return text("{\"a\":{\"dtype\":\"U8\",\"shape\":[", shape, "],\"data_offsets\":[", begin, ",", end, "]}}");
  };
  EXPECT_TRUE(fails_with(Status::shape_overflow, parse(tensor(0, UINT64_MAX, text(UINT64_MAX)), 16)));
  EXPECT_TRUE(
      fails_with(Status::truncated, parse(tensor(0, (uint64_t{1} << 61) - 1, text((uint64_t{1} << 61) - 1)), 16)));
  EXPECT_TRUE(fails_with(Status::hole, parse(tensor(UINT64_MAX, UINT64_MAX, "0"), 16)));
  EXPECT_TRUE(fails_with(Status::size_mismatch, parse(tensor(0, UINT64_MAX, "7"), 16)));
}

}  // namespace
}  // namespace st
