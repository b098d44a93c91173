// Payloads that lie in the very file that they are to change: views of this handle, of another one, and of a mapping
// that libst knows nothing of. And payloads that the caller changes between staging and commit.
#include <cstring>

#include "engine/open.h"
#include "journal/recover.h"
#include "located.h"
#include "model/model.h"
#include "sharing_env.h"
#include "test_files.h"
#include "without_syncs.h"

namespace st::store::payload_views {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class Env : public WithoutSyncs<SharingEnv> {
 public:
  using WithoutSyncs::WithoutSyncs;
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    if (before_and_after_write) before_and_after_write();
    const ssize_t done = SharingEnv::pwrite(fd, buffer, n, offset);
    if (before_and_after_write) before_and_after_write();
    return done;
  }

  std::function<void()> before_and_after_write;
};

// All of a file, mapped by no handle.
class PlainMapping {
 public:
  explicit PlainMapping(const std::string &path) : size_(fs::file_size(path)) {
    os::Env &env = os::Env::posix();
    const int fd = env.openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC, 0);
    void *bytes = nullptr;
    if (env.mmap(size_, PROT_READ, MAP_SHARED, fd, &bytes) < 0) std::abort();
    env.close(fd);
    bytes_ = static_cast<const std::byte *>(bytes);
  }
  ~PlainMapping() { os::Env::posix().munmap(const_cast<std::byte *>(bytes_), size_); }
  PlainMapping(const PlainMapping &) = delete;
  PlainMapping &operator=(const PlainMapping &) = delete;
  const std::byte *bytes() const { return bytes_; }

 private:
  size_t size_;
  const std::byte *bytes_;
};

// A file with the tensors a, b, c of n bytes each; or shards, of which the first has a and b.
class Scene {
 public:
  Scene(size_t n, bool shards, const char *journal, read::MapMode map) : n(n), shards(shards), map(map) {
    env.journal = journal;
    if (shards) {
      put_bytes(part(1), file_of(std::vector{u8_tensor("a", n, 1), u8_tensor("b", n, 2)}));
      put_bytes(part(2), file_of(std::vector{u8_tensor("c", n, 3)}));
      put_bytes(path(), R"({"metadata":{},"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors",)"
                        R"("c":"m-2.safetensors"}})");
    } else {
      put_bytes(path(), file_of(std::vector{u8_tensor("a", n, 1), u8_tensor("b", n, 2), u8_tensor("c", n, 3)}));
    }
    handle = open();
    for (const char *name : {"a", "b", "c"}) was.push_back(held(name));
  }

