// Where a process may open few files: shards are read with those that can be had, and a change of many shards that
// needs more is refused before anything has changed.
#include <fcntl.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "bound.h"
#include "few_descriptors.h"
#include "format/shard_index.h"
#include "os/filesystem.h"
#include "shards/shards.h"
#include "test_files.h"

namespace st::store {
namespace {

using namespace testing;

class FewDescriptorsTest : public ::testing::Test {
 protected:
  static constexpr size_t n = 12;
  static constexpr uint64_t shape = 8;

  void SetUp() override {
    std::vector<std::string> names;
    for (size_t i = 0; i < n; ++i) names.push_back(text("m-", 10000 + i, ".safetensors"));
    ShardIndex index = ShardIndex::of(names, 0);
    // What is written later has other times, however seldom the kernel's clock ticks.
    const auto before = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
    for (size_t i = 0; i < n; ++i) {
      put_bytes(dir / names[i], file_of({u8_tensor(text("t", i), shape, i)}));
      std::filesystem::last_write_time(dir / names[i], before);
      index.assign(text("t", i), names[i]);
    }
    put_bytes(path, index.spell());
  }
  std::vector<std::pair<std::string, std::string>> files() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string &name : names_in(dir.path())) all.emplace_back(name, bytes_of(dir / name));
    return all;
  }
  static Result<std::string> read(const Model &model, size_t i) {
    ST_TRY(auto place, model.catalogue().find(text("t", i)));
    std::string out(shape, '\0');
    ST_TRY(place.member->read(*place.snapshot, place.index, out.data()));
    return out;
  }
  // All of them, as stock has them now.
  void expect_read(const Model &model) {
    for (size_t i = 0; i < n; ++i) {
      const auto bytes = read(model, i);
      ASSERT_TRUE(is_ok(bytes)) << i;
      EXPECT_EQ(*bytes, bytes_of(dir / text("m-", 10000 + i, ".safetensors")).substr(file_size() - shape)) << i;
    }
  }
  Result<void> publish(Model &model, size_t i, const std::string &bytes) {
    TransactionOptions options;
    options.publish = true;
    ST_TRY(auto t, model.begin(std::move(options)));
    ST_TRY(t->update(text("t", i), {static_cast<uint32_t>(Dtype::U8), {&shape, 1}, bytes.data(), bytes.size()}));
    return t->commit();
  }
  // Descriptors of files that have no name any more.
  size_t nameless() const {
    size_t found = 0;
    std::error_code ignored;
    for (const auto &fd : std::filesystem::directory_iterator("/proc/self/fd")) {
      const std::string to = std::filesystem::read_symlink(fd.path(), ignored).string();
      found += to.starts_with(dir.path()) && to.ends_with("(deleted)");
    }
    return found;
  }
  size_t file_size() const { return bytes_of(dir / text("m-", 10000, ".safetensors")).size(); }
  Result<std::unique_ptr<Shards>> open(bool writable, read::MapMode map = read::MapMode::automatic) {
    OpenOptions options;
    options.writable = writable;
    options.map = map;
    return Shards::open(env, path, options);
  }

  TempDir dir;
  const std::string path = dir / "m.safetensors.index.json";
  FewDescriptors env{os::Env::posix()};
};

TEST_F(FewDescriptorsTest, AreEnoughToReadAllShards) {
  for (const int error : {EMFILE, ENFILE})
    for (const auto map : {read::MapMode::automatic, read::MapMode::none}) {
      env.error = error;
      env.most = 8;
      auto model = open(false, map);
      ASSERT_TRUE(is_ok(model));
      for (int again = 0; again < 2; ++again) expect_read(**model);
      ASSERT_TRUE(is_ok((*model)->refresh()));
      expect_read(**model);
    }
}

