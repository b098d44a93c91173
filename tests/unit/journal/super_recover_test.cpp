// Recovery of what decides for several files: a change that was decided is
// finished. A list, a part, a new file or a shard that is not what its writer left is
// not believed. Then nothing is changed anywhere.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/hash.h"
#include "engine/recover_all.h"
#include "fault_env.h"
#include "file/transaction.h"
#include "journal/super_recover.h"
#include "keeps_open_files_env.h"
#include "located.h"
#include "read_only_env.h"
#include "shards/old_list.h"
#include "shards/shards.h"
#include "stale_env.h"
#include "test_files.h"

namespace st::write {
namespace {

using namespace testing;
using ::testing::AllOf;
using testing::Call;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class SuperRecovery : public ::testing::Test {
 protected:
  using Stage = std::function<void(store::AnyTransaction &)>;

  std::string shard(int i) const { return dir / ("m-" + std::to_string(i) + ".safetensors"); }
  static store::NewBytes u8(const std::string &bytes, const uint64_t *shape) {
    return {static_cast<uint32_t>(Dtype::U8), {shape, 1}, bytes.data(), bytes.size()};
  }

  void write_all() const {
    for (const std::string &name : names_in(dir.path())) fs::remove_all(dir / name);
    put_bytes(shard(1), file_of(std::vector{u8_tensor("a", 4000, 1), u8_tensor("b", 100, 2)}));
    put_bytes(shard(2), file_of(std::vector{u8_tensor("c", 5000, 3)}));
    put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  }

  // A transaction whose writer died when all was decided, and nothing was done yet.
  void leave(const Stage &stage) {
    write_all();
    for (size_t n = 0; super().empty(); ++n) {
      write_all();
      FaultEnv env(os::Env::posix());
      auto shards = store::Shards::open(env, index, {.writable = true, .lock_timeout_ms = 0});
      ASSERT_TRUE(is_ok(shards));
      auto transaction = (*shards)->begin({});
      ASSERT_TRUE(is_ok(transaction));
      stage(**transaction);
      env.before =
          testing::nth_call_fails(n, -EIO, true, [](Call c) { return c == Call::pwrite || c == Call::renameat; });
      const auto done = (*transaction)->commit();
      env.before = nullptr;
      ASSERT_FALSE(done) << "no call fails when all is decided";
    }
    before = now();
  }
  void leave_updates() {
    leave([&](store::AnyTransaction &t) {
      ASSERT_TRUE(is_ok(t.update("a", u8(new_a, &a_size))));
      ASSERT_TRUE(is_ok(t.update("c", u8(new_c, &c_size))));
    });
  }
  // The journals hold the elements of both tensors that change.
  void leave_elements() {
    const auto make_of = [](const std::string &wanted, std::vector<uint32_t> places) -> store::Remake {
      return [&wanted, places](const os::File &file, uint64_t at, store::TakesRemade &to) -> Result<void> {
        std::vector<std::byte> old(wanted.size());
        ST_TRY(file.read(old.data(), old.size(), at));
        const auto fresh = std::as_bytes(std::span(wanted));
        to.note({0, old, fresh, places, 1});
        return to.keep();
      };
    };
    for (const uint32_t i : places_in_a) elements_a[i] ^= 1;
    for (const uint32_t i : places_in_c) elements_c[i] ^= 1;
    leave([&](store::AnyTransaction &t) {
      ASSERT_TRUE(is_ok(t.remake("a", make_of(elements_a, places_in_a), 100)));
      ASSERT_TRUE(is_ok(t.remake("c", make_of(elements_c, places_in_c), 100)));
    });
    ASSERT_EQ(record_of(in_folder(shard(1))).flags, part_record | sparse_record);
    ASSERT_EQ(record_of(in_folder(shard(2))).flags, part_record | sparse_record);
  }
  // The first bytes of `a` as they will be.
  void write_some_of_a(uint64_t n) const { write_some_of_a(n, elements_a); }
  void write_some_of_a(uint64_t n, std::string_view wanted) const {
    const uint64_t at = bytes_of(shard(1)).size() - 4100;
    poke(shard(1), at, wanted.substr(0, n - at % sector_bytes));
  }
  // The bytes are the same, and the inode is another, as in a copy of the folder.
  static void copy_over(const std::string &path) {
    fs::copy_file(path, path + ".copy");
    fs::rename(path + ".copy", path);
  }
  // For a new tensor in the second shard.
  void leave_new_files() {
    leave([&](store::AnyTransaction &t) { ASSERT_TRUE(is_ok(t.put("new", u8(new_a, &a_size)))); });
  }

  // The same beside what is there, for another tensor.
  void decide_on(const std::string &name) const {
    FaultEnv env(os::Env::posix());
    auto shards = store::Shards::open(env, index, {.writable = true, .lock_timeout_ms = 0});
    ASSERT_TRUE(is_ok(shards));
    auto transaction = (*shards)->begin({});
    ASSERT_TRUE(is_ok(transaction));
    ASSERT_TRUE(is_ok((*transaction)->put(name, u8(new_a, &a_size))));
    env.before = [](Call call) { return call == Call::renameat ? -EIO : 0; };
    ASSERT_FALSE((*transaction)->commit());
    env.before = nullptr;
  }

  static std::string in_folder(const std::string &of) {
    const std::string folder = of + std::string(folder_suffix);
    const auto names = names_in(folder);
    return names.empty() ? std::string() : folder + "/" + names.front();
  }
  static CommitRecord record_of(const std::string &journal) {
    const std::string bytes = bytes_of(journal);
    CommitRecord record;
    if (bytes.size() < header_bytes ||
        decode({reinterpret_cast<const std::byte *>(bytes.data()), header_bytes}, &record) != JournalState::committed)
      return {};
    return record;
  }
  // The super-journal, if it is committed.
  std::string super() const {
    const std::string journal = in_folder(index);
    return !journal.empty() && record_of(journal).is_super() ? journal : std::string();
  }
  // As a forger would make it that knows the hashes.
  void forge(const std::function<void(SuperManifest &)> &change) const {
    const std::string journal = super(), bytes = bytes_of(journal);
    CommitRecord record = record_of(journal);
    auto list = decode_super(
        {reinterpret_cast<const std::byte *>(bytes.data()) + record.manifest, static_cast<size_t>(record.ranges)});
    ASSERT_TRUE(list.has_value());
    change(*list);
    const auto manifest = encode(*list);
    poke(journal, record.manifest, {reinterpret_cast<const char *>(manifest.data()), manifest.size()});
    record.ranges = manifest.size();
    record.manifest_hash = hash64(manifest.data(), manifest.size());
    put_record(journal, record);
  }
  static void put_record(const std::string &journal, const CommitRecord &record) {
    const auto block = encode(record);
    poke(journal, 0, {reinterpret_cast<const char *>(block.data()), block.size()});
  }
  static void flip(const std::string &path, uint64_t at) {
    poke(path, at, std::string(1, static_cast<char>(bytes_of(path)[at] ^ 0x40)));
  }
  std::string new_file() const {
    for (const std::string &name : names_in(dir.path()))
      if (name.starts_with(".m-2.safetensors" + std::string(undecided_infix))) return dir / name;
    return {};
  }

  std::string now() const { return bytes_of(shard(1)) + "|" + bytes_of(shard(2)) + "|" + bytes_of(index); }
  Result<Recovered> recover_index() const { return recover_super(testing::located(os::Env::posix(), index), {}, {}); }
  // Nothing was applied, nothing changed, and the first open of the checkpoint tells it.
  void expect_aside(std::string_view why) {
    const std::string as_it_is = now();
    const auto done = recover_index();
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied, 0u);
    EXPECT_EQ(done->aside, 1u);
    EXPECT_THAT(done->why_aside, HasSubstr(why));
    EXPECT_TRUE(same_bytes(now(), as_it_is));
    EXPECT_TRUE(in_folder(index).ends_with(aside_suffix)) << in_folder(index);
    const auto again = recover_index();
    ASSERT_TRUE(is_ok(again));
    EXPECT_EQ(again->applied + again->aside + again->dropped, 0u);
  }

