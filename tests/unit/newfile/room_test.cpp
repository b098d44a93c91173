// What the write path asks of a filesystem before it touches a byte, and how it gets by where the answer is no: room
// for changes, blocks to share, owners of journals, and headers longer than a buffer.
#include <linux/fiemap.h>
#include <sys/stat.h>

#include <cstdint>

#include "crash_scene.h"
#include "fault_env.h"
#include "journal/identity.h"
#include "journal/space.h"
#include "newfile/transfer.h"

namespace st::write {
namespace {

using namespace testing;
using testing::Call;

// A disk that says what a test wants of its room and of its blocks.
class Told : public FaultEnv {
 public:
  explicit Told(os::Env &base) : FaultEnv(base) {
    told_of_disk = [this](auto &s) {
      if (free_blocks) s.f_bavail = *free_blocks;
      if (of_root) s.f_bfree = s.f_bavail + *of_root;
      if (blocks) s.f_blocks = *blocks;
      if (type) s.f_type = *type;
      if (block) s.f_bsize = *block;
      if constexpr (requires { s.f_frsize; })
        if (block) s.f_frsize = *block;
      if (best_write) s.f_bsize = *best_write;
    };
  }
  int syncfs(int) override {
    ++syncs;
    if (!free_after_sync) return -ENOSYS;
    free_blocks = free_after_sync;
    return 0;
  }
  std::optional<uint64_t> free_after_sync;
  int syncs = 0;
  uint64_t long_read() override { return reads_of; }
  uint64_t reads_of = 0;
  uid_t geteuid() override { return user; }
  int64_t seek_hole(int fd, uint64_t offset) override { return hole ? *hole : FaultEnv::seek_hole(fd, offset); }
  int clone_range(int to, int from, uint64_t at, uint64_t n, uint64_t where) override {
    if (!shares) return FaultEnv::clone_range(to, from, at, n, where);
    if (at + n > (uint64_t{1} << 60)) return -EINVAL;  // behind any end
    std::string bytes(n, '\0');
    const ssize_t got = FaultEnv::pread(from, bytes.data(), n, at);
    return got == static_cast<ssize_t>(n) && FaultEnv::pwrite(to, bytes.data(), n, where) == got ? 0 : -EIO;
  }
  ssize_t copy_range(int to, int from, uint64_t at, uint64_t n, uint64_t where) override {
    return copies ? *copies : FaultEnv::copy_range(to, from, at, n, where);
  }
  struct Extent {
    uint64_t begin, length;
    uint32_t flags;
  };
  int extents(int, struct fiemap *map) override {
    ++questions;
    if (!told_extents) return -EOPNOTSUPP;
    map->fm_mapped_extents = 0;
    for (const Extent &e : *told_extents) {
      if (e.begin + e.length <= map->fm_start || e.begin >= map->fm_start + map->fm_length) continue;
      if (map->fm_mapped_extents == map->fm_extent_count) break;
      struct fiemap_extent &out = static_cast<struct fiemap_extent *>(map->fm_extents)[map->fm_mapped_extents++];
      out = {};
      out.fe_logical = e.begin, out.fe_length = e.length, out.fe_flags = e.flags;
    }
    return 0;
  }
  std::optional<std::vector<Extent>> told_extents;
  int questions = 0;
  std::optional<uint64_t> free_blocks, of_root, blocks;
  std::optional<uint32_t> type;
  std::optional<long> block, best_write;
  uid_t user = 4242;
  std::optional<int64_t> hole;
  std::optional<ssize_t> copies;
  bool shares = false;
};

class RoomTest : public ::testing::Test {
 protected:
  os::File open(const std::string &path) {
    if (!std::filesystem::exists(path)) testing::put_bytes(path, "");
    auto file = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
    EXPECT_TRUE(is_ok(file));
    return std::move(*file);
  }
  size_t asked(Call call) const { return static_cast<size_t>(std::count(env.calls.begin(), env.calls.end(), call)); }