TEST_F(FewDescriptorsTest, AShardThatGotTheInodeOfAnotherIsNotReadForIt) {
  const std::string shard = dir / "m-10000.safetensors";
  env.most = 8;
  auto model = open(false, read::MapMode::none);
  ASSERT_TRUE(is_ok(model));
  expect_read(**model);  // the first shard's descriptor was given up
  const std::string patched = file_of({u8_tensor("t0", shape, 99)});
  put_bytes(shard, patched);
  const auto bytes = read(**model, 0);
  ASSERT_TRUE(is_ok(bytes));
  EXPECT_EQ(*bytes, patched.substr(patched.size() - shape));

  for (size_t i = 1; i < n; ++i) ASSERT_TRUE(is_ok(read(**model, i)));
  put_bytes(shard, file_of({u8_tensor("s", 3, 1), u8_tensor("t0", shape, 2)}));
  EXPECT_TRUE(fails_with(Status::file_changed, read(**model, 0)));
  put_bytes(shard, "no safetensors");
  EXPECT_TRUE(fails_with(Status::file_changed, read(**model, 0)));
  put_bytes(shard, patched);
  env.before = [](Call call) { return call == Call::pread ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, read(**model, 0)));
  env.before = nullptr;
  EXPECT_TRUE(is_ok(read(**model, 0)));
}

// Others publish the same shapes twice, and the disk gives what it got back to the second file. So all that the new
// file does not share with the old one are its bytes, its times and when it was made.
class ReusedInodes : public FewDescriptorsTest {
 protected:
  struct Births : FewDescriptors {
    using FewDescriptors::FewDescriptors;
    int64_t birth_time(int, const char *) override { return birth; }
    int64_t birth = 1;
  } births{os::Env::posix()};

  void SetUp() override {
    FewDescriptorsTest::SetUp();
    auto index = os::File::open(births, AT_FDCWD, path, O_RDONLY, 0, path);
    ASSERT_TRUE(is_ok(index));
    if (!os::tells_times(os::probe_filesystem(*index)))
      GTEST_SKIP() << "below " << dir.path() << " births tell nothing";
  }
  std::unique_ptr<Shards> opened(bool writable = false) {
    births.most = writable ? 24 : 8;
    OpenOptions options;
    options.writable = writable;
    options.map = read::MapMode::none;
    auto model = Shards::open(births, path, options);
    EXPECT_TRUE(is_ok(model));
    return std::move(*model);
  }
  void replace(size_t i) {
    births.birth = 2;
    put_bytes(dir / text("m-", 10000 + i, ".safetensors"), file_of({u8_tensor(text("t", i), shape, 100 + i)}));
  }
};

TEST_F(ReusedInodes, AreNotReadForTheOldFileAlsoIfTheHeaderIsTheSame) {
  const auto model = opened();
  expect_read(*model);
  replace(0);
  EXPECT_TRUE(fails_with(Status::file_changed, read(*model, 0)));
  births.birth = -ENODATA;  // then the header decides
  EXPECT_TRUE(is_ok(read(*model, 0)));
  births.birth = 2;
  for (size_t i = 1; i < n; ++i) EXPECT_TRUE(is_ok(read(*model, i)));
  EXPECT_TRUE(fails_with(Status::file_changed, read(*model, 0)));
  ASSERT_TRUE(is_ok(model->refresh()));
  expect_read(*model);
}

TEST_F(ReusedInodes, DoNotHideThatAShardWasReplacedFromOneThatIsOpenedLater) {
  const auto model = opened();
  for (size_t i = 0; i + 1 < n; ++i) ASSERT_TRUE(is_ok(read(*model, i)));
  for (const size_t i : {size_t{0}, n - 1}) replace(i);
  EXPECT_TRUE(fails_with(Status::file_changed, read(*model, n - 1)));
  ASSERT_TRUE(is_ok(model->refresh()));
  expect_read(*model);
}