  const testing::TempDir dir;
  const std::string index = dir / "m.safetensors.index.json";
  const uint64_t a_size = 4000, c_size = 5000;
  const std::string new_a = pattern(4000, 11), new_c = pattern(5000, 13);
  const std::vector<uint32_t> places_in_a = {0, 1, 1500, 3999}, places_in_c = {7, 4998};
  std::string elements_a = pattern(4000, 1), elements_c = pattern(5000, 3);
  std::string before;
};

// As a log that reads, changes and commits by a handle of its own. Nothing is locked when it is told.
TEST_F(SuperRecovery, WhoIsToldMayUseTheModel) {
  for (const bool by_shard : {false, true}) {
    SCOPED_TRACE(by_shard);
    leave_updates();
    const std::string later_c = pattern(5000, 14);
    size_t told = 0;
    const auto use = [&](const Finding &) {
      ++told;
      const auto shards = store::Shards::open(os::Env::posix(), index, {.writable = true, .lock_timeout_ms = 0});
      if (!is_ok(shards)) return false;
      store::TransactionOptions at_once;
      at_once.lock_timeout_ms = 0;
      const auto t = (*shards)->begin(at_once);
      if (!is_ok(t)) return false;
      EXPECT_TRUE(is_ok((*t)->remove("a")));
      EXPECT_TRUE(is_ok((*t)->update("c", u8(later_c, &c_size))));
      return bool(is_ok((*t)->commit()));
    };
    const auto at = testing::located(os::Env::posix(), by_shard ? shard(2) : index);
    EXPECT_TRUE(is_ok(by_shard ? recover(at, {}, use) : recover_super(at, {}, use)));
    EXPECT_EQ(told, 1u);
    EXPECT_TRUE(bytes_of(shard(2)).ends_with(later_c));
  }
}

TEST_F(SuperRecovery, OnAReadOnlyMediumIsNeededOnlyIfSomethingWasDecided) {
  leave_updates();
  ReadOnlyEnv read_only(os::Env::posix());
  const auto recover = [&](os::Env &with) { return recover_super(testing::located(with, index), {}, {}); };
  EXPECT_TRUE(fails_with(Status::needs_recovery, recover(read_only)));
  poke(super(), 0, std::string(sector_bytes, '\0'));
  EXPECT_TRUE(is_ok(recover(read_only)));
  EXPECT_FALSE(in_folder(index).empty());
  ASSERT_TRUE(is_ok(recover_index()));
  EXPECT_TRUE(is_ok(recover(read_only)));  // without a folder
}

// Another user made it, and this one may write to the index.
TEST_F(SuperRecovery, LeavesAnEmptySuperJournalThatItMayNotWrite) {
  leave_updates();
  OthersJournals others(os::Env::posix());
  std::vector<Finding> told;
  const auto recover = [&] {
    return recover_super(testing::located(others, index), {},
                         [&](const Finding &f) { return told.push_back(f), true; });
  };
  EXPECT_TRUE(fails_with(Status::needs_recovery, recover()));
  poke(super(), 0, std::string(sector_bytes, '\0'));
  ASSERT_TRUE(is_ok(recover()));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].level, LogLevel::warning);
  EXPECT_FALSE(in_folder(index).empty());
}

// A host is frozen amid a recovery, at any call. Another one finishes the transaction, and dies when it has decided on
// the next.
TEST_F(SuperRecovery, OfAHostThatLostItsLocksLeavesTheNextDecisionAlone) {
  bool came = true;
  for (size_t n = 0; came; ++n) {
    write_all();
    decide_on("new");
    StaleEnv host(os::Env::posix());
    size_t calls = 0;
    came = false;
    host.before = [&](Call) {
      if (calls++ != n) return 0;
      came = true;
      host.lose_locks();
      EXPECT_TRUE(is_ok(recover_index()));
      decide_on("newer");
      return 0;
    };
    static_cast<void>(recover_super(testing::located(host, index), {}, {}));
    host.before = nullptr;
    for (const std::string &name : names_in(index + std::string(folder_suffix)))
      EXPECT_FALSE(name.ends_with(aside_suffix)) << "frozen at call " << n;
  }
}

TEST_F(SuperRecovery, FinishesUpdatesThatWereDecided) {
  leave_updates();
  const auto done = recover_index();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u);
  EXPECT_NE(bytes_of(shard(1)).find(new_a), std::string::npos);
  EXPECT_NE(bytes_of(shard(2)).find(new_c), std::string::npos);
  EXPECT_EQ(names_in(dir.path()).size(), 3u);
}

TEST_F(SuperRecovery, LeavesNoFolderWhereAnUnlinkedFileStaysUntilItIsClosed) {
  leave_updates();
  testing::KeepsOpenFilesEnv nfs(os::Env::posix());
  ASSERT_TRUE(is_ok(recover_super(testing::located(nfs, index), {}, {})));
  EXPECT_EQ(names_in(dir.path()).size(), 3u);
}

