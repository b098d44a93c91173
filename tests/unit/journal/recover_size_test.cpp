// How large a file beside a checkpoint says that it is costs nothing. A journal, a
// super-journal or a header may be sparse, or long: opening, verifying and
// recovering take little memory, and read few bytes of it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "crash_scene.h"
#include "engine/recover_all.h"
#include "engine/verify.h"
#include "fault_env.h"
#include "file/data_file.h"
#include "journal/super_recover.h"
#include "located.h"
#include "sanitizers.h"
#include "shards/shards.h"

namespace st::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr uint64_t MiB = uint64_t{1} << 20, GiB = MiB << 10, TiB = GiB << 10;
constexpr uint64_t most_memory = 64 * MiB;
#if defined(ST_UNDER_ASAN) || defined(ST_UNDER_TSAN)
constexpr bool sanitized = true;  // whose own memory is counted with ours
#else
constexpr bool sanitized = false;
#endif

class CountedReads : public FaultEnv {
 public:
  CountedReads() : FaultEnv(os::Env::posix()) {}
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    const ssize_t got = FaultEnv::pread(fd, buffer, n, offset);
    if (got > 0) bytes += static_cast<uint64_t>(got);
    calls.clear();  // a list of a million calls would count as memory that recovery takes
    return got;
  }
  uint64_t bytes = 0;
};

uint64_t status_of_self(const std::string &field) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (uint64_t kib = 0; word == field + ":" && in >> kib) return kib << 10;
  return 0;
}

// What `work` took, in a process of its own.
struct Cost {
  uint64_t memory = 0, read = 0;
};

class RecoverSize : public testing::CrashScene {
 protected:
  static Cost cost_of(const std::function<void(os::Env &)> &work) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const bool failed_before = HasFailure();
    const pid_t child = ::fork();
    if (child == 0) {
      // Far above what is allowed, so that a failure is no business of the kernel's OOM killer.
      if (!sanitized) {
        const rlimit most{status_of_self("VmSize") + 3 * GiB, RLIM_INFINITY};
        ::setrlimit(RLIMIT_AS, &most);
      }
      const uint64_t before = status_of_self("VmRSS");
      CountedReads env;
      Cost cost;
      try {
        work(env);
        cost = {status_of_self("VmHWM") - before, env.bytes};
      } catch (const std::bad_alloc &) {
        cost = {UINT64_MAX, env.bytes};
      }
      _exit(::write(ends[1], &cost, sizeof cost) == sizeof cost && (failed_before || !HasFailure()) ? 0 : 1);
    }
    Cost cost;
    ::close(ends[1]);
    const bool told = ::read(ends[0], &cost, sizeof cost) == sizeof cost;
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(told && status == 0) << "it ended with " << status;
    return cost;
  }
  static void expect_little(const std::string &what, uint64_t most_read, const std::function<void(os::Env &)> &work,
                            uint64_t memory = most_memory) {
    const Cost cost = cost_of(work);
    EXPECT_LE(sanitized ? 0 : cost.memory, memory) << what;
    EXPECT_LE(cost.read, most_read) << what;
  }

  static bool make_sparse(const std::string &journal, uint64_t size, write::CommitRecord record) {
    const int fd = ::open(journal.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool sized = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size)) == 0;
    if (fd >= 0) ::close(fd);
    const auto block = encode(record);
    if (sized) poke(journal, 0, {reinterpret_cast<const char *>(block.data()), block.size()});
    return sized;
  }
  void make_folder(const std::string &of) const {
    std::filesystem::create_directory(of + ".st-journal");
    std::filesystem::permissions(of + ".st-journal", std::filesystem::perms::owner_all);
  }
  write::Identity identity() const {
    auto file = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    return write::identify(*file).value();
  }
  // All of the journal is its list of ranges, and that a hole.
  bool leave_sparse(uint64_t size) {
    make_folder(path);
    return make_sparse(
        journal, size,
        {1, identity(), write::header_bytes, (size - write::header_bytes) / write::range_record_bytes, 7, 0, {}});
  }

  const std::string journal = folder() + "/0123456789abcdef";
};

TEST_F(RecoverSize, ASparseJournalCostsNothing) {
  for (const uint64_t size : {2 * GiB, 8 * TiB}) {
    if (!leave_sparse(size)) continue;  // a filesystem of smaller files
    const std::string what = text(size >> 30, " GiB");
    expect_little("verify " + what, MiB,
                  [&](os::Env &with) { EXPECT_EQ(verify(with, path, {}, {}).error().status, Status::needs_recovery); });
    // A transaction looks at the journals of the living, too: are they on its tensors?
    auto writer = os::File::open(env, AT_FDCWD, journal, O_RDWR, 0, journal);
    auto held = os::RangeLock::acquire(*writer, {{0, 0, true}}, {});
    ASSERT_TRUE(is_ok(held));
    expect_little("find_hot_journals " + what, MiB, [&](os::Env &with) {
      auto opened = write::Folder::open(testing::located(with, path), *writer->stat(), {});
      const write::Piece all{0, {0, old.size(), 0}, nullptr};
      auto found = write::find_hot_journals(**opened, *writer->stat(), {{}, {&all, 1}});
      EXPECT_TRUE(is_ok(found));
      EXPECT_FALSE(found->committed);
    });
    held->release();
    expect_little("open " + what, MiB, [&](os::Env &with) {
      auto opened = DataFile::open(with, path, {.writable = true});
      ASSERT_FALSE(opened);
      EXPECT_THAT(opened.error().message, HasSubstr("its manifest is damaged"));
    });
    leave_sparse(size);
    expect_little("recover " + what, MiB, [&](os::Env &with) {
      auto done = recover(with);
      ASSERT_TRUE(is_ok(done));
      EXPECT_EQ(done->aside, 1u);
    });
    std::filesystem::remove_all(folder());
  }
}

