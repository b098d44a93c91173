// The catalogue of a transaction that changes the layout: what each step makes of it, what it refuses, and how removed
// tensors leave their bytes for later ones.
#include "store/draft.h"

#include "parse.h"

namespace st::store {
namespace {

using testing::fails_with;
using testing::is_ok;

class DraftTest : public ::testing::Test {
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
  static std::string said_by(const Draft &draft) {
    std::string out;
    for (const DraftTensor *t : draft.tensors())
      out += text(out.empty() ? "" : " ", t->name, ":", t->form.nbytes, t->payload ? "+" : "");
    return out;
  }

  const Index index = index_of(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]},"c":{"dtype":"U8","shape":[6],"data_offsets":[12,18]},)"
      R"("none":{"dtype":"U8","shape":[0],"data_offsets":[18,18]}})",
      18);
};

TEST_F(DraftTest, KeepsTheOrderOfTheFileAndAddsAtItsEnd) {
  Draft draft(index, false);
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

TEST_F(DraftTest, ChangesMetadataInTheOrderOfTheHeader) {
  Draft draft(index, false);
  ASSERT_TRUE(is_ok(draft.apply({Change::set_metadata, "z", "1"})));
  ASSERT_TRUE(is_ok(draft.apply({Change::set_metadata, "a", "2"})));
  ASSERT_TRUE(is_ok(draft.apply({Change::set_metadata, "k", "w"})));
  ASSERT_TRUE(is_ok(draft.apply({Change::remove_metadata, "z", {}})));
  EXPECT_TRUE(fails_with(Status::not_found, draft.apply({Change::remove_metadata, "z", {}})));
  const std::vector<std::pair<std::string, std::string>> wanted = {{"k", "w"}, {"a", "2"}};
  EXPECT_EQ(draft.metadata(), wanted);
}

TEST_F(DraftTest, IsAsItWasAfterARefusal) {
  Draft draft(index, true);
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

TEST_F(DraftTest, ARemovedTensorLeavesItsBytesAsAFiller) {
  Draft draft(index, true);
  ASSERT_TRUE(is_ok(draft.apply({Change::remove, "b", {}})));
  ASSERT_TRUE(is_ok(draft.apply({Change::remove, "none", {}})));  // which has none to leave
  EXPECT_EQ(said_by(draft), "a:8 __st_free__/0:4 c:6");
  EXPECT_EQ(draft.find("__st_free__/0")->begin, 8u);
  ASSERT_TRUE(is_ok(draft.apply({Change::remove, "a", {}})));
  EXPECT_EQ(said_by(draft), "__st_free__/1:8 __st_free__/0:4 c:6");
  ASSERT_TRUE(is_ok(draft.apply({Change::remove, "__st_free__/0", {}})));  // gone for good
  EXPECT_EQ(said_by(draft), "__st_free__/1:8 c:6");
}

TEST_F(DraftTest, APutTakesTheSmallestFillerThatIsLargeEnoughAndLeavesTheRest) {
  Draft draft(index, true);
  for (const char *name : {"a", "b", "c"}) ASSERT_TRUE(is_ok(draft.apply({Change::remove, name, {}})));
  EXPECT_EQ(said_by(draft), "__st_free__/0:8 __st_free__/1:4 __st_free__/2:6 none:0");
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "five", 5))));
  EXPECT_EQ(said_by(draft), "__st_free__/0:8 __st_free__/1:4 five:5+ __st_free__/2:1 none:0");
  EXPECT_EQ(draft.find("__st_free__/2")->begin, 17u);
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "four", 4))));  // all of it
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "nine", 9))));  // none is large enough
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "zero", 0))));  // needs none
  EXPECT_EQ(said_by(draft), "__st_free__/0:8 four:4+ five:5+ __st_free__/2:1 none:0 nine:9+ zero:0+");
}

TEST_F(DraftTest, AReplacedTensorOfAnotherSizeLeavesAFillerAndOneOfTheSameKeepsItsPlace) {
  Draft draft(index, true);
  ASSERT_TRUE(is_ok(draft.apply({Change::put, "a", {}, {Dtype::I8, {2, 4}, 8}})));
  EXPECT_EQ(said_by(draft), "a:8+ b:4 c:6 none:0");
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "c", 7))));
  EXPECT_EQ(said_by(draft), "a:8+ b:4 __st_free__/0:6 none:0 c:7+");
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "c", 5))));  // new bytes are dropped, not kept
  EXPECT_EQ(said_by(draft), "a:8+ b:4 __st_free__/0:6 none:0 c:5+");
  ASSERT_TRUE(is_ok(draft.apply({Change::remove, "c", {}})));
  EXPECT_EQ(said_by(draft), "a:8+ b:4 __st_free__/0:6 none:0");
}

TEST_F(DraftTest, DroppingFillersLeavesTheTensors) {
  Draft draft(index, true);
  ASSERT_TRUE(is_ok(draft.apply({Change::remove, "b", {}})));
  draft.drop_fillers();
  EXPECT_EQ(said_by(draft), "a:8 c:6 none:0");
}

TEST_F(DraftTest, TakesAnOrderOfAllItsTensors) {
  auto order = [](std::vector<std::string> names) { return Change{Change::order, {}, {}, {}, 0, std::move(names)}; };
  Draft draft(index, false);
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

TEST_F(DraftTest, TheSmallestFillerThatIsLargeEnoughIsUsed) {
  Draft draft(index, true);
  for (const char *name : {"a", "c"}) ASSERT_TRUE(is_ok(draft.apply({Change::remove, name, {}})));
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "six", 6))));
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "large", 9))));
  EXPECT_EQ(said_by(draft), "__st_free__/0:8 b:4 six:6+ none:0 large:9+");
  ASSERT_TRUE(is_ok(draft.apply(bytes(Change::put, "two", 2))));
  EXPECT_EQ(said_by(draft), "two:2+ __st_free__/0:6 b:4 six:6+ none:0 large:9+");
  Draft other(index, true);
  for (const char *name : {"none", "b", "c"}) ASSERT_TRUE(is_ok(other.apply({Change::remove, name, {}})));
  ASSERT_TRUE(is_ok(other.apply(bytes(Change::put, "two", 2))));
  EXPECT_EQ(said_by(other), "a:8 two:2+ __st_free__/0:2 __st_free__/1:6");
  other.drop_fillers();
  EXPECT_EQ(said_by(other), "a:8 two:2+");
}

}  // namespace
}  // namespace st::store
