// Work grows with the number of shards, and not with its square. What counts is
// system calls, and names that listings of folders answered; no time.
#include <functional>

#include "engine/open.h"
#include "engine/recover_all.h"
#include "engine/verify.h"
#include "fault_env.h"
#include "format/shard_index.h"
#include "model/model_view.h"
#include "proportion.h"
#include "shards/shards.h"
#include "test_files.h"

namespace st::store {
namespace {

using namespace testing;

class CountedWork : public testing::FaultEnv {
 public:
  CountedWork() : FaultEnv(os::Env::posix()) {}
  int list(int dir, std::vector<std::string> *out) override {
    const int r = FaultEnv::list(dir, out);
    listed += out->size();
    return r;
  }
  size_t work() const { return calls.size() + listed; }
  size_t listed = 0;
};

class ManyShards : public ::testing::Test {
 protected:
  enum class Left { nothing, empty_folders, idle_journals, temporaries };

  // So many shards, and beside each what a writer may have left.
  void make(size_t n, Left left) {
    std::vector<std::string> names;
    for (size_t i = 0; i < n; ++i) names.push_back(text("m-", 10000 + i, ".safetensors"));
    ShardIndex index = ShardIndex::of(names, 0);
    for (size_t i = 0; i < n; ++i) {
      const std::string tensor = text("t", i), path = dir / names[i], folder = path + ".st-journal";
      put_bytes(path, testing::file_of({testing::u8_tensor(tensor, 8, 1)}));
      index.assign(tensor, names[i]);
      if (left == Left::empty_folders || left == Left::idle_journals) std::filesystem::create_directory(folder);
      if (left == Left::idle_journals) put_bytes(folder + "/0123456789abcdef", "");
      if (left == Left::temporaries)
        for (const char *infix : {".st-tmp-", ".st-new-"})
          put_bytes(dir / text(".", names[i], infix, "0123456789abcdef"), "");
    }
    put_bytes(path, index.spell());
  }
  std::unique_ptr<Model> open(os::Env &env) {
    OpenOptions options;
    options.writable = true;
    auto model = open_path(env, path, options);
    EXPECT_TRUE(is_ok(model));
    return std::move(*model);
  }
  void commit(Model &model, const std::function<Result<void>(AnyTransaction &)> &stage) {
    auto t = model.begin({});
    ASSERT_TRUE(is_ok(t));
    ASSERT_TRUE(is_ok(stage(**t)));
    ASSERT_TRUE(is_ok((*t)->commit()));
  }
  size_t cost_of(const std::function<void(os::Env &)> &work) {
    CountedWork env;
    work(env);
    return env.work();
  }
  size_t cost(size_t n, Left left, const std::function<void(os::Env &)> &work) {
    clear();
    make(n, left);
    return cost_of(work);
  }
  void clear() {
    for (const std::string &name : testing::names_in(dir.path())) std::filesystem::remove_all(dir / name);
  }
  struct Work {
    const char *name;
    std::function<void(os::Env &)> run;
  };
  void expect_linear(const Work &work, Left left) {
    constexpr size_t n = 40;
    const size_t once = cost(n, left, work.run), twice = cost(2 * n, left, work.run);
    EXPECT_LE(twice * 10, once * 22) << work.name << ", left " << static_cast<int>(left) << ": " << once << ", "
                                     << twice;
    clear();
  }

