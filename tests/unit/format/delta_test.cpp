// The metadata of a delta: what is written is read again, and what contradicts
// itself is refused.
#include "format/base_identity.h"

#include <algorithm>

#include "colliding_names.h"
#include "os/env.h"
#include "proportion.h"
#include "test_files.h"

namespace st::testing {
namespace {

using Metadata = std::vector<std::pair<std::string, std::string>>;

Header header_of(const std::vector<TestTensor> &tensors, const Metadata &metadata) {
  const std::vector<std::pair<std::string_view, std::string_view>> pairs(metadata.begin(), metadata.end());
  const std::string file = file_of(tensors, pairs);
  const uint64_t size = file.size();
  const uint64_t n = load_u64le(file.data());
  std::string json = file.substr(8, n);
  json.resize(n + header_padding);
  auto header = parse_header(json.data(), n, size, 1);
  EXPECT_TRUE(is_ok(header));
  return std::move(*header);
}

const std::vector<TestTensor> two = {u8_tensor("a", 10, 1), u8_tensor("b\"\n", 20, 2)};

DeltaNotes notes() {
  DeltaNotes n;
  n.base = {1, 2};
  n.result = {0xFEDCBA9876543210, 3};
  n.tensors = {{{4, 5}, OldBytes{{6, 7}, 8}}, {{9, 10}, {}}};
  n.deleted = {{"gone \xC3\xA9", {{11, 12}, 13}}};
  n.set = {{"k", "v\\"}, {"empty", ""}};
  n.removed = {"r", "s"};
  n.order = {"b\"\n", "a", "x"};
  return n;
}

Metadata spelled() {
  return spell_delta(notes(), {two[0].name, two[1].name});
}

TEST(DeltaNotes, AreReadAsTheyWereWritten) {
  const Header header = header_of(two, spelled());
  auto read = parse_delta(header.index);
  ASSERT_TRUE(is_ok(read));
  const DeltaNotes wanted = notes();
  EXPECT_EQ(read->base, wanted.base);
  EXPECT_EQ(read->result, wanted.result);
  ASSERT_EQ(read->tensors.size(), 2u);
  EXPECT_EQ(read->tensors[0].bytes, wanted.tensors[0].bytes);
  ASSERT_TRUE(read->tensors[0].old);
  EXPECT_EQ(read->tensors[0].old->all, wanted.tensors[0].old->all);
  EXPECT_EQ(read->tensors[0].old->head, 8u);
  EXPECT_EQ(read->tensors[1].bytes, wanted.tensors[1].bytes);
  EXPECT_FALSE(read->tensors[1].old);
  ASSERT_EQ(read->deleted.size(), 1u);
  EXPECT_EQ(read->deleted[0].first, wanted.deleted[0].first);
  EXPECT_EQ(read->deleted[0].second.all, wanted.deleted[0].second.all);
  EXPECT_EQ(read->set, wanted.set);
  EXPECT_EQ(read->removed, wanted.removed);
  EXPECT_EQ(read->order, wanted.order);
}

TEST(DeltaNotes, OfNoDeltaAreRefused) {
  const Header header = header_of(two, {{"k", "v"}});
  EXPECT_TRUE(fails_with(Status::delta, parse_delta(header.index)));
}

// One value of the metadata put in the place of what belongs there.
TEST(DeltaNotes, ThatContradictThemselvesAreRefused) {
  const std::string hash(32, 'a'), head(16, 'b');
  const std::string old = "\"old\":\"" + hash + "\",\"head\":\"" + head + "\"", fresh = "\"new\":\"" + hash + "\"";
  const std::string both = "\"a\":{" + fresh + "},\"b\\\"\\n\":{" + fresh + "}";
  const Metadata wrong = {
      {"st.delta.version", "3"},
      {"st.delta.base", ""},
      {"st.delta.base", hash.substr(1)},
      {"st.delta.result", hash.substr(1) + "g"},
      {"st.delta.result", "-" + hash.substr(1)},
      {"st.delta.hashes", ""},
      {"st.delta.hashes", "[]"},
      {"st.delta.hashes", "{}"},
      {"st.delta.hashes", "{" + both + "} x"},
      {"st.delta.hashes", "{" + both + ",\"a\":{" + fresh + "}}"},
      {"st.delta.hashes", "{\"a\":{" + old + "},\"b\\\"\\n\":{" + fresh + "}}"},
      {"st.delta.hashes", "{" + both + ",\"gone\":{\"old\":\"" + hash + "\"}}"},
      {"st.delta.hashes", "{" + both + ",\"gone\":{\"old\":1,\"head\":2}}"},
      {"st.delta.hashes", "{" + both + "}"},  // none for what is deleted
      {"st.delta.deleted", "[\"a\"]"},        // and changed
      {"st.delta.deleted", "[\"gone \xC3\xA9\",\"gone \xC3\xA9\"]"},
      {"st.delta.deleted", "[\"somebody else\"]"},
      {"st.delta.deleted", "[1]"},
      {"st.delta.deleted", "[\"gone \xC3\xA9\""},
      {"st.delta.set", "{\"k\":1}"},
      {"st.delta.set", "[]"},
      {"st.delta.removed", "{}"},
      {"st.delta.order", "[null]"},
      {"st.delta.hashes", "{" + both + "} {}"},  // more than one value
      {"st.delta.deleted", "[] []"},
      {"st.delta.set", "{} {}"},
      {"st.delta.removed", "[] []"},
      {"st.delta.order", "[] []"},
      {"st.delta.hashes", "{" + both + ",\"gone\":{\"old\":\"" + hash + "\",\"head\":\"bb\"}}"},
  };
  for (const auto &[key, value] : wrong) {
    Metadata metadata = spelled();
    for (auto &pair : metadata)
      if (pair.first == key) pair.second = value;
    const Header header = header_of(two, metadata);
    EXPECT_TRUE(fails_with(Status::delta, parse_delta(header.index))) << key << " = " << value;
  }
}

// Steps are of a tensor that is replaced, and a list of bytes.
TEST(DeltaNotes, OfStepsAreOfVersionTwo) {
  DeltaNotes n = notes();
  EXPECT_EQ(spell_delta(n, {two[0].name, two[1].name}).front().second, "1");
  n.tensors[0].steps = Hash128{20, 21};
  const Metadata metadata = spell_delta(n, {two[0].name, two[1].name});
  EXPECT_EQ(metadata.front().second, "2");
  auto read = parse_delta(header_of(two, metadata).index);
  ASSERT_TRUE(is_ok(read));
  EXPECT_EQ(read->tensors[0].steps, n.tensors[0].steps);
  EXPECT_FALSE(read->tensors[1].steps);

  const Header as_rows = header_of({{"a", Dtype::U8, {2, 5}, two[0].bytes}, two[1]}, metadata);
  EXPECT_TRUE(fails_with(Status::delta, parse_delta(as_rows.index)));
  const Header of_signs = header_of({{"a", Dtype::I8, {10}, two[0].bytes}, two[1]}, metadata);
  EXPECT_TRUE(fails_with(Status::delta, parse_delta(of_signs.index)));
  n.tensors[1].steps = Hash128{22, 23};  // of one that is added
  const Header of_new = header_of(two, spell_delta(n, {two[0].name, two[1].name}));
  EXPECT_TRUE(fails_with(Status::delta, parse_delta(of_new.index)));
}

TEST(DeltaNotes, NeedTheirIdentitiesAndHashes) {
  for (const char *missing : {"st.delta.base", "st.delta.result", "st.delta.hashes"}) {
    Metadata metadata = spelled();
    std::erase_if(metadata, [&](const auto &pair) { return pair.first == missing; });
    const Header header = header_of(two, metadata);
    EXPECT_TRUE(fails_with(Status::delta, parse_delta(header.index))) << missing;
  }
}

TEST(DeltaNotes, ApplyToNothingButTheirBase) {
  const Header base = header_of({u8_tensor("a", 10, 7), u8_tensor("gone", 5, 7)}, {{"k", "v"}});
  const Header result = header_of(two, {});
  const DeltaNotes right =
      describe(listing_of(base.index), listing_of(result.index),
               std::vector<NotedTensor>{{0, {{4, 5}, OldBytes{}}}, {1, {{9, 10}, {}}}}, {{"gone", {}}});
  EXPECT_EQ(right.removed, std::vector<std::string>{"k"});
  EXPECT_TRUE(right.order.empty());
  const auto applied = [&](const DeltaNotes &n) {
    TensorList listing = listing_of(base.index);
    return apply(&listing, result.index, n, 1, 1);
  };
  EXPECT_TRUE(is_ok(applied(right)));
  std::vector<DeltaNotes> wrong(6, right);
  wrong[0].result = wrong[0].base;
  wrong[1].deleted = {};
  wrong[2].deleted.emplace_back("never there", OldBytes{});
  wrong[3].tensors[0].old.reset();
  wrong[4].tensors[1].old.emplace();
  wrong[5].order = {"a"};
  for (const DeltaNotes &n : wrong) EXPECT_TRUE(fails_with(Status::delta, applied(n)));
  DeltaNotes foreign = right;
  foreign.base.low ^= 1;
  EXPECT_TRUE(fails_with(Status::delta_base, applied(foreign)));
  for (const std::vector<std::string> &order : {std::vector<std::string>{"a", "a"}, {"a", "b"}, {"a", "b\"\n", "c"}}) {
    DeltaNotes n = right;
    n.order = order;
    EXPECT_TRUE(fails_with(Status::delta, applied(n)));
  }
}

// An identity sorts all names. So that of the base goes from delta to delta, and is believed until more than bytes
// change.
TEST(DeltaNotes, TakeAnIdentityAnewOnlyWhereMoreThanBytesChange) {
  const Header base = header_of({u8_tensor("a", 10, 7), u8_tensor("b", 4, 7)}, {{"k", "v"}});
  const auto to = [&](const Header &result, const Header &delta, const std::vector<NotedTensor> &noted) {
    TensorList listing = listing_of(base.index);
    DeltaNotes notes = describe(listing, listing_of(result.index), noted, {});
    Hash128 identity = notes.base = {1, 2};  // nobody's: who takes it anew finds another
    notes.result = identity_of(listing_of(result.index));
    ListedNames names(1);
    const bool done = apply(&listing, &identity, delta.index, notes, 1, &names).has_value();
    EXPECT_TRUE(done || identity == Hash128({1, 2}));
    return done && identity == notes.result;
  };
  const NotedTensor of_old{0, {{4, 5}, OldBytes{}}};
  EXPECT_FALSE(to(base, header_of({u8_tensor("a", 10, 9)}, {}), {of_old}));
  EXPECT_TRUE(to(header_of({u8_tensor("a", 10, 7), u8_tensor("b", 4, 7)}, {{"k", "w"}}),
                 header_of({u8_tensor("a", 10, 9)}, {}), {of_old}));
  EXPECT_TRUE(to(header_of({u8_tensor("a", 11, 7), u8_tensor("b", 4, 7)}, {{"k", "v"}}),
                 header_of({u8_tensor("a", 11, 9)}, {}), {of_old}));
}

// A table of all names takes as long as all that a small delta changes.
TEST(DeltaNotes, LookForNamesInATableThatIsMadeAnewOnlyWhereNamesOrOrderChange) {
  const Header base = header_of({u8_tensor("a", 10, 7), u8_tensor("b", 4, 7)}, {});
  TensorList listing = listing_of(base.index);
  Hash128 identity = identity_of(listing);
  ListedNames names(1);
  const auto lay = [&](const Header &delta, const std::vector<NotedTensor> &noted, const TensorList &to,
                       std::vector<std::pair<std::string, OldBytes>> deleted = {}) {
    const DeltaNotes notes = describe(listing, to, noted, std::move(deleted));
    identity = notes.base;
    return apply(&listing, &identity, delta.index, notes, 1, &names);
  };
  const NotedTensor replaced{0, {{4, 5}, OldBytes{}}}, added{1, {{4, 5}, {}}};
  const Header of_a = header_of({u8_tensor("a", 10, 9)}, {});
  EXPECT_EQ(names.find(listing, "a"), 0u);
  std::swap(listing.tensors[0].name, listing.tensors[1].name);  // a table that is made anew would say so
  ASSERT_TRUE(is_ok(lay(of_a, {replaced}, listing)));
  EXPECT_EQ(names.find(listing, "a"), 0u);
  listing = listing_of(base.index);

  const Header other = header_of({u8_tensor("b", 4, 7), u8_tensor("c", 3, 7)}, {});
  const Header of_c = header_of({u8_tensor("c", 3, 7)}, {});
  ASSERT_TRUE(is_ok(lay(of_c, {added}, listing_of(other.index), {{"a", {}}})));
  EXPECT_EQ(names.find(listing, "a"), std::nullopt);
  EXPECT_EQ(names.find(listing, "c"), 1u);
  const Header turned = header_of({u8_tensor("c", 3, 7), u8_tensor("b", 4, 7)}, {});
  ASSERT_TRUE(is_ok(lay(header_of({}, {}), {}, listing_of(turned.index))));
  EXPECT_EQ(names.find(listing, "c"), 0u);
}

TEST(DeltaNotes, IdentityIsOfNamesFormsAndMetadataInAnyOrder) {
  const auto id = [](const std::vector<TestTensor> &tensors, const Metadata &metadata) {
    const Header header = header_of(tensors, metadata);
    return identity_of(listing_of(header.index));
  };
  const Hash128 one = id({u8_tensor("a", 10, 1), u8_tensor("b", 4, 1)}, {{"k", "v"}, {"l", "w"}});
  EXPECT_EQ(one, id({u8_tensor("b", 4, 9), u8_tensor("a", 10, 9)}, {{"l", "w"}, {"k", "v"}}));
  EXPECT_NE(one, id({u8_tensor("ab", 10, 1), u8_tensor("", 4, 1)}, {{"k", "v"}, {"l", "w"}}));
  EXPECT_NE(one, id({u8_tensor("a", 10, 1), u8_tensor("b", 5, 1)}, {{"k", "v"}, {"l", "w"}}));
  EXPECT_NE(one, id({u8_tensor("a", 10, 1), {"b", Dtype::I8, {4}, "abcd"}}, {{"k", "v"}, {"l", "w"}}));
  EXPECT_NE(one, id({u8_tensor("a", 10, 1), u8_tensor("b", 4, 1)}, {{"k", "vl"}, {"", "w"}}));
  // The definition of core/delta/README.md, spelled out: changing it makes every delta useless.
  EXPECT_EQ(spell_hash(id({}, {})), "e5189a9599e3f86205ea23ef06e28b2d");
  EXPECT_EQ(spell_hash(one), "20455f50e4dd4f1bd37c307bde8a1496");
}

TEST(Delta, ManyKeysOfMetadataTakeWorkInProportion) {
  const auto cost_of = [](size_t n) {
    std::vector<std::string> keys;
    for (size_t i = 0; i < n; ++i) keys.push_back(text("key ", i));
    TensorList from, to;
    for (size_t i = 0; i < n; ++i) from.metadata.emplace_back(keys[i], "old");
    for (size_t i = 0; i < n; i += 2) to.metadata.emplace_back(keys[i], "new");
    const DeltaNotes notes = describe(from, to, {}, {});
    const Index nothing = header_of({}, {}).index;
    return testing::thread_ns_of([&] {
      EXPECT_TRUE(is_ok(apply(&from, nothing, notes, 1, 1)));
      EXPECT_EQ(from.metadata, to.metadata);
    });
  };
  testing::expect_in_proportion(cost_of);
}

// As tensors and as keys of metadata, of which each second one goes; and the rest in another order.
TEST(Delta, NamesThatCollideTakeWorkInProportion) {
  if (!names_collide()) GTEST_SKIP() << "another std::hash than libstdc++'s";
  const auto cost_of = [](size_t n) {
    std::vector<std::string> names;
    for (size_t i = 0; i < n; ++i) names.push_back(colliding_name(i));
    TensorList from, to;
    const uint64_t shape[] = {0};
    for (size_t i = 0; i < n; ++i) {
      from.metadata.emplace_back(names[i], "old");
      from.tensors.push_back({names[i], Dtype::U8, shape, 0, 0, i});
      if (i % 2 == 1) continue;
      to.metadata.emplace_back(names[i], "new");
      to.tensors.push_back(from.tensors.back());
    }
    std::reverse(to.tensors.begin(), to.tensors.end());
    std::vector<std::pair<std::string, OldBytes>> deleted;
    for (size_t i = 1; i < n; i += 2) deleted.emplace_back(names[i], OldBytes{});
    const Index nothing = header_of({}, {}).index;
    return testing::thread_ns_of([&] {
      const DeltaNotes notes = describe(from, to, {}, std::move(deleted));
      EXPECT_EQ(notes.order.size(), to.tensors.size());
      EXPECT_TRUE(is_ok(apply(&from, nothing, notes, 1, 1)));
      EXPECT_EQ(from.metadata, to.metadata);
    });
  };
  testing::expect_in_proportion(cost_of);
}

}  // namespace
}  // namespace st::testing