// For a publish the states of the file that it replaces keep a descriptor.
TEST_F(ReusedInodes, AreNotKeptOpenForStatesOfTheOldFile) {
  const auto model = opened(true);
  const auto old = model->catalogue();
  for (size_t i = 0; i < n; ++i) ASSERT_TRUE(is_ok(old.find(text("t", i))));
  expect_read(*model);
  replace(0);
  ASSERT_TRUE(is_ok(model->refresh()));
  ASSERT_TRUE(is_ok(publish(*model, 0, std::string(shape, 'p'))));
  const auto place = old.find("t0");
  ASSERT_TRUE(is_ok(place));
  std::string out(shape, '\0');
  EXPECT_TRUE(fails_with(Status::file_changed, place->member->read(*place->snapshot, place->index, out.data())));
}

TEST_F(FewDescriptorsTest, NoneMeansAFailureThatSaysSo) {
  auto model = open(false);
  ASSERT_TRUE(is_ok(model));
  for (const auto &[error, wanted] : {std::pair(EMFILE, "ulimit -n"), {ENFILE, "fs.file-max"}}) {
    env.error = error;
    env.most = 0;
    auto none = read(**model, 0);
    ASSERT_TRUE(fails_with(Status::io, none));
    EXPECT_EQ(none.error().os_errno, error);
    EXPECT_NE(none.error().message.find(wanted), std::string::npos) << none.error().message;
  }
}

TEST_F(FewDescriptorsTest, WhatTheHandleHasIsForAPlanAndAChangeOfSomeShards) {
  const std::string fresh = pattern(shape, 78);
  for (const bool publish : {false, true})
    for (size_t changed = 1; changed <= (publish ? 1 : 2); ++changed) {
      SCOPED_TRACE(text(changed, publish ? " published" : " patched"));
      SetUp();
      auto model = open(true, read::MapMode::none);
      ASSERT_TRUE(is_ok(model));
      TransactionOptions options;
      options.publish = publish;
      auto t = (*model)->begin(std::move(options));
      ASSERT_TRUE(is_ok(t));
      for (size_t i = 0; i < changed; ++i)
        ASSERT_TRUE(is_ok(
            (*t)->update(text("t", i), {static_cast<uint32_t>(Dtype::U8), {&shape, 1}, fresh.data(), fresh.size()})));
      const auto take_all = [&] {
        env.most = SIZE_MAX;
        expect_read(**model);
        env.most = env.open_now();
      };
      take_all();
      EXPECT_TRUE(is_ok((*t)->plan()));
      take_all();
      EXPECT_TRUE(is_ok((*t)->commit()));
      take_all();
      ASSERT_TRUE(is_ok((*model)->refresh()));
      expect_read(**model);
      env.most = SIZE_MAX;
    }
}

TEST_F(FewDescriptorsTest, WhatIsAskedLastMayHaveWhatTheHandleHas) {
  const std::string fresh = pattern(shape, 78);
  for (const char *change : {"nothing", "patched", "published", "two patched", "new names", "new metadata"}) {
    SCOPED_TRACE(change);
    const std::string_view is(change);
    SetUp();
    auto model = open(true, read::MapMode::none);
    ASSERT_TRUE(is_ok(model));
    TransactionOptions options;
    options.publish = is == "published";
    options.new_names = is == "new names";
    auto t = (*model)->begin(std::move(options));
    ASSERT_TRUE(is_ok(t));
    const size_t changed = is == "two patched" ? 2 : is == "nothing" || is == "new metadata" ? 0 : 1;
    for (size_t i = 0; i < changed; ++i)
      ASSERT_TRUE(is_ok(
          (*t)->update(text("t", i), {static_cast<uint32_t>(Dtype::U8), {&shape, 1}, fresh.data(), fresh.size()})));
    if (is == "new metadata") {
      ASSERT_TRUE(is_ok((*t)->set_metadata("k", "v")));
    }
    expect_read(**model);
    int asked = 0;
    (*t)->at_last([&]() -> Result<void> {
      return ++asked == 1 ? Result<void>(Failure(os_error(EMFILE, "open", "another"))) : Result<void>();
    });
    EXPECT_TRUE(is_ok((*t)->commit()));
    EXPECT_EQ(asked, 2);
  }
}

