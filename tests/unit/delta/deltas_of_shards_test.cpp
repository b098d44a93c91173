// Deltas where a side is sharded: what a checkpoint holds counts, and not in how many files.
#include "bound.h"
#include "delta_scene.h"
#include "engine/verify.h"
#include "fault_env.h"
#include "told_progress.h"

namespace st::testing {
namespace {

const std::string index_of = index_in("/m");

class ShardedDeltas : public ::testing::Test {
 protected:
  ShardedDeltas() {
    disk.make_folder("/m", 0755);
    const Holdings first{{u8_tensor("a", 4000, 1), u8_tensor("b", 9000, 2)}, {{"k", "v"}}};
    const Holdings second{{u8_tensor("c", 5000, 3)}, {{"of", "the second"}}};
    disk.add_file("/m/s1.safetensors", first.file());
    disk.add_file("/m/s2.safetensors", second.file());
    disk.add_file(index_of, R"({"metadata":{"total_size":18000,"total_parameters":18000,"by":"me"},"weight_map":{)"
                            R"("a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors"}})");
    disk.add_file("/other", changed().file());
  }
  static Holdings joined() {
    return {{u8_tensor("a", 4000, 1), u8_tensor("b", 9000, 2), u8_tensor("c", 5000, 3)}, {{"by", "me"}, {"k", "v"}}};
  }
  static Holdings changed() {
    Holdings h = joined();
    h.tensors[0] = u8_tensor("a", 4000, 21);
    h.tensors[2].bytes[4999] ^= 1;
    return h;
  }
  Result<std::unique_ptr<store::Model>> over(const std::string &base) {
    store::OpenOptions options;
    options.deltas = {"/d"};
    return store::open_path(disk, base, options);
  }
  Result<store::DeltaPatched> patch(const std::string &delta, std::string reverse = {}) {
    store::DeltaPatchOptions options;
    options.reverse = std::move(reverse);
    return store::patch(disk, "/m", delta, std::move(options));
  }
  Status verified() {
    auto done = store::verify_layers(disk, "/m", {"/d"}, {}, {});
    return done ? Status::ok : done.error().status;
  }
  Holdings held(const std::string &path) { return holdings_of(disk.contents(path)); }

  SimEnv disk;
  const std::vector<std::string> files = {"model.safetensors.index.json", "s1.safetensors", "s2.safetensors"};
};

TEST_F(ShardedDeltas, HoldWhatDiffersWhicheverShardItIsIn) {
  ASSERT_TRUE(is_ok(store::diff(disk, index_of, "/other", "/d", {})));
  const Holdings d = held("/d");
  ASSERT_EQ(d.tensors.size(), 2u);
  EXPECT_EQ(d.tensors[0], changed().tensors[0]);
  EXPECT_EQ(d.tensors[1].name, "c");  // its steps
  EXPECT_LT(d.tensors[1].bytes.size(), 200u);
  for (const char *none : {"st.delta.set", "st.delta.removed", "st.delta.deleted", "st.delta.order"})
    EXPECT_EQ(d.metadata.count(none), 0u) << d.metadata.at(none);
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/of a folder", {})));
  EXPECT_EQ(disk.contents("/of a folder"), disk.contents("/d"));
}

TEST_F(ShardedDeltas, NeverReplaceAFileThatTheyAreMadeOf) {
  for (const std::string &path : {index_of, std::string("/m/s1.safetensors"), std::string("/m/s2.safetensors")}) {
    const std::string before = disk.contents(path);
    EXPECT_TRUE(fails_with(Status::invalid_argument, store::diff(disk, "/m", "/other", path, {})));
    EXPECT_TRUE(fails_with(Status::invalid_argument, store::diff(disk, "/other", "/m", path, {})));
    EXPECT_TRUE(same_bytes(disk.contents(path), before));
  }
}

// The new way back would fit nothing.
TEST_F(ShardedDeltas, LeaveAnEarlierWayBackWhereAWriteOfTheChangeFails) {
  for (const bool of_index : {false, true}) {
    Holdings to = changed();
    if (of_index) to.metadata["k"] = "w";
    disk.add_file("/other", to.file());
    ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
    int failed = 0;
    for (bool hit = true; hit; ++failed) {
      SimEnv trial(disk.disk());
      trial.add_file("/back", "an earlier way back");
      FaultEnv failing(trial);
      failing.before = no_room_for(failed, &hit);
      store::DeltaPatchOptions options;
      options.reverse = "/back";
      auto done = store::patch(failing, "/m", "/d", std::move(options));
      if (done || done.error().status == Status::needs_recovery) continue;
      ASSERT_TRUE(same_bytes(trial.contents("/back"), "an earlier way back")) << failed << done.error().message;
      ASSERT_TRUE(same_bytes(trial.contents("/m/s1.safetensors"), disk.contents("/m/s1.safetensors")));
    }
    EXPECT_GT(failed, 8);
  }
}

TEST_F(ShardedDeltas, AreVerifiedWithOneCountOverAllFiles) {
  ASSERT_TRUE(is_ok(store::diff(disk, index_of, "/other", "/d", {})));
  ToldProgress told;
  ASSERT_TRUE(is_ok(store::verify_layers(disk, "/m", {"/d"}, {told.progress(), nullptr}, {})));
  told.expect_one_count(2 * 18000);
}

// Others commit to their base meanwhile, under new names.
class ShardedDeltasMeanwhile : public ShardedDeltas {
 protected:
  ShardedDeltasMeanwhile() { EXPECT_TRUE(is_ok(store::diff(disk, index_of, "/other", "/d", {}))); }
  // Each system call that looks for a file, or asks about one, may come before such commits: the second removes what
  // the first has replaced.
  void succeeds_whenever_they_come(const std::function<Result<void>(os::Env &)> &work) {
    bool came = true;
    for (int n = 0; came; ++n) {
      FaultEnv env(disk);
      came = false;
      int calls = 0;
      env.before = [&](Call call) {
        const bool looks = call == Call::openat || call == Call::fstatat || call == Call::list || call == Call::pread;
        if (looks && calls++ == n) came = true, commit();
        return 0;
      };
      ASSERT_TRUE(is_ok(work(env))) << "call " << n;
    }
  }

