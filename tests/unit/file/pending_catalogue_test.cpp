// The catalogue of a transaction that changes the layout: what each step makes of it, and what it refuses.
#include "file/pending_catalogue.h"

#include <algorithm>

#include "colliding_names.h"
#include "os/env.h"
#include "parse.h"
#include "proportion.h"

namespace st::store {
namespace {

using namespace testing;

class PendingCatalogueTest : public ::testing::Test {
 protected:
  static Index index_of(const std::string &json, uint64_t data_bytes) {
    auto header = testing::parse(json, data_bytes);
    EXPECT_TRUE(is_ok(header));
    return std::move(header->index);
  }
  static Change bytes(Change::Kind kind, std::string name, uint64_t n, size_t payload = 0) {
    return {kind, std::move(name), {}, {Dtype::U8, {n}, n}, payload};
  }
  // Names in the order of the file, each with its size, and + if its bytes are new.
  static std::string said_by(const PendingCatalogue &draft) {
    std::string out;
    for (const PendingTensor *t : draft.tensors())
      out += text(out.empty() ? "" : " ", t->name, ":", t->form.nbytes, t->payload ? "+" : "");
    return out;
  }

  const Index index = index_of(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]},"c":{"dtype":"U8","shape":[6],"data_offsets":[12,18]},)"
      R"("none":{"dtype":"U8","shape":[0],"data_offsets":[18,18]}})",
      18);
};

TEST_F(PendingCatalogueTest, KeepsTheOrderOfTheFileAndAddsAtItsEnd) {
  PendingCatalogue draft(index, 1, "/m/file");
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "d", 3))));
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "b", 9))));
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::update, "a", 8))));
  ASSERT_TRUE(is_ok(draft.apply({Change::remove, "c", {}})));
  ASSERT_TRUE(is_ok(draft.apply({Change::rename, "none", "nothing"})));
  EXPECT_EQ(said_by(draft), "a:8+ b:9+ nothing:0 d:3+");
  EXPECT_EQ(draft.find("c"), nullptr);
  ASSERT_NE(draft.find("nothing"), nullptr);
  EXPECT_EQ(draft.find("nothing")->begin, 18u);
}

TEST_F(PendingCatalogueTest, ChangesMetadataInTheOrderOfTheHeader) {
  PendingCatalogue draft(index, 1, "/m/file");
  ASSERT_TRUE(is_ok(draft.apply({Change::set_metadata, "z", "1"})));
  ASSERT_TRUE(is_ok(draft.apply({Change::set_metadata, "a", "2"})));
  ASSERT_TRUE(is_ok(draft.apply({Change::set_metadata, "k", "w"})));
  ASSERT_TRUE(is_ok(draft.apply({Change::remove_metadata, "z", {}})));
  EXPECT_TRUE(fails_with(Status::not_found, draft.apply({Change::remove_metadata, "z", {}})));
  const std::vector<std::pair<std::string_view, std::string_view>> wanted = {{"k", "w"}, {"a", "2"}};
  EXPECT_EQ(draft.metadata(), wanted);
}

// A file, or a delta, may have a million keys.
TEST_F(PendingCatalogueTest, ManyKeysTakeWorkInProportion) {
  const auto cost_of = [this](size_t n) {
    PendingCatalogue draft(index, 1, "/m/file");
    return testing::thread_ns_of([&] {
      for (const Change::Kind kind : {Change::set_metadata, Change::set_metadata, Change::remove_metadata})
        for (size_t i = 0; i < n; ++i) EXPECT_TRUE(is_ok(draft.apply({kind, text("key ", i), "v"})));
      EXPECT_EQ(draft.metadata().size(), 1u);
    });
  };
  testing::expect_in_proportion(cost_of);
}

TEST_F(PendingCatalogueTest, NamesThatCollideTakeWorkInProportion) {
  if (!testing::names_collide()) GTEST_SKIP() << "another std::hash than libstdc++'s";
  const auto cost_of = [this](size_t n) {
    std::vector<std::string> names;
    for (size_t i = 0; i < n; ++i) names.push_back(testing::colliding_name(i));
    PendingCatalogue draft(index, 1, "/m/file");
    return testing::thread_ns_of([&] {
      for (const std::string &name : names) {
        EXPECT_TRUE(is_ok(draft.apply({Change::set_metadata, name, "v"})));
        EXPECT_TRUE(is_ok(draft.apply(bytes(Change::put, name, 1))));
      }
      EXPECT_EQ(draft.metadata().size(), n + 1);
      EXPECT_EQ(draft.tensors().size(), n + index.size());
    });
  };
  testing::expect_in_proportion(cost_of);
}

TEST_F(PendingCatalogueTest, IsAsItWasAfterARefusal) {
  PendingCatalogue draft(index, 1, "/m/file");
  EXPECT_TRUE(fails_with(Status::not_found, draft.apply(bytes(Change::update, "x", 8))));
  EXPECT_TRUE(fails_with(Status::nbytes_mismatch, draft.apply({Change::update, "a", {}, {Dtype::U8, {8}, 7}})));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, draft.apply(bytes(Change::update, "a", 9))));
  EXPECT_TRUE(fails_with(Status::dtype_mismatch, draft.apply({Change::update, "a", {}, {Dtype::I8, {8}, 8}})));
  EXPECT_TRUE(fails_with(Status::not_found, draft.apply({Change::remove, "x", {}})));
  EXPECT_TRUE(fails_with(Status::not_found, draft.apply({Change::rename, "x", "y"})));
  EXPECT_TRUE(fails_with(Status::duplicate_name, draft.apply({Change::rename, "a", "b"})));
  EXPECT_TRUE(is_ok(draft.apply({Change::rename, "a", "a"})));
  EXPECT_EQ(said_by(draft), "a:8 b:4 c:6 none:0");
}

TEST_F(PendingCatalogueTest, TakesAnOrderOfAllItsTensors) {
  auto order = [](std::vector<std::string> names) { return Change{Change::order, {}, {}, {}, 0, std::move(names)}; };
  PendingCatalogue draft(index, 1, "/m/file");
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "d", 3))));
  ASSERT_TRUE(is_ok(draft.apply({Change::remove, "b", {}})));
  const std::string as_it_was = said_by(draft);
  EXPECT_TRUE(fails_with(Status::not_found, draft.apply(order({"d", "b", "a", "c", "none"}))));
  EXPECT_TRUE(fails_with(Status::invalid_argument, draft.apply(order({"d", "a", "c", "d"}))));
  EXPECT_TRUE(fails_with(Status::invalid_argument, draft.apply(order({"d", "a", "c"}))));
  EXPECT_EQ(said_by(draft), as_it_was);
  ASSERT_TRUE(is_ok(draft.apply(order({"d", "none", "c", "a"}))));
  EXPECT_EQ(said_by(draft), "d:3+ none:0 c:6 a:8");
  EXPECT_EQ(draft.find("a")->begin, 0u);  // where its bytes are
}

}  // namespace
}  // namespace st::store