// Writers beside it need them.
TEST_F(FewDescriptorsTest, JournalsThatWaitForTheNextChangeHaveFew) {
  constexpr size_t of_journals = 4;
  env.most = 64;
  auto model = open(true);
  ASSERT_TRUE(is_ok(model));
  expect_read(**model);
  const size_t before = env.open_now();
  const std::string fresh = pattern(shape, 79);
  for (size_t i = 0; i < n; ++i) {
    auto t = (*model)->begin({});
    ASSERT_TRUE(is_ok(t));
    ASSERT_TRUE(
        is_ok((*t)->update(text("t", i), {static_cast<uint32_t>(Dtype::U8), {&shape, 1}, fresh.data(), fresh.size()})));
    ASSERT_TRUE(is_ok((*t)->commit()));
    EXPECT_LE(env.open_now(), before + of_journals);
  }
  expect_read(**model);
}

// A pin of all shards keeps the descriptors of some, when others take their names. What is mapped is read from there.
TEST_F(FewDescriptorsTest, APinOfPublishedShardsKeepsNoMoreThanTheHandleMay) {
  constexpr size_t most = 4;
  const std::string fresh = pattern(shape, 78);
  for (const auto map : {read::MapMode::automatic, read::MapMode::none}) {
    SCOPED_TRACE(text(static_cast<int>(map)));
    SetUp();
    env.most = 8 * most;
    auto model = open(true, map);
    env.most = SIZE_MAX;
    ASSERT_TRUE(is_ok(model));
    expect_read(**model);
    std::vector<std::string> old;
    for (size_t i = 0; i < n; ++i) old.push_back(read(**model, i).value());
    const Catalogue pin = (*model)->catalogue();
    for (size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(is_ok(publish(**model, i, fresh)));
      EXPECT_LE(nameless(), most) << i;
    }
    expect_read(**model);
    size_t lost = 0;
    const Range last{shape - 1, shape, 1}, odd{1, shape, 2};
    for (size_t i = 0; i < n; ++i) {
      const Place place = pin.find(text("t", i)).value();
      std::string whole(shape, '\0'), end(1, '\0'), strided(shape / 2, '\0'), bulk(shape, '\0');
      const auto done = place.member->read(*place.snapshot, place.index, whole.data());
      if (!done && map == read::MapMode::none) {
        EXPECT_TRUE(fails_with(Status::file_changed, done));
        ++lost;
        continue;
      }
      ASSERT_TRUE(is_ok(done)) << i;
      EXPECT_TRUE(same_bytes(whole, old[i]));
      const auto end_of = SlicePlan::make(Dtype::U8, {&shape, 1}, {&last, 1}).value();
      const auto odd_of = SlicePlan::make(Dtype::U8, {&shape, 1}, {&odd, 1}).value();
      ASSERT_TRUE(is_ok(place.member->read_slice(*place.snapshot, place.index, end_of, end.data())));
      EXPECT_TRUE(same_bytes(end, old[i].substr(shape - 1)));
      const auto to = [](std::string &s) { return reinterpret_cast<std::byte *>(s.data()); };
      ASSERT_TRUE(is_ok(place.member->read_many(
          *place.snapshot, {{place.index, nullptr, to(bulk)}, {place.index, &odd_of, to(strided)}}, {})));
      EXPECT_TRUE(same_bytes(bulk, old[i]));
      for (size_t k = 0; k < strided.size(); ++k) EXPECT_EQ(strided[k], old[i][2 * k + 1]);
    }
    EXPECT_LT(lost, n - 1);
  }
}