 private:
  void commit() {
    store::OpenOptions writable;
    writable.writable = true;
    const auto c = store::open_path(disk, "/m", writable);
    ASSERT_TRUE(is_ok(c));
    store::TransactionOptions options;
    options.new_names = true;
    options.shard_grace_s = 0;
    ASSERT_TRUE(is_ok((*c)->compact(options)));
    ASSERT_TRUE(is_ok((*c)->compact(options)));
  }
};

TEST_F(ShardedDeltasMeanwhile, AreVerified) {
  succeeds_whenever_they_come([](os::Env &env) { return store::verify_layers(env, "/m", {"/d"}, {}, {}); });
}

TEST_F(ShardedDeltasMeanwhile, AreOpened) {
  store::OpenOptions options;
  options.deltas = {"/d"};
  succeeds_whenever_they_come([&](os::Env &env) -> Result<void> {
    ST_TRY(const auto opened, store::open_path(env, "/m", options));
    EXPECT_EQ(opened->catalogue().size(), 3u);
    return {};
  });
}

TEST_F(ShardedDeltasMeanwhile, AreRefreshed) {
  store::OpenOptions options;
  options.deltas = {"/d"};
  succeeds_whenever_they_come([&](os::Env &env) -> Result<void> {
    ST_TRY(const auto opened, store::open_path(env, "/m", options));
    return opened->refresh();
  });
}

TEST_F(ShardedDeltas, AreNotMadeOfShardsThatAreIncomplete) {
  disk.remove("/m/s2.safetensors");
  EXPECT_TRUE(fails_with(Status::shard_missing, store::diff(disk, "/m", "/other", "/d", {})));
  EXPECT_TRUE(fails_with(Status::shard_missing, store::diff(disk, "/other", "/m", "/d", {})));
  EXPECT_FALSE(disk.exists("/d"));
}

TEST_F(ShardedDeltas, LieOverShardsFileByFile) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  auto overlay = over("/m");
  ASSERT_TRUE(is_ok(overlay));
  const store::Catalogue catalogue = (*overlay)->catalogue();
  ASSERT_EQ((*overlay)->catalogue().members(), 3u);
  EXPECT_EQ((*overlay)->catalogue().member_path(1), "/m/s2.safetensors");
  EXPECT_EQ((*overlay)->catalogue().member_path(2), "/d");
  EXPECT_EQ(catalogue.find("a")->number, 2u);
  EXPECT_EQ(catalogue.find("b")->number, 0u);
  EXPECT_EQ(catalogue.at(1)->number, 0u);
  EXPECT_TRUE(fails_with(Status::not_found, catalogue.find("x")));
  EXPECT_EQ(catalogue.metadata_find("k"), "v");  // as of the joined file
  EXPECT_EQ(catalogue.metadata_find("total_size"), std::nullopt);
  EXPECT_TRUE(fails_with(Status::read_only, (*overlay)->begin({})));
  EXPECT_EQ((*overlay)->catalogue().opened().size(), 3u);