  testing::TempDir dir;
  Told env{os::Env::posix()};
};

TEST_F(RoomTest, ThatIsNeededIsLookedForIfTheDiskSaysWhatItHas) {
  const os::File file = open(dir / "f");
  env.free_blocks = 3, env.block = 4096;
  auto refused = check_room(file, 3 * 4096 + 1);
  EXPECT_TRUE(fails_with(Status::no_space, refused));
  EXPECT_EQ(refused.error().os_errno, ENOSPC);
  EXPECT_TRUE(is_ok(check_room(file, 3 * 4096)));
  env.before = [](Call call) { return call == Call::fstatfs ? -EIO : 0; };  // then the write itself must tell
  EXPECT_TRUE(is_ok(check_room(file, 3 * 4096 + 1)));
}

TEST_F(RoomTest, ThatIsTightIsCountedOnceTheFilesystemHasCommitted) {
  const os::File file = open(dir / "f");
  env.block = 4096;
  struct Case {
    uint32_t type;
    uint64_t free, after, needed;
    int syncs;
    bool enough;
  };
  constexpr uint32_t btrfs = 0x9123683E, ext4 = 0xEF53;
  for (const auto &[type, free, after, needed, syncs, enough] : {Case{btrfs, 2, 3, 1, 0, true},
                                                                 {btrfs, 2, 3, 3, 1, true},
                                                                 {btrfs, 2, 3, 4, 1, false},
                                                                 {btrfs, 2, 1, 2, 1, false},
                                                                 {ext4, 2, 3, 2, 0, true},
                                                                 {ext4, 2, 3, 3, 0, false}}) {
    env.type = type, env.free_blocks = free, env.free_after_sync = after, env.syncs = 0;
    EXPECT_EQ(check_room(file, needed * 4096).has_value(), enough) << type << " " << needed;
    EXPECT_EQ(env.syncs, syncs) << type << " " << needed;
  }
  env.type = btrfs, env.free_after_sync.reset(), env.free_blocks = 2;  // a sandbox without the call
  EXPECT_TRUE(is_ok(check_room(file, 2 * 4096)));
  EXPECT_TRUE(fails_with(Status::no_space, check_room(file, 3 * 4096)));
}

// As daemons of FUSE tell the piece that is best written.
TEST_F(RoomTest, IsCountedInTheUnitsOfTheFilesystem) {
  const os::File file = open(dir / "f");
  env.free_blocks = 3, env.block = 4096, env.best_write = 1 << 20;
  EXPECT_EQ(room_of(file).free, 3 * 4096u);
  EXPECT_EQ(room_of(file).block, 4096u);
  env.block = 0;  // it has no such word
  EXPECT_EQ(room_of(file).free, 3u << 20);
}

TEST_F(RoomTest, OfExt4IsForRootWhatItKeepsForHim) {
  const os::File file = open(dir / "f");
  env.free_blocks = 0, env.of_root = 3, env.blocks = 31, env.block = 4096;
  for (const auto &[type, user, wanted] :
       {std::tuple{0xEF53u, 0u, 3u}, {0xEF53u, 4242u, 0u}, {0x9123683Eu, 0u, 0u} /* btrfs */}) {
    env.type = type, env.user = user;
    EXPECT_EQ(room_of(file).free, wanted * 4096u) << type << " " << user;
    EXPECT_EQ(check_room(file, 4096).has_value(), wanted > 0) << type << " " << user;
  }
}

TEST_F(RoomTest, OfExt4IsNotWhatItKeepsForItself) {
  const os::File file = open(dir / "f");
  env.type = 0xEF53, env.user = 0, env.block = 4096;
  struct Case {
    uint64_t blocks, free, of_root, wanted;
  };
  for (const auto &[blocks, free, of_root, wanted] : {Case{5000, 0, 1000, 844},
                                                      {5000, 0, 70, 0},
                                                      {5000, 200, 50, 200},
                                                      {1 << 30, 0, 10000, 10000 - 4096},
                                                      {1 << 30, 0, 4000, 0}}) {
    env.blocks = blocks, env.free_blocks = free, env.of_root = of_root;
    EXPECT_EQ(room_of(file).free, wanted * 4096) << blocks << " " << free << " " << of_root;
  }
}

TEST_F(RoomTest, OfACopyOnWriteFilesystemIsAllThatChanges) {
  const os::File file = open(dir / "f");
  const Piece pieces[] = {{0, {0, 1 << 20, 0}}, {1 << 20, {0, 5, 0}}, {(1 << 20) + 5, {0, 5, 0}}};
  env.before = [](Call call) { return call == Call::fallocate ? -ENOSPC : 0; };
  for (const char *type : {"btrfs", "zfs", "bcachefs", "f2fs"}) {
    const os::Filesystem filesystem{os::Storage::local, type};
    EXPECT_TRUE(os::copies_on_write(type));
    env.block = 4096;
    EXPECT_EQ(room_to_overwrite(file, filesystem, pieces, 0), (1u << 20) + 4096u);
    EXPECT_EQ(room_to_overwrite(file, filesystem, pieces, 4096), (1u << 20) + 4096u);
    EXPECT_GT(room_with_metadata(type, 1), room_with_metadata("ext4", 1));
    EXPECT_EQ(room_with_metadata(type, 0), 0u);
    EXPECT_TRUE(is_ok(reserve_space(file, filesystem, pieces, {})));
  }
  EXPECT_FALSE(os::copies_on_write("ext4"));
}

TEST_F(RoomTest, ElsewhereIsWhatIsInHolesOrShared) {
  const os::File file = open(dir / "f");
  env.block = 4096;
  const os::Filesystem xfs{os::Storage::local, "xfs"};
  const uint64_t n = uint64_t{100} << 12;
  const Piece pieces[] = {{4096, {0, n, 0}}};
  env.told_extents = {{{0, n, 0}, {n, 2 * 4096, FIEMAP_EXTENT_LAST}}};
  EXPECT_EQ(room_to_overwrite(file, xfs, pieces, 0), 0u);
  EXPECT_EQ(room_to_overwrite(file, xfs, pieces, 8192), 8192u);  // an undo journal has them by then
  env.told_extents = {{{0, 8192, FIEMAP_EXTENT_SHARED}, {12288, n, 0}}};
  EXPECT_EQ(room_to_overwrite(file, xfs, pieces, 0), 2 * 4096u);
  env.told_extents = std::vector<Told::Extent>();
  EXPECT_EQ(room_to_overwrite(file, xfs, pieces, 0), n);
  env.told_extents->clear();
  for (uint64_t i = 0; i < 200; ++i) env.told_extents->push_back({i * 8192, 4096, 0});  // more than one answer holds
  EXPECT_EQ(room_to_overwrite(file, xfs, pieces, 0), n / 2);
  env.told_extents.reset();  // it cannot say
  env.hole = 4096 + static_cast<int64_t>(n);
  EXPECT_EQ(room_to_overwrite(file, xfs, pieces, 0), 0u);
  env.hole = 4095 + static_cast<int64_t>(n);
  EXPECT_EQ(room_to_overwrite(file, xfs, pieces, 0), n);
}

TEST_F(RoomTest, IsAskedOnceForAllPiecesThatAFewExtentsHold) {
  const os::File file = open(dir / "f");
  env.block = 4096;
  const os::Filesystem ext4{os::Storage::local, "ext4"};
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < 100; ++i) pieces.push_back({i * 8192, {0, 512, 0}});
  env.told_extents = {{{0, 100 * 8192, FIEMAP_EXTENT_LAST}}};
  EXPECT_EQ(room_to_overwrite(file, ext4, pieces, 0), 0u);
  EXPECT_TRUE(is_ok(reserve_space(file, ext4, pieces, {})));
  EXPECT_EQ(env.questions, 2);
  EXPECT_EQ(asked(Call::fallocate), 0u);
  // One answer holds 64.
  env.told_extents->clear();
  for (uint64_t i = 0; i < 100; ++i)
    if (i != 50 && i != 80) env.told_extents->push_back({i * 8192, 4096, 0});
  EXPECT_EQ(room_to_overwrite(file, ext4, pieces, 0), 2 * 4096u);
  EXPECT_EQ(env.questions, 4);
  EXPECT_TRUE(is_ok(reserve_space(file, ext4, pieces, {})));
  EXPECT_EQ(asked(Call::fallocate), 2u);
}

TEST_F(RoomTest, ElsewhereIsSetAsideWhereThereAreHolesAndOnXfsAlways) {
  const os::File file = open(dir / "f");
  const Piece pieces[] = {{4096, {0, 4096, 0}}};
  const os::Filesystem ext4{os::Storage::local, "ext4"}, xfs{os::Storage::local, "xfs"};
  env.before = [](Call call) { return call == Call::fallocate ? -ENOSPC : 0; };
  env.hole = 8192;  // right behind the piece
  EXPECT_TRUE(is_ok(reserve_space(file, ext4, pieces, {})));
  EXPECT_TRUE(fails_with(Status::no_space, reserve_space(file, xfs, pieces, {})));
  env.hole = 8191;
  auto refused = reserve_space(file, ext4, pieces, {});
  EXPECT_TRUE(fails_with(Status::no_space, refused));
  EXPECT_EQ(refused.error().offset, 4096u);
  env.hole = -EINVAL;  // it cannot say
  EXPECT_TRUE(is_ok(reserve_space(file, ext4, pieces, {})));
  for (int unsupported : {-EOPNOTSUPP, -ENOSYS, -EINVAL}) {
    env.before = [unsupported](Call call) { return call == Call::fallocate ? unsupported : 0; };
    EXPECT_TRUE(is_ok(reserve_space(file, xfs, pieces, {})));
  }
}

TEST_F(RoomTest, BlocksAreSharedInTheFilesystemsSizeIfThatIsSensible) {
  const os::File file = open(dir / "f");
  env.before = [](Call call) { return call == Call::clone_range ? -EOPNOTSUPP : 0; };
  EXPECT_EQ(shareable_block(file), 0u);
  env.before = [](Call call) { return call == Call::fstatfs ? -EIO : 0; };
  env.shares = true;
  EXPECT_EQ(shareable_block(file), 0u);
  env.before = nullptr;
  for (const auto &[block, wanted] : {std::pair<long, uint64_t>{512, 4096},
                                      {4096, 4096},
                                      {16384, 16384},
                                      {65536, 65536},
                                      {1 << 20, 4096},
                                      {0, 4096},
                                      {6000, 4096}}) {
    env.block = block;
    EXPECT_EQ(shareable_block(file), wanted) << block;
  }
}

TEST_F(RoomTest, BytesMoveAlikeWhateverTheFilesystemCanDo) {
  const std::string bytes = pattern(10 << 20, 5);
  put_bytes(dir / "from", bytes);
  const os::File from = open(dir / "from");
  struct Case {
    const char *what;
    bool shares;
    std::optional<ssize_t> copies;
    Range range;
    uint64_t block, shared;
  };
  const uint64_t some = 100 << 10, large = 9 << 20;  // more than is written before the disk is told to start
  const Case cases[] = {
      {"the kernel copies", false, {}, {10, 20, some}, 0, 0},
      {"the kernel declines", false, -EXDEV, {10, 20, large}, 0, 0},
      {"the kernel copies nothing", false, 0, {10, 20, some}, 0, 0},
      {"the kernel boasts", false, PTRDIFF_MAX / 2, {10, 20, some}, 0, 0},
      {"blocks and both edges", true, {}, {10, 4096 + 10, some}, 4096, some - 4096},
      {"blocks and no edge", true, {}, {4096, 0, 8192}, 4096, 8192},
      {"blocks and one edge", true, {}, {4096, 0, 8193}, 4096, 8192},
      {"blocks that lie otherwise", true, {}, {10, 11, 8192}, 4096, 0},
      {"less than a block", true, {}, {10, 10, 100}, 4096, 0},
      {"less than to the next block", true, {}, {4000, 4000, 90}, 4096, 0},
  };
  for (const Case &c : cases) {
    env.shares = c.shares, env.copies = c.copies;
    const std::string path = dir / c.what;
    const os::File to = open(path);
    uint64_t told = 0;
    auto done = transfer(from, to, c.range, c.block, [&](uint64_t n) { return told += n, Result<void>(); });
    ASSERT_TRUE(is_ok(done)) << c.what;
    EXPECT_EQ(told, c.range.length) << c.what;
    EXPECT_EQ(done->shared + done->copied, c.range.length) << c.what;
    EXPECT_EQ(done->shared, c.shared) << c.what;
    EXPECT_TRUE(same_bytes(bytes_of(path).substr(c.range.to), bytes.substr(c.range.from, c.range.length))) << c.what;
    // The callback may stop it, at each word.
    for (uint64_t words = 0;; ++words) {
      uint64_t word = 0;
      auto stopped = transfer(from, to, c.range, c.block, [&](uint64_t) {
        return word++ == words ? fail(Status::cancelled, "stop") : Result<void>();
      });
      if (stopped) break;
      EXPECT_TRUE(fails_with(Status::cancelled, stopped)) << c.what;
    }
    // And reading or writing may fail.
    for (Call call : {Call::pread, Call::pwrite}) {
      env.copies = -EXDEV, env.shares = false;
      env.before = [call](Call made) { return made == call ? -EIO : 0; };
      EXPECT_TRUE(
          fails_with(Status::io, transfer(from, to, c.range, c.block, [](uint64_t) { return Result<void>(); })));
      env.before = nullptr;
    }
  }
}

// Out of a source, which makes several requests of one read.
TEST_F(RoomTest, BytesAreReadByAsManyAsMakeTheMostOfARead) {
  constexpr uint64_t MiB = uint64_t{1} << 20;
  const std::string bytes = pattern(9 * MiB, 5);
  put_bytes(dir / "from", bytes);
  uint64_t reads = 0, told = 0, most = 0;
  const os::File from = open(dir / "from"), to = open(dir / "to");
  env.reads_of = 4 * MiB, env.copies = -EXDEV;
  env.before = [&](Call call) { return reads += call == Call::pread, 0; };
  ASSERT_TRUE(is_ok(transfer(from, to, {0, 0, bytes.size()}, 0,
                             [&](uint64_t n) { return told += n, most = std::max(most, n), Result<void>(); })));
  EXPECT_EQ(reads, 3u);
  EXPECT_EQ(told, bytes.size());
  EXPECT_EQ(most, MiB) << "it is told of as ever";
  EXPECT_TRUE(same_bytes(bytes_of(dir / "to"), bytes));
}

TEST_F(RoomTest, AnEdgeThatCannotBeReadFailsThoughItsBlocksAreShared) {
  put_bytes(dir / "from", pattern(20000, 5));
  const os::File from = open(dir / "from"), to = open(dir / "to");
  env.shares = true, env.copies = -EXDEV;
  size_t reads = 0;
  env.before = [&](Call call) { return call == Call::pread && ++reads == 2 ? -EIO : 0; };  // the first shares
  EXPECT_TRUE(fails_with(Status::io, transfer(from, to, {0, 0, 9000}, 4096, [](uint64_t) { return Result<void>(); })));
}

// ---- identities

TEST_F(RoomTest, TheIdentityKnowsEveryByteOfALongHeader) {
  const std::string metadata(700'000, 'm');
  const std::string file = testing::file_of({testing::u8_tensor("a", 100, 1)}, {{{"k", metadata}}});
  put_bytes(dir / "f", file);
  auto first = identify(open(dir / "f"));
  ASSERT_TRUE(is_ok(first));
  EXPECT_GT(first->data_offset, 600'000u);
  for (uint64_t at : {uint64_t{100}, uint64_t{300'000}, first->data_offset - 1}) {
    testing::poke(dir / "f", at, "n");
    auto other = identify(open(dir / "f"));
    ASSERT_TRUE(is_ok(other));
    EXPECT_NE(other->header_hash, first->header_hash) << at;
    put_bytes(dir / "f", file);
  }
  testing::poke(dir / "f", first->data_offset, "n");  // of the data it knows nothing
  EXPECT_EQ(identify(open(dir / "f"))->header_hash, first->header_hash);
  for (size_t n = 0; n < 3; ++n) {
    size_t reads = 0;
    env.before = [&](Call call) { return call == Call::pread && reads++ == n ? -EIO : 0; };
    EXPECT_TRUE(fails_with(Status::io, identify(open(dir / "f")))) << n;
  }
}

TEST_F(RoomTest, AnIdentityDiffersInEachOfItsParts) {
  const Identity one{1, 2, 3, 4};
  EXPECT_EQ(one, (Identity{1, 2, 3, 4}));
  EXPECT_NE(one, (Identity{9, 2, 3, 4}));
  EXPECT_NE(one, (Identity{1, 9, 3, 4}));
  EXPECT_NE(one, (Identity{1, 2, 9, 4}));
  EXPECT_NE(one, (Identity{1, 2, 3, 9}));
}

// ---- the readers of a journal

TEST_F(RoomTest, AJournalOfRootGoesToTheFilesOwnerAndIsReadableAsTheFileIs) {
  class AsRoot : public Told {
   public:
    explicit AsRoot(os::Env &base) : Told(base) { user = 0; }
    int fchown(int, uid_t uid, gid_t gid) override {
      given = {uid, gid};
      return may_give ? 0 : -EPERM;
    }
    bool may_give = true;
    std::optional<std::pair<uid_t, gid_t>> given;
  } root(env);
  auto folder = os::File::open(root, AT_FDCWD, dir.path(), O_RDONLY | O_DIRECTORY, 0, dir.path());
  ASSERT_TRUE(is_ok(folder));
  struct stat ours;
  ASSERT_EQ(::stat(dir.path().c_str(), &ours), 0);
  const auto mode_for = [&](const struct stat &data) {
    root.given.reset();
    auto journal = Journal::create(*folder, data);
    EXPECT_TRUE(is_ok(journal));
    struct stat s = {};
    ::stat((dir / (*journal)->name()).c_str(), &s);
    std::filesystem::remove(dir / (*journal)->name());
    return s.st_mode & 0777;
  };
  struct stat data = ours;
  data.st_mode = S_IFREG | 0644;
  EXPECT_EQ(mode_for(data), 0644u);
  EXPECT_FALSE(root.given);  // it is ours, and so is the file
  data.st_uid = ours.st_uid + 1;
  EXPECT_EQ(mode_for(data), 0644u);
  EXPECT_EQ(root.given->first, data.st_uid);
  root.user = 4242;  // only root gives files away
  EXPECT_EQ(mode_for(data), 0644u);
  EXPECT_FALSE(root.given);
  data.st_gid = ours.st_gid + 1;
  EXPECT_EQ(mode_for(data), 0644u);
  EXPECT_EQ(root.given->first, static_cast<uid_t>(-1));
  EXPECT_EQ(root.given->second, data.st_gid);
  root.may_give = false;  // then it stays of our group, which has what others have
  EXPECT_EQ(mode_for(data), 0644u);
  data.st_gid = ours.st_gid;
  root.user = 0;
  EXPECT_EQ(mode_for(data), 0644u);
}

}  // namespace
}  // namespace st::write
