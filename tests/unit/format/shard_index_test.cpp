// The index of a sharded checkpoint: what is one, what is refused, and that it
// is spelled again as it was.
#include <gtest/gtest.h>

#include <algorithm>

#include "format/header.h"
#include "format/shard_index.h"
#include "os/env.h"
#include "proportion.h"
#include "test_files.h"

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
  EXPECT_EQ(index->total(total_size_key), 12u);
}

TEST(ShardIndex, MetadataAreSpelledAsInTheJson) {
  auto index = parse(R"({"metadata":{"total_size": 1.50e3 ,"s":"x\ny","o":{"k":[1, 2]},"t":true},"weight_map":{}})");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->metadata_find("total_size"), "1.50e3");
  EXPECT_EQ(index->total(total_size_key), 1500u);
  EXPECT_EQ(index->metadata_find("s"), "x\ny");
  EXPECT_EQ(index->metadata_find("o"), R"({"k":[1, 2]})");
  EXPECT_EQ(index->metadata_find("t"), "true");
  EXPECT_EQ(index->metadata_find("u"), std::nullopt);
}

TEST(ShardIndex, WhatIsNoIndexIsRefusedByName) {
  for (const char *json :
       {"", "[]", "{", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":["m"]}})",
        R"({"weight_map":{},"weight_map":{}})", R"({"metadata":1,"weight_map":{}})", R"({"weight_map":{}} x)",
        R"({"metadata":{"k":1,"k":2},"weight_map":{}})", R"({"weight_map":{},"x":[1,,2]})",
        "{\"weight_map\":{\"\xff\":\"m\"}}"})
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
  for (int i = 0; i < 100000; ++i)
    many += (i ? ",\"" : "\"") + std::to_string(i) + R"(":"s)" + std::to_string(i % 5000) + '"';
  auto index = parse(many + "}}");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->size(), 100000u);
  EXPECT_EQ(index->shards().size(), 5000u);
}

TEST(ShardIndex, IsSpelledAsStockSpellsIt) {
  const std::string stock =
      "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n    \"a\": \"m-2\",\n    \"b\": "
      "\"m-1\"\n  }\n}\n";
  auto index = parse(stock);
  ASSERT_TRUE(index);
  EXPECT_EQ(index->spell(), stock);
}