  std::string a(4000, '\0'), b(9000, '\0'), c(5000, '\0');
  std::vector<store::PlacedRequest> requests;
  for (auto &[name, to] : {std::pair<const char *, std::string *>{"c", &c}, {"a", &a}, {"b", &b}})
    requests.push_back({catalogue.find(name).value(), nullptr, reinterpret_cast<std::byte *>(to->data())});
  ASSERT_TRUE(is_ok((*overlay)->read_many(requests, {})));
  EXPECT_EQ(a, changed().tensors[0].bytes);
  EXPECT_EQ(b, changed().tensors[1].bytes);
  EXPECT_EQ(c, changed().tensors[2].bytes);
}

TEST_F(ShardedDeltas, AreRefusedOverOtherShards) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  Holdings wrong{{u8_tensor("c", 5000, 4)}, {}};
  disk.add_file("/m/s2.safetensors", wrong.file());
  EXPECT_TRUE(fails_with(Status::delta_base, over("/m")));
  EXPECT_EQ(verified(), Status::delta_base);
  wrong = {{{"c", Dtype::I8, {5000}, joined().tensors[2].bytes}}, {}};
  disk.add_file("/m/s2.safetensors", wrong.file());
  EXPECT_TRUE(fails_with(Status::delta_base, over("/m")));
  disk.remove("/m/s2.safetensors");
  EXPECT_TRUE(fails_with(Status::shard_missing, over("/m")));
  EXPECT_EQ(verified(), Status::shard_missing);
}

TEST_F(ShardedDeltas, AreVerifiedOverShardsToTheLastByte) {
  const auto over_another_base = [&] {
    Holdings wrong{{joined().tensors[2]}, {}};
    wrong.tensors[0].bytes[4998] ^= 1;
    disk.add_file("/m/s2.safetensors", wrong.file());
    EXPECT_EQ(verified(), Status::delta_base);
    return over("/m");
  };
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  EXPECT_EQ(verified(), Status::ok);
  EXPECT_TRUE(fails_with(Status::delta_base, over_another_base()));  // an open takes steps of all its bytes
  Holdings whole = changed();
  whole.tensors[2] = u8_tensor("c", 5000, 23);
  disk.add_file("/m/s2.safetensors", Holdings{{joined().tensors[2]}, {{"of", "the second"}}}.file());
  disk.add_file("/other", whole.file());
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  EXPECT_EQ(verified(), Status::ok);
  EXPECT_TRUE(is_ok(over_another_base()));  // else it looks at how they begin
}

TEST_F(ShardedDeltas, OverShardsFollowThemWhenRefreshed) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  auto overlay = over("/m");
  ASSERT_TRUE(is_ok(overlay));
  const auto seen = [&](const store::Model &c, std::string_view name) {
    const store::Place p = c.catalogue().find(name).value();
    std::string bytes(p.tensor().nbytes, '\0');
    EXPECT_TRUE(is_ok(p.member->read(*p.snapshot, p.index, bytes.data())));
    return bytes;
  };
  const auto put = [&](const TestTensor &t) {
    auto file = store::open_path(disk, "/m", {.writable = true}).value();
    auto transaction = file->begin({}).value();
    const store::NewBytes value{static_cast<uint32_t>(t.dtype), t.shape, t.bytes.data(), t.bytes.size()};
    ASSERT_TRUE(is_ok(transaction->put(t.name, value)));
    ASSERT_TRUE(is_ok(transaction->commit()));
  };
  const auto stepped = [&] {
    const store::Place p = (*overlay)->catalogue().find("c").value();
    return p.member->view(*p.snapshot, p.index).value();
  };
  const std::byte *const before = stepped();
  put(u8_tensor("b", 9000, 50));  // which the delta leaves alone
  EXPECT_EQ(seen(**overlay, "b"), pattern(9000, 2));
  EXPECT_TRUE(fails_with(Status::file_changed, (*overlay)->reopen((*overlay)->catalogue(), store::Again::the_same)));
  ASSERT_TRUE(is_ok((*overlay)->refresh()));
  EXPECT_EQ(seen(**overlay, "b"), pattern(9000, 50));
  EXPECT_EQ(stepped(), before);  // of the other shard
  auto again = (*overlay)->reopen((*overlay)->catalogue(), store::Again::the_same);
  ASSERT_TRUE(is_ok(again));
  EXPECT_EQ(seen(**again, "a"), pattern(4000, 21));

  put(u8_tensor("a", 4000, 51));  // which it replaces
  EXPECT_TRUE(fails_with(Status::delta_base, (*overlay)->refresh()));
  EXPECT_EQ(seen(**overlay, "a"), pattern(4000, 21));
  EXPECT_EQ(seen(**overlay, "b"), pattern(9000, 50));
}

TEST_F(ShardedDeltas, AreMergedWithShardsIntoOneFile) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  uint64_t last = 0, all = 0;
  write::SaveOptions options;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    EXPECT_GE(done, last);
    last = done;
    all = total;
    return true;
  };
  for (const std::string &base : {std::string("/m"), index_of}) {
    last = 0;
    ASSERT_TRUE(is_ok(store::merge(disk, base, {"/d"}, "/merged", options)));
    EXPECT_EQ(held("/merged"), changed());  // and in that order
    EXPECT_EQ(last, all);
  }
  options = {};
  options.layout = write::Layout::stock;
  ASSERT_TRUE(is_ok(store::merge(disk, "/m", {}, "/merged", options)));  // a copy, in the place of the last
  EXPECT_EQ(held("/merged"), joined());
  EXPECT_TRUE(fails_with(Status::delta_base, store::merge(disk, "/m", {"/d", "/d"}, "/merged", {})));
  EXPECT_EQ(held("/merged"), joined());
}