TEST_F(SuperRecovery, FinishesElementsThatWereDecided) {
  leave_elements();
  write_some_of_a(1024);
  const auto done = recover_index();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u) << done->why_aside;
  EXPECT_NE(bytes_of(shard(1)).find(elements_a), std::string::npos);
  EXPECT_NE(bytes_of(shard(2)).find(elements_c), std::string::npos);
  EXPECT_EQ(names_in(dir.path()).size(), 3u);
}

// What stays is compared, too, and if one part does not fit, no other is carried out.
TEST_F(SuperRecovery, DistrustsElementsBesideThoseThatChange) {
  leave_elements();
  flip(shard(2), bytes_of(shard(2)).size() - 5);
  expect_aside("neither the old nor the new");
}

TEST_F(SuperRecovery, FinishesNewFilesThatWereDecided) {
  leave_new_files();
  ASSERT_FALSE(new_file().empty());
  ASSERT_TRUE(is_ok(recover_index()));
  EXPECT_NE(bytes_of(shard(2)).find(new_a), std::string::npos);
  EXPECT_NE(bytes_of(index).find("\"new\""), std::string::npos);
  EXPECT_EQ(names_in(dir.path()).size(), 3u);
}

// A super-journal may come with a folder that somebody else has packed, links and all.
TEST_F(SuperRecovery, NeverWritesThroughALink) {
  leave_updates();
  const testing::TempDir elsewhere;
  const std::string target = elsewhere / "m-1.safetensors", old = bytes_of(shard(1));
  fs::rename(shard(1), target);
  fs::create_symlink(target, shard(1));
  expect_aside("'m-1.safetensors' is no plain file");
  EXPECT_TRUE(same_bytes(bytes_of(target), old));
}

// Put there by the folder's owner, as soon as the shard is open.
TEST_F(SuperRecovery, NeverWritesThroughALinkThatTakesAShardsPlace) {
  leave_updates();
  const testing::TempDir elsewhere;
  const std::string target = elsewhere / "m-1.safetensors", old = bytes_of(shard(1));
  class Swaps : public FaultEnv {
   public:
    Swaps(std::string path, std::string target)
        : FaultEnv(os::Env::posix()), path_(std::move(path)), target_(std::move(target)) {}
    int openat(int at, const char *name, int flags, mode_t mode) override {
      const int fd = FaultEnv::openat(at, name, flags, mode);
      if (fd >= 0 && name == fs::path(path_).filename() && !fs::exists(target_)) {
        fs::rename(path_, target_);
        fs::create_symlink(target_, path_);
      }
      return fd;
    }

   private:
    const std::string path_, target_;
  } env(shard(1), target);
  const auto done = recover_super(testing::located(env, index), {}, {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_THAT(done->why_aside, HasSubstr("'m-1.safetensors' is no plain file"));
  EXPECT_TRUE(same_bytes(bytes_of(target), old));
}

TEST_F(SuperRecovery, TakesNothingButAFileForAShard) {
  const std::vector<std::function<void(const std::string &)>> make{
      [](const std::string &path) { ASSERT_TRUE(fs::create_directory(path)); },
      [](const std::string &path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); },
      [](const std::string &path) { ASSERT_EQ(::mknod(path.c_str(), S_IFSOCK | 0600, 0), 0); },
  };
  for (const auto &something : make) {
    leave_updates();
    fs::remove(shard(1));
    ASSERT_NO_FATAL_FAILURE(something(shard(1)));
    const auto done = recover_index();
    ASSERT_TRUE(is_ok(done));
    EXPECT_THAT(done->why_aside, HasSubstr("'m-1.safetensors' is no plain file"));
  }
}

TEST_F(SuperRecovery, NeedsEachShard) {
  leave_updates();
  fs::remove(shard(2));
  expect_aside("'m-2.safetensors' is gone");
}

TEST_F(SuperRecovery, DistrustsAShardThatSomethingElseChanged) {
  leave_new_files();
  put_bytes(shard(2), file_of(std::vector{u8_tensor("c", 5001, 3)}));
  expect_aside("neither the old file nor the new one");
}

TEST_F(SuperRecovery, DistrustsAnIndexThatSomethingElseChanged) {
  leave_new_files();
  put_bytes(index, bytes_of(index) + "\n");
  expect_aside("neither the old file nor the new one");
}

TEST_F(SuperRecovery, DistrustsADamagedNewFile) {
  leave_new_files();
  flip(new_file(), 9);
  const auto done = recover_index();  // no header any more, or another
  if (done) {
    EXPECT_EQ(done->aside, 1u);
    EXPECT_THAT(done->why_aside, HasSubstr("the new file for"));
  }
  EXPECT_TRUE(same_bytes(now(), before));
}

TEST_F(SuperRecovery, DistrustsADamagedPart) {
  leave_updates();
  flip(in_folder(shard(1)), 20);  // the commit record
  expect_aside("the journal of 'm-1.safetensors'");
  leave_updates();
  flip(in_folder(shard(2)), header_bytes + 100);  // the new bytes
  expect_aside("the journal of 'm-2.safetensors'");
}

TEST_F(SuperRecovery, DistrustsADamagedList) {
  leave_updates();
  flip(super(), record_of(super()).manifest + 3);
  expect_aside("its list of files is damaged");
  for (const uint64_t beyond : {uint64_t{1} << 20, UINT64_MAX}) {
    leave_updates();
    CommitRecord record = record_of(super());
    record.manifest = beyond;
    put_record(super(), record);
    expect_aside("its list of files is damaged");
    leave_updates();
    record = record_of(super());
    record.ranges = beyond;
    put_record(super(), record);
    expect_aside("its list of files is damaged");
  }
}

TEST_F(SuperRecovery, DistrustsTheListOfAnotherIndex) {
  leave_updates();
  forge([](SuperManifest &list) { list.index.file = "n.safetensors.index.json"; });
  expect_aside("its list of files is damaged");
  leave_updates();  // a hard link to this one is not this one in another spelling
  forge([](SuperManifest &list) { list.index.file = "n.safetensors.index.json"; });
  fs::create_hard_link(index, dir / "n.safetensors.index.json");
  expect_aside("its list of files is damaged");
  leave_updates();  // what no file can have for a name
  forge([](SuperManifest &list) { list.index.file = std::string(300, 'n') + ".json"; });
  expect_aside("its list of files is damaged");
}

// Another file takes the name between the look at it and its opening.
TEST_F(SuperRecovery, ANewFileThatIsExchangedAmidTheLookIsWaitedFor) {
  leave_new_files();
  FaultEnv env(os::Env::posix());
  env.before_open = [of = new_file()](std::string_view name, int flags) {
    if (of.ends_with("/" + std::string(name)) && (flags & O_RDWR) != 0) {
      testing::put_bytes(of + ".other", bytes_of(of));
      fs::rename(of + ".other", of);
    }
    return 0;
  };
  const auto refused = recover_super(testing::located(env, index), {}, {});
  ASSERT_TRUE(fails_with(Status::needs_recovery, refused));
  EXPECT_THAT(refused.error().message, HasSubstr("exchanged"));
  const auto done = recover_index();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u) << done->why_aside;
}

