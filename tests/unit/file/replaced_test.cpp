// Files that change under a handle: replaced by another, written anew, cut.
#include "clock_env.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class Replaced : public testing::StoreScene {
 protected:
  void replace_by(const std::string &bytes) { testing::replace_by(path, bytes); }
  // The old file, by another name.
  std::string keep_old() {
    fs::create_hard_link(path, dir / "old");
    return dir / "old";
  }
};

TEST_F(Replaced, AChangeLandsInTheNewFileIfItHasTheTensor) {
  const std::string kept = keep_old();
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
  const std::string other = testing::file_of(
      {testing::u8_tensor("a", 4000, 11), testing::u8_tensor("b", 10007, 12), testing::u8_tensor("c", 3000, 13)});
  replace_by(other);
  ASSERT_TRUE(is_ok(t->commit()));
  std::string wanted = other;
  wanted.replace(b_at, 10007, new_b);
  EXPECT_TRUE(same_bytes(bytes_of(path), wanted));
  EXPECT_TRUE(same_bytes(bytes_of(kept), old));
  EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
  EXPECT_TRUE(same_bytes(seen(*c, "a"), pattern(4000, 11)));  // the handle is with the new file now
}

TEST_F(Replaced, WhereTheTensorLiesThereIsWhereItIsWritten) {
  const std::string other = testing::file_of(
      {testing::u8_tensor("x", 12345, 14), testing::u8_tensor("b", 10007, 12), testing::u8_tensor("a", 4000, 11)}, {},
      2000);
  for (bool copy : {false, true}) {
    put_bytes(path, old);
    auto c = open();
    TransactionOptions options;
    options.copy = copy;
    auto t = begin(*c, std::move(options));
    ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
    ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
    replace_by(other);
    ASSERT_TRUE(is_ok(t->commit()));
    std::string wanted = other;
    wanted.replace(other.size() - 14007, 10007, new_b).replace(other.size() - 4000, 4000, new_a);
    EXPECT_TRUE(same_bytes(bytes_of(path), wanted));
    EXPECT_EQ(c->snapshot().header.index.size(), 3u);
    EXPECT_TRUE(c->snapshot().header.index.find("x"));
  }
}

// Found by fuzzing: it was, or not, by whether a put came before it.
TEST_F(Replaced, AnUpdateOfAnEmptyTensorMayFindItGone) {
  const uint64_t none[] = {0};
  const NewBytes nothing{static_cast<uint32_t>(Dtype::U8), none, nullptr, 0};
  const uint64_t one[] = {1};
  const NewBytes added{static_cast<uint32_t>(Dtype::U8), one, "x", 1};
  for (bool put_first : {false, true}) {
    put_bytes(path, testing::file_of({testing::u8_tensor("a", 4000, 1), {"e", Dtype::U8, {0}, ""}}));
    auto c = open();
    auto t = begin(*c);
    const auto put = [&] { return t->put("x", added); };
    const auto update = [&] { return t->update("e", nothing); };
    ASSERT_TRUE(is_ok(put_first ? put() : update()));
    ASSERT_TRUE(is_ok(put_first ? update() : put()));
    replace_by(testing::file_of({testing::u8_tensor("a", 4000, 2)}));
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_FALSE(c->snapshot().header.index.find("e"));
    EXPECT_TRUE(same_bytes(seen(*c, "x"), "x"));
  }
}

TEST_F(Replaced, ATensorThatIsGoneOrAnotherNowIsRefused) {
  const std::vector<std::vector<testing::TestTensor>> others = {
      {testing::u8_tensor("a", 4000, 1), testing::u8_tensor("c", 3000, 3)},
      {testing::u8_tensor("a", 4000, 1), testing::u8_tensor("b", 10008, 2)},
      {testing::u8_tensor("a", 4000, 1), {"b", Dtype::I8, {10007}, pattern(10007, 2)}},
      {testing::u8_tensor("a", 4000, 1), {"b", Dtype::U8, {10007, 1}, pattern(10007, 2)}},
  };
  for (const auto &other : others) {
    put_bytes(path, old);
    const std::string kept = keep_old();
    auto c = open();
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
    ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
    replace_by(testing::file_of(other));
    auto refused = t->commit();
    ASSERT_TRUE(fails_with(Status::file_changed, refused));
    EXPECT_EQ(refused.error().tensor, "b");
    EXPECT_TRUE(same_bytes(bytes_of(path), testing::file_of(other)));
    EXPECT_TRUE(same_bytes(bytes_of(kept), old));
    EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
    fs::remove(kept);
  }
}

