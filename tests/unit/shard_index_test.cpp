// The index of a sharded checkpoint: what is one, what is refused, and that it
// is spelled again as it was.
#include <gtest/gtest.h>

#include "format/header.h"
#include "format/shard_index.h"

namespace st {
namespace {

Result<ShardIndex> parse(std::string json) {
  const size_t n = json.size();
  json.resize(n + header_padding);
  return ShardIndex::parse(json.data(), n, 7);
}

Status refusal(const std::string &json) {
  auto index = parse(json);
  return index ? Status::ok : index.error().status;
}

TEST(ShardIndex, NumbersShardsByNameAndFindsTensors) {
  auto index = parse(R"({"weight_map":{"a":"m-2","b\u00e9":"m-1","c":"m-2"},"metadata":{"total_size":12}})");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->shards(), (std::vector<std::string>{"m-1", "m-2"}));
  EXPECT_EQ(index->counts(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(index->shard_of("a"), 1u);
  EXPECT_EQ(index->shard_of("b\xc3\xa9"), 0u);
  EXPECT_EQ(index->shard_of("z"), std::nullopt);
  EXPECT_EQ(index->total_size(), 12u);
}

TEST(ShardIndex, MetadataAreSpelledAsInTheJson) {
  auto index = parse(R"({"metadata":{"total_size": 1.50e3 ,"s":"x\ny","o":{"k":[1, 2]},"t":true},"weight_map":{}})");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->metadata_find("total_size"), "1.50e3");
  EXPECT_EQ(index->total_size(), std::nullopt);  // not a number of bytes as it should be: left as it is
  EXPECT_EQ(index->metadata_find("s"), "x\ny");
  EXPECT_EQ(index->metadata_find("o"), R"({"k":[1, 2]})");
  EXPECT_EQ(index->metadata_find("t"), "true");
  EXPECT_EQ(index->metadata_find("u"), std::nullopt);
}

TEST(ShardIndex, WhatIsNoIndexIsRefusedByName) {
  for (const char *json : {"", "[]", "{", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":["m"]}})",
                           R"({"weight_map":{},"weight_map":{}})", R"({"metadata":1,"weight_map":{}})", R"({"weight_map":{}} x)",
                           R"({"metadata":{"k":1,"k":2},"weight_map":{}})", R"({"weight_map":{},"x":[1,,2]})", "{\"weight_map\":{\"\xff\":\"m\"}}"})
    EXPECT_EQ(refusal(json), Status::shard_index) << json;
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"m","a":"n"}})"), Status::shard_duplicate);
  for (const char *shard : {"", ".", "..", "../m", "/m", "x/m", "x\\\\m", "m\\u0000"})
    EXPECT_EQ(refusal(std::string(R"({"weight_map":{"a":")") + shard + "\"}}"), Status::shard_path) << shard;
  EXPECT_EQ(refusal(R"({"metadata":null,"weight_map":{}})"), Status::ok);
}

// Deep nesting, and a hundred thousand tensors, are but input.
TEST(ShardIndex, HostileInputIsBounded) {
  EXPECT_EQ(refusal(R"({"weight_map":{},"x":)" + std::string(100000, '[')), Status::shard_index);
  std::string many = R"({"weight_map":{)";
  for (int i = 0; i < 100000; ++i) many += (i ? ",\"" : "\"") + std::to_string(i) + R"(":"s)" + std::to_string(i % 5000) + '"';
  auto index = parse(many + "}}");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->size(), 100000u);
  EXPECT_EQ(index->shards().size(), 5000u);
}

TEST(ShardIndex, IsSpelledAsStockSpellsIt) {
  const std::string stock =
      "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n    \"a\": \"m-2\",\n    \"b\": \"m-1\"\n  }\n}\n";
  auto index = parse(stock);
  ASSERT_TRUE(index);
  EXPECT_EQ(index->spell(), stock);
}

TEST(ShardIndex, ChangesKeepWhatIsNotKnown) {
  auto index = parse(R"({"weight_map":{"a":"m-2"},"metadata":{"n":1,"total_size":4},"else":{"x":[true]}})");
  ASSERT_TRUE(index);
  index->assign("b", "m-1");
  index->remove("a");
  index->set_metadata("n", "2");
  index->set_metadata("s", "2");
  index->set_total_size(8);
  auto again = parse(index->spell());
  ASSERT_TRUE(again) << again.error().message << index->spell();
  EXPECT_EQ(again->shards(), (std::vector<std::string>{"m-1"}));
  EXPECT_EQ(again->shard_of("b"), 0u);
  EXPECT_EQ(again->total_size(), 8u);
  EXPECT_NE(index->spell().find("\"n\": 2"), std::string::npos);    // a number stays one,
  EXPECT_NE(index->spell().find("\"s\": \"2\""), std::string::npos);  // a new value is a string
  EXPECT_NE(index->spell().find("\"else\": {\"x\":[true]}"), std::string::npos);
}

TEST(ShardIndex, KnowsTheNamesOfIndexes) {
  for (const char *name : {"model.safetensors.index.json", "/x/y.safetensors.index.json", "unet.safetensors.index.fp16.json"})
    EXPECT_TRUE(is_index_name(name)) << name;
  for (const char *name : {"model.safetensors", "index.json", "model.safetensors.index", "m.safetensors.index.json.bak", "a.safetensors.index.x.y.json"})
    EXPECT_FALSE(is_index_name(name)) << name;
}

}  // namespace
}  // namespace st