TEST_F(ShardedDeltas, AreNotMergedIntoShardsNorIntoASource) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  for (const char *to : {"/new.safetensors.index.json", "/m/model.safetensors.index.json", "/m/s1.safetensors",
                         "/m/s2.safetensors", "/d"})
    EXPECT_TRUE(fails_with(Status::invalid_argument, store::merge(disk, "/m", {"/d"}, to, {}))) << to;
  EXPECT_TRUE(fails_with(Status::not_regular, store::merge(disk, "/m", {"/d"}, "/m", {})));
  EXPECT_TRUE(fails_with(Status::invalid_argument, store::merge(disk, "/other", {}, "/x.safetensors.index.json", {})));
  EXPECT_TRUE(is_ok(over("/m")));
  EXPECT_FALSE(disk.exists("/new.safetensors.index.json"));
}

TEST_F(ShardedDeltas, AreNotMergedWithShardsOfOtherBytes) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  Holdings wrong{{joined().tensors[2]}, {}};
  wrong.tensors[0].bytes[4998] ^= 1;
  disk.add_file("/m/s2.safetensors", wrong.file());
  EXPECT_TRUE(fails_with(Status::delta_base, store::merge(disk, "/m", {"/d"}, "/merged", {})));
  EXPECT_FALSE(disk.exists("/merged"));
}

TEST_F(ShardedDeltas, ThatChangeBytesOnlyAreAppliedInPlaceInEachShard) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  const std::string index = disk.contents(index_of), first = disk.contents("/m/s1.safetensors"),
                    second = disk.contents("/m/s2.safetensors");
  auto done = patch("/d", "/r");
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->plan.kind, store::CommitPlan::patch);
  EXPECT_LT(done->written, 4000u + 4096);                        // a, and the page of c
  EXPECT_LT(done->journal_bytes, 4000u + 4096 + 3 * 4 * 4096u);  // a, and of c an element
  EXPECT_EQ(in_shards(disk, "/m"), by_name(changed()));
  EXPECT_EQ(disk.contents(index_of), index);
  EXPECT_EQ(disk.names("/m"), files);
  EXPECT_TRUE(fails_with(Status::delta_base, patch("/d")));
  ASSERT_TRUE(is_ok(patch("/r")));
  EXPECT_TRUE(same_bytes(disk.contents("/m/s1.safetensors"), first));
  EXPECT_TRUE(same_bytes(disk.contents("/m/s2.safetensors"), second));
}

// The journal takes the elements that change, and not their tensor: also where another shard is made anew.
TEST_F(ShardedDeltas, OfElementsTakeJournalsThatAreShort) {
  constexpr uint64_t n = uint64_t{1} << 20;
  for (const bool adds : {false, true}) {
    SCOPED_TRACE(adds);
    SimEnv shards;
    std::mt19937 random(5);
    Holdings from{{u8_tensor("a", n, 1), u8_tensor("b", n, 2), u8_tensor("c", n, 3)}, {}};
    shards.make_folder("/m", 0755);
    ShardIndex index = ShardIndex::of({"s1.safetensors", "s2.safetensors", "s3.safetensors"}, 0);
    for (size_t i = 0; i < 3; ++i) {
      const std::string shard = text("s", i + 1, ".safetensors");
      shards.add_file("/m/" + shard, Holdings{{from.tensors[i]}, {}}.file());
      index.assign(from.tensors[i].name, shard);
    }
    shards.add_file(index_of, index.spell());
    Holdings to = from;
    for (TestTensor &t : to.tensors)
      for (size_t at = 0; at < n; at += 50) t.bytes[at] ^= 1;
    if (adds) to.tensors.push_back(u8_tensor("new", 300, 4));
    shards.add_file("/to", to.file());
    ASSERT_TRUE(is_ok(store::diff(shards, "/m", "/to", "/d", {})));
    store::DeltaPatchOptions options;
    options.reverse = "/r";
    auto done = store::patch(shards, "/m", "/d", options);
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->plan.kind, adds ? store::CommitPlan::publish : store::CommitPlan::patch);
    // A gap and a value for each that changes, and two hashes a sector; of the shard that is made anew, pages.
    EXPECT_LT(done->journal_bytes, 3 * (2 * n / 50 + 8 * n / 512 + 2 * 8192) + (adds ? n : 0));
    EXPECT_GE(done->written, (adds ? 2 : 3) * n);
    EXPECT_EQ(in_shards(shards, "/m"), by_name(to));
    EXPECT_TRUE(fails_with(Status::delta_base, store::patch(shards, "/m", "/d", {})));
    ASSERT_TRUE(is_ok(store::patch(shards, "/m", "/r", {})));
    EXPECT_EQ(in_shards(shards, "/m"), by_name(from));
  }
}

