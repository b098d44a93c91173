// Names of what lies beside a file: long ones, ones that only look like ours, and what a filesystem makes of them.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <set>

#include "folder_scene.h"
#include "newfile/names.h"
#include "two_devices_env.h"

namespace st::store {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using testing::Call;

class Names : public testing::FolderScene {
 protected:
  void clear() const {
    for (const std::string &name : testing::names_in(ckpt)) fs::remove_all(ckpt + "/" + name);
    fill(ckpt);
  }
  const std::string model = ckpt + "/model.safetensors";
};

// A writer of two shards dies at any of its steps. Somebody publishes or recovers a third, and only then the index is
// opened: it shows all of the change or nothing.
TEST_F(Names, ShardsThatShareTwoHundredBytesAreChangedTogetherOrNotAtAll) {
  const std::string shared(210, 'm'), third = ckpt + "/" + shared + "-0.safetensors";
  first = shared + "-1.safetensors", second = shared + "-2.safetensors";
  const std::string index = ckpt + "/model.safetensors.index.json";
  const auto is_step = [](Call c) { return c == Call::pwrite || c == Call::renameat || c == Call::unlinkat; };
  for (const bool publish : {false, true}) {
    bool done = false;
    for (size_t n = 0; !done; ++n) {
      clear();
      put_bytes(third, testing::file_of(std::vector{testing::u8_tensor("c", 10, 3)}));
      put_bytes(index, R"({"weight_map":{"a":")" + first + R"(","b":")" + second + R"(","c":")" + shared +
                           R"(-0.safetensors"}})");
      {
        FaultEnv env(os::Env::posix());
        auto c = open(env, index);
        ASSERT_TRUE(is_ok(c));
        auto t = staged(**c, true);
        ASSERT_TRUE(is_ok(t));
        env.before = testing::nth_call_fails(n, -EIO, true, is_step);
        done = (*t)->commit().has_value();
      }
      if (publish) {
        auto alone = open(os::Env::posix(), third);
        ASSERT_TRUE(is_ok(alone)) << n;
        auto t = (*alone)->begin({});
        ASSERT_TRUE(is_ok(t));
        ASSERT_TRUE(is_ok((*t)->set_metadata("by", "me")));
        EXPECT_TRUE(is_ok((*t)->commit())) << n;
      } else {
        EXPECT_TRUE(is_ok(recover_all(os::Env::posix(), third, {0, nullptr, nullptr}, {}))) << n;
      }
      const std::string a = tensor(index, "a"), b = tensor(index, "b");
      const bool all_new = a == new_a && b == new_b, all_old = a == pattern(4000, 1) && b == pattern(5000, 2);
      const auto shown = [](const std::string &s) { return s.starts_with("cannot") ? s : std::string("a value"); };
      ASSERT_TRUE(all_new || all_old) << "step " << n << (publish ? ", published: " : ", recovered: ") << shown(a)
                                      << " | " << shown(b);
    }
  }
}

TEST_F(Names, WhatOnlyLooksLikeATemporaryIsLeft) {
  const std::vector<std::string> others{
      ".model.safetensors.st-tmp-notes.txt",           ".model.safetensors.st-new-notes.txt",
      ".model.safetensors.st-tmp-0123456789abcde",     ".model.safetensors.st-tmp-0123456789abcdef0",
      ".model.safetensors.st-tmp-0123456789ABCDEF",    ".model.safetensors.st-tmp-",
      ".model.safetensors.st-tmp-0123456789abcdef.txt"};
  for (const std::string &name : others) put_bytes(ckpt + "/" + name, "mine");
  const std::string pipe = ckpt + "/.model.safetensors.st-tmp-1111111111111111";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string folder = ckpt + "/.model.safetensors.st-tmp-2222222222222222";
  fs::create_directory(folder);
  const std::string stale = ckpt + "/.model.safetensors.st-tmp-3333333333333333";
  put_bytes(stale, "of a dead writer");
  {
    auto c = open(os::Env::posix(), model);
    ASSERT_TRUE(is_ok(c));
    auto t = staged(**c, true);
    ASSERT_TRUE(is_ok(t));
    ASSERT_TRUE(is_ok((*t)->commit()));
  }
  FaultEnv env(os::Env::posix());
  env.before_open = [&](std::string_view name, int) {
    EXPECT_NE(name, fs::path(pipe).filename()) << "to open a device may do something";
    return 0;
  };
  ASSERT_TRUE(is_ok(recover_all(env, model, {0, nullptr, nullptr}, {})));
  for (const std::string &name : others) EXPECT_EQ(bytes_of(ckpt + "/" + name), "mine") << name;
  EXPECT_TRUE(fs::exists(pipe));
  EXPECT_TRUE(fs::exists(folder));
  EXPECT_FALSE(fs::exists(stale));
  clear();
}