// Stock opens an index by the encoding of the locale, and json.dumps writes ASCII.
TEST(ShardIndex, NamesBeyondAsciiAreEscapedAsStockEscapesThem) {
  const std::string stock =
      "{\n  \"f\\u00fcr\": 1,\n  \"metadata\": {\n    \"\\u5c64\": \"\\u00e9\\ud83d\\ude00\"\n  },\n  \"weight_map\": "
      "{\n    \"a\\u007f~ \\b\\f\\n\\r\\t\\u0001\\\"\\\\/\": \"m-\\ud800\\udc00\",\n    \"b\\u00e9\": "
      "\"m-\\udbff\\udfff\",\n    "
      "\"c\\u0080\\u07ff\\u0800\\uffff\": \"m-1\"\n  }\n}\n";
  auto index = parse(stock);
  ASSERT_TRUE(testing::is_ok(index));
  EXPECT_EQ(index->shard_of("b\xc3\xa9"), 2u);
  EXPECT_EQ(index->spell(), stock);
  index->set_metadata("\xe5\xb1\xa4", "\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(index->spell(), stock);
  auto plain = parse("{\"metadata\":{\"o\":{\"\xc3\xa9\":1}},\"weight_map\":{\"b\xc3\xa9\":\"m\xf0\x9f\x98\x80\"}}");
  ASSERT_TRUE(testing::is_ok(plain));
  EXPECT_EQ(plain->spell(),
            "{\n  \"metadata\": {\n    \"o\": {\"\xc3\xa9\":1}\n  },\n  \"weight_map\": {\n    \"b\\u00e9\": "
            "\"m\\ud83d\\ude00\"\n  }\n}\n");
}

// json.loads(…)["metadata"] must be there, where it was.
TEST(ShardIndex, AnEmptyObjectOfMetadataStays) {
  const std::string empty = "{\n  \"metadata\": {},\n  \"weight_map\": {}\n}\n";
  auto index = parse(R"({"metadata":{ },"weight_map":{}})");
  ASSERT_TRUE(testing::is_ok(index));
  EXPECT_EQ(index->spell(), empty);
  index->set_metadata("k", "v");
  index->set_metadata("k", std::nullopt);
  EXPECT_EQ(index->spell(), empty);
  auto one = parse(R"({"metadata":{"k":1},"weight_map":{}})");
  one->set_metadata("k", std::nullopt);
  EXPECT_EQ(one->spell(), empty);
  EXPECT_EQ(parse(R"({"weight_map":{}})")->spell(), "{\n  \"weight_map\": {}\n}\n");
}

TEST(ShardIndex, ChangesKeepWhatIsNotKnown) {
  auto index = parse(R"({"weight_map":{"a":"m-2"},"metadata":{"n":1,"total_size":4},"else":{"x":[true]}})");
  ASSERT_TRUE(index);
  index->assign("b", "m-1");
  index->remove("a");
  index->set_metadata("n", "2");
  index->set_metadata("s", "2");
  index->set_total(total_size_key, 8);
  auto again = parse(index->spell());
  ASSERT_TRUE(again) << again.error().message << index->spell();
  EXPECT_EQ(again->shards(), (std::vector<std::string>{"m-1"}));
  EXPECT_EQ(again->shard_of("b"), 0u);
  EXPECT_EQ(again->total(total_size_key), 8u);
  EXPECT_NE(index->spell().find("\"n\": 2"), std::string::npos);      // a number stays one,
  EXPECT_NE(index->spell().find("\"s\": \"2\""), std::string::npos);  // a new value is a string
  EXPECT_NE(index->spell().find("\"else\": {\"x\":[true]}"), std::string::npos);
}

TEST(ShardIndex, TotalSizeIsAWholeNumberOrNone) {
  const std::pair<const char *, std::optional<uint64_t>> spelled[] = {{"0", 0},
                                                                      {"9999999999999999999", 9999999999999999999u},
                                                                      {"18446744073709551615", UINT64_MAX},
                                                                      {"18446744073709551616", {}},
                                                                      {"99999999999999999999", {}},
                                                                      {"\"12\"", 12},
                                                                      {"\"99999999999999999999\"", {}},
                                                                      {"\"\"", {}},
                                                                      {"\"12a\"", {}},
                                                                      {"\"12 \"", {}},
                                                                      {"-1", {}},
                                                                      {"-1.0", {}},
                                                                      {"-0.0", 0},
                                                                      {"0e999999999999", 0},
                                                                      {"160.0", 160},
                                                                      {"\"160.0\"", 160},
                                                                      {"1.6e2", 160},
                                                                      {"1.6E+0002", 160},
                                                                      {"1600e-1", 160},
                                                                      {"100000000000000000000000e-20", 1000},
                                                                      {"0.00000000000000000000016e24", 160},
                                                                      {"160.5", {}},
                                                                      {"160e-2", {}},
                                                                      {"1e19", 10000000000000000000u},
                                                                      {"1e20", {}},
                                                                      {"1e999", {}},
                                                                      {"1e2147483647", {}},
                                                                      {"1e-2147483647", {}},
                                                                      {"1e99999999999999999999", {}},
                                                                      {"[12]", {}},
                                                                      {"{\"a\":1}", {}},
                                                                      {"null", {}}};
  for (const auto &[json, wanted] : spelled) {
    auto index = parse(std::string(R"({"metadata":{"total_size":)") + json + "},\"weight_map\":{}}");
    ASSERT_TRUE(index) << json;
    EXPECT_EQ(index->total(total_size_key), wanted) << json;
  }
  EXPECT_EQ(parse(R"({"weight_map":{}})")->total(total_size_key), std::nullopt);
}

// What a field says that nobody looks at may be any number of JSON's, and stays.
TEST(ShardIndex, NumbersMayHaveAnySize) {
  const std::string metadata = "{\n    \"m\": -123456789012345678901234567890,\n    \"s\": \"x\\\"1e999\"\n  }";
  const std::string unknown = R"({"deep":[18446744073709551616,1e999, -0.5E-99999,"\\",2],"t":true})";
  for (const std::string number : {"18446744073709551616", "1e999", "-1e999", "1e-999", "7"}) {
    const std::string json = "{\n  \"metadata\": " + metadata + ",\n  \"n\": " + number + ",\n  \"o\": " + unknown +
                             ",\n  \"weight_map\": {\n    \"1e999\": \"m-2\"\n  }\n}\n";
    auto index = parse(json);
    ASSERT_TRUE(testing::is_ok(index)) << json;
    EXPECT_EQ(index->spell(), json);
    index->set_metadata("m", "5");
    EXPECT_EQ(index->metadata()[0].json, "5");  // still a number
  }
  for (const char *number :
       {"+1",  "01",        "1.",      ".5",     "1e",     "1e+",       "-",           "1-2",
        "--1", "1.2.3",     "1e5e5",   "0x10",   "1e999x", "1e999true", "1e999 1e999", "1e999\"a\"",
        "NaN", "-Infinity", "\"1e999", "1e999,", "1e999]", "tru1e999",  "[1e999"}) {
    EXPECT_EQ(refusal(std::string(R"({"weight_map":{},"n":)") + number + "}"), Status::shard_index) << number;
    EXPECT_EQ(refusal(std::string(R"({"weight_map":{},"x":[1e999],"n":)") + number + "}"), Status::shard_index)
        << number;
  }
  EXPECT_EQ(refusal("{\"weight_map\":{},\"x\":1e999,\"y\":\"\xff\"}"), Status::shard_index);
  EXPECT_EQ(refusal(R"({"weight_map":{},"x":[1e999,)" + std::string(100000, '[')), Status::shard_index);
}

TEST(ShardIndex, ATotalFollowsIfItIsThere) {
  auto index = parse(R"({"metadata":{"total_size":10,"total_parameters":"7"},"weight_map":{}})");
  ASSERT_TRUE(index);
  index->add_to_total(total_size_key, 5);
  index->add_to_total(total_parameters_key, -7);
  EXPECT_EQ(index->metadata_find("total_size"), "15");
  EXPECT_EQ(index->metadata_find("total_parameters"), "0");
  index->add_to_total(total_size_key, -16);  // it was too small
  EXPECT_EQ(index->metadata_find("total_size"), "0");
  auto odd = parse(R"({"metadata":{"total_size":1.6e2,"total_parameters":18446744073709551615},"weight_map":{}})");
  odd->add_to_total(total_size_key, 0);
  EXPECT_EQ(odd->metadata_find("total_size"), "1.6e2");
  odd->add_to_total(total_size_key, -40);
  EXPECT_EQ(odd->metadata()[0].json, "120");
  odd->add_to_total(total_parameters_key, 1);
  EXPECT_EQ(odd->total(total_parameters_key), UINT64_MAX);
  auto without = parse(R"({"metadata":{"total_parameters":1.5},"weight_map":{}})");
  without->add_to_total(total_size_key, 5);
  without->add_to_total(total_parameters_key, 5);
  EXPECT_EQ(without->metadata_find("total_size"), std::nullopt);
  EXPECT_EQ(without->metadata_find("total_parameters"), "1.5");
}

TEST(ShardIndex, NoFieldComesTwice) {
  EXPECT_EQ(refusal(R"({"metadata":{},"weight_map":{},"metadata":{}})"), Status::shard_index);
  EXPECT_EQ(refusal(R"({"x":1,"weight_map":{},"x":1})"), Status::shard_index);
}

TEST(ShardIndex, ValuesOfAnyTypeAreKeptAsTheyAreSpelled) {
  auto index =
      parse("{\"metadata\":{\"list\": [1, {}]\r\n\t ,\"n\": -0.0 \t},\"weight_map\":{},\"x\":[ ] ,\"y\": null }");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->metadata_find("list"), "[1, {}]");
  EXPECT_EQ(index->metadata_find("n"), "-0.0");
  EXPECT_NE(index->spell().find("\"x\": [ ]"), std::string::npos);
  EXPECT_NE(index->spell().find("\"y\": null"), std::string::npos);
  EXPECT_NE(index->spell().find("\"weight_map\": {}"), std::string::npos);
}