// Its header loses a key, so it is published, and its elements are staged as pages.
TEST_F(ShardedDeltas, OfElementsOfAShardWhoseMetadataGoMakeItAnew) {
  Holdings to = joined();
  to.tensors[1].bytes[8000] ^= 1;
  to.tensors[2].bytes[100] ^= 1;
  to.metadata.erase("k");
  disk.add_file("/other", to.file());
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  EXPECT_EQ(held("/d").metadata.at("st.delta.version"), "2");
  ASSERT_TRUE(is_ok(patch("/d", "/r")));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(to));
  ASSERT_TRUE(is_ok(patch("/r")));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(joined()));
}

// A file may have such a key, which the index of its shards has of its own.
TEST_F(ShardedDeltas, SetATotalInTheHeaderOfTheFirstShard) {
  Holdings to = joined();
  to.metadata["total_size"] = "9";
  disk.add_file("/other", to.file());
  const std::string index = disk.contents(index_of);
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  ASSERT_TRUE(is_ok(patch("/d", "/r")));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(to));
  EXPECT_EQ(disk.contents(index_of), index);
  ASSERT_TRUE(is_ok(patch("/r")));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(joined()));
}

TEST_F(ShardedDeltas, OfOneShardsTensorsLeaveTheOthersAlone) {
  Holdings to = joined();
  to.tensors[2].bytes[0] ^= 1;
  disk.add_file("/other", to.file());
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  ASSERT_TRUE(is_ok(patch("/d", "/r")));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(to));
  ASSERT_TRUE(is_ok(patch("/r")));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(joined()));
}

// All shards are as they were, also those that would have fitted; and nothing is left beside them.
TEST_F(ShardedDeltas, AreAppliedToNoShardIfOneHasOtherBytes) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  Holdings wrong{{joined().tensors[2]}, {}};
  wrong.tensors[0].bytes[4998] ^= 1;
  disk.add_file("/m/s2.safetensors", wrong.file());
  const std::string first = disk.contents("/m/s1.safetensors"), second = disk.contents("/m/s2.safetensors");
  EXPECT_TRUE(fails_with(Status::delta_base, patch("/d", "/r")));
  EXPECT_TRUE(same_bytes(disk.contents("/m/s1.safetensors"), first));
  EXPECT_TRUE(same_bytes(disk.contents("/m/s2.safetensors"), second));
  EXPECT_EQ(disk.names("/m"), files);
  EXPECT_FALSE(disk.exists("/r"));
}

TEST_F(ShardedDeltas, AreNotAppliedIfTheWayBackIsASourceOrCannotBeWritten) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  for (const std::string &path : {index_of, std::string("/m/s2.safetensors"), std::string("/d")})
    EXPECT_TRUE(fails_with(Status::invalid_argument, patch("/d", path))) << path;
  EXPECT_TRUE(fails_with(Status::no_file, patch("/d", "/nowhere/r")));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(joined()));
  EXPECT_EQ(disk.names("/m"), files);
}

// The metadata of the whole are then those of another header; or not, if the first shard is given something to hold.
TEST_F(ShardedDeltas, ThatTakeAllOfTheFirstShardLeaveTheMetadataRight) {
  for (const bool adds : {false, true})
    for (const bool keeps : {false, true}) {
      SCOPED_TRACE(text(adds, keeps));
      Holdings to = joined();
      to.tensors = {to.tensors[2]};
      if (adds) to.tensors.push_back(u8_tensor("new", 100, 7));
      if (!keeps) to.metadata = {{"of", "neither"}};
      const SimDisk before = disk.disk();
      disk.add_file("/other", to.file());
      ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
      ASSERT_TRUE(is_ok(patch("/d", "/r")));
      EXPECT_EQ(in_shards(disk, "/m"), by_name(to));
      EXPECT_TRUE(fails_with(Status::delta_base, patch("/d")));
      ASSERT_TRUE(is_ok(patch("/r")));
      EXPECT_EQ(in_shards(disk, "/m"), by_name(joined()));
      disk = SimEnv(before);
    }
}

