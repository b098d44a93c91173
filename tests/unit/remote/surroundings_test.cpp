// What a process is told by the system itself.
#include "remote/surroundings.h"

#include <gtest/gtest.h>

#include <fstream>

#include "test_files.h"

namespace st::remote {
namespace {

TEST(SurroundingsTest, AFileIsReadWholeAndAFolderIsNone) {
  const st::testing::TempDir dir;
  const auto from = Surroundings::of_process();
  EXPECT_EQ(from.file(dir.path()), std::nullopt);
  EXPECT_EQ(from.file(dir / "none"), std::nullopt);
  for (const size_t n : {0, 1, 4095, 4096, 4097, 10000}) {
    const std::string text(n, 'x');
    std::ofstream(dir / "file") << text;
    EXPECT_EQ(from.file(dir / "file"), text);
  }
}

}  // namespace
}  // namespace st::remote