// A folder in which large letters are small ones, as macOS and Windows have it: of the names that matter here.
class FoldingEnv : public FaultEnv {
 public:
  FoldingEnv() : FaultEnv(os::Env::posix()) {}
  int openat(int at, const char *name, int flags, mode_t mode) override {
    return FaultEnv::openat(at, folded(name).c_str(), flags, mode);
  }
  int fstatat(int at, const char *name, struct stat *out, int flags) override {
    return FaultEnv::fstatat(at, folded(name).c_str(), out, flags);
  }
  int unlinkat(int at, const char *name, int flags) override {
    return FaultEnv::unlinkat(at, folded(name).c_str(), flags);
  }
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
    return FaultEnv::renameat(from_dir, folded(from).c_str(), to_dir, folded(to).c_str());
  }

 private:
  static std::string folded(std::string name) {
    constexpr std::string_view large = "M.safetensors";
    if (const size_t at = name.rfind(large); at != std::string::npos) name[at] = 'm';
    return name;
  }
};

TEST_F(SuperRecovery, FinishesWhatAnIndexWasDecidedForThatIsSpelledInAnotherWay) {
  for (const bool linked : {false, true}) {
    FoldingEnv folding;
    leave_new_files();
    if (linked) fs::create_hard_link(index, dir / "kept.json");
    const auto done = recover_super(testing::located(folding, dir / "M.safetensors.index.json"), {}, {});
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied, 1u) << done->why_aside;
    EXPECT_NE(bytes_of(index).find("\"new\""), std::string::npos);
    EXPECT_EQ(names_in(dir.path()).size(), linked ? 4u : 3u);
  }
}

TEST_F(SuperRecovery, WhereTheNameInItsListCannotBeLookedAtItIsLeft) {
  leave_updates();
  forge([](SuperManifest &list) { list.index.file = "n.safetensors.index.json"; });
  class Refuses : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int fstatat(int at, const char *name, struct stat *out, int flags) override {
      return name == std::string_view("n.safetensors.index.json") ? -EIO : FaultEnv::fstatat(at, name, out, flags);
    }
  } env(os::Env::posix());
  EXPECT_TRUE(fails_with(Status::io, recover_super(testing::located(env, index), {}, {})));
  EXPECT_FALSE(super().empty());
}

// It would wait for itself.
TEST_F(SuperRecovery, DistrustsAListThatNamesAFileTwice) {
  leave_updates();
  forge([](SuperManifest &list) { list.parts.back().file = list.index.file; });
  expect_aside("its list of files is damaged");
}

TEST_F(SuperRecovery, DistrustsWhatIsNoSuperJournalOrHasAnothersName) {
  leave_updates();
  CommitRecord record = record_of(super());
  record.flags = 0;
  put_record(in_folder(index), record);
  expect_aside("it is no super-journal");
  leave_updates();
  const std::string journal = super();
  fs::rename(journal, journal.substr(0, journal.size() - 1) + (journal.back() == '0' ? "1" : "0"));
  expect_aside("it is no super-journal");
}

TEST_F(SuperRecovery, OpeningTellsOnceOfWhatWasMovedAside) {
  leave_updates();
  flip(super(), record_of(super()).manifest + 3);
  std::string logged;
  store::OpenOptions options;
  options.writable = true;
  options.log = [&](LogLevel, const std::string &m) { logged += m; };
  EXPECT_TRUE(fails_with(Status::journal, store::Shards::open(os::Env::posix(), index, options)));
  EXPECT_THAT(logged, HasSubstr("moved aside"));
  EXPECT_TRUE(is_ok(store::Shards::open(os::Env::posix(), index, options)));
  EXPECT_TRUE(same_bytes(now(), before));
}

TEST_F(SuperRecovery, AReporterMayStopIt) {
  for (const bool damaged : {false, true}) {
    leave_updates();
    if (damaged) flip(super(), record_of(super()).manifest + 3);
    size_t findings = 0;
    const auto done =
        recover_super(testing::located(os::Env::posix(), index), {}, [&](const Finding &) { return ++findings == 0; });
    EXPECT_TRUE(fails_with(Status::cancelled, done));
    EXPECT_EQ(findings, 1u);
    EXPECT_EQ(in_folder(index).ends_with(aside_suffix), damaged);
    EXPECT_EQ(bytes_of(shard(1)).find(new_a) != std::string::npos, !damaged);
  }
}

// What was reported is done, and no more.
TEST_F(SuperRecovery, AReporterMayStopItBetweenTheIndexAndItsShards) {
  const std::string idle = shard(2) + std::string(folder_suffix) + "/0123456789abcdef", list = index + ".st-old";
  const auto recover = [&](size_t most) {
    size_t findings = 0;
    const auto done =
        store::recover_all(os::Env::posix(), index, {}, [&](const Finding &) { return ++findings < most; });
    if (done) return is_ok(done);
    EXPECT_EQ(findings, most);
    return fails_with(Status::cancelled, done);
  };
  for (const bool with_super : {true, false}) {
    leave_updates();
    if (!with_super) {
      ASSERT_TRUE(is_ok(recover_index()));
    }
    fs::create_directory(fs::path(idle).parent_path());
    put_bytes(idle, std::string(header_bytes, '\0'));
    put_bytes(list, spell({{"m-1.g1.safetensors", 1, 2, 3, 4}}));
    EXPECT_TRUE(recover(1));
    EXPECT_EQ(fs::exists(idle), with_super);
    EXPECT_TRUE(fs::exists(list));
    EXPECT_TRUE(recover(100));
    EXPECT_EQ(names_in(dir.path()).size(), 3u);
  }
}