  std::string part(int i) const { return dir / ("m-" + std::to_string(i) + ".safetensors"); }
  std::string path() const { return dir / (shards ? "model.safetensors.index.json" : "model.safetensors"); }
  std::unique_ptr<Model> open() {
    OpenOptions options;
    options.writable = true;
    options.map = map;
    auto opened = open_path(env, path(), std::move(options));
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  static const std::byte *view(const Model &of, std::string_view name) {
    const Place p = of.catalogue().find(name).value();
    return p.member->view(*p.snapshot, p.index).value();
  }
  // What a file really has, by no view.
  std::string held(std::string_view name) const {
    const Place p = handle->catalogue().find(name).value();
    return bytes_of(p.member->path()).substr(p.snapshot->file_offset(p.tensor()), n);
  }
  std::unique_ptr<AnyTransaction> begin(TransactionOptions options = {}) const {
    return std::move(handle->begin(std::move(options)).value());
  }
  NewBytes value(const void *bytes) const { return {static_cast<uint32_t>(Dtype::U8), {&shape, 1}, bytes, n}; }

  const size_t n;
  const uint64_t shape = n;
  const bool shards;
  const read::MapMode map;
  TempDir dir;
  Env env{os::Env::posix()};
  std::unique_ptr<Model> handle;
  std::vector<std::string> was;  // a, b, c
};

enum class From { handle, other_handle, plain_mapping };

struct Way {
  size_t n;
  bool shards;
  const char *journal;
  read::MapMode map;
  From from;
};

std::vector<Way> all_ways() {
  constexpr size_t large = size_t{4} << 20;  // several chunks, and slow
  std::vector<Way> ways;
  for (const size_t n : {size_t{4096}, size_t{300'000}, large})
    for (const bool shards : {false, true})
      for (const char *journal : {"redo", "undo"})
        for (const auto map :
             {read::MapMode::shared, read::MapMode::private_copy, read::MapMode::none, read::MapMode::copy_on_write})
          for (const From from : {From::handle, From::other_handle, From::plain_mapping})
            if (n < large || (!shards && map == read::MapMode::shared)) ways.push_back({n, shards, journal, map, from});
  return ways;
}

void PrintTo(const Way &w, std::ostream *out) {
  *out << w.n << " bytes";
}

std::string name_of(const ::testing::TestParamInfo<Way> &p) {
  static constexpr const char *maps[] = {"", "Shared", "Private", "None", "CopyOnWrite"};
  static constexpr const char *froms[] = {"Handle", "OtherHandle", "PlainMapping"};
  return std::to_string(p.param.n) + (p.param.shards ? "Shards" : "File") + p.param.journal +
         maps[static_cast<int>(p.param.map)] + froms[static_cast<int>(p.param.from)];
}

class ViewsAsPayloads : public ::testing::TestWithParam<Way> {
 protected:
  // Where a view of that tensor is.
  const std::byte *view(std::string_view name) {
    switch (GetParam().from) {
      case From::handle: return Scene::view(*scene.handle, name);
      case From::other_handle: return Scene::view(*other, name);
      case From::plain_mapping: break;
    }
    const Place p = scene.handle->catalogue().find(name).value();
    mappings.push_back(std::make_unique<PlainMapping>(p.member->path()));
    return mappings.back()->bytes() + p.snapshot->file_offset(p.tensor());
  }
  void commit(const std::vector<std::pair<std::string, const std::byte *>> &updates) {
    auto txn = scene.begin();
    for (const auto &[name, bytes] : updates) ASSERT_TRUE(is_ok(txn->update(name, scene.value(bytes))));
    ASSERT_TRUE(is_ok(txn->commit()));
  }
  void expect(const std::string &a, const std::string &b, const std::string &c) {
    EXPECT_TRUE(same_bytes(scene.held("a"), a)) << "a";
    EXPECT_TRUE(same_bytes(scene.held("b"), b)) << "b";
    EXPECT_TRUE(same_bytes(scene.held("c"), c)) << "c";
    const auto *shown = reinterpret_cast<const char *>(Scene::view(*scene.handle, "a"));
    EXPECT_TRUE(same_bytes({shown, scene.n}, a)) << "the view of a";
    EXPECT_TRUE(is_ok(scene.handle->begin({})));
  }

  Scene scene{GetParam().n, GetParam().shards, GetParam().journal, GetParam().map};
  const std::string a = scene.was[0], b = scene.was[1], c = scene.was[2];
  std::unique_ptr<Model> other = scene.open();
  std::vector<std::unique_ptr<PlainMapping>> mappings;
};

TEST_P(ViewsAsPayloads, Swap) {
  const std::byte *x = view("a"), *y = view("b");
  ASSERT_NO_FATAL_FAILURE(commit({{"a", y}, {"b", x}}));
  expect(b, a, c);
  if (GetParam().map == read::MapMode::copy_on_write && GetParam().from != From::plain_mapping) {
    EXPECT_TRUE(same_bytes({reinterpret_cast<const char *>(x), scene.n}, a)) << "keeps what it showed";
    EXPECT_TRUE(same_bytes({reinterpret_cast<const char *>(y), scene.n}, b)) << "keeps what it showed";
  }
}

TEST_P(ViewsAsPayloads, Rotate) {
  const std::byte *x = view("a"), *y = view("b"), *z = view("c");
  ASSERT_NO_FATAL_FAILURE(commit({{"a", y}, {"b", z}, {"c", x}}));
  expect(b, c, a);
}

TEST_P(ViewsAsPayloads, FromTheMiddleOfOneIntoTheNext) {
  // Memory of a handle's own holds neighbours side by side only after a load.
  for (Model *loaded : {scene.handle.get(), other.get()})
    if (GetParam().map == read::MapMode::none) {
      ASSERT_TRUE(is_ok(loaded->load(loaded->catalogue(), std::nullopt, false, false, {})));
    }
  const std::byte *middle = view("a") + scene.n / 2;
  const std::string wanted = a.substr(scene.n / 2) + b.substr(0, scene.n / 2);
  ASSERT_NO_FATAL_FAILURE(commit({{"a", middle}, {"b", middle}}));
  expect(wanted, wanted, c);
}

INSTANTIATE_TEST_SUITE_P(All, ViewsAsPayloads, ::testing::ValuesIn(all_ways()), name_of);

class ChangedPayload : public ::testing::TestWithParam<Way> {
 protected:
  Scene scene{GetParam().n, GetParam().shards, GetParam().journal, GetParam().map};
  const std::string a = scene.was[0], b = scene.was[1], c = scene.was[2];
  std::string x = pattern(scene.n, 51), y = pattern(scene.n, 52), z = pattern(scene.n, 53);
  const std::string staged_y = y;
  const bool undo = GetParam().journal == std::string_view("undo");
};

// Either the bytes that were staged are committed, or nothing is and the answer says so. The handle goes on.
TEST_P(ChangedPayload, IsNeverWrittenAsItIsNow) {
  auto txn = scene.begin();
  ASSERT_TRUE(is_ok(txn->update("a", scene.value(x.data()))));
  ASSERT_TRUE(is_ok(txn->update("b", scene.value(y.data()))));
  ASSERT_TRUE(is_ok(txn->update("c", scene.value(z.data()))));
  y[scene.n - 1] ^= 1;
  const auto done = txn->commit();
  if (undo) {
    ASSERT_TRUE(fails_with(Status::invalid_argument, done));
    EXPECT_NE(done.error().message.find("between staging and commit"), std::string::npos) << done.error().message;
    EXPECT_EQ(done.error().tensor, "b");
  } else {
    ASSERT_TRUE(is_ok(done));
  }
  EXPECT_TRUE(same_bytes(scene.held("a"), undo ? a : x));
  EXPECT_TRUE(same_bytes(scene.held("b"), undo ? b : staged_y));
  EXPECT_TRUE(same_bytes(scene.held("c"), undo ? c : z));
  txn = scene.begin();
  ASSERT_TRUE(is_ok(txn->update("b", scene.value(x.data()))));
  ASSERT_TRUE(is_ok(txn->commit()));
  EXPECT_TRUE(same_bytes(scene.held("b"), x));
}

// Staged for a patch, which a later call makes a publish.
TEST_P(ChangedPayload, IsNotPublishedEither) {
  auto txn = scene.begin();
  ASSERT_TRUE(is_ok(txn->update("b", scene.value(y.data()))));
  ASSERT_TRUE(is_ok(txn->put("new", scene.value(x.data()))));
  if (scene.shards) {
    ASSERT_TRUE(is_ok(txn->rename("a", "else")));  // so that b's shard is published, too
  }
  y[scene.n / 2] ^= 1;
  const auto done = txn->commit();
  if (undo) {
    ASSERT_TRUE(fails_with(Status::invalid_argument, done));
    EXPECT_NE(done.error().message.find("between staging and commit"), std::string::npos) << done.error().message;
  } else {
    ASSERT_TRUE(is_ok(done));
  }
  EXPECT_TRUE(same_bytes(scene.held("b"), undo ? b : staged_y));
  EXPECT_TRUE(is_ok(scene.handle->begin({})));
}

std::vector<Way> ways_of_changing() {
  std::vector<Way> ways;
  for (const Way &w : all_ways())
    if (w.map == read::MapMode::shared && w.from == From::handle) ways.push_back(w);
  return ways;
}
INSTANTIATE_TEST_SUITE_P(All, ChangedPayload, ::testing::ValuesIn(ways_of_changing()), name_of);

// A payload in the handle's own memory is taken at once; one behind another mapping costs a second attempt, and only
// if it changes with the file.
TEST(ViewsUnderUndo, ARollBackIsForViewsThatLibstCannotKnow) {
  Scene scene(300'000, false, "undo", read::MapMode::shared);
  const auto commits = [&](const std::byte *for_a, const std::byte *for_b) {
    scene.env.steps.clear();
    auto txn = scene.begin();
    EXPECT_TRUE(is_ok(txn->update("a", scene.value(for_a))));
    EXPECT_TRUE(is_ok(txn->update("b", scene.value(for_b))));
    EXPECT_TRUE(is_ok(txn->commit()));
    return std::count(scene.env.steps.begin(), scene.env.steps.end(), "j:commit");
  };
  const PlainMapping plain(scene.path());
  const Place p = scene.handle->catalogue().find("a").value();
  const std::byte *own = Scene::view(*scene.handle, "a"),
                  *foreign = plain.bytes() + p.snapshot->file_offset(p.tensor());
  EXPECT_EQ(commits(own + scene.n, own), 1);
  EXPECT_EQ(commits(foreign + scene.n, foreign), 2);
  const std::string x = pattern(scene.n, 5), y = pattern(scene.n, 6);
  EXPECT_EQ(commits(reinterpret_cast<const std::byte *>(x.data()), reinterpret_cast<const std::byte *>(y.data())), 1);
}

// The caller's memory is read once: what is hashed is what was written to the journal.
TEST(StagedPayload, ThatChangesWhileItIsStagedHasTheHashOfWhatWasTaken) {
  for (const size_t n : {size_t{4096}, size_t{300'000}}) {
    Scene scene(n, false, "redo", read::MapMode::shared);
    std::string x = pattern(n, 5);
    scene.env.before_and_after_write = [&] { ++x[n / 2]; };
    scene.env.fails = [](const std::string &step) { return step == "d:write" ? -EIO : 0; };
    auto txn = scene.begin();
    ASSERT_TRUE(is_ok(txn->update("b", scene.value(x.data()))));
    EXPECT_TRUE(fails_with(Status::needs_recovery, txn->commit()));
    txn.reset();
    scene.handle.reset();
    scene.env.fails = nullptr;
    scene.env.before_and_after_write = nullptr;
    auto recovered = write::recover(testing::located(scene.env, scene.path()), {0, nullptr, nullptr}, {});
    ASSERT_TRUE(is_ok(recovered));
    EXPECT_EQ(recovered->applied, 1u) << recovered->why_aside;
  }
}

// A journal that somebody spoils between staging and commit is no reason to answer ok.
TEST(StagedPayload, ThatIsDamagedInTheJournalIsNotCommittedAsIfItWereWhole) {
  for (const bool publishes : {false, true}) {
    Scene scene(300'000, false, "redo", read::MapMode::shared);
    TransactionOptions copy;
    copy.copy = true;
    auto txn = scene.begin(copy);
    const std::string x = pattern(scene.n, 5);
    ASSERT_TRUE(is_ok(txn->update("b", scene.value(x.data()))));
    if (publishes) {
      ASSERT_TRUE(is_ok(txn->rename("a", "else")));
    }
    const std::string folder = scene.path() + ".st-journal";
    const std::string journal = folder + "/" + testing::names_in(folder).at(0);
    poke(journal, bytes_of(journal).find(x.substr(5000, 64)), "damage");
    const auto done = txn->commit();
    txn.reset();
    if (publishes) {
      EXPECT_TRUE(fails_with(Status::journal, done));
      EXPECT_TRUE(same_bytes(scene.held("b"), scene.was[1]));
      EXPECT_TRUE(is_ok(scene.handle->begin({})));
      continue;
    }
    EXPECT_TRUE(fails_with(Status::needs_recovery, done));
    scene.handle.reset();
    auto recovered = write::recover(testing::located(scene.env, scene.path()), {0, nullptr, nullptr}, {});
    ASSERT_TRUE(is_ok(recovered));
    EXPECT_EQ(recovered->aside, 1u);
  }
}

}  // namespace
}  // namespace st::store::payload_views