TEST_F(RecoverSize, ASparseSuperJournalCostsNothing) {
  const std::string index = dir / "model.safetensors.index.json";
  put_bytes(index, R"({"weight_map":{"a":"model.safetensors","b":"model.safetensors","c":"model.safetensors"}})");
  for (const uint64_t size : {2 * GiB, 8 * TiB})
    for (const uint64_t list : {size - write::header_bytes, 3 * MiB, 48 * MiB}) {
      make_folder(index);
      const std::string super = index + ".st-journal/0000000000000001";
      if (!make_sparse(super, size, {1, {}, write::header_bytes, list, 7, write::super_record, {}})) continue;
      const std::string what = text(size >> 30, " GiB, a list of ", list);
      expect_little("verify " + what, 5 * MiB, [&](os::Env &with) {
        EXPECT_EQ(verify(with, index, {}, {}).error().status, Status::needs_recovery);
      });
      expect_little("open " + what, 5 * MiB, [&](os::Env &with) {
        auto opened = Shards::open(with, index, {.writable = true});
        ASSERT_FALSE(opened);
        EXPECT_THAT(opened.error().message, HasSubstr("its list of files is damaged"));
      });
      make_sparse(super, size, {1, {}, write::header_bytes, list, 7, write::super_record, {}});
      expect_little("recover " + what, 5 * MiB, [&](os::Env &with) {
        auto done = recover_all(with, index, {}, {});
        ASSERT_TRUE(is_ok(done));
        EXPECT_EQ(done->aside, 1u);
      });
      std::filesystem::remove_all(index + ".st-journal");
    }
}

TEST_F(RecoverSize, ALongHeaderIsReadOnceAndNotKept) {
  const uint64_t reserve = 90 * MiB;
  put_bytes(path, file_of(tensors, {}, reserve));
  const uint64_t size = std::filesystem::file_size(path), data = size - 17007;
  // Two journals: the header is the same for both.
  ASSERT_NE(leave({{data, testing::pattern(4000, 51)}}, true), "");
  ASSERT_NE(leave({{data + 4000, testing::pattern(10007, 52)}}, true), "");
  expect_little("recover", reserve + MiB, [&](os::Env &with) {
    auto done = recover(with);
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied, 2u);
  });
}

// Real ranges, and many: memory does not grow with them.
TEST_F(RecoverSize, ManyRangesAreTakenOneAfterTheOther) {
  constexpr uint64_t n = 300000;
  put_bytes(path, testing::file_of({testing::u8_tensor("t", n, 1)}));
  const write::Identity file = identity();
  std::vector<write::RangeRecord> ranges;
  const std::byte fresh{7};
  const std::string bytes = testing::bytes_of(path);
  std::string tables;
  for (uint64_t i = 0; i < n; ++i) {
    const std::byte was{static_cast<unsigned char>(bytes[file.data_offset + i])};
    const uint32_t table = write::hash_sector({&was, 1});
    ranges.push_back(
        {file.data_offset + i, 1, write::header_bytes, hash64(&fresh, 1), 8192 + 4 * i, hash64(&table, sizeof table)});
    tables.append(reinterpret_cast<const char *>(&table), sizeof table);
  }
  const auto manifest = encode(ranges);
  const uint64_t at = round_up(8192 + tables.size(), 4096);
  make_folder(path);
  const auto leave_it = [&] {
    ASSERT_TRUE(
        make_sparse(journal, at + manifest.size(), {1, file, at, n, hash64(manifest.data(), manifest.size()), 0, {}}));
    poke(journal, write::header_bytes, std::string(1, '\7'));
    poke(journal, 8192, tables);
    poke(journal, at, {reinterpret_cast<const char *>(manifest.data()), manifest.size()});
  };
  leave_it();
  ranges = {};
  expect_little(
      "recover", 3 * (manifest.size() + tables.size()) + 16 * MiB,
      [&](os::Env &with) {
        auto done = recover(with);
        ASSERT_TRUE(is_ok(done));
        EXPECT_EQ(done->applied, 1u);
      },
      16 * MiB);
  EXPECT_EQ(testing::bytes_of(path).substr(file.data_offset), std::string(n, '\7'));
}

}  // namespace
}  // namespace st::store