// What is not settled yet may need a new file that nobody holds.
TEST_F(SuperRecovery, StoppedBeforeADecisionItLeavesWhatThatNeeds) {
  leave_new_files();
  put_bytes(index + std::string(folder_suffix) + "/0000000000000000", pattern(header_bytes, 5));
  class Sorts : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int list(int at, std::vector<std::string> *out) override {
      const int r = FaultEnv::list(at, out);
      std::sort(out->begin(), out->end());
      return r;
    }
  } env(os::Env::posix());
  EXPECT_TRUE(fails_with(Status::cancelled,
                         recover_super(testing::located(env, index), {}, [](const Finding &) { return false; })));
  EXPECT_TRUE(same_bytes(now(), before));
  const auto done = recover_index();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u) << done->why_aside;
  EXPECT_NE(bytes_of(index).find("\"new\""), std::string::npos);
}

TEST_F(SuperRecovery, RubbishIsClearedAwayByWhoMayWrite) {
  write_all();
  const std::string folder = index + std::string(folder_suffix), idle = folder + "/0123456789abcdef";
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  put_bytes(idle, "");
  ASSERT_TRUE(is_ok(store::Shards::open(os::Env::posix(), index, {})));
  EXPECT_TRUE(fs::exists(idle));
  ASSERT_TRUE(is_ok(store::Shards::open(os::Env::posix(), index, {.writable = true})));
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(SuperRecovery, OfAnIndexThatIsGoneIsAnError) {
  leave_updates();
  fs::remove(index);
  EXPECT_TRUE(fails_with(Status::no_file, recover_index()));
  EXPECT_TRUE(
      fails_with(Status::no_file, recover_super_if_needed(testing::located(os::Env::posix(), index), {}, true, {})));
}

// While one waits for the index somebody else finishes what it came for, removes the folder, makes another, and dies.
TEST_F(SuperRecovery, LooksIntoTheFolderThatIsThereWhenTheIndexIsItsOwn) {
  leave_updates();
  FaultEnv env(os::Env::posix());
  bool late = false;
  env.before = [&](Call call) {
    if (call != Call::lock || std::exchange(late, true)) return 0;
    EXPECT_TRUE(is_ok(recover_index()));
    EXPECT_FALSE(fs::exists(index + std::string(folder_suffix)));
    leave_new_files();
    return 0;
  };
  const auto done = recover_super(testing::located(env, index), {}, {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u);
  EXPECT_NE(bytes_of(index).find("new"), std::string::npos);
}

// Emptied means carried out; gone does not.
TEST_F(SuperRecovery, DoesNotTakeAPartThatIsGoneForOneThatWasCarriedOut) {
  leave_updates();
  fs::remove_all(shard(1) + std::string(folder_suffix));
  expect_aside("its journal is gone");
  leave_updates();
  put_bytes(in_folder(shard(2)), std::string(header_bytes, '\0'));
  expect_aside("its journal is gone");
}

// The host died when one part was in its file, and the other was not. What is recovered is a copy of the folder.
TEST_F(SuperRecovery, FinishesAHalfDoneTransactionInACopy) {
  for (const bool whole : {false, true}) {
    leave_updates();
    write_some_of_a(whole ? 4000 + sector_bytes : 1024, new_a);
    copy_over(shard(1));
    copy_over(shard(2));
    const auto done = recover_index();
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied, 1u) << done->why_aside;
    EXPECT_NE(bytes_of(shard(1)).find(new_a), std::string::npos);
    EXPECT_NE(bytes_of(shard(2)).find(new_c), std::string::npos);
    EXPECT_EQ(names_in(dir.path()).size(), 3u);
  }
}

TEST_F(SuperRecovery, FinishesAPartOfACopyBesideOneThatIsDone) {
  leave_updates();
  poke(shard(1), bytes_of(shard(1)).size() - 4100, new_a);
  CommitRecord record = record_of(in_folder(shard(1)));
  record.flags |= done_record;
  put_record(in_folder(shard(1)), record);
  copy_over(shard(2));
  const auto done = recover_index();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u) << done->why_aside;
  EXPECT_NE(bytes_of(shard(2)).find(new_c), std::string::npos);
}

TEST_F(SuperRecovery, FinishesAPartOfACopyBesideANewFileThatHasItsName) {
  leave([&](store::AnyTransaction &t) {
    ASSERT_TRUE(is_ok(t.update("a", u8(new_a, &a_size))));
    ASSERT_TRUE(is_ok(t.put("new", u8(new_a, &a_size))));
  });
  ASSERT_EQ(record_of(in_folder(shard(1))).flags, part_record);
  const std::string unplaced = new_file();
  ASSERT_FALSE(unplaced.empty());
  fs::rename(unplaced, shard(2));
  copy_over(shard(1));
  const auto done = recover_index();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u) << done->why_aside;
  EXPECT_NE(bytes_of(shard(1)).find(new_a), std::string::npos);
  EXPECT_NE(bytes_of(index).find("\"new\""), std::string::npos);
}

// It leaves no trace, and there is nothing to write.
TEST_F(SuperRecovery, FinishesAPartOfACopyWhoseBytesStayAsTheyAre) {
  const std::string same_c = pattern(5000, 3);
  leave([&](store::AnyTransaction &t) {
    ASSERT_TRUE(is_ok(t.update("a", u8(new_a, &a_size))));
    ASSERT_TRUE(is_ok(t.update("c", u8(same_c, &c_size))));
  });
  copy_over(shard(2));
  const auto done = recover_index();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u) << done->why_aside;
  EXPECT_NE(bytes_of(shard(1)).find(new_a), std::string::npos);
}

// Something has put another file there, which may be like the old one by chance.
TEST_F(SuperRecovery, DistrustsAFileOfAnotherInodeWhereNothingHadBegun) {
  leave_updates();
  copy_over(shard(2));
  expect_aside("nothing of it is in this one; if this is a copy, open the original and copy it again");
}

// From here on a shard is recovered by its own path.

// Somebody decides, and dies, after the look for a journal and before the look for temporaries.
TEST_F(SuperRecovery, WhatWasDecidedMeanwhileIsNoRubbish) {
  write_all();
  put_bytes(dir / (".m-2.safetensors" + std::string(undecided_infix) + "0123456789abcdef"), "half");
  for (size_t n = 0;; ++n) {
    FaultEnv env(os::Env::posix());
    size_t lists = 0;
    bool died = false;
    env.before = [&](Call call) {
      if (call != Call::list || lists++ != n) return 0;
      leave_new_files();
      died = true;
      return 0;
    };
    ASSERT_TRUE(is_ok(recover(testing::located(env, shard(2)), {}, {})));
    if (!died) break;
    const auto done = recover_index();
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->aside, 0u) << n << ": " << done->why_aside;
    EXPECT_NE(bytes_of(index).find("new"), std::string::npos) << n;
    write_all();
  }
}

