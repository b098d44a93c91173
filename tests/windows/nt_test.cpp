// What the calls of Windows are asked, and how their answers are read: no file is touched.
#include <gtest/gtest.h>

#include <cstring>

#include "os/vocabulary.h"
#include "os/win32/nt.h"

namespace st::os {
namespace {

// The right to pass through a folder is of a file the right to execute it.
TEST(Opening, WhoReadsAFileNeedsNoRightToExecuteIt) {
  for (const int flags : {O_RDONLY, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, O_RDWR, O_WRONLY | O_CREAT | O_EXCL})
    EXPECT_EQ(opening_of(flags).access & FILE_TRAVERSE, 0u) << flags;
  for (const int flags : {O_RDONLY | O_DIRECTORY, O_PATH | O_DIRECTORY})
    EXPECT_NE(opening_of(flags).access & FILE_TRAVERSE, 0u) << flags;
}

// As a filesystem keeps a link.
std::string link_to(std::wstring_view target, ULONG tag, USHORT at, USHORT bytes) {
  const ULONG flags = 0;
  const USHORT begin[] = {0, 0, at, bytes, 0, 0};
  std::string kept(reinterpret_cast<const char *>(&tag), sizeof tag);
  kept.append(reinterpret_cast<const char *>(begin), sizeof begin);
  if (tag == IO_REPARSE_TAG_SYMLINK) kept.append(reinterpret_cast<const char *>(&flags), sizeof flags);
  return kept.append(reinterpret_cast<const char *>(target.data()), target.size() * sizeof(wchar_t));
}

TEST(Links, LeadNowhereIfTheirBytesContradictThemselves) {
  for (const ULONG tag : {ULONG{IO_REPARSE_TAG_SYMLINK}, ULONG{IO_REPARSE_TAG_MOUNT_POINT}}) {
    const auto target = [&](USHORT at, USHORT bytes) {
      const std::string kept = link_to(L"abcd", tag, at, bytes);
      return target_of_link(kept.data(), kept.size());
    };
    EXPECT_EQ(target(0, 8), L"abcd");
    EXPECT_EQ(target(2, 6), L"bcd");
    EXPECT_EQ(target(8, 0), L"");
    EXPECT_EQ(target(0, 10), std::nullopt);
    EXPECT_EQ(target(4, 6), std::nullopt);
    EXPECT_EQ(target(65534, 2), std::nullopt);
    EXPECT_EQ(target(0, 65534), std::nullopt);
    const std::string kept = link_to(L"abcd", tag, 0, 8);
    for (size_t n = 0; n < kept.size(); ++n) EXPECT_EQ(target_of_link(kept.data(), n), std::nullopt) << n;
  }
}

}  // namespace
}  // namespace st::os
