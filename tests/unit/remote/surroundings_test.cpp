// What a process is told by the system itself.
#include "remote/surroundings.h"

#include <gtest/gtest.h>

#include <fstream>

#include "remote/limits.h"
#include "remote/surroundings_of_tests.h"
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

TEST(SurroundingsTest, ATimeBeyondAllTimesIsALongOne) {
  for (const char *given : {"1000000000", "18446744073709552", "18446744073709551615", "99999999999999999999"}) {
    const Limits limits = Limits::of(with({{"ST_REMOTE_STALL_SECONDS", given}, {"ST_REMOTE_DEADLINE_SECONDS", given}}));
    EXPECT_EQ(limits.stall_ms, 1000'000'000'000u) << given;
    EXPECT_EQ(limits.deadline_ms, 1000'000'000'000u) << given;
  }
  for (const char *given : {"0", "-1", "a", "1a", " 5", ""})
    EXPECT_EQ(with({{"N", given}}).number("N", 7), 7u) << given;
}

}  // namespace
}  // namespace st::remote