TEST_F(ShardedDeltas, AreNotAppliedToShardsThatAreReplacedMeanwhile) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  const Holdings laid_out_anew{{joined().tensors[2]}, {}};
  const struct {
    std::string path, bytes;
  } replacements[] = {{"/m/s2.safetensors", laid_out_anew.file(600)}, {index_of, disk.contents(index_of) + "\n"}};
  store::DeltaPatchOptions options;
  options.reverse = "/r";
  for (const auto &next : replacements) {
    bool replaced = false;
    options.progress = [&](uint64_t, uint64_t) {
      if (!std::exchange(replaced, true)) {
        disk.add_file("/m/fresh", next.bytes);
        disk.move("/m/fresh", next.path);
      }
      return true;
    };
    EXPECT_TRUE(fails_with(Status::file_changed, store::patch(disk, "/m", "/d", options))) << next.path;
    EXPECT_EQ(in_shards(disk, "/m"), by_name(joined()));
    EXPECT_FALSE(disk.exists("/r"));
  }
  options.progress = {};
  ASSERT_TRUE(is_ok(store::patch(disk, "/m", "/d", options)));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(changed()));
}

// And not that it has other bytes.
TEST_F(ShardedDeltas, TellThatAShardWasReplacedThatHasOtherBytes) {
  Holdings other{{joined().tensors[2]}, {}};
  other.tensors[0].bytes[1] ^= 1;
  Holdings to = joined();
  to.tensors[2].bytes[4999] ^= 1;
  for (const bool both : {false, true})          // is another shard changed, too?
    for (const bool of_index : {false, true}) {  // is the index replaced, and the shard patched?
      SCOPED_TRACE(text(both, of_index));
      const SimDisk before = disk.disk();
      to.tensors[1] = joined().tensors[1];
      if (both) to.tensors[1].bytes[7] ^= 1;
      disk.add_file("/other", to.file());
      ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
      bool replaced = false;
      store::DeltaPatchOptions options;
      options.progress = [&](uint64_t, uint64_t) {
        if (!std::exchange(replaced, true)) {
          if (of_index) {
            const int shard = disk.openat(AT_FDCWD, "/m/s2.safetensors", O_RDWR, 0);
            EXPECT_EQ(disk.pwrite(shard, "!", 1, disk.contents("/m/s2.safetensors").size() - 4000), 1);
            disk.close(shard);
          }
          disk.add_file("/m/fresh", of_index ? disk.contents(index_of) + "\n" : other.file(600));
          disk.move("/m/fresh", of_index ? index_of : "/m/s2.safetensors");
        }
        return true;
      };
      EXPECT_TRUE(fails_with(Status::file_changed, store::patch(disk, "/m", "/d", options)));
      disk = SimEnv(before);
    }
}

// What others commit to the handle's shards while a delta is applied: the delta was checked on the state before.
class ShardedDeltasBeside : public ShardedDeltas {
 protected:
  using Change = std::function<Result<void>(store::AnyTransaction &)>;
  static void change(store::Model &model, const Change &staged, bool publish = false) {
    store::TransactionOptions options;
    options.publish = publish;
    auto transaction = model.begin(std::move(options)).value();
    ASSERT_TRUE(is_ok(staged(*transaction)));
    ASSERT_TRUE(is_ok(transaction->commit()));
  }
  static Change updates(const TestTensor &t) {
    return [t](store::AnyTransaction &in) { return in.update(t.name, bytes_of(t)); };
  }
  static Change puts(const TestTensor &t) {
    return [t](store::AnyTransaction &in) { return in.put(t.name, bytes_of(t)); };
  }
  std::unique_ptr<store::Model> open() { return store::open_path(disk, "/m", {.writable = true}).value(); }
  void make_delta(const Holdings &to) {
    disk.add_file("/other", to.file());
    ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  }
  // `meanwhile` happens when the delta's bytes are checked.
  Result<store::DeltaPatched> apply(store::Model &model, const std::function<void()> &meanwhile, bool publish = false) {
    store::DeltaPatchOptions options;
    options.reverse = "/r";
    options.publish = publish;
    bool done = false;
    options.progress = [&](uint64_t, uint64_t) {
      if (!std::exchange(done, true) && meanwhile) meanwhile();
      return true;
    };
    return store::patch(disk, model, "/d", std::move(options));
  }
  static Holdings with_a_changed() {
    Holdings to = joined();
    to.tensors[0] = changed().tensors[0];
    return to;
  }
  static TestTensor of_another_shape() { return {"c", Dtype::U8, {2500, 2}, joined().tensors[2].bytes}; }

 private:
  static store::NewBytes bytes_of(const TestTensor &t) {
    return {static_cast<uint32_t>(t.dtype), t.shape, t.bytes.data(), t.bytes.size()};
  }
};