TEST_F(SuperRecovery, AShardAloneFinishesAllOfIt) {
  leave_updates();
  ASSERT_TRUE(is_ok(recover(testing::located(os::Env::posix(), shard(2)), {}, {})));
  EXPECT_NE(bytes_of(shard(1)).find(new_a), std::string::npos);
  EXPECT_NE(bytes_of(shard(2)).find(new_c), std::string::npos);
}

TEST_F(SuperRecovery, APartWithoutADecisionNeverWas) {
  leave_updates();
  fs::remove(super());
  const auto done = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->dropped, 1u);
  fs::remove_all(index + std::string(folder_suffix));  // not even a folder
  ASSERT_TRUE(is_ok(recover(testing::located(os::Env::posix(), shard(2)), {}, {})));
  EXPECT_TRUE(same_bytes(now(), before));
}

TEST_F(SuperRecovery, APartThatIsInTheFileWithoutADecisionIsMovedAside) {
  leave_updates();
  fs::remove(super());
  const uint64_t at = bytes_of(shard(1)).size() - 4100;  // where a begins
  poke(shard(1), at, std::string_view(new_a).substr(0, 2048 - at % sector_bytes));
  const auto done = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->aside, 1u);
  EXPECT_THAT(done->why_aside, HasSubstr("is gone"));
}

// In most sectors of its pages nothing changes: they are no trace of it.
TEST_F(SuperRecovery, APartOfElementsWithoutADecisionNeverWas) {
  leave_elements();
  fs::remove(super());
  for (const int i : {1, 2}) {
    const auto done = recover(testing::located(os::Env::posix(), shard(i)), {}, {});
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->dropped, 1u) << done->why_aside;
  }
  EXPECT_TRUE(same_bytes(now(), before));
}

TEST_F(SuperRecovery, APartOfElementsThatIsInTheFileWithoutADecisionIsMovedAside) {
  leave_elements();
  fs::remove(super());
  write_some_of_a(sector_bytes);
  const auto done = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->aside, 1u);
  EXPECT_THAT(done->why_aside, HasSubstr("is gone"));
}

TEST_F(SuperRecovery, APartOfADamagedDecisionIsMovedAside) {
  leave_updates();
  flip(super(), 20);
  const auto one = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
  ASSERT_TRUE(is_ok(one));
  EXPECT_EQ(one->aside, 1u);
  EXPECT_THAT(one->why_aside, HasSubstr("its super-journal is damaged"));
  EXPECT_TRUE(same_bytes(now(), before));
}

// What decides stands there, and may be a stranger's: the part is neither carried out nor dropped.
TEST_F(SuperRecovery, APartStaysWhereADecisionIsNotToBeTrusted) {
  const std::string decides = index + std::string(folder_suffix);
  for (const bool in_public : {false, true})
    for (const bool touched : {false, true}) {
      leave_updates();
      if (touched) write_some_of_a(1024, new_a);
      const std::string part = in_folder(shard(1)), as_it_is = now();
      ASSERT_EQ(::chmod(dir.path().c_str(), in_public ? 01777 : 0700), 0);
      ASSERT_EQ(::chmod(decides.c_str(), 0702), 0);
      const auto refused = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
      ASSERT_TRUE(fails_with(Status::needs_recovery, refused));
      EXPECT_THAT(refused.error().message, HasSubstr("not to be trusted"));
      EXPECT_EQ(in_folder(shard(1)), part);
      EXPECT_TRUE(same_bytes(now(), as_it_is));
      ASSERT_EQ(::chmod(decides.c_str(), 0700), 0);
      const auto done = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
      ASSERT_TRUE(is_ok(done));
      EXPECT_EQ(done->applied, 1u) << done->why_aside;
      ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
    }
}

TEST_F(SuperRecovery, APartStaysWhereASuperJournalIsNotToBeTrusted) {
  leave_updates();
  const std::string part = in_folder(shard(1));
  ASSERT_EQ(::chmod(super().c_str(), 0606), 0);
  const auto refused = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
  ASSERT_TRUE(fails_with(Status::needs_recovery, refused));
  EXPECT_THAT(refused.error().message, HasSubstr("anybody may write to it"));
  EXPECT_EQ(in_folder(shard(1)), part);
}

// A stranger's, which lets nobody in.
class KeepsOut : public ClockEnv {
 public:
  explicit KeepsOut(const fs::path &path) : ClockEnv(os::Env::posix()), name_(path.filename().string()) {
    before_open = [this](std::string_view name, int) { return name == name_ ? -EACCES : 0; };
  }
  int fstatat(int at, const char *name, struct stat *out, int flags) override {
    const int r = FaultEnv::fstatat(at, name, out, flags);
    if (r == 0 && name == name_ && S_ISDIR(out->st_mode)) {
      out->st_uid = 4242;
      out->st_mode = S_IFDIR | 0700;
    }
    return r;
  }

 private:
  const std::string name_;
};

TEST_F(SuperRecovery, APartStaysWhereADecisionMayNotBeRead) {
  for (const bool in_folder_of_ours : {false, true})
    for (const bool touched : {false, true}) {
      leave_updates();
      if (touched) write_some_of_a(1024, new_a);
      const std::string part = in_folder(shard(1)), as_it_is = now();
      KeepsOut env(in_folder_of_ours ? super() : index + std::string(folder_suffix));
      const auto refused = recover(testing::located(env, shard(1)), {}, {});
      ASSERT_TRUE(fails_with(Status::needs_recovery, refused));
      EXPECT_THAT(refused.error().message, HasSubstr("whether it was decided cannot be told"));
      EXPECT_EQ(env.sleeps, 0u);
      EXPECT_EQ(in_folder(shard(1)), part);
      EXPECT_TRUE(same_bytes(now(), as_it_is));
    }
}

// Files by whose they are to be.
class OwnersEnv : public FaultEnv {
 public:
  explicit OwnersEnv(uid_t self) : FaultEnv(os::Env::posix()), self_(self) {}
  void give(const std::string &path, uid_t to) {
    struct stat s;
    ASSERT_EQ(::lstat(path.c_str(), &s), 0) << path;
    owners_[s.st_ino] = to;
  }
  int fstat(int fd, struct stat *out) override { return own(FaultEnv::fstat(fd, out), out); }
  int fstatat(int at, const char *name, struct stat *out, int flags) override {
    return own(FaultEnv::fstatat(at, name, out, flags), out);
  }
  uid_t geteuid() override { return self_; }

