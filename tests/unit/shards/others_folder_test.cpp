// A checkpoint in the folder of another user, where others have few rights.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "crash_scene.h"
#include "engine/open.h"
#include "model/model.h"
#include "shards_scene.h"

namespace st::store {
namespace {

using namespace testing;

// From which nothing goes while this lives: chattr +a.
class KeptFolder {
 public:
  explicit KeptFolder(const std::string &path) : fd_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    is_kept_ = ::ioctl(fd_, FS_IOC_GETFLAGS, &before_) == 0 && set(before_ | FS_APPEND_FL);
  }
  KeptFolder(const KeptFolder &) = delete;
  ~KeptFolder() {
    if (is_kept_) set(before_);
    ::close(fd_);
  }
  explicit operator bool() const { return is_kept_; }

 private:
  bool set(int flags) { return ::ioctl(fd_, FS_IOC_SETFLAGS, &flags) == 0; }

  int fd_, before_ = 0;
  bool is_kept_ = false;
};

class OthersFolder : public testing::ShardsScene {
 protected:
  void SetUp() override {
    put_checkpoint_anew(ckpt, index);
    for (const auto &entry : std::filesystem::directory_iterator(ckpt)) ::chmod(entry.path().c_str(), 0666);
    ::chmod(dir.path().c_str(), 0755);
  }
  Result<std::unique_ptr<Model>> open(bool writes = false) const {
    OpenOptions options;
    options.writable = writes;
    return open_path(os::Env::posix(), index, options);
  }
  // A tensor in each of the shards.
  Result<void> change(Model &model, bool publishes) const {
    TransactionOptions options;
    options.publish = publishes;
    ST_TRY(const auto begun, model.begin(options));
    ST_TRY(begun->update("a", u8(new_a)));
    ST_TRY(begun->update("c", u8(new_c)));
    return begun->commit();
  }
  void expect_that_nothing_goes(Model &model) const {
    const auto done = change(model, true);
    ASSERT_TRUE(fails_with(Status::permission, done));
    EXPECT_NE(done.error().message.find("chattr"), std::string::npos) << done.error().message;
  }

  TempDir dir;
  const std::string ckpt = dir / "ckpt", index = ckpt + "/model.safetensors.index.json", new_a = pattern(4000, 71),
                    new_c = pattern(5000, 73);
};

TEST_F(OthersFolder, OneThatMayNotBeListedIsReadByNames) {
  ::chmod(ckpt.c_str(), 0711);
  {
    const AsUser user(somebody);
    if (!user) GTEST_SKIP() << "root only";
    const auto model = open();
    ASSERT_TRUE(is_ok(model));
    EXPECT_EQ(bytes(**model, "a").size(), 4000u);
  }
  std::filesystem::remove(ckpt + "/m-2.safetensors");
  const AsUser user(somebody);
  EXPECT_TRUE(fails_with(Status::shard_missing, open()));
}

// To be found out after the decision, it would leave a commit that this user cannot finish.
TEST_F(OthersFolder, NoShardIsReplacedInOneThatIsSticky) {
  ::chmod(ckpt.c_str(), 01777);
  const AsUser user(somebody);
  if (!user) GTEST_SKIP() << "root only";
  {
    const auto model = open(true);
    ASSERT_TRUE(is_ok(model));
    for (const bool publishes : {true, false}) {
      const auto done = change(**model, publishes);
      EXPECT_EQ(done ? Status::ok : done.error().status, publishes ? Status::permission : Status::ok);
    }
  }
  const auto model = open();
  ASSERT_TRUE(is_ok(model));
  EXPECT_EQ(bytes(**model, "a"), new_a);
  EXPECT_EQ(bytes(**model, "c"), new_c);
  const std::filesystem::directory_iterator all(ckpt);
  EXPECT_EQ(std::distance(begin(all), end(all)), 3);
}

// As above, though nobody is a stranger there: nobody could even open the checkpoint then.
TEST_F(OthersFolder, NoShardIsReplacedInOneFromWhichNothingGoes) {
  {
    const KeptFolder kept(ckpt);
    if (!kept) GTEST_SKIP() << "root only, and where folders have such a mark";
    auto model = open(true);
    ASSERT_TRUE(is_ok(model));
    expect_that_nothing_goes(**model);
    EXPECT_TRUE(is_ok(open()));
    // What changes in place needs no place.
    const auto begun = (*model)->begin({});
    ASSERT_TRUE(is_ok(begun) && is_ok((*begun)->update("c", u8(new_c))));
    EXPECT_TRUE(is_ok((*begun)->commit()));
  }
  const auto model = open();
  ASSERT_TRUE(is_ok(model));
  EXPECT_NE(bytes(**model, "a"), new_a);
  EXPECT_EQ(bytes(**model, "c"), new_c);
}

// A file of somebody in a sticky folder, which keeps its owner from nothing: that is not why.
TEST_F(OthersFolder, TheOwnerOfAStickyOneIsToldThatNothingGoes) {
  ::chmod(ckpt.c_str(), 01777);
  for (const auto &entry : std::filesystem::directory_iterator(ckpt)) {
    if (::chown(entry.path().c_str(), somebody, somebody) != 0) GTEST_SKIP() << "root only";
  }
  const KeptFolder kept(ckpt);
  if (!kept) GTEST_SKIP() << "root only, and where folders have such a mark";
  auto model = open(true);
  ASSERT_TRUE(is_ok(model));
  expect_that_nothing_goes(**model);
}

// The kernel lets it, so it is no stranger there.
TEST_F(OthersFolder, AShardIsReplacedInOneThatIsStickyWithARightToAllFiles) {
  ::chmod(ckpt.c_str(), 01777);
  const AsUser user(somebody);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct has[2];
  if (!user || ::syscall(SYS_capget, &header, has) != 0) GTEST_SKIP() << "root only";
  has[0].effective = 1U << CAP_FOWNER;
  if (::syscall(SYS_capset, &header, has) != 0) GTEST_SKIP() << "root has no such right here";
  const auto model = open(true);
  ASSERT_TRUE(is_ok(model));
  EXPECT_TRUE(is_ok(change(**model, true)));
  EXPECT_TRUE(bytes(**model, "a") == new_a);
  EXPECT_TRUE(bytes(**model, "c") == new_c);
}

}  // namespace
}  // namespace st::store