TEST_F(ShardedDeltasBeside, LoseNoCommitOfTheSameHandle) {
  const TestTensor theirs_of[] = {u8_tensor("a", 4000, 77), u8_tensor("c", 5000, 77)};
  for (const bool publish : {false, true})
    for (const bool steps : {false, true}) {
      SCOPED_TRACE(text(publish, steps));
      const SimDisk before = disk.disk();
      Holdings to = with_a_changed();
      if (steps) to.tensors = {joined().tensors[0], joined().tensors[1], changed().tensors[2]};
      make_delta(to);
      EXPECT_EQ(held("/d").metadata.at("st.delta.version"), steps ? "2" : "1");
      const TestTensor &theirs = theirs_of[steps];
      auto model = open();
      const auto meanwhile = [&] { change(*model, updates(theirs), true); };
      EXPECT_TRUE(fails_with(Status::file_changed, apply(*model, meanwhile, publish)));
      Holdings now = joined();
      now.tensors[steps ? 2 : 0] = theirs;
      EXPECT_EQ(in_shards(disk, "/m"), by_name(now));
      EXPECT_FALSE(disk.exists("/r"));
      EXPECT_TRUE(fails_with(Status::delta_base, apply(*model, {}, publish)));
      EXPECT_FALSE(disk.exists("/r"));
      model.reset();
      disk = SimEnv(before);
    }
}

// In one that the delta leaves alone: it is of the base nevertheless.
TEST_F(ShardedDeltasBeside, AreNotAppliedToAStateOfWhichAnotherShardHasChanged) {
  make_delta(with_a_changed());
  auto model = open(), other = open();
  ASSERT_TRUE(is_ok(model->catalogue().find("c")));
  change(*other, puts(of_another_shape()));
  EXPECT_TRUE(fails_with(Status::file_changed, apply(*model, {})));
  EXPECT_FALSE(disk.exists("/r"));
  ASSERT_TRUE(is_ok(model->refresh()));
  EXPECT_TRUE(fails_with(Status::delta_base, apply(*model, {})));
  Holdings now = joined();
  now.tensors[2] = of_another_shape();
  EXPECT_EQ(in_shards(disk, "/m"), by_name(now));
  change(*other, puts(joined().tensors[2]));
  ASSERT_TRUE(is_ok(model->refresh()));
  ASSERT_TRUE(is_ok(apply(*model, {})));
  EXPECT_EQ(in_shards(disk, "/m"), by_name(with_a_changed()));
}

TEST_F(ShardedDeltasBeside, AreNotAppliedIfTheHandleChangesTheBaseMeanwhile) {
  const Change changes[] = {puts(of_another_shape()), [](store::AnyTransaction &in) { return in.rename("c", "d"); },
                            [](store::AnyTransaction &in) { return in.set_metadata("by", "you"); },
                            puts(u8_tensor("a", 3999, 77))};
  for (const Change &theirs : changes) {
    SCOPED_TRACE(&theirs - changes);
    const SimDisk before = disk.disk();
    make_delta(with_a_changed());
    auto model = open();
    EXPECT_TRUE(fails_with(Status::file_changed, apply(*model, [&] { change(*model, theirs); })));
    const TestTensor now = in_shards(disk, "/m").tensors[0];
    EXPECT_TRUE(now == joined().tensors[0] || now == u8_tensor("a", 3999, 77));
    EXPECT_FALSE(disk.exists("/r"));
    EXPECT_TRUE(fails_with(Status::delta_base, apply(*model, {})));
    model.reset();
    disk = SimEnv(before);
  }
}

TEST_F(ShardedDeltasBeside, GoOnWhereOtherTensorsArePatchedMeanwhile) {
  make_delta(with_a_changed());
  const SimDisk before = disk.disk();
  for (const auto map : {read::MapMode::automatic, read::MapMode::copy_on_write}) {
    auto model = store::open_path(disk, "/m", {.writable = true, .map = map}).value();
    Holdings now = with_a_changed();
    now.tensors[1] = u8_tensor("b", 9000, 78);
    now.tensors[2] = u8_tensor("c", 5000, 79);
    ASSERT_TRUE(is_ok(apply(*model, [&] {
      change(*model, updates(now.tensors[1]));
      change(*model, updates(now.tensors[2]));
      EXPECT_TRUE(is_ok(model->refresh()));
    })));
    EXPECT_EQ(in_shards(disk, "/m"), by_name(now));
    model.reset();
    disk = SimEnv(before);
  }
}

TEST_F(ShardedDeltas, StopWhenToldTo) {
  ASSERT_TRUE(is_ok(store::diff(disk, "/m", "/other", "/d", {})));
  for (int after = 0; after < 40; ++after) {
    store::DeltaPatchOptions options;
    options.reverse = "/r";
    uint64_t last = 0;
    int asked = 0;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(done, total);
      EXPECT_GE(done, last);
      last = done;
      return asked++ < after;
    };
    auto done = store::patch(disk, "/m", "/d", std::move(options));
    if (done) {
      EXPECT_GT(after, 2);
      EXPECT_EQ(in_shards(disk, "/m"), by_name(changed()));
      return;
    }
    EXPECT_TRUE(fails_with(Status::cancelled, done));
    EXPECT_EQ(in_shards(disk, "/m"), by_name(joined()));
    EXPECT_EQ(disk.names("/m"), files);
  }
  ADD_FAILURE() << "it never came to an end";
}

