// The list of old shards, as bytes, and the names of shards with a number: what is written is read again, and nothing
// is read that no commit wrote, or that would lead out of the folder.
#include <gtest/gtest.h>

#include "newfile/names.h"
#include "shards/old_list.h"

namespace st::write {
namespace {

std::vector<OldShard> two() {
  return {{"model-00001-of-00002.safetensors", 7, 100, 12345, 1000},
          {"with spaces and \xc3\xa9.g3.safetensors", UINT64_MAX, 0, 1, 2000}};
}

TEST(OldListTest, AListComesBackAsItWas) {
  EXPECT_EQ(parse_old_list(spell(two())), two());
  EXPECT_EQ(parse_old_list(spell({})), std::vector<OldShard>());
}

TEST(OldListTest, NothingIsReadFromADamagedOne) {
  const std::string good = spell(two());
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_old_list(good.substr(0, n))) << n;
  for (size_t i = 0; i < good.size(); ++i)
    for (const char c : {'\0', '\n', ' ', '9', 'x'}) {
      std::string bad = good;
      if (bad[i] == c) continue;
      bad[i] = c;
      EXPECT_FALSE(parse_old_list(bad)) << i;
    }
  EXPECT_FALSE(parse_old_list(good + "\n"));
  EXPECT_FALSE(parse_old_list(good + good));
}

// A writer of such a list can also write its hash.
TEST(OldListTest, WhatIsNoPlainNameOrComesTwiceIsRefused) {
  for (const std::string name :
       {"", ".", "..", "../other/model.safetensors", "/model.safetensors", "a/b.safetensors", "config.json"}) {
    EXPECT_FALSE(may_be_listed(name));
    EXPECT_FALSE(parse_old_list(spell({{name, 1, 2, 3, 4}}))) << name;
  }
  EXPECT_FALSE(may_be_listed(std::string("a\0.safetensors", 14)));
  EXPECT_FALSE(may_be_listed("a\n.safetensors"));
  EXPECT_FALSE(may_be_listed(std::string(256, 'a') + ".safetensors"));
  EXPECT_FALSE(parse_old_list(spell({{"a.safetensors", 1, 2, 3, 4}, {"a.safetensors", 5, 6, 7, 8}})));
}

TEST(OldListTest, LinesThatAreNoneAreRefusedUnderAGoodHash) {
  for (const std::string line :
       {"x", "x 1 2 3 b.safetensors", "1x 2 3 4 b.safetensors", "1 x 3 4 b.safetensors", "1 2 x 4 b.safetensors",
        "1 2 3 x b.safetensors", "1 2 3 b.safetensors", "99999999999999999999 2 3 4 b.safetensors"})
    EXPECT_FALSE(parse_old_list(spell({{"a.safetensors\n" + line, 1, 2, 3, 4}}))) << line;
  EXPECT_TRUE(parse_old_list(spell({{"a.safetensors\n1 2 3 4 b.safetensors", 1, 2, 3, 4}})));
}

TEST(GenerationTest, ANumberStandsBeforeTheSuffix) {
  const std::string shard = "model-00001-of-00004.safetensors", seventh = "model-00001-of-00004.g7.safetensors";
  EXPECT_EQ(with_generation(shard, 7), seventh);
  EXPECT_EQ(with_generation(seventh, 0), shard);
  EXPECT_EQ(with_generation(seventh, 12), "model-00001-of-00004.g12.safetensors");
  EXPECT_EQ(generation_of(seventh), 7u);
  EXPECT_EQ(generation_of(shard), 0u);
  EXPECT_EQ(with_generation("model.fp16.safetensors", 1), "model.fp16.g1.safetensors");
  EXPECT_EQ(with_generation("weights", 1), "weights.g1");
}

TEST(GenerationTest, WhatOnlyLooksLikeANumberIsPartOfTheName) {
  for (const std::string name : {"m.g.safetensors", "m.g07.safetensors", "m.g-1.safetensors", "m.gguf.safetensors",
                                 "m.g1x.safetensors", ".g1.safetensors", "m.g1234567890123456.safetensors", ""}) {
    EXPECT_EQ(generation_of(name), 0u) << name;
    EXPECT_EQ(with_generation(name, 0), name);
  }
}

TEST(GenerationTest, ATemporaryTellsWhatItIsOf) {
  EXPECT_EQ(target_of_temporary(".m.g1.safetensors.st-tmp-0123456789abcdef", temporary_infix), "m.g1.safetensors");
  for (const std::string_view name :
       {"m.safetensors", ".m.st-tmp-0123", ".st-tmp-0123456789abcdef", "m.st-tmp-0123456789abcdef", ""})
    EXPECT_EQ(target_of_temporary(name, temporary_infix), "") << name;
}

}  // namespace
}  // namespace st::write