  static constexpr uint64_t eight[] = {8};
  static constexpr char letters[] = "letters!";
  static constexpr NewBytes value = {static_cast<uint32_t>(Dtype::U8), eight, letters, 8};
  testing::TempDir dir;
  const std::string path = dir / "m.safetensors.index.json";
};

TEST_F(ManyShards, TakeVerificationAndRecoveryLinearWork) {
  const Work works[] = {{"verify", [&](os::Env &env) { EXPECT_TRUE(is_ok(verify(env, path, {}, {}))); }},
                        {"recover", [&](os::Env &env) {
                           EXPECT_TRUE(is_ok(recover_all(env, path, {}, {})));
                           EXPECT_EQ(testing::names_in(dir.path()).size() % 40, 1u) << "something is left";
                         }}};
  for (const Left left : {Left::nothing, Left::empty_folders, Left::idle_journals, Left::temporaries})
    for (const Work &work : works) expect_linear(work, left);
}

// Each shard by itself: it may cost nothing but what it is.
TEST_F(ManyShards, TakeOneAfterTheOtherLinearWork) {
  const Work works[] = {{"compact", [&](os::Env &env) { EXPECT_TRUE(is_ok(open(env)->compact({}))); }},
                        {"updates",
                         [&](os::Env &env) {
                           const auto model = open(env);
                           EXPECT_TRUE(is_ok(model->catalogue().all({})));
                           for (size_t i = 0, n = model->catalogue().size(); i < n; ++i)
                             commit(*model, [&](AnyTransaction &t) { return t.update(text("t", i), value); });
                         }},
                        {"refresh", [&](os::Env &env) {
                           const auto model = open(env);
                           EXPECT_TRUE(is_ok(model->catalogue().all({})));
                           EXPECT_TRUE(is_ok(model->refresh()));
                         }}};
  for (const Left left : {Left::nothing, Left::empty_folders, Left::temporaries})
    for (const Work &work : works) expect_linear(work, left);
}

// The bytes tell, and not the times.
TEST_F(ManyShards, AnIndexWithTheSameBytesIsParsedOnce) {
  make(3, Left::nothing);
  const auto at = os::Location::find(os::Env::posix(), path);
  ASSERT_TRUE(is_ok(at));
  const auto model = open(os::Env::posix());
  const auto shown = [&] {
    const Catalogue now = model->catalogue();
    return static_cast<const ShardCatalogue &>(*now.several()).read();
  };
  const ReadIndex first = shown();
  const auto is_first = [&] { return shown().parsed == first.parsed; };
  EXPECT_TRUE(is_ok(model->compact({})));
  EXPECT_TRUE(is_first());
  commit(*model, [&](AnyTransaction &t) { return t.update("t1", value); });
  EXPECT_TRUE(is_first());
  const std::string bytes = bytes_of(path);
  put_bytes(path, bytes);
  EXPECT_TRUE(is_ok(model->refresh()));
  EXPECT_TRUE(is_first());
  EXPECT_TRUE(is_ok(Shards::read_index(*at, {}, &first)));
  EXPECT_EQ(Shards::read_index(*at, {}, &first)->parsed, first.parsed);

  std::string other = bytes;  // of the same length
  std::swap(other[other.find("t0") + 1], other[other.find("t1") + 1]);
  put_bytes(path, other);
  EXPECT_NE(Shards::read_index(*at, {}, &first)->parsed, first.parsed);
  EXPECT_TRUE(is_ok(model->refresh()));
  EXPECT_FALSE(is_first());
  EXPECT_TRUE(fails_with(Status::shard_tensor, model->catalogue().find("t1")));
}

// A program that takes no locks writes into the index while a commit has it, which has spelled the new one by then.
TEST_F(ManyShards, ANewIndexIsMadeOfWhatIsThereAtTheEnd) {
  make(2, Left::nothing);
  const auto model = open(os::Env::posix());
  auto t = model->begin({});
  ASSERT_TRUE(is_ok(t));
  ASSERT_TRUE(is_ok((*t)->put("new", value)));
  (*t)->before_change([&](auto) -> Result<void> {
    std::string other = bytes_of(path);
    other.replace(other.find('{'), 1, R"({"metadata": {"other": "1"},)");
    put_bytes(path, other);
    return {};
  });
  ASSERT_TRUE(is_ok((*t)->commit()));
  const auto at = os::Location::find(os::Env::posix(), path);
  const auto now = Shards::read_index(*at, {});
  ASSERT_TRUE(is_ok(now));
  EXPECT_EQ(now->index().metadata_find("other"), "1");
  EXPECT_EQ(now->index().shard_of("new"), 1u);
  EXPECT_EQ(now->index().size(), 3u);
  EXPECT_EQ(model->catalogue().metadata_find("other"), "1");
}

// It is taken when the new index was spelled already.
TEST_F(ManyShards, ANewIndexHasTheNamesThatShardsGetInTheEnd) {
  make(2, Left::nothing);
  const auto model = open(os::Env::posix());
  TransactionOptions options;
  options.new_names = true;
  auto t = model->begin(options);
  ASSERT_TRUE(is_ok(t));
  ASSERT_TRUE(is_ok((*t)->put("new", value)));
  (*t)->before_change([&](auto) -> Result<void> {
    put_bytes(dir / "m-10001.g1.safetensors", "of somebody else");
    return {};
  });
  ASSERT_TRUE(is_ok((*t)->commit()));
  const auto now = Shards::read_index(*os::Location::find(os::Env::posix(), path), {});
  ASSERT_TRUE(is_ok(now));
  EXPECT_EQ(now->index().shards(), (std::vector<std::string>{"m-10000.safetensors", "m-10001.g2.safetensors"}));
  EXPECT_TRUE(is_ok(model->catalogue().find("new")));
}

// The index has some keys, and the first shard those and others.
TEST_F(ManyShards, MetadataOfAViewTakesWorkInProportion) {
  const auto view_cost = [this](size_t n) {
    const std::string shard = "m-10000.safetensors";
    std::vector<std::string> keys;
    for (size_t i = 0; i < n; ++i) keys.push_back(text("key ", i));
    std::vector<std::pair<std::string_view, std::string_view>> pairs;
    for (const std::string &key : keys) pairs.emplace_back(key, "shard's");
    put_bytes(dir / shard, testing::file_of({testing::u8_tensor("t", 8, 1)}, pairs));
    ShardIndex index = ShardIndex::of({shard}, 0);
    index.assign("t", shard);
    for (size_t i = 0; i < n; i += 2) index.set_metadata(keys[i], "index's");
    put_bytes(path, index.spell());
    auto model = open_path(os::Env::posix(), path, {});
    EXPECT_TRUE(is_ok(model));
    return testing::thread_ns_of([&] {
      auto view = ModelView::of(**model);
      EXPECT_TRUE(is_ok(view));
      EXPECT_EQ(view->metadata().size(), n);
    });
  };
  testing::expect_in_proportion(view_cost);
}

}  // namespace
}  // namespace st::store