 private:
  int own(int r, struct stat *s) const {
    if (r != 0) return r;
    const auto found = owners_.find(s->st_ino);
    s->st_uid = found == owners_.end() ? 0 : found->second;
    return r;
  }
  const uid_t self_;
  std::map<ino_t, uid_t> owners_;
};

// Root had changed all, and gave to each owner what lies beside a file. Then root's program was stopped.
TEST_F(SuperRecovery, AShardsOwnerLeavesToTheIndexsOwnerWhatRootHadDecided) {
  constexpr uid_t of_shard = 1001, of_index = 1002;
  leave_updates();
  OwnersEnv owner(of_shard);
  for (const std::string &path : {shard(2), shard(2) + std::string(folder_suffix), in_folder(shard(2))})
    owner.give(path, of_shard);
  for (const std::string &path : {index, index + std::string(folder_suffix), super()}) owner.give(path, of_index);
  const auto refused = recover(testing::located(owner, shard(2)), {}, {});
  ASSERT_TRUE(fails_with(Status::needs_recovery, refused));
  EXPECT_THAT(refused.error().message, HasSubstr("user 1002 finishes it by"));
  EXPECT_TRUE(same_bytes(now(), before));
  EXPECT_TRUE(is_ok(recover_index()));
  EXPECT_NE(bytes_of(shard(2)).find(new_c), std::string::npos);
}

// The owner of the index may forge what decides for it, and name any shard that lies beside it.
TEST_F(SuperRecovery, TheOwnerOfAnIndexReplacesNoShardOfAnother) {
  constexpr uid_t of_index = 4242;
  for (const mode_t mode : {01777, 0755, 0775}) {  // in the first anybody may make a folder beside the shard
    leave_new_files();
    ASSERT_EQ(::chmod(dir.path().c_str(), mode), 0);
    const std::string list = super();
    const auto plant = [&](OwnersEnv &owner) {
      const std::string part = in_folder(shard(2)), folder = shard(2) + std::string(folder_suffix);
      for (const std::string &path : {index, index + std::string(folder_suffix), list, folder, part})
        owner.give(path, of_index);
      for (const std::string &name : names_in(dir.path()))
        if (name.find(undecided_infix) != std::string::npos) owner.give(dir / name, of_index);
    };
    OwnersEnv root(0);
    plant(root);
    const auto refused = recover_super(testing::located(root, index), {}, {});
    ASSERT_TRUE(fails_with(Status::needs_recovery, refused));
    EXPECT_THAT(refused.error().message, HasSubstr("not to be trusted with"));
    EXPECT_THAT(refused.error().message, HasSubstr("user 4242 finishes it"));
    EXPECT_TRUE(same_bytes(now(), before));
    EXPECT_EQ(super(), list);
    // If it is no forgery, its maker finishes it.
    OwnersEnv maker(of_index);
    plant(maker);
    const auto done = recover_super(testing::located(maker, index), {}, {});
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied, 1u) << done->why_aside;
  }
}

// Root had decided, and gave to each owner what lies beside a file.
TEST_F(SuperRecovery, RootFinishesWhatItHasDecidedForShardsOfOthers) {
  constexpr uid_t of_shard = 1001, of_index = 1002;
  for (const bool in_place : {false, true}) {
    in_place ? leave_updates() : leave_new_files();
    OwnersEnv root(0);
    for (const std::string &path : {shard(2), shard(2) + std::string(folder_suffix), in_folder(shard(2))})
      root.give(path, of_shard);
    for (const std::string &path : {index, index + std::string(folder_suffix), super()}) root.give(path, of_index);
    for (const std::string &name : names_in(dir.path()))
      if (name.find(undecided_infix) != std::string::npos)
        root.give(dir / name, name.starts_with(".m-2.") ? of_shard : of_index);
    const auto done = recover_super(testing::located(root, index), {}, {});
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied, 1u) << done->why_aside;
  }
}

// The new file has taken its place, and its old name is free: another user of the folder gives it to another.
TEST_F(SuperRecovery, AFileUnderTheNameOfANewOneIsTheTransactionsOnlyIfItsOwnerMayBe) {
  constexpr uid_t stranger = 4242;
  const std::vector<std::function<void(const std::string &, OwnersEnv &)>> plants{
      [](const std::string &path, OwnersEnv &owner) { owner.give(path, stranger); },
      [this](const std::string &path, OwnersEnv &) { fs::create_hard_link(path, dir / "second"); },
      [](const std::string &path, OwnersEnv &) { ASSERT_EQ(::chmod(path.c_str(), 0646), 0); },
  };
  for (const auto &plant : plants) {
    leave_new_files();
    const std::string temporary = new_file();
    ASSERT_FALSE(temporary.empty());
    fs::rename(temporary, shard(2));
    const std::string placed = bytes_of(shard(2));
    std::string forged = placed;
    forged.back() = static_cast<char>(forged.back() ^ 1);
    put_bytes(temporary, forged);
    OwnersEnv root(0);
    ASSERT_NO_FATAL_FAILURE(plant(temporary, root));
    const auto done = recover_super(testing::located(root, index), {}, {});
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied, 1u) << done->why_aside;
    EXPECT_TRUE(same_bytes(bytes_of(shard(2)), placed));
    EXPECT_THAT(bytes_of(index), HasSubstr("\"new\""));
  }
}

