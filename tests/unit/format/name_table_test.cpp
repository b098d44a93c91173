// A table of names against the map of the standard library.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "format/name_table.h"

namespace st {
namespace {

std::map<std::string, uint32_t> all_of(const NameTable &table) {
  std::map<std::string, uint32_t> all;
  table.each([&](std::string_view name, uint32_t number) { EXPECT_TRUE(all.emplace(name, number).second) << name; });
  return all;
}

TEST(NameTable, IsAMap) {
  std::mt19937 random(5);
  NameTable table(7);
  std::map<std::string, uint32_t> expected;
  for (uint32_t i = 0; i < 20000; ++i) {
    const std::string name = random() % 50 == 0 ? std::string() : text("name ", random() % 3000);
    const auto found = expected.find(name);
    const auto before = found == expected.end() ? std::nullopt : std::optional(found->second);
    ASSERT_EQ(table.find(name), before);
    if (random() % 3 == 0) {
      ASSERT_EQ(table.remove(name), before);
      expected.erase(name);
    } else {
      ASSERT_EQ(table.set(name, i), before);
      expected[name] = i;
    }
    ASSERT_EQ(table.size(), expected.size());
  }
  EXPECT_EQ(all_of(table), expected);
  const NameTable copy = table;
  table.renumber([](uint32_t number) { return number + 1; });
  EXPECT_EQ(all_of(copy), expected);
  for (auto &[name, number] : expected) ++number;
  EXPECT_EQ(all_of(table), expected);
}

TEST(NameTable, KeepsTheOrderInWhichNamesCame) {
  NameTable table(7);
  EXPECT_EQ(table.find("a"), std::nullopt);
  EXPECT_EQ(table.remove("a"), std::nullopt);
  for (const char *name : {"c", "a", "b"}) table.set(name, 1);
  table.remove("a");
  std::string names;
  table.each([&](std::string_view name, uint32_t) { names += name; });
  EXPECT_EQ(names, "cb");
}

}  // namespace
}  // namespace st
