// What storage a file lies on: by the names of filesystem types, by mount tables
// as they were recorded on real machines, and live.
#include <sys/sysmacros.h>

#include "fault_env.h"
#include "os/filesystem.h"
#include "test_files.h"

namespace st::os {
namespace {

using testing::Call;
using namespace testing;

TEST(Filesystem, EveryTypeHasItsClass) {
  const std::pair<Storage, std::vector<const char *>> table[] = {
      {Storage::local,
       {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "vfat", "exfat", "squashfs", "erofs",
        "overlay", "ntfs3"}},
      {Storage::memory, {"tmpfs", "ramfs", "hugetlbfs"}},
      {Storage::network, {"nfs", "nfs4", "cifs", "smb3", "9p", "afs", "virtiofs", "vboxsf"}},
      {Storage::parallel, {"ceph", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2", "panfs"}},
      {Storage::fuse, {"fuse", "fuseblk", "fuse.sshfs", "fuse.glusterfs", "fuse.anything"}},
      {Storage::object_store,
       {"fuse.gcsfuse", "fuse.s3fs", "fuse.goofys", "fuse.rclone", "fuse.juicefs", "fuse.blobfuse2",
        "fuse.mountpoint-s3", "fuse.geesefs", "fuse.seaweedfs"}},
      {Storage::unknown, {"", "newfs", "ext", "nfs5", "fusectl", "FUSE.gcsfuse", "proc"}},
  };
  for (const auto &[storage, types] : table)
    for (const char *type : types) EXPECT_EQ(storage_of_type(type), storage) << type;
}

TEST(Filesystem, OldPagesOverANewOpen) {
  for (const char *type : {"fuse.glusterfs", "fuse.ceph-fuse"}) EXPECT_TRUE(keeps_stale_pages(type)) << type;
  for (const char *type : {"fuse", "fuse.mfs", "nfs", "ext4"}) EXPECT_FALSE(keeps_stale_pages(type)) << type;
}

TEST(Filesystem, ClientsWithACacheThatODirectDoesNotPass) {
  for (const char *type : {"fuse", "fuse.mfs", "fuse.sshfs"}) EXPECT_TRUE(keeps_what_was_read(type)) << type;
  for (const char *type : {"fuse.glusterfs", "fuse.ceph-fuse", "fuseblk", "nfs", "ext4"})
    EXPECT_FALSE(keeps_what_was_read(type)) << type;
}

TEST(Filesystem, TimesThatChangeWhenAWriterCloses) {
  for (const char *type : {"ntfs", "refs", "exfat", "vfat", "hfsplus", "msdos"}) EXPECT_TRUE(dates_changes_late(type)) << type;
  for (const char *type : {"ext4", "tmpfs", "apfs", ""}) EXPECT_FALSE(dates_changes_late(type)) << type;
  for (const char *type : {"overlay", "ecryptfs"}) EXPECT_TRUE(shows_another(type)) << type;
  for (const char *type : {"ext4", "tmpfs", "nfs", ""}) EXPECT_FALSE(shows_another(type)) << type;
}

// How it is read says little about its writers: some object stores have locks that hosts share.
TEST(Filesystem, OtherHostsWriteWhereLocksAreShared) {
  for (const char *type :
       {"nfs", "ceph", "fuse", "fuse.mfs", "fuse.juicefs", "fuse.JuiceFS", "fuse.seaweedfs", "newfs"})
    EXPECT_TRUE(may_have_other_hosts({storage_of_type(type), type})) << type;
  for (const char *type : {"ext4", "tmpfs", "fuse.gcsfuse", "fuse.s3fs", "fuse.goofys", "fuse.geesefs", "fuse.rclone",
                           "fuse.blobfuse2", "fuse.mountpoint-s3", "fuse.s3ql", "fuse.alluxio-fuse"})
    EXPECT_FALSE(may_have_other_hosts({storage_of_type(type), type})) << type;
}

TEST(Filesystem, EveryClassHasAName) {
  EXPECT_EQ(storage_name(Storage::unknown), "unknown");
  EXPECT_EQ(storage_name(Storage::object_store), "object-store");
  EXPECT_EQ(storage_name(Storage::network), "network");
}

constexpr std::string_view recorded =
    "22 28 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n"
    "28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard,errors=remount-ro\n"
    "31 22 0:27 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,size=8167848k\n"
    "97 28 0:44 / /mnt/models rw,nosuid,nodev,relatime shared:51 - fuse.gcsfuse my-bucket "
    "rw,user_id=0,group_id=0,default_permissions\n"
    "101 28 0:49 / /mnt/nfs rw,relatime shared:55 - nfs4 10.0.0.2:/export rw,vers=4.2,rsize=1048576,hard,proto=tcp\n"
    "110 28 0:51 / /var/lib/docker/overlay2/0f/merged rw,relatime - overlay overlay "
    "rw,lowerdir=/l/A:/l/B,upperdir=/u,workdir=/w\n"
    "120 28 254:1 /home/me /srv/bind rw,relatime shared:1 - ext4 /dev/vda1 rw,discard\n"
    "121 28 0:60 / /mnt/with\\040space\\040-\\040dash rw,relatime - fuse.rclone remote:with\\040space rw\n"
    "122 28 0:61 / /mnt/optional rw,relatime shared:1 master:2 propagate_from:3 unbindable - virtiofs tag rw\n"
    "130 28 0:62 / /mnt/dead rw\n"
    "131 28 0:63 / /mnt/lone rw - fuse.sshfs\n"
    "140 28 0:70 / /mnt/twice rw - nfs4 a:/ rw\n"
    "141 140 0:70 / /mnt/twice rw - overlay o rw\n"
    "150 28 0:44 / /mnt/last rw,relatime - fuse.gcsfuse my-bucket rw";  // no newline at the end

TEST(Filesystem, TypesAreReadFromRecordedMountTables) {
  const std::pair<dev_t, const char *> table[] = {
      {makedev(254, 1), "ext4"},    {makedev(0, 27), "tmpfs"},   {makedev(0, 44), "fuse.gcsfuse"},
      {makedev(0, 49), "nfs4"},     {makedev(0, 51), "overlay"}, {makedev(0, 60), "fuse.rclone"},
      {makedev(0, 61), "virtiofs"}, {makedev(0, 62), ""},        {makedev(0, 63), "fuse.sshfs"},
      {makedev(0, 70), "overlay"},  {makedev(0, 4), ""},         {makedev(9, 9), ""},
      {makedev(54, 1), ""},         {makedev(254, 10), ""},
  };
  for (const auto &[device, type] : table)
    EXPECT_EQ(type_from_mountinfo(recorded, device), type) << major(device) << ":" << minor(device);
}

TEST(Filesystem, RubbishInTheMountTableIsPassedOver) {
  EXPECT_EQ(type_from_mountinfo("", makedev(0, 1)), "");
  EXPECT_EQ(type_from_mountinfo("\n\n   \n0:1", makedev(0, 1)), "");
  EXPECT_EQ(type_from_mountinfo("1 2 0:1", makedev(0, 1)), "");
  EXPECT_EQ(type_from_mountinfo("garbage\n1 2 0:1 / / rw - ext4 /dev/x rw\n", makedev(0, 1)), "ext4");
  for (size_t n = 0; n < recorded.size(); ++n)
    type_from_mountinfo(recorded.substr(0, n), makedev(0, 44));  // ends anywhere
}

class Statfs : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int fstatfs(int fd, struct statfs *out) override {
    const int r = FaultEnv::fstatfs(fd, out);
    if (magic) out->f_type = static_cast<decltype(out->f_type)>(magic);
    return r;
  }
  uint32_t magic = 0;
};

File open_in(Env &env, const std::string &path) {
  auto file = File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
  EXPECT_TRUE(is_ok(file)) << path;
  return std::move(*file);
}

TEST(Filesystem, MagicsNeedNoMountTable) {
  TempDir dir;
  testing::put_bytes(dir / "f", "x");
  Statfs env{Env::posix()};
  const File file = open_in(env, dir / "f");
  const std::tuple<uint32_t, const char *, Storage> table[] = {
      {0xEF53, "ext4", Storage::local},          {0x58465342, "xfs", Storage::local},
      {0x9123683E, "btrfs", Storage::local},     {0x01021994, "tmpfs", Storage::memory},
      {0x6969, "nfs", Storage::network},         {0xFF534D42, "cifs", Storage::network},
      {0x0BD00BD0, "lustre", Storage::parallel}, {0x00C36400, "ceph", Storage::parallel},
      {0x01021997, "9p", Storage::network},
  };
  for (const auto &[magic, type, storage] : table) {
    env.magic = magic;
    env.calls.clear();
    const Filesystem fs = probe_filesystem(file);
    EXPECT_EQ(fs.type, type);
    EXPECT_EQ(fs.storage, storage) << type;
    EXPECT_EQ(std::count(env.calls.begin(), env.calls.end(), Call::openat), 0) << type;
  }
}

// Where a commit relies on the syncs of other files.
TEST(Filesystem, SyncsFlushAllOnExt4AndOnAnXfsOfOneDevice) {
  struct Xfs : Statfs {
    using Statfs::Statfs;
    int realtime_blocks(int, uint64_t *out) override { return *out = blocks, answer; }
    uint64_t blocks = 0;
    int answer = 0;
  };
  TempDir dir;
  testing::put_bytes(dir / "f", "x");
  Xfs env{Env::posix()};
  const File file = open_in(env, dir / "f");
  const auto flush_all = [&](uint32_t magic) { return env.magic = magic, probe_filesystem(file).syncs_flush_all; };
  EXPECT_TRUE(flush_all(0xEF53));
  EXPECT_TRUE(flush_all(0x58465342));
  for (const uint32_t other : {0x9123683Eu, 0x01021994u, 0x6969u}) EXPECT_FALSE(flush_all(other)) << other;
  env.blocks = 1;
  EXPECT_FALSE(flush_all(0x58465342));
  env.blocks = 0;
  env.answer = -ENOTTY;
  EXPECT_FALSE(flush_all(0x58465342));
}

TEST(Filesystem, WhatCannotBeToldIsUnknown) {
  TempDir dir;
  testing::put_bytes(dir / "f", "x");
  Statfs env{Env::posix()};
  const File file = open_in(env, dir / "f");
  env.before = [](Call call) { return call == Call::fstatfs ? -ENOSYS : 0; };
  EXPECT_EQ(probe_filesystem(file).storage, Storage::unknown);
  env.before = [](Call call) { return call == Call::openat ? -EACCES : 0; };  // no /proc
  env.magic = 0x12345678;
  EXPECT_EQ(probe_filesystem(file).storage, Storage::unknown);
  EXPECT_NE(probe_filesystem(file).type, "");
  env.magic = 0x65735546;
  EXPECT_EQ(probe_filesystem(file).storage, Storage::fuse);  // some FUSE filesystem, by its magic
  EXPECT_EQ(probe_filesystem(file).type, "fuse");
}

TEST(Filesystem, LooksAtTheMountTableForOtherMagics) {
  TempDir dir;
  testing::put_bytes(dir / "f", "x");
  Statfs env{Env::posix()};
  const File file = open_in(env, dir / "f");
  env.magic = 0x12345678;  // of no filesystem that is known, so it must be looked up
  struct stat s;
  ASSERT_EQ(::stat((dir / "f").c_str(), &s), 0);
  const std::string table = testing::bytes_of("/proc/self/mountinfo");
  if (table.find(text(" ", major(s.st_dev), ":", minor(s.st_dev), " ")) == std::string::npos)
    GTEST_SKIP() << "the mount table does not list the device of " << dir.path();
  const std::string listed = type_from_mountinfo(table, s.st_dev);
  EXPECT_NE(listed, "");
  EXPECT_EQ(probe_filesystem(file).type, listed);
}

// Where everything lies on one overlay, by a mount table of the test's.
class OneOverlay : public Statfs {
 public:
  OneOverlay(Env &base, std::string mountinfo) : Statfs(base), mountinfo_(std::move(mountinfo)) { magic = 0x794C7630; }
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    if (std::string_view(path).starts_with("/proc/self/fdinfo/")) return -ENOENT;
    const bool table = std::string_view(path) == "/proc/self/mountinfo";
    return Statfs::openat(dir, table ? mountinfo_.c_str() : path, flags, mode);
  }

 private:
  const std::string mountinfo_;
};

// In a container the folders of its overlay are those of another tree of files: their maker chooses what they
// are.
TEST(Filesystem, AnOverlayWhoseLayerLeadsToItselfIsLookedAtOnce) {
  TempDir dir;
  struct stat s;
  ASSERT_EQ(::stat(dir.path().c_str(), &s), 0);
  testing::put_bytes(dir / "table", text("1 0 ", major(s.st_dev), ":", minor(s.st_dev), " / / rw - overlay overlay ",
                                         "rw,lowerdir=", dir.path(), ":", dir.path(), ",upperdir=", dir.path(), "\n"));
  OneOverlay env(Env::posix(), dir / "table");
  const Filesystem fs = probe_filesystem(open_in(env, dir.path()));
  EXPECT_EQ(fs.type, "overlay");
  EXPECT_EQ(fs.storage, Storage::local);
}

TEST(Filesystem, OverlaysNameTheirLayers) {
  using Folders = std::vector<std::string>;
  EXPECT_EQ(overlay_layers("rw,lowerdir=/a/low:/b/low,upperdir=/c/up,workdir=/c/work,xino=off"),
            (Folders{"/a/low", "/b/low", "/c/up"}));
  EXPECT_EQ(overlay_layers("ro,lowerdir+=/one,lowerdir+=/two,datadir+=/data"), (Folders{"/one", "/two", "/data"}));
  EXPECT_EQ(overlay_layers("rw,lowerdir=/with\\040space,upperdir=/u"), (Folders{"/with space", "/u"}));
  EXPECT_EQ(overlay_layers("rw,lowerdir=/a\\134:colon:/b,upperdir=/u"), (Folders{"/a:colon", "/b", "/u"}));
  EXPECT_EQ(overlay_layers("rw,relatime"), Folders{});
  EXPECT_EQ(overlay_layers("lowerdir=,upperdir="), Folders{});
  EXPECT_EQ(overlay_layers("lowerdir=/cut\\0").size(), 1u);  // no octal number: read no further than there is
}

TEST(Filesystem, LiveOnesAreRecognised) {
  Env &env = Env::posix();
  EXPECT_EQ(probe_filesystem(open_in(env, "/proc/self/status")).type, "proc");
  EXPECT_EQ(probe_filesystem(open_in(env, "/proc/self/status")).storage, Storage::unknown);
  if (std::filesystem::is_directory("/dev/shm") &&
      testing::bytes_of("/proc/self/mountinfo").find(" /dev/shm ") != std::string::npos) {
    EXPECT_EQ(probe_filesystem(open_in(env, "/dev/shm")).storage, Storage::memory);
  }
  TempDir dir;
  testing::put_bytes(dir / "f", "x");
  const Filesystem fs = probe_filesystem(open_in(env, dir / "f"));
  EXPECT_NE(fs.type, "");
  EXPECT_EQ(fs.storage, storage_of_type(fs.type));
}

}  // namespace
}  // namespace st::os
