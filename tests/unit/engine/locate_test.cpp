// What a folder stands for: its file by the usual name, or its index of shards.
#include "engine/locate.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "engine/open.h"
#include "fault_env.h"
#include "shards/old_list.h"
#include "short_lists_env.h"
#include "test_files.h"

namespace st::store {
namespace {

constexpr const char *usual = "model.safetensors";

class Locate : public ::testing::Test {
 protected:
  void put_index(const std::string &shard, const std::string &name = "model.safetensors.index.json") {
    testing::put_bytes(dir / name, R"({"weight_map":{"a":")" + shard + R"("}})");
  }
  // The name that the folder leads to; whether it is an index is what its name says.
  std::string found() { return found(env); }
  std::string found(os::Env &with) {
    auto located = locate(with, dir.path());
    if (!located) return located.error().message;
    EXPECT_EQ(located->is_index, located->path.ends_with(".index.json"));
    return located->path.substr(located->path.rfind('/') + 1);
  }
  testing::TempDir dir;
  testing::FaultEnv env{os::Env::posix()};
};

TEST_F(Locate, AFolderLeadsToItsIndexOrItsFile) {
  EXPECT_NE(found().find("neither"), std::string::npos);
  put_index("model-00001-of-00001.safetensors");
  EXPECT_EQ(found(), "model.safetensors.index.json");
  put_index("model.fp16-00001-of-00001.safetensors", "model.safetensors.index.fp16.json");
  EXPECT_NE(found().find("2 indexes"), std::string::npos);
}

TEST_F(Locate, AnIndexThatAListLacksIsFoundByItsName) {
  testing::ShortListsEnv lacking;
  testing::put_bytes(dir / usual, testing::file_of({testing::u8_tensor("a", 100, 1)}));
  EXPECT_EQ(found(lacking), usual);
  put_index(usual);
  EXPECT_EQ(found(lacking), "model.safetensors.index.json");
  std::filesystem::remove(dir / usual);
  EXPECT_EQ(found(lacking), "model.safetensors.index.json");
}

// As on NTFS, exFAT, or a folder of ext4 with chattr +F.
class NoCaseEnv : public testing::FaultEnv {
 public:
  NoCaseEnv() : FaultEnv(os::Env::posix()) {}
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    std::string spelled = path;
    if (const size_t at = spelled.rfind("/model."); at != std::string::npos) spelled[at + 1] = 'M';
    const int r = FaultEnv::fstatat(dir, path, out, flags);
    return r == -ENOENT ? FaultEnv::fstatat(dir, spelled.c_str(), out, flags) : r;
  }
};

TEST_F(Locate, AnIndexOfAnotherCaseIsNotTwoWhereCasesAreOne) {
  NoCaseEnv folds;
  put_index("m-1.safetensors", "Model.safetensors.index.json");
  EXPECT_EQ(found(folds), "Model.safetensors.index.json");
}

// As transformers has it, which leaves the index when it saves a model of shards anew in one file.
TEST_F(Locate, AFileByTheUsualNameComesBeforeAnIndexThatDoesNotNameIt) {
  testing::put_bytes(dir / usual, testing::file_of({testing::u8_tensor("a", 100, 1)}));
  EXPECT_EQ(found(), usual);
  put_index("model-00001-of-00001.safetensors");
  EXPECT_EQ(found(), usual);
  testing::put_bytes(dir / "model.safetensors.index.json", "{\"weight_map\"");
  EXPECT_EQ(found(), usual);
  std::filesystem::remove(dir / "model.safetensors.index.json");
  std::filesystem::create_directory(dir / "model.safetensors.index.json");
  EXPECT_EQ(found(), usual);
  std::filesystem::remove(dir / "model.safetensors.index.json");
  put_index("model.fp16-00001-of-00001.safetensors", "model.safetensors.index.fp16.json");
  EXPECT_EQ(found(), usual);
}

// As mlx saves a small model. A tensor that is added through the folder must be in the index, too.
TEST_F(Locate, AnIndexThatNamesTheFileComesBeforeIt) {
  testing::put_bytes(dir / usual, testing::file_of({testing::u8_tensor("a", 100, 1)}));
  put_index(usual);
  EXPECT_EQ(found(), "model.safetensors.index.json");
}

// The old file stays for a while under its name, and holds the state of before.
TEST_F(Locate, AnIndexThatNamesTheFilesSuccessorComesBeforeIt) {
  testing::put_bytes(dir / usual, testing::file_of({testing::u8_tensor("a", 100, 1)}));
  put_index("model.g1.safetensors");
  EXPECT_EQ(found(), "model.safetensors.index.json");
}

// All its tensors were removed by a commit under new names.
TEST_F(Locate, AnIndexThatListsTheFileAsOldComesBeforeIt) {
  testing::put_bytes(dir / usual, testing::file_of({testing::u8_tensor("a", 100, 1)}));
  put_index("other.safetensors");
  const std::string list = dir / "model.safetensors.index.json.st-old";
  for (const std::string &name : {std::string(usual), std::string("third.safetensors")}) {
    testing::put_bytes(list, write::spell({{name, 1, 2, 3, 4}}));
    EXPECT_EQ(found(), name == usual ? "model.safetensors.index.json" : usual);
  }
  testing::put_bytes(list, "damaged");
  EXPECT_EQ(found(), usual);
}

// What waits beside the file is recovered by the call that opens it, or told by the one that verifies it.
TEST_F(Locate, NothingIsRecoveredOrLocked) {
  testing::put_bytes(dir / usual, testing::file_of({testing::u8_tensor("a", 100, 1)}));
  put_index("model-00001-of-00001.safetensors");
  std::filesystem::create_directory(dir / "model.safetensors.st-journal");
  testing::put_bytes(dir / "model.safetensors.st-journal/0123456789abcdef", std::string(8192, 'x'));
  env.before = [](testing::Call call) {
    EXPECT_NE(call, testing::Call::lock);
    EXPECT_NE(call, testing::Call::unlinkat);
    EXPECT_NE(call, testing::Call::pwrite);
    return 0;
  };
  EXPECT_EQ(found(), usual);
  EXPECT_TRUE(std::filesystem::exists(dir / "model.safetensors.st-journal/0123456789abcdef"));
}

// It was a shard, whose tensors were removed.
TEST_F(Locate, AnIndexComesBeforeAFileWithoutTensors) {
  testing::put_bytes(dir / usual, testing::file_of({}));
  EXPECT_EQ(found(), usual);
  put_index("model-00001-of-00001.safetensors");
  EXPECT_EQ(found(), "model.safetensors.index.json");
}

TEST_F(Locate, OneOfSeveralIndexesThatNamesTheFileMakesThePathWanted) {
  testing::put_bytes(dir / usual, testing::file_of({testing::u8_tensor("a", 100, 1)}));
  put_index(usual);
  put_index("model.fp16-00001-of-00001.safetensors", "model.safetensors.index.fp16.json");
  EXPECT_NE(found().find("2 indexes"), std::string::npos);
}

TEST_F(Locate, WhatIsNoFileIsNotTakenForOne) {
  std::filesystem::create_directory(dir / usual);
  put_index("model-00001-of-00001.safetensors");
  EXPECT_EQ(found(), "model.safetensors.index.json");
  std::filesystem::remove(dir / "model.safetensors.index.json");
  EXPECT_EQ(found(), usual);  // to be refused
}

TEST_F(Locate, AnIndexThatCannotBeReadDecidesNothing) {
  testing::put_bytes(dir / usual, testing::file_of({testing::u8_tensor("a", 100, 1)}));
  put_index(usual);
  env.before = [](testing::Call call) { return call == testing::Call::pread ? -EIO : 0; };
  EXPECT_TRUE(testing::fails_with(Status::io, locate(env, dir.path())));
}

TEST_F(Locate, AUrlThatBecameAPathIsTold) {
  const auto model = open_path(env, "https:/me:hidden@host/a?b", {});
  const auto file = open_file(env, "https:/me:hidden@host/a?b", {});
  ASSERT_FALSE(model);
  ASSERT_FALSE(file);
  for (const Error &e : {model.error(), file.error()}) {
    EXPECT_EQ(e.status, Status::no_file);
    EXPECT_NE(e.message.find("'https://host/a' becomes"), std::string::npos) << e.message;
  }
  EXPECT_EQ(open_path(env, dir / "s3:/b", {}).error().message.find("becomes"), std::string::npos);
}

}  // namespace
}  // namespace st::store
