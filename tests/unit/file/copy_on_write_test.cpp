// Copy-on-write views: what is written there stays there. What befalls the file shows in pages that were not written,
// unless this process patches it.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "mapped_meanwhile.h"
#include "store_scene.h"

namespace st::store {
namespace {

using read::MapMode;
using namespace testing;

constexpr int populate_read = 22, populate_write = 23;  // MADV_POPULATE_...

// Refuses what it is told to.
class Refusing : public testing::FaultEnv {
 public:
  Refusing() : FaultEnv(os::Env::posix()) {}
  int mmap(size_t n, int protection, int flags, int fd, void **out) override {
    return fd >= 0 && maps == 0 ? -ENODEV : os::Env::posix().mmap(n, protection, flags, fd, out);
  }
  int madvise(void *address, size_t n, int advice) override {
    if (advice == populate_read) brought_in += n;
    if (advice == populate_write) note_owned(n);
    return advice == populate_write && populates != 0 ? -populates : os::Env::posix().madvise(address, n, advice);
  }
  int maps = 1, populates = 0;
  std::atomic<size_t> brought_in = 0;
  std::vector<size_t> owned;  // at once; not while other threads own some

 private:
  void note_owned(size_t n) {
    const std::lock_guard lock(mutex_);
    owned.push_back(n);
  }
  std::mutex mutex_;
};

class CopyOnWrite : public testing::StoreScene {
 protected:
  static OpenOptions writable() {
    OpenOptions options = StoreScene::writable();
    options.map = MapMode::copy_on_write;
    return options;
  }
  std::unique_ptr<DataFile> open() { return StoreScene::open(refusing, writable()); }
  static std::byte *view(const DataFile &c, size_t i) {
    return const_cast<std::byte *>(c.view(c.snapshot(), i).value());
  }
  static std::string shown(const std::byte *at, size_t n) { return {reinterpret_cast<const char *>(at), n}; }

