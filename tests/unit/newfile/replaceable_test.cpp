// May a new file take the place of one?
#include <gtest/gtest.h>

#include <filesystem>

#include "newfile/temporary_file.h"
#include "test_files.h"

namespace st::write {
namespace {

using namespace testing;

// The kernel is asked by a call that would remove an empty folder.
TEST(ReplaceableTest, AFolderThatHasTakenTheNameStays) {
  const TempDir dir;
  const std::string path = dir / "m.safetensors";
  put_bytes(path, "abc");
  auto at = os::Location::find(os::Env::posix(), path);
  ASSERT_TRUE(is_ok(at));
  auto file = os::open_regular(*at, O_RDONLY);
  ASSERT_TRUE(is_ok(file) && is_ok(check_replaceable(*at, *file)));
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::rename(path, dir / "aside");
  std::filesystem::create_directory(path);
  EXPECT_TRUE(is_ok(check_replaceable(*at, *file)));  // who renames looks at the name
  EXPECT_TRUE(std::filesystem::is_directory(path));
}

}  // namespace
}  // namespace st::write