TEST(ShardIndex, FindsEachKeyAfterOthersWereRemoved) {
  auto index = parse(R"({"metadata":{"a":1,"b":2,"c":3,"d":4},"weight_map":{}})");
  ASSERT_TRUE(index.has_value());
  for (const char *key : {"b", "d", "z"}) index->set_metadata(key, std::nullopt);
  index->set_metadata("e", "5");
  index->set_metadata("c", "6");
  EXPECT_EQ(index->metadata_find("a"), "1");
  EXPECT_EQ(index->metadata_find("b"), std::nullopt);
  EXPECT_EQ(index->metadata_find("c"), "6");
  EXPECT_EQ(index->metadata_find("d"), std::nullopt);
  EXPECT_EQ(index->metadata_find("e"), "5");
  EXPECT_EQ(index->metadata().size(), 3u);
}

TEST(ShardIndex, ManyKeysTakeWorkInProportion) {
  const auto cost_of = [](size_t n) {
    ShardIndex index = parse(R"({"weight_map":{}})").value();
    return testing::thread_ns_of([&] {
      for (const auto value : {std::optional<std::string_view>("1"), std::optional<std::string_view>("2"),
                               std::optional<std::string_view>()})
        for (size_t i = 0; i < n; ++i) index.set_metadata(text("key ", i), value);
      EXPECT_EQ(index.metadata().size(), 0u);
    });
  };
  testing::expect_in_proportion(cost_of);
}