TEST(RandomShardedDeltas, LeadForthAndBack) {
  std::mt19937 random(20261122);
  const size_t trials = bounded(30, 100, 100);
  size_t in_place = 0, published = 0;
  for (size_t trial = 0; trial < trials && !::testing::Test::HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    SimEnv disk;
    const Holdings from = holdings_of(random_holdings(random).file()), to = random_change(from, random),
                   last = random_change(to, random);
    if (from.tensors.empty()) continue;  // an index without shards has none to put a tensor into
    add_shards(disk, "/s", from, random);
    add_shards(disk, "/t", from, random);
    for (const auto &[path, held] : {std::pair{"/a", from}, {"/b", to}, {"/c", last}}) disk.add_file(path, held.file());
    ASSERT_TRUE(is_ok(store::diff(disk, "/a", "/b", "/ab", {})));
    ASSERT_TRUE(is_ok(store::diff(disk, "/b", "/c", "/bc", {})));
    const auto apply = [&](const char *folder, const char *with, const char *reverse) {
      store::DeltaPatchOptions options;
      options.reverse = reverse;
      return store::patch(disk, folder, with, std::move(options));
    };
    auto done = apply("/s", "/ab", "/ba");
    if (to.tensors.empty()) {  // from which there would be no way back
      EXPECT_TRUE(fails_with(Status::unsupported, done));
      continue;
    }
    ASSERT_TRUE(is_ok(done));
    (done->plan.kind == store::CommitPlan::publish ? published : in_place) += 1;
    ASSERT_EQ(in_shards(disk, "/s"), by_name(to));
    if (last.tensors.empty()) continue;
    ASSERT_TRUE(is_ok(apply("/s", "/bc", "/cb")));
    ASSERT_EQ(in_shards(disk, "/s"), by_name(last));
    ASSERT_TRUE(is_ok(apply("/s", "/cb", "")));
    ASSERT_EQ(in_shards(disk, "/s"), by_name(to));
    ASSERT_TRUE(is_ok(apply("/s", "/ba", "/ab again")));
    ASSERT_EQ(in_shards(disk, "/s"), by_name(from));
    ASSERT_TRUE(is_ok(apply("/t", "/ab again", "")));  // in other shards
    ASSERT_EQ(in_shards(disk, "/t"), by_name(to));
    ASSERT_TRUE(is_ok(apply("/a", "/ab again", "")));  // in one file
    ASSERT_EQ(by_name(holdings_of(disk.contents("/a"))), by_name(to));
  }
  EXPECT_GT(in_place, trials / 10);
  EXPECT_GT(published, trials * 2 / 5);
}

// Names, forms and metadata are the same, and so the identity: the delta made of the one form fits the other.
TEST(RandomShardedDeltas, AreThoseOfTheFileThatTheShardsMake) {
  std::mt19937 random(6);
  for (size_t trial = 0; trial < bounded(20, 60, 60) && !::testing::Test::HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    SimEnv disk;
    const Holdings from = holdings_of(random_holdings(random).file()), to = random_change(from, random);
    disk.add_file("/a", from.file());
    disk.add_file("/b", to.file());
    add_shards(disk, "/sa", from, random);
    add_shards(disk, "/sb", to, random);
    Holdings first;
    for (const std::string &a : {std::string("/a"), std::string("/sa")})
      for (const std::string &b : {std::string("/b"), index_in("/sb")}) {
        ASSERT_TRUE(is_ok(store::diff(disk, a, b, "/d", {})));
        Holdings delta = holdings_of(disk.contents("/d"));
        delta.metadata.erase("st.delta.order");  // of which shards have another
        for (const char *key : {"st.delta.set", "st.delta.removed", "st.delta.deleted"})
          if (auto found = delta.metadata.find(key); found != delta.metadata.end())
            std::sort(found->second.begin(), found->second.end());  // any order will do
        if (a == "/a" && b == "/b") first = delta;
        EXPECT_EQ(delta.tensors, first.tensors);
        for (const auto &[key, value] : first.metadata)
          if (key != "st.delta.hashes") {
            EXPECT_EQ(delta.metadata[key], value) << key;
          }
        EXPECT_EQ(delta.metadata["st.delta.hashes"].size(), first.metadata["st.delta.hashes"].size());
        EXPECT_EQ(by_name(seen_through(disk, "/sa", {"/d"})), by_name(to));
        for (const char *base : {"/a", "/sa"}) {
          ASSERT_TRUE(is_ok(store::merge(disk, base, {"/d"}, "/merged", {})));
          EXPECT_EQ(by_name(holdings_of(disk.contents("/merged"))), by_name(to));
        }
      }
  }
}

}  // namespace
}  // namespace st::testing