TEST_F(Names, FilesWithTheLongestNamesAreReadAndChanged) {
  for (const size_t length : {244, 245, 250, 255, 254 /* of letters of two bytes */}) {
    SCOPED_TRACE(length);
    std::string name;
    while (name.size() < length - 12) name += length == 254 ? "\u00e9" : "x";
    name += ".safetensors";
    const std::string path = ckpt + "/" + name;
    fs::copy_file(model, path);
    EXPECT_TRUE(same_bytes(tensor(path, "a"), pattern(4000, 1)));
    for (const bool publish : {false, true}) {
      auto c = open(os::Env::posix(), path);
      ASSERT_TRUE(is_ok(c));
      auto t = staged(**c, publish);
      ASSERT_TRUE(is_ok(t));
      ASSERT_TRUE(is_ok((*t)->commit()));
      EXPECT_TRUE(same_bytes(tensor(path, "a"), new_a));
    }
    ASSERT_TRUE(is_ok(recover_all(os::Env::posix(), path, {0, nullptr, nullptr}, {})));
    // What its writer left is found under the same name.
    testing::TwoDevicesEnv env(os::Env::posix());
    auto c = open(env, path);
    ASSERT_TRUE(is_ok(c));
    auto t = (*c)->begin({});
    ASSERT_TRUE(is_ok(t));
    const std::string old_a = pattern(4000, 1);
    const uint64_t n = old_a.size();
    ASSERT_TRUE(is_ok((*t)->update("a", u8(old_a, n))));
    size_t syncs = 0;
    env.before = [&](Call call) { return call == Call::fdatasync && ++syncs > 2 ? -EIO : 0; };
    EXPECT_FALSE((*t)->commit());
    t->reset();
    c->reset();
    auto recovered = recover_all(os::Env::posix(), path, {0, nullptr, nullptr}, {});
    ASSERT_TRUE(is_ok(recovered));
    EXPECT_EQ(recovered->applied, 1u);
    EXPECT_TRUE(same_bytes(tensor(path, "a"), old_a));
    fs::remove(path);
    EXPECT_EQ(testing::names_in(ckpt).size(), 4u);
  }
}

// A server that forgets a file which was replaced between our two looks.
TEST_F(Names, AFileThatIsGoneOnTheServerOnceItIsOpenIsLookedForAgain) {
  for (const int error : {-ENOENT, -ESTALE}) {
    bool failed = true;
    for (size_t n = 0; failed; ++n) {
      FaultEnv env(os::Env::posix());
      failed = false;
      env.before = [&, fails = testing::nth_call_fails(n, error, false, [](Call c) { return c == Call::fstat; })](
                       Call call) mutable {
        const int answer = fails(call);
        failed |= answer != 0;
        return answer;
      };
      EXPECT_TRUE(is_ok(open(env, model, false))) << "look " << n;
    }
    FaultEnv env(os::Env::posix());
    env.before = [&](Call call) { return call == Call::fstat ? error : 0; };
    EXPECT_FALSE(open(env, model, false));  // and no hang
  }
}

// A server that has replaced the file between the kernel's look at the name and its opening.
TEST_F(Names, AFileThatIsReplacedWhileItIsOpenedIsLookedForAgain) {
  FaultEnv env(os::Env::posix());
  int left = 0;
  env.before_open = [&](std::string_view name, int) {
    return fs::path(name).filename() == "model.safetensors" && left-- > 0 ? -ENOENT : 0;
  };
  for (const bool writable : {false, true}) {
    left = 3;
    auto file = open(env, model, writable);
    EXPECT_TRUE(is_ok(file));
    EXPECT_LE(left, 0);
  }
  left = 1 << 20;
  EXPECT_FALSE(open(env, model, false));  // and no hang
}

TEST_F(Names, ALongOneOfNoWholeCharacterHasItsHashAlone) {
  const std::string name = write::journal_folder_name(std::string(255, '\x80'));
  EXPECT_TRUE(name.starts_with("-"));
  EXPECT_TRUE(name.ends_with(".st-journal"));
  EXPECT_EQ(name.size(), 28u);
}

TEST_F(Names, AFullFolderWhereADamagedJournalIsToGoIsNoHindrance) {
  testing::TwoDevicesEnv env(os::Env::posix());
  {
    auto c = open(env, model);
    ASSERT_TRUE(is_ok(c));
    auto t = staged(**c, false);
    ASSERT_TRUE(is_ok(t));
    size_t syncs = 0;
    env.before = [&](Call call) { return call == Call::fdatasync && ++syncs > 2 ? -EIO : 0; };
    EXPECT_FALSE((*t)->commit());
  }
  const std::string folder = model + ".st-journal";
  const auto left = testing::names_in(folder);
  ASSERT_EQ(left.size(), 1u);
  testing::poke(folder + "/" + left[0], 0, "?");
  fs::create_directories(folder + "/" + left[0] + ".bad/full");
  EXPECT_TRUE(fails_with(Status::journal, open(os::Env::posix(), model)));
  EXPECT_TRUE(is_ok(open(os::Env::posix(), model)));
  EXPECT_TRUE(fs::exists(folder + "/" + left[0] + ".2.bad"));
}

}  // namespace
}  // namespace st::store