// The shard is still the old one: what was decided is not given up, and goes on once a user has put it right.
TEST_F(SuperRecovery, ANewFileThatIsNotToBeTrustedIsWaitedFor) {
  constexpr uid_t stranger = 4242;
  struct Case {
    const char *why;
    std::function<void(const std::string &, OwnersEnv &)> spoil, mend;
  };
  const std::string second = dir / "second";
  const std::vector<Case> cases{
      {"it has a second link", [&](const std::string &path, OwnersEnv &) { fs::create_hard_link(path, second); },
       [&](const std::string &, OwnersEnv &) { fs::remove(second); }},
      {"anybody may write to it",
       [&](const std::string &path, OwnersEnv &) {
         ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
         ASSERT_EQ(::chmod(shard(2).c_str(), 0644), 0);
       },
       [](const std::string &path, OwnersEnv &) { ASSERT_EQ(::chmod(path.c_str(), 0644), 0); }},
      {"it belongs to user 4242", [](const std::string &path, OwnersEnv &owner) { owner.give(path, stranger); },
       [](const std::string &path, OwnersEnv &owner) { owner.give(path, 0); }},
  };
  for (const Case &c : cases) {
    SCOPED_TRACE(c.why);
    leave_new_files();
    const std::string temporary = new_file(), decides = super();
    OwnersEnv root(0);
    ASSERT_NO_FATAL_FAILURE(c.spoil(temporary, root));
    const auto refused = recover_super(testing::located(root, index), {}, {});
    ASSERT_TRUE(fails_with(Status::needs_recovery, refused));
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr(temporary), HasSubstr(c.why)));
    EXPECT_TRUE(same_bytes(now(), before));
    EXPECT_EQ(super(), decides);
    EXPECT_TRUE(fs::exists(temporary));
    ASSERT_NO_FATAL_FAILURE(c.mend(temporary, root));
    const auto done = recover_super(testing::located(root, index), {}, {});
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied, 1u) << done->why_aside;
    EXPECT_THAT(bytes_of(index), HasSubstr("\"new\""));
  }
}

TEST_F(SuperRecovery, AShardThatAnybodyMayWriteToGetsItsNewFile) {
  leave_new_files();
  ASSERT_EQ(::chmod(shard(2).c_str(), 0666), 0);
  ASSERT_EQ(::chmod(new_file().c_str(), 0666), 0);
  const auto done = recover_index();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u) << done->why_aside;
}

// To open a device may do something.
TEST_F(SuperRecovery, OpensNoPipeForANewFile) {
  leave_new_files();
  const std::string temporary = new_file();
  fs::rename(temporary, shard(2));
  ASSERT_EQ(::mkfifo(temporary.c_str(), 0600), 0);
  FaultEnv env(os::Env::posix());
  size_t opened = 0;
  env.before_open = [&](std::string_view name, int) {
    opened += fs::path(temporary).filename() == name;
    return 0;
  };
  const auto done = recover_super(testing::located(env, index), {}, {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u) << done->why_aside;
  EXPECT_EQ(opened, 0u);
}

// Its transaction is over for this file, which is opened as if the part were not there.
TEST_F(SuperRecovery, APartThatIsDoneIsLeftWhereADecisionIsNotToBeTrusted) {
  leave_updates();
  const std::string part = in_folder(shard(1)), decides = index + std::string(folder_suffix);
  poke(shard(1), bytes_of(shard(1)).size() - 4100, new_a);
  CommitRecord record = record_of(part);
  record.flags |= done_record;
  put_record(part, record);
  for (const mode_t parent : {0700, 01777}) {
    ASSERT_EQ(::chmod(dir.path().c_str(), parent), 0);
    ASSERT_EQ(::chmod(decides.c_str(), 0702), 0);
    const auto done = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->applied + done->dropped + done->aside, 0u);
    EXPECT_EQ(in_folder(shard(1)), part);
  }
  KeepsOut env(decides);
  std::string told;
  ASSERT_TRUE(is_ok(recover(testing::located(env, shard(1)), {}, [&](const Finding &f) {
    EXPECT_EQ(f.level, LogLevel::warning);
    return told += f.message, true;
  })));
  EXPECT_THAT(told, HasSubstr("it was left (a part"));
  const auto stopped = recover(testing::located(env, shard(1)), {}, [](const Finding &) { return false; });
  EXPECT_TRUE(fails_with(Status::cancelled, stopped));
  EXPECT_EQ(in_folder(shard(1)), part);
}

TEST_F(SuperRecovery, APartThatSomebodyHoldsByASecondLinkIsNotCarriedOut) {
  leave_updates();
  const std::string part = in_folder(shard(1));
  fs::create_hard_link(part, dir / "backup");
  auto reader = os::File::open(os::Env::posix(), AT_FDCWD, part, O_RDONLY, 0, part);
  ASSERT_TRUE(is_ok(reader));
  auto held = os::RangeLock::acquire(*reader, {os::whole_file(false)}, {});
  ASSERT_TRUE(is_ok(held));
  expect_aside("it has a second link");
}

// Told by the shard, though the fault is the super-journal's.
TEST_F(SuperRecovery, AShardAloneTellsWhyNothingWasFinished) {
  leave_updates();
  flip(super(), record_of(super()).manifest + 3);
  const auto done = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->aside, 1u);
  EXPECT_THAT(done->why_aside, HasSubstr("its list of files is damaged"));
  EXPECT_TRUE(same_bytes(now(), before));
}

TEST_F(SuperRecovery, ASuperJournalBesideAShardIsMovedAside) {
  leave_updates();
  const std::string planted = in_folder(shard(1));
  put_bytes(planted, bytes_of(super()));
  const auto done = recover(testing::located(os::Env::posix(), shard(1)), {}, {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_THAT(done->why_aside, HasSubstr("the super-journal of an index"));
  EXPECT_TRUE(same_bytes(now(), before));
}

TEST_F(SuperRecovery, WhatCannotBeMovedAsideStaysForTheNext) {
  leave_updates();
  flip(super(), record_of(super()).manifest + 3);
  FaultEnv env(os::Env::posix());
  env.before = [](Call call) { return call == Call::renameat ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, recover_super(testing::located(env, index), {}, {})));
  EXPECT_TRUE(same_bytes(now(), before));
  expect_aside("its list of files is damaged");
}

// Where anybody may write, anybody may have put the folder there.
TEST_F(SuperRecovery, PassesOverAFolderThatAStrangerMayHaveMade) {
  leave_updates();
  ASSERT_EQ(::chmod(dir.path().c_str(), 01777), 0);
  ASSERT_EQ(::chmod((index + std::string(folder_suffix)).c_str(), 0702), 0);
  std::string told;
  LogLevel level = LogLevel::info;
  const Findings tell = [&](const Finding &f) { return told += f.message, level = f.level, true; };
  ASSERT_TRUE(is_ok(recover_super(testing::located(os::Env::posix(), index), {}, tell)));
  EXPECT_THAT(told, HasSubstr("passed over"));
  EXPECT_EQ(level, LogLevel::error);
  told.clear();
  ASSERT_TRUE(is_ok(recover_super_if_needed(testing::located(os::Env::posix(), index), {}, true, tell)));
  EXPECT_THAT(told, HasSubstr("passed over"));
  EXPECT_TRUE(is_ok(recover_super_if_needed(testing::located(os::Env::posix(), index), {}, true, {})));
  EXPECT_TRUE(same_bytes(now(), before));
}

}  // namespace
}  // namespace st::write