TEST_F(Replaced, AHeaderWrittenAnewInPlaceIsFollowed) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  const std::string other = testing::file_of(
      {testing::u8_tensor("b", 10007, 2), testing::u8_tensor("a", 4000, 1), testing::u8_tensor("c", 3000, 3)});
  ASSERT_EQ(other.size(), old.size());
  testing::poke(path, 0, other);  // the same inode
  ASSERT_TRUE(is_ok(t->commit()));
  std::string wanted = other;
  wanted.replace(other.size() - 7000, 4000, new_a);
  EXPECT_TRUE(same_bytes(bytes_of(path), wanted));
}

TEST_F(Replaced, ViewsAndNamesOfTheOldFileLiveOn) {
  auto c = open();
  const Snapshot &before = c->snapshot();
  const TensorView b = before.header.index.at(1);
  const std::byte *view = c->view(before, 1).value();
  replace_by(testing::file_of({testing::u8_tensor("b", 10007, 12)}));
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  EXPECT_NE(&c->snapshot(), &before);
  EXPECT_EQ(std::string(reinterpret_cast<const char *>(view), 10007), tensors[1].bytes);
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.shape[0], 10007u);
  std::string copy(4000, '?');
  ASSERT_TRUE(is_ok(c->read(before, 0, copy.data())));
  EXPECT_TRUE(same_bytes(copy, tensors[0].bytes));
}

TEST_F(Replaced, AgainAndAgainIsFollowedEachTime) {
  auto c = open();
  for (unsigned i = 0; i < 5; ++i) {
    replace_by(testing::file_of({testing::u8_tensor("x", 100 * i + 1, 5), testing::u8_tensor("a", 4000, i)}));
    const std::string bytes = pattern(4000, 100 + i);
    ASSERT_TRUE(is_ok(update(*c, "a", bytes)));
    EXPECT_TRUE(same_bytes(bytes_of(path).substr(bytes_of(path).size() - 4000), bytes));
  }
}

TEST_F(Replaced, AMissingFileIsSaid) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  fs::remove(path);
  EXPECT_TRUE(fails_with(Status::no_file, t->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "a"), tensors[0].bytes));  // the old inode is still ours
}

TEST_F(Replaced, ATruncatedFileIsRefusedAndNotFilledUp) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("c", value(*c, "c", new_c))));
  fs::resize_file(path, c_at + 5);
  EXPECT_TRUE(fails_with(Status::truncated, t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), old.substr(0, c_at + 5)));
}

TEST_F(Replaced, AFileThatIsNoneAnyMoreIsRefused) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("c", value(*c, "c", new_c))));
  replace_by("no safetensors file");
  EXPECT_FALSE(t->commit());
  EXPECT_TRUE(same_bytes(bytes_of(path), "no safetensors file"));
  fs::remove(path);
  fs::create_directory(path);
  auto again = begin(*c);
  ASSERT_TRUE(is_ok(again->update("c", value(*c, "c", new_c))));
  EXPECT_TRUE(fails_with(Status::not_regular, again->commit()));
}

// A stock writer takes no locks. It comes when the new file of a publish is made, and has no name yet.
TEST_F(Replaced, WhileANewFileIsMadeKeepsTheName) {
  const std::string other = testing::file_of({testing::u8_tensor("a", 4000, 11)});
  testing::FaultEnv host(env);
  auto c = open(host);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->remove("b")));
  bool came = false;
  host.before = [&](testing::Call call) {
    if (call == testing::Call::fsync && !std::exchange(came, true)) replace_by(other);
    return 0;
  };
  EXPECT_TRUE(fails_with(Status::file_changed, t->commit()));
  EXPECT_TRUE(came);
  EXPECT_TRUE(same_bytes(bytes_of(path), other));
}

// While a commit waits for its lock, the file it waits for goes.
TEST_F(Replaced, WhileItWaitsForALockIsNoticed) {
  testing::ClockEnv clock(env);
  auto c = open(clock);
  auto blocker = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
  auto held = os::RangeLock::acquire(*blocker, {{a_at, 1, true}}, {});
  const std::string other = testing::file_of({testing::u8_tensor("a", 4000, 11)});
  clock.on_sleep = [&] {
    if (clock.sleeps != 5) return;
    replace_by(other);
    held->release();
  };
  ASSERT_TRUE(is_ok(update(*c, "a", new_a)));
  EXPECT_TRUE(same_bytes(bytes_of(path), other.substr(0, other.size() - 4000) + new_a));
}

}  // namespace
}  // namespace st::store