// The commit stands. To show it takes an open file more than there is: it shows all the same, or as soon as it may.
TEST_F(FewDescriptorsTest, WhatIsPublishedShowsWhereNothingCanBeOpened) {
  const std::string fresh = pattern(shape, 78);
  auto model = open(true);
  ASSERT_TRUE(is_ok(model));
  expect_read(**model);
  bool renamed = false;
  const auto fails = [&](testing::Call call) {
    renamed |= call == testing::Call::renameat;
    return renamed && (call == testing::Call::openat || call == testing::Call::list) ? -EMFILE : 0;
  };
  env.before = fails;
  ASSERT_TRUE(is_ok(publish(**model, 0, fresh)));
  ASSERT_TRUE(renamed);
  const Catalogue shown = (*model)->catalogue();
  const Place place = shown.find("t0").value();
  const auto view = place.member->view(*place.snapshot, place.index);
  ASSERT_TRUE(is_ok(view));
  EXPECT_TRUE(same_bytes({reinterpret_cast<const char *>(*view), shape}, fresh));

  env.before = nullptr;
  renamed = false;
  TransactionOptions options;
  options.publish = true;
  auto t = (*model)->begin(std::move(options));
  ASSERT_TRUE(is_ok(t));
  ASSERT_TRUE(is_ok((*t)->rename("t1", "other")));
  env.before = fails;
  ASSERT_TRUE(is_ok((*t)->commit()));
  EXPECT_FALSE((*model)->catalogue().find("other").has_value());
  env.before = nullptr;
  EXPECT_TRUE(is_ok((*model)->lend().find("other")));
}

// Three for each shard: the file, its journal, and the folder of that; and the new file, if there is one. What the
// handle has open for reading is closed.
TEST_F(FewDescriptorsTest, AChangeOfAllShardsIsMadeOrRefused) {
  const std::string fresh = pattern(shape, 77);
  enum Change { patch, publish, new_names };
  EveryNth limit(3, 3);
  for (const Change change : {patch, publish, new_names}) {
    bool before = false;
    for (size_t most = 4 + limit.first(); most < 8 * n; most += limit.step) {
      SCOPED_TRACE(text(static_cast<int>(change), ", at most ", most));
      SetUp();
      const auto old = files();
      env.most = SIZE_MAX;
      bool made = false;
      {
        auto model = open(true);
        ASSERT_TRUE(is_ok(model));
        expect_read(**model);
        env.most = most;
        TransactionOptions options;
        options.publish = change != patch;
        options.new_names = change == new_names;
        options.copy = true;
        const auto done = [&]() -> Result<void> {
          ST_TRY(auto t, (*model)->begin(std::move(options)));
          for (size_t i = 0; i < n; ++i)
            ST_TRY(
                t->update(text("t", i), {static_cast<uint32_t>(Dtype::U8), {&shape, 1}, fresh.data(), fresh.size()}));
          return t->commit();
        }();
        made = done.has_value();
        if (!done) {
          EXPECT_TRUE(fails_with(Status::io, done));
          EXPECT_EQ(done.error().os_errno, EMFILE);
          EXPECT_NE(done.error().message.find("ulimit -n"), std::string::npos) << done.error().message;
        }
        env.most = SIZE_MAX;
      }
      EXPECT_TRUE(made || !before) << "fewer were enough";
      before = made;
      EXPECT_TRUE(made || files() == old);
      auto model = Shards::open(os::Env::posix(), path, {});
      ASSERT_TRUE(is_ok(model));
      for (size_t i = 0; i < n; ++i) {
        const auto bytes = read(**model, i);
        ASSERT_TRUE(is_ok(bytes));
        EXPECT_EQ(*bytes == fresh, made) << i;
      }
      EXPECT_TRUE(made || most < (change == patch ? 3 : 4) * n + 8);
      for (const std::string &name : names_in(dir.path())) std::filesystem::remove_all(dir / name);
    }
    EXPECT_TRUE(before);
  }
  SetUp();
}

}  // namespace
}  // namespace st::store