TEST(ShardIndex, ShardsThatComeLeaveTensorsWhereTheyAre) {
  ShardIndex index = ShardIndex::of({"b", "d"}, 0);
  index.assign("t1", "b");
  index.assign("t2", "d");
  index.assign("t3", "d");
  index.add_shards({"e", "c", "d", "a", "c"});
  EXPECT_EQ(index.shards(), (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(index.counts(), (std::vector<uint64_t>{0, 1, 0, 2, 0}));
  EXPECT_EQ(index.shard_of("t1"), 1u);
  EXPECT_EQ(index.shard_of("t3"), 3u);
}

// What a reader would refuse is not written.
TEST(ShardIndex, IsSpelledSoThatItCanBeRead) {
  ShardIndex index = parse(R"({"metadata": {"n": 5}, "weight_map": {"a": "1"}})").value();
  for (const char *number : {"18446744073709551615", "-9223372036854775808", "1.5e300", "0.1e-400"}) {
    index.set_metadata("n", number);
    EXPECT_EQ(index.metadata()[0].json, number);
    EXPECT_TRUE(testing::is_ok(parse(index.spell_readable().value())));
  }
  for (const char *number : {"18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"}) {
    ShardIndex other = index;
    other.set_metadata("n", number);
    EXPECT_EQ(other.metadata()[0].json, text("\"", number, "\""));
    EXPECT_EQ(parse(other.spell_readable().value())->metadata_find("n"), number);
  }
  for (const auto &[key, value] :
       {std::pair("k\xff", "v"), std::pair("k", "\xc3"), std::pair("k", "\xed\xa0\x80"), std::pair("k", "\xc0\x80"),
        std::pair("\xf4\x90\x80\x80", "v"), std::pair("k", "\xe2\x82\xc3\xa9"), std::pair("k", "\x80")}) {
    ShardIndex other = index;
    other.set_metadata(key, value);
    EXPECT_TRUE(testing::fails_with(Status::header_utf8, other.spell_readable()));
  }
}

TEST(ShardIndex, RefusesToSpellOneThatIsLonger) {
  ShardIndex index = parse(R"({"metadata": {"n": 5}, "weight_map": {"a": "1"}})").value();
  index.set_metadata("n", std::string(max_index_bytes, 'x'));
  EXPECT_TRUE(testing::fails_with(Status::header_too_large, index.spell_readable()));
}

TEST(ShardIndex, MetadataAndTensorsGo) {
  auto index = parse(R"({"weight_map":{"a":"m-1","b":"m-2"},"metadata":{"k":"v","n":1}})");
  ASSERT_TRUE(index);
  index->set_metadata("k", std::nullopt);
  index->set_metadata("none", std::nullopt);
  index->set_metadata("n", "many");  // no number any more
  index->remove("none");
  index->assign("a", "m-1");
  EXPECT_EQ(index->counts(), (std::vector<uint64_t>{1, 1}));
  index->assign("a", "m-2");
  EXPECT_EQ(index->counts(), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(index->metadata_find("k"), std::nullopt);
  auto again = parse(index->spell());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->shards(), (std::vector<std::string>{"m-2"}));
  EXPECT_EQ(again->metadata_find("n"), "many");
  EXPECT_EQ(again->metadata().size(), 1u);
}

TEST(ShardIndex, MemoryGrowsWithTheNames) {
  const auto small = parse(R"({"weight_map":{"a":"m"}})");
  const auto large = parse(R"({"weight_map":{"a":"m","b)" + std::string(1000, 'b') + R"(":"m"}})");
  EXPECT_GT(large->memory_bytes(), small->memory_bytes() + 1000);
}

TEST(ShardIndex, KnowsTheNamesOfIndexes) {
  for (const char *name :
       {"model.safetensors.index.json", "/x/y.safetensors.index.json", "unet.safetensors.index.fp16.json"})
    EXPECT_TRUE(is_index_name(name)) << name;
  for (const char *name :
       {"model.safetensors", "index.json", "model.safetensors.index", "m.safetensors.index.json.bak",
        "a.safetensors.index.x.y.json", "a.safetensors.index.json/", "a.safetensors.index..json.json"})
    EXPECT_FALSE(is_index_name(name)) << name;
}

}  // namespace
}  // namespace st
