// Files that no folder names, by their paths in /proc: they are read like any other, also in a forked child, and not
// changed, as there is nowhere to put a journal.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scene.h"

namespace st::testing {
namespace {

enum class Kind { memfd, tmpfile, removed };
void PrintTo(Kind kind, std::ostream *out) {
  constexpr const char *names[] = {"memfd", "O_TMPFILE", "removed"};
  *out << names[static_cast<size_t>(kind)];
}

class CapiNameless : public CapiScene, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    switch (GetParam()) {
      case Kind::memfd: fd = ::memfd_create("model", MFD_CLOEXEC); break;
      case Kind::tmpfile:
        fd = ::open(dir.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0 && errno == EOPNOTSUPP) GTEST_SKIP() << "the filesystem of " << dir.path() << " has no O_TMPFILE";
        break;
      case Kind::removed:
        const std::string gone = dir / "gone";
        fd = ::open(gone.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        ASSERT_EQ(::unlink(gone.c_str()), 0);
        break;
    }
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::write(fd, old.data(), old.size()), static_cast<ssize_t>(old.size()));
    name = "/proc/self/fd/" + std::to_string(fd);
  }
  void TearDown() override {
    if (fd >= 0) ::close(fd);
  }

  st_file *open_by_path(uint32_t map) const { return open_at(name, 0, map); }

  int fd = -1;
  std::string name;
};

TEST_P(CapiNameless, ItIsReadAndOpenedAnew) {
  for (uint32_t map : {ST_MAP_AUTO, ST_MAP_PRIVATE, ST_MAP_NONE}) {
    st_file *file = open_by_path(map), *again = nullptr;
    ASSERT_NE(file, nullptr);
    ASSERT_ST(ST_OK, st_reopen(file, 0, &again));
    for (st_file *each : {file, again}) {
      EXPECT_EQ(seen(each, "a"), tensors[0].bytes);
      EXPECT_EQ(seen(each, "b"), tensors[1].bytes);
      st_close(each);
    }
  }
}

TEST_P(CapiNameless, WithASlashBehindItItIsNoFile) {
  st_file *file = nullptr;
  EXPECT_ST(ST_E_NO_FILE, st_open((name + "/").c_str(), nullptr, &file));
}

TEST_P(CapiNameless, AForkedChildReadsItThoughTheProgramClosedItsDescriptor) {
  st_file *file = open_by_path(ST_MAP_NONE);
  ASSERT_NE(file, nullptr);
  ::close(std::exchange(fd, -1));
  const pid_t child = ::fork();
  if (child == 0) {
    std::string a(tensors[0].bytes.size(), '\0');
    st_tensor t = {};
    const bool well = st_read(file, "a", ST_NTS, a.data(), a.size(), nullptr) == ST_OK && a == tensors[0].bytes &&
                      st_get(file, "b", ST_NTS, &t) == ST_OK &&
                      std::memcmp(t.data, tensors[1].bytes.data(), t.nbytes) == 0;
    ::_exit(well ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(seen(file, "a"), tensors[0].bytes);
  st_close(file);
}

TEST_P(CapiNameless, ItIsNotChangedAndThatIsSaid) {
  auto options = sized<st_open_options>();
  options.flags = ST_OPEN_READ_WRITE;
  st_file *file = nullptr;
  EXPECT_ST(ST_E_UNSUPPORTED, st_open(name.c_str(), &options, &file));
  EXPECT_NE(std::string_view(st_last_error()).find("without a name"), std::string_view::npos) << st_last_error();
  EXPECT_EQ(file, nullptr);
  EXPECT_ST(ST_OK, st_recover(name.c_str(), nullptr));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CapiNameless, ::testing::Values(Kind::memfd, Kind::tmpfile, Kind::removed),
                         [](const auto &kind) { return ::testing::PrintToString(kind.param); });

}  // namespace
}  // namespace st::testing