  Refusing refusing;
  const std::string a = tensors[0].bytes, b = tensors[1].bytes;
};

TEST_F(CopyOnWrite, WhatIsWrittenIsForThisHandleAlone) {
  for (const int maps : {1, 0}) {
    refusing.maps = maps;
    auto c = open(), other = open();
    EXPECT_EQ(c->snapshot().content.map(), maps ? MapMode::copy_on_write : MapMode::none);
    std::byte *mine = view(*c, 1);
    std::memcpy(mine, new_b.data(), new_b.size());
    EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
    EXPECT_TRUE(same_bytes(seen(*c, "a").substr(0, 96), a.substr(0, 96)));
    EXPECT_TRUE(same_bytes(seen(*other, "b"), b));
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
    std::string copied(b.size(), '?');
    ASSERT_TRUE(is_ok(c->read(c->snapshot(), 1, copied.data())));  // of the file, as ever
    EXPECT_TRUE(same_bytes(copied, b));
  }
}

TEST_F(CopyOnWrite, WhatIsWrittenIsCounted) {
  auto c = open();
  EXPECT_EQ(c->snapshot().content.bytes_private_dirty(), 0u);
  std::memcpy(view(*c, 1), new_b.data(), new_b.size());
  const uint64_t dirty = c->snapshot().content.bytes_private_dirty();
  EXPECT_GE(dirty, new_b.size());
  EXPECT_LE(dirty, old.size());
}

// Which are all pages of the tensor: of those that were written, and of those that were never looked at.
TEST_F(CopyOnWrite, APatchByThisProcessShowsInNoView) {
  for (const int maps : {1, 0})
    for (const int populates : {0, EINVAL})  // a kernel that cannot: pages are touched
      for (const bool by_another : {false, true}) {
        testing::put_bytes(path, old);
        refusing.maps = maps;
        refusing.populates = populates;
        auto c = open(), other = open();
        std::byte *mine = view(*c, 1), *neighbour = view(*c, 0);
        mine[5000] = neighbour[7] = std::byte{'!'};
        std::string kept = b;
        kept[5000] = '!';
        ASSERT_TRUE(is_ok(update(by_another ? *other : *c, "b", new_b)));
        EXPECT_TRUE(same_bytes(shown(mine, b.size()), kept)) << maps << populates << by_another;
        EXPECT_EQ(neighbour[7], std::byte{'!'});
        EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
        // The handle that patched shows it to a look from now on.
        EXPECT_TRUE(same_bytes(seen(by_another ? *other : *c, "b"), new_b));
        if (by_another) {
          EXPECT_TRUE(same_bytes(seen(*c, "b"), kept));
          ASSERT_TRUE(is_ok(c->refresh()));
        }
        EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
        EXPECT_TRUE(same_bytes(shown(mine, b.size()), kept));
      }
}

TEST_F(CopyOnWrite, APatchFromElsewhereShowsInPagesThatWereNotWritten) {
  testing::put_bytes(path, testing::file_of({testing::u8_tensor("t", 100'000, 1)}));
  auto c = open();
  const Snapshot &s = c->snapshot();
  std::byte *mine = view(*c, 0);
  const uint64_t at = s.file_offset(s.header.index.at(0));
  mine[50'000] = std::byte{'!'};
  testing::poke(path, at + 50'001, "new");
  testing::poke(path, at + 90'000, "new");
  EXPECT_NE(shown(mine + 50'001, 3), "new");
  EXPECT_EQ(shown(mine + 90'000, 3), "new");
}

TEST_F(CopyOnWrite, APublishShowsInNoViewAndToWhoLooksNow) {
  auto c = open();
  std::byte *mine = view(*c, 1);
  mine[1] = std::byte{'!'};
  std::string kept = b;
  kept[1] = '!';
  TransactionOptions options;
  options.publish = true;
  ASSERT_TRUE(is_ok(update(*c, "b", new_b, options)));
  EXPECT_TRUE(same_bytes(shown(mine, b.size()), kept));
  EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
}

TEST_F(CopyOnWrite, WithoutMemoryForTheOldBytesNothingIsChanged) {
  auto c = open();
  view(*c, 1);
  refusing.populates = ENOMEM;
  EXPECT_TRUE(fails_with(Status::nomem, update(*c, "b", new_b)));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  refusing.populates = 0;
  EXPECT_TRUE(is_ok(update(*c, "b", new_b)));
}

TEST_F(CopyOnWrite, AViewThatIsMappedWhileAPatchGoesOnShowsNoMoreOfIt) {
  for (const int populates : {0, EINVAL}) {
    refusing.populates = populates;
    testing::put_bytes(path, old);
    MappedMeanwhile meanwhile(refusing, path);
    testing::FaultEnv committing(os::Env::posix());
    auto c = StoreScene::open(committing);
    committing.before = [&](Call call) {
      meanwhile.map_at(call);
      return 0;
    };
    ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
    committing.before = nullptr;
    EXPECT_GT(meanwhile.count(), 2u);
    EXPECT_EQ(meanwhile.changed(), 0);
    // The patch is over: what is mapped now costs nothing.
    auto file = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    auto after = os::Mapping::of_file(*file, old.size(), os::MapKind::copy_on_write);
    ASSERT_TRUE(is_ok(after));
    EXPECT_EQ(after->private_dirty(), 0u);
  }
}

// The old bytes of a large tensor are kept part by part. A fork waits for one of them.
TEST_F(CopyOnWrite, APatchCanBeStoppedWhileOldBytesAreKept) {
  constexpr size_t part = size_t{16} << 20, size = 2 * part + 5000;
  const std::string first = pattern(size, 1), fresh = pattern(size, 2);
  testing::put_bytes(path, testing::file_of({{"t", Dtype::U8, {size}, first}}));
  const std::string before = bytes_of(path);
  auto reader = open();
  std::byte *mine = view(*reader, 0);
  MappedMeanwhile meanwhile(refusing, path);
  auto c = StoreScene::open(env);
  for (const int stops_at : {1, 2, 0}) {
    const size_t views = 1 + meanwhile.count();
    refusing.owned.clear();
    int asked = 0;
    TransactionOptions options;
    options.progress = [&](uint64_t, uint64_t) {
      if (refusing.owned.empty()) return true;
      if (asked++ == 0) {
        EXPECT_EQ(refusing.owned.size(), views);  // a part in each
        meanwhile.map_at(Call::fsync);
      }
      return asked != stops_at;
    };
    const auto done = update(*c, "t", fresh, options);
    EXPECT_LE(*std::ranges::max_element(refusing.owned), part);
    if (stops_at == 0) {
      ASSERT_TRUE(is_ok(done));
      continue;
    }
    EXPECT_TRUE(fails_with(Status::cancelled, done));
    EXPECT_TRUE(same_bytes(bytes_of(path), before));
  }
  EXPECT_EQ(meanwhile.count(), 3u);
  EXPECT_EQ(meanwhile.changed(), 0);
  EXPECT_TRUE(same_bytes(shown(mine, size), first));
  EXPECT_NE(bytes_of(path), before);
}

TEST_F(CopyOnWrite, AViewThatIsMappedWhileAPatchFailsShowsNoMoreOfItEither) {
  for (const Call fails : {Call::fsync, Call::fdatasync, Call::pwrite})
    for (int n = 0; n < 6; ++n) {
      testing::put_bytes(path, old);
      std::filesystem::remove_all(folder());
      MappedMeanwhile meanwhile(refusing, path);
      testing::FaultEnv committing(os::Env::posix());
      {
        auto c = StoreScene::open(committing);
        int calls = 0;
        committing.before = [&](Call call) {
          meanwhile.map_at(call);
          return call == fails && calls++ == n ? -EIO : 0;
        };
        (void)update(*c, "b", new_b);
        committing.before = nullptr;
      }
      EXPECT_TRUE(is_ok(DataFile::open(env, path, StoreScene::writable())));  // which finishes what is left
      EXPECT_EQ(meanwhile.changed(), 0) << call_name(fails) << n;
    }
}

TEST_F(CopyOnWrite, AViewThatIsMappedWhileARecoveryGoesOnShowsNoMoreOfIt) {
  leave({{a_at, new_a}, {b_at, new_b}}, true);
  MappedMeanwhile meanwhile(refusing, path);
  testing::FaultEnv recovering(os::Env::posix());
  recovering.before = [&](Call call) {
    meanwhile.map_at(call);
    return 0;
  };
  auto after = StoreScene::open(recovering);
  recovering.before = nullptr;
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}})));
  EXPECT_GT(meanwhile.count(), 2u);
  EXPECT_EQ(meanwhile.changed(), 0);
}

TEST_F(CopyOnWrite, WithoutMemoryForTheOldBytesNothingIsMappedWhileAPatchGoesOn) {
  testing::FaultEnv committing(os::Env::posix());
  auto c = StoreScene::open(committing);
  std::vector<Status> answers;
  committing.before = [&](Call call) {
    if (call != Call::fdatasync && call != Call::fsync) return 0;
    auto file = os::File::open(refusing, AT_FDCWD, path, O_RDONLY, 0, path);
    auto made = os::Mapping::of_file(*file, old.size(), os::MapKind::copy_on_write);
    answers.push_back(made ? Status::ok : made.error().status);
    return 0;
  };
  refusing.populates = ENOMEM;
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  committing.before = nullptr;
  EXPECT_EQ(answers.front(), Status::ok);  // the journal's folder is made
  EXPECT_NE(std::ranges::find(answers, Status::nomem), answers.end());
}

// A dead writer's promise: the recovery is a patch by this process.
TEST_F(CopyOnWrite, ARecoveryShowsInNoViewEither) {
  auto reader = open();
  std::byte *mine = view(*reader, 1);
  leave({{b_at, new_b}}, true);
  auto after = open();
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
  EXPECT_TRUE(same_bytes(shown(mine, b.size()), b));
}

TEST_F(CopyOnWrite, APrefetchBringsPagesIntoTheMappingByReadersOfItsStrategy) {
  testing::put_bytes(path, testing::file_of({testing::u8_tensor("t", 20'000'000, 1)}));
  OpenOptions options = writable();
  options.bulk.prefetch = read::Prefetch::parallel;  // as on a disk
  options.bulk.threads = 3;
  auto c = StoreScene::open(refusing, std::move(options));
  ASSERT_TRUE(is_ok(c->prefetch(c->snapshot(), {0}, {})));
  EXPECT_GE(refusing.brought_in, 20'000'000u);
  EXPECT_EQ(c->counters().bytes_prefetched, 20'000'000u);
  EXPECT_EQ(c->snapshot().content.bytes_private_dirty(), 0u);
}

// Its pages become this process's own where they are, but for a tensor that the handle itself patched.
TEST_F(CopyOnWrite, ALoadLeavesViewsWhereTheyAre) {
  for (const int populates : {0, EINVAL}) {
    testing::put_bytes(path, old);
    refusing.populates = populates;
    auto c = open();
    std::byte *mine = view(*c, 0);
    mine[7] = std::byte{'!'};
    std::string kept = a;
    kept[7] = '!';
    ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
    uint64_t last = 0, whole = 0;
    const auto progress = [&](uint64_t done, uint64_t total) {
      EXPECT_GE(done, last);
      EXPECT_LE(done, total);
      last = done;
      whole = total;
      return true;
    };
    ASSERT_TRUE(is_ok(c->load(c->snapshot(), {0, 1, 2}, false, false, progress)));
    EXPECT_EQ(last, whole);
    EXPECT_EQ(whole, c->snapshot().header.index.data_bytes());
    EXPECT_EQ(view(*c, 0), mine);
    EXPECT_TRUE(same_bytes(seen(*c, "a"), kept));
    EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
    EXPECT_EQ(c->snapshot().content.bytes_owned(), new_b.size());
    testing::poke(path, a_at, "elsewhere");
    EXPECT_TRUE(same_bytes(seen(*c, "a"), kept));
  }
}

TEST_F(CopyOnWrite, ALoadThatCannotOwnThePagesSaysWhy) {
  auto c = open();
  const auto load = [&] { return c->load(c->snapshot(), {0, 1, 2}, false, false, {}); };
  refusing.populates = ENOMEM;
  EXPECT_TRUE(fails_with(Status::nomem, load()));
  refusing.populates = EFAULT;  // which the kernel also answers where the disk fails
  auto failed = load();
  EXPECT_TRUE(fails_with(Status::io, failed));
  EXPECT_EQ(failed.error().os_errno, EIO);
  for (const int populates : {0, EINVAL}) {
    refusing.populates = populates;
    std::filesystem::resize_file(path, b_at);
    EXPECT_TRUE(fails_with(Status::file_changed, load()));
  }
}

TEST_F(CopyOnWrite, AHandleOpensOnceMoreToShowWritableViewsOfTheSameFile) {
  auto c = StoreScene::open(refusing);
  auto again = c->reopen(c->snapshot(), Again::copy_on_write);
  ASSERT_TRUE(is_ok(again));
  EXPECT_EQ((*again)->snapshot().content.map(), MapMode::copy_on_write);
  EXPECT_TRUE(fails_with(Status::read_only, Transaction::begin(**again, {})));
  *view(**again, 1) = std::byte{'!'};
  EXPECT_TRUE(same_bytes(seen(*c, "b"), b));
  testing::replace_by(path, old);
  EXPECT_TRUE(fails_with(Status::file_changed, c->reopen(c->snapshot(), Again::copy_on_write)));
}

TEST_F(CopyOnWrite, IsNotForStorageWhereMappingsAreSlow) {
  auto file = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
  ASSERT_TRUE(is_ok(file));
  for (const auto storage :
       {os::Storage::network, os::Storage::parallel, os::Storage::fuse, os::Storage::object_store}) {
    auto content = read::Content::open(*file, old.size(), 3, MapMode::copy_on_write, {storage, "testfs"}, {});
    ASSERT_TRUE(is_ok(content));
    EXPECT_EQ(content->map(), MapMode::none);
    EXPECT_EQ(content->fallbacks(), 0u);
    EXPECT_NE(content->reason().find("testfs"), std::string::npos) << content->reason();
  }
  for (const auto storage : {os::Storage::local, os::Storage::memory, os::Storage::unknown})
    EXPECT_EQ(read::Content::open(*file, old.size(), 3, MapMode::copy_on_write, {storage, "testfs"}, {})->map(),
              MapMode::copy_on_write);
}

}  // namespace
}  // namespace st::store
