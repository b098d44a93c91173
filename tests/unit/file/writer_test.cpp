// Saving, on a real disk. What a writer refuses, and that it then is as it was; headers that outgrow their gap; what a
// new file inherits from the one that it replaces; what becomes of temporaries.
#include "file/writer.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "counting_env.h"
#include "crash_scene.h"
#include "fault_env.h"
#include "located.h"
#include "lock_of_file.h"
#include "newfile/copy_attributes.h"
#include "newfile/temporary_file.h"
#include "os/named_lock.h"

namespace st::write {
namespace {

using namespace testing;
using testing::Call;

NewTensor u8(std::string name, const std::string &bytes) {
  return {std::move(name), Dtype::U8, {bytes.size()}, bytes.size(), bytes.data()};
}

class WriterTest : public ::testing::Test {
 protected:
  std::unique_ptr<Writer> writer(std::vector<NewTensor> declared = {}, SaveOptions options = {},
                                 NewMetadata metadata = {}) {
    auto w = Writer::open(faulty, path, std::move(declared), std::move(metadata), std::move(options));
    EXPECT_TRUE(is_ok(w));
    return w ? std::move(*w) : nullptr;
  }
  std::string part(uint64_t offset, uint64_t n) const {
    std::string bytes(n, '\0');
    std::ifstream in(path, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(offset)).read(bytes.data(), static_cast<std::streamsize>(n));
    return bytes;
  }
  Result<Header> header() const {
    const uint64_t size = std::filesystem::file_size(path);
    auto n = parse_header_length(part(0, 8), size);
    if (!n) return Failure(n.error());
    const std::string json = part(8, *n) + '\0' + std::string(header_padding - 1, '"');
    return parse_header(json.data(), *n, size, 1);
  }
  std::string seen(std::string_view name) const {
    auto h = header();
    EXPECT_TRUE(is_ok(h));
    const TensorView t = h->index.at(h->index.find(name).value());
    return part(h->data_offset() + t.begin, t.nbytes);
  }
  // While the new file is synced, another process saves the name, and locks its file until others->close().
  void another_saves_amid_the_sync(const std::function<void()> &then = [] {}) {
    others.reset();
    faulty.before = [this, then](Call call) {
      if (call != Call::fsync || others) return 0;
      std::filesystem::remove(path);
      put_bytes(path, "another's");
      others.emplace(path);
      then();
      return 0;
    };
  }

  testing::TempDir dir;
  const std::string path = dir / "model.safetensors";
  FaultEnv faulty{os::Env::posix()};
  std::optional<LockOfFile> others;
  const std::string a = pattern(4000, 1), b = pattern(10007, 2);
};

TEST_F(WriterTest, WritesDeclaredTensorsInPiecesAndInAnyOrder) {
  auto w = writer({u8("a", a), u8("b", b)});
  ASSERT_TRUE(is_ok(w->add("b", b.data(), 7)));
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  auto missing = w->finish();
  EXPECT_TRUE(fails_with(Status::incomplete, missing));
  EXPECT_EQ(missing.error().tensor, "b");
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(is_ok(w->add("b", b.data() + 7, b.size() - 7)));
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_EQ(seen("a"), a);
  EXPECT_EQ(seen("b"), b);
  EXPECT_TRUE(fails_with(Status::txn_failed, w->finish()));
}

TEST_F(WriterTest, WideElementsComeFirstWhereOneWouldLieUnalignedElse) {
  const NewTensor odd{"odd", Dtype::U8, {3}, 3, a.data()}, even{"even", Dtype::U8, {8}, 8, a.data()};
  const NewTensor wide{"wide", Dtype::F64, {2}, 16, b.data()}, none{"none", Dtype::F64, {0}, 0, nullptr};
  const auto names = [&](const std::vector<NewTensor> &tensors, bool declares) {
    SaveOptions options;
    options.align = true;
    auto w = writer(declares ? tensors : std::vector<NewTensor>(), options);
    for (const NewTensor &t : tensors) EXPECT_TRUE(is_ok(w->put(t)));
    EXPECT_TRUE(is_ok(w->finish()));
    auto h = header();
    EXPECT_TRUE(is_ok(h));
    std::string found;
    for (size_t i = 0; h && i < h->index.size(); ++i) found += std::string(h->index.at(i).name) + " ";
    return found;
  };
  for (const bool declares : {true, false}) {
    EXPECT_EQ(names({even, none, wide, odd}, declares), "even none wide odd ");
  }
  EXPECT_EQ(names({odd, none, wide}, true), "none wide odd ");
}

TEST_F(WriterTest, RefusalsLeaveItAsItWas) {
  auto w = writer({u8("a", a)});
  const std::string more = a + "!";
  EXPECT_TRUE(fails_with(Status::not_found, w->add("x", "", 0)));
  EXPECT_TRUE(fails_with(Status::nbytes_mismatch, w->add("a", more.data(), more.size())));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, w->put(u8("a", more))));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, w->put({"a", Dtype::I8, {a.size()}, a.size(), a.data()})));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, w->put({"a", Dtype::U8, {a.size()}, a.size() - 1, a.data()})));
  EXPECT_TRUE(fails_with(Status::nbytes_mismatch, w->put({"b", Dtype::U16, {3}, 5, b.data()})));
  EXPECT_TRUE(fails_with(Status::subbyte, w->put({"b", Dtype::F4, {3}, 2, b.data()})));
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  EXPECT_TRUE(fails_with(Status::duplicate_name, w->put(u8("a", a))));
  ASSERT_TRUE(is_ok(w->put(u8("b", b))));
  EXPECT_TRUE(fails_with(Status::duplicate_name, w->put(u8("b", b))));
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_EQ(seen("a"), a);
  EXPECT_EQ(seen("b"), b);
}

TEST_F(WriterTest, WhatNoReaderWouldTakeIsRefusedAtOnce) {
  const auto refused = [&](Status status, std::vector<NewTensor> declared, SaveOptions options = {},
                           NewMetadata metadata = {}) {
    EXPECT_TRUE(fails_with(status, Writer::open(faulty, path, std::move(declared), std::move(metadata), options)));
  };
  refused(Status::duplicate_name, {u8("a", a), u8("a", b)});
  refused(Status::metadata, {}, {}, {{"k", "1"}, {"j", "2"}, {"k", "3"}});
  refused(Status::invalid_argument, {}, {.alignment = 12});
  refused(Status::invalid_argument, {}, {.alignment = uint64_t{1} << 21});
  refused(Status::header_too_large, {}, {.reserve = max_header_bytes + 1});
  refused(Status::header_utf8, {u8("\xff", a)});
  std::vector<NewTensor> endless;
  for (int i = 0; i < 9; ++i) endless.push_back({text(i), Dtype::U8, {uint64_t{1} << 60}, uint64_t{1} << 60});
  refused(Status::offsets, endless);
  EXPECT_TRUE(fails_with(Status::not_regular, Writer::open(faulty, dir.path(), {}, {}, {})));
  EXPECT_TRUE(fails_with(Status::no_file, Writer::open(faulty, dir / "no/such.safetensors", {}, {}, {})));
  put_bytes(path, "");
  EXPECT_TRUE(fails_with(Status::no_file, Writer::open(faulty, path + "/x", {}, {}, {})));
  EXPECT_EQ(testing::names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
}

// Without one byte more in the header.
TEST_F(WriterTest, TheLongestHeaderIsWrittenAsStockWritesIt) {
  constexpr size_t around = 83;  // what is not the value
  auto w = writer({}, {}, {{"k", std::string(max_header_bytes - 7 - around, 'z')}});
  ASSERT_TRUE(w);
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_EQ(load_u64le(part(0, 8).data()), max_header_bytes);
  EXPECT_EQ(part(max_header_bytes, 8), "}       ");
  EXPECT_EQ(part(length_bytes + max_header_bytes, a.size()), a);
}

TEST_F(WriterTest, ARelativePathAndOneInTheRootLeadWhereTheySay) {
  ASSERT_EQ(::symlink(path.c_str(), (dir / "link").c_str()), 0);
  put_bytes(path, "old");
  ASSERT_TRUE(is_ok(save(faulty, dir / "link", {u8("a", a)}, {}, {})));
  EXPECT_EQ(seen("a"), a);
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  // Nobody makes a file in the root folder for a test: the name is asked for, and refused.
  faulty.before = [](Call call) { return call == Call::openat ? -EACCES : 0; };
  EXPECT_TRUE(fails_with(Status::permission, Writer::open(faulty, "/libst-no-such-file", {}, {}, {})));
}

TEST_F(WriterTest, ASlashAtTheEndIsOfAFolder) {
  put_bytes(path, "old");
  std::filesystem::create_symlink(path, dir / "link");
  std::filesystem::create_symlink(dir / "nothing", dir / "hanging");
  for (const char *name : {"model.safetensors/", "link/", "hanging/", "new//"})
    EXPECT_TRUE(fails_with(Status::no_file, Writer::open(faulty, dir / name, {}, {}, {}))) << name;
  std::filesystem::create_directory(dir / "folder");
  EXPECT_TRUE(fails_with(Status::not_regular, Writer::open(faulty, dir / "folder/", {}, {}, {})));
  faulty.before = [](Call call) { return call == Call::fstatat ? -EACCES : 0; };
  EXPECT_TRUE(fails_with(Status::permission, Writer::open(faulty, path + "/", {}, {}, {})));
}

TEST_F(WriterTest, EachCallThatCannotAnswerFailsTheOpening) {
  for (Call call : {Call::openat, Call::fstat, Call::readlinkat, Call::fstatat}) {
    faulty.before = [call](Call made) { return made == call ? -EIO : 0; };
    EXPECT_TRUE(fails_with(Status::io, Writer::open(faulty, path, {}, {}, {})));
  }
}

TEST_F(WriterTest, CopiesATensorOutOfAnotherFile) {
  const std::string from_path = dir / "from";
  put_bytes(from_path, "before" + b + "behind");
  auto from = os::File::open(faulty, AT_FDCWD, from_path, O_RDONLY, 0, from_path);
  ASSERT_TRUE(is_ok(from));
  const auto go_on = [](uint64_t) -> Result<void> { return {}; };
  const auto one = [](CopiedTensor tensor) { return std::array{tensor}; };
  auto w = writer({u8("a", a), u8("b", b), u8("none", "")});
  EXPECT_TRUE(fails_with(Status::not_found, w->copy(*from, one({"c", 6}), go_on)));
  ASSERT_TRUE(is_ok(w->copy(*from, one({"b", 6}), go_on)));
  ASSERT_TRUE(is_ok(w->copy(*from, one({"none", UINT64_MAX}), go_on)));
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_TRUE(same_bytes(seen("b"), b));
  w = writer({u8("a", a), u8("b", b)});
  const auto stop = [](uint64_t) -> Result<void> { return fail(Status::cancelled, "enough"); };
  const auto stopped = w->copy(*from, one({"b", 6}), stop);
  EXPECT_TRUE(fails_with(Status::cancelled, stopped));
  EXPECT_EQ(stopped.error().tensor, "b");
  EXPECT_FALSE(w->copy(*from, one({"b", 6}), go_on).has_value());
  w.reset();
  EXPECT_TRUE(same_bytes(seen("b"), b));  // of the file before
}

TEST_F(WriterTest, ATensorThatNoHeaderCanHoldIsRefusedBeforeItsBytesAreWritten) {
  const std::string long_name(size_t{50'000'000}, 'x');
  auto w = writer({}, {}, {{"key", "value"}});
  ASSERT_TRUE(is_ok(w->put(u8(long_name, a))));
  const auto writes = std::count(faulty.calls.begin(), faulty.calls.end(), Call::pwrite);
  EXPECT_TRUE(fails_with(Status::invalid_argument, w->put(u8("__metadata__", b))));
  EXPECT_TRUE(fails_with(Status::header_utf8, w->put(u8("\xff", b))));
  const auto too_large = w->put(u8("y" + long_name, b));
  EXPECT_TRUE(fails_with(Status::header_too_large, too_large));
  EXPECT_EQ(std::count(faulty.calls.begin(), faulty.calls.end(), Call::pwrite), writes);
  ASSERT_TRUE(is_ok(w->put(u8("b", b))));
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_EQ(seen("b"), b);
}

TEST_F(WriterTest, ACopyOfSeveralTensorsThatFailsTellsOfTheOneThatItCameTo) {
  const std::string from_path = dir / "from";
  put_bytes(from_path, a + b + a);
  auto from = os::File::open(faulty, AT_FDCWD, from_path, O_RDONLY, 0, from_path);
  ASSERT_TRUE(is_ok(from));
  const std::array<CopiedTensor, 3> all = {{{"a", 0}, {"b", a.size()}, {"c", a.size() + b.size()}}};
  const std::pair<uint64_t, const char *> reached[] = {
      {0, "a"}, {a.size(), "b"}, {a.size() + 1, "b"}, {a.size() + b.size(), "c"}};
  for (const auto &[bytes, name] : reached) {
    auto w = writer({u8("a", a), u8("b", b), u8("c", a)});
    ASSERT_EQ(w->runs_of(all).value().size(), 1u);
    // No copy by the kernel. The file ends there.
    std::filesystem::resize_file(from_path, bytes);
    const auto told = [](uint64_t) -> Result<void> { return {}; };
    const auto done = w->copy(*from, all, told);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().tensor, name) << bytes;
    put_bytes(from_path, a + b + a);
  }
}

// A gap of 64 KiB awaits the header of tensors that were not declared.
TEST_F(WriterTest, AHeaderThatOutgrowsItsGapMovesTheData) {
  auto w = writer();
  for (int i = 0; i < 1200; ++i) ASSERT_TRUE(is_ok(w->put(u8(text("a rather long name of a tensor ", i), a))));
  const std::string large = pattern(9 << 20, 3);
  ASSERT_TRUE(is_ok(w->put(u8("large", large))));
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_GT(header()->data_offset(), 64u << 10);
  EXPECT_TRUE(same_bytes(seen("large"), large));
  EXPECT_EQ(seen("a rather long name of a tensor 1199"), a);
}

TEST_F(WriterTest, ALargeFileKeepsItsGapAndASmallOneClosesIt) {
  const std::string large = pattern(9 << 20, 3);
  auto w = writer();
  ASSERT_TRUE(is_ok(w->put(u8("large", large))));
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_EQ(header()->data_offset(), 64u << 10);
  w = writer();
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_LT(header()->data_offset(), 4096u);
  w = writer();
  ASSERT_TRUE(is_ok(w->finish()));  // a file of nothing
  EXPECT_EQ(header()->index.size(), 0u);
}

TEST_F(WriterTest, CanonicalOrderIsThatOfStockWritersHoweverTensorsCome) {
  for (Layout layout : {Layout::canonical, Layout::stock}) {
    auto w = writer({}, {.layout = layout});
    ASSERT_TRUE(is_ok(w->put(u8("z", a))));
    ASSERT_TRUE(is_ok(w->put({"m", Dtype::F64, {500}, 4000, a.data()})));
    ASSERT_TRUE(is_ok(w->put(u8("b", b))));
    ASSERT_TRUE(is_ok(w->finish()));
    EXPECT_EQ(header()->index.at(0).name, "m");
    EXPECT_EQ(header()->index.at(1).name, "b");
    EXPECT_EQ(seen("z"), a);
    const std::string as_they_come = bytes_of(path);
    ASSERT_TRUE(is_ok(save(faulty, path, {u8("z", a), {"m", Dtype::F64, {500}, 4000, a.data()}, u8("b", b)}, {},
                           {.layout = layout})));
    EXPECT_TRUE(same_bytes(bytes_of(path), as_they_come));
  }
}

// Where blocks are shared, the tensors are not written twice.
TEST_F(WriterTest, InCanonicalOrderItTakesNoRoomForWhatItShares) {
  const std::string first(4 << 20, 'a'), second(10 << 20, 'b');
  CountingXfs shares(faulty);
  auto w = Writer::open(shares, path, {}, {}, {.layout = Layout::canonical, .alignment = 4096});
  ASSERT_TRUE(is_ok(w));
  ASSERT_TRUE(is_ok((*w)->put(u8("b", second))));
  ASSERT_TRUE(is_ok((*w)->put(u8("a", first))));
  shares.free_bytes = 1 << 20;
  ASSERT_TRUE(is_ok((*w)->finish()));
  EXPECT_EQ(shares.shared, first.size() + second.size());
  EXPECT_TRUE(same_bytes(seen("a"), first));
  EXPECT_TRUE(same_bytes(seen("b"), second));
}

TEST_F(WriterTest, AlignmentAndReserveAreKept) {
  ASSERT_TRUE(is_ok(save(faulty, path, {u8("a", a)}, {{"k", "v"}}, {.alignment = 4096, .reserve = 5000})));
  EXPECT_EQ(header()->data_offset() % 4096, 0u);
  EXPECT_GE(header()->data_offset(), 5000u);
  EXPECT_EQ(header()->index.metadata_find("k"), "v");
}

TEST_F(WriterTest, ProgressCountsTheWholeAndCanCancel) {
  uint64_t last = 0, all = 0;
  const auto tell = [&](uint64_t done, uint64_t total) { return last = done, all = total, true; };
  ASSERT_TRUE(is_ok(save(faulty, path, {u8("a", a), u8("b", b)}, {}, {.progress = tell})));
  EXPECT_EQ(all, a.size() + b.size());
  EXPECT_EQ(last, all);
  const std::string before = bytes_of(path);
  EXPECT_TRUE(fails_with(Status::cancelled,
                         save(faulty, path, {u8("a", b)}, {}, {.progress = [](uint64_t, uint64_t) { return false; }})));
  EXPECT_TRUE(same_bytes(bytes_of(path), before));
  EXPECT_TRUE(fails_with(Status::no_file, save(faulty, dir / "no/such", {}, {}, {})));
  // And while it arranges what came in another order.
  bool stop = false;
  auto w = writer({}, {.layout = Layout::canonical, .progress = [&](uint64_t, uint64_t) { return !stop; }});
  ASSERT_TRUE(is_ok(w->put(u8("z", a))));
  ASSERT_TRUE(is_ok(w->put(u8("b", b))));
  stop = true;
  EXPECT_TRUE(fails_with(Status::cancelled, w->finish()));
  EXPECT_TRUE(same_bytes(bytes_of(path), before));
}

TEST_F(WriterTest, SmallTensorsOfASaveShareAWriteAndLargeOnesDoNot) {
  const std::string large = pattern(5 << 20, 3);
  for (size_t larges : {0, 1}) {
    std::vector<std::string> small;
    for (int i = 0; i < 1000; ++i) small.push_back(pattern(static_cast<size_t>(i % 70), static_cast<unsigned>(i)));
    std::vector<NewTensor> tensors;
    for (size_t i = 0; i < small.size(); ++i) {
      if (larges > 0 && i == 500) tensors.push_back(u8("large", large));
      tensors.push_back(u8(text("t", i), small[i]));
    }
    faulty.calls.clear();
    ASSERT_TRUE(is_ok(save(faulty, path, tensors, {}, {})));
    const auto made = [&](Call call) { return std::count(faulty.calls.begin(), faulty.calls.end(), call); };
    EXPECT_EQ(made(Call::pwrite), larges > 0 ? 5 : 2);  // of them the header; and 5 MiB go in two
    for (size_t i = 0; i < small.size(); ++i) ASSERT_EQ(seen(text("t", i)), small[i]) << i;
    if (larges > 0) {
      EXPECT_TRUE(same_bytes(seen("large"), large));
    }
  }
}

// More of them than one write takes, which tell progress on the way, and can be stopped there.
TEST_F(WriterTest, ManySmallTensorsTellProgressOnTheWay) {
  const std::string bytes = pattern(20000, 5);
  std::vector<NewTensor> tensors;
  for (int i = 0; i < 150; ++i) tensors.push_back(u8(text("t", i), bytes));
  std::vector<uint64_t> told;
  const auto tell = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 150u * 20000u);
    told.push_back(done);
    return done < 2'000'000;
  };
  EXPECT_TRUE(fails_with(Status::cancelled, save(faulty, path, tensors, {}, {.progress = tell})));
  EXPECT_GE(told.size(), 2u);
  EXPECT_LT(told.size(), 50u);  // and not 100
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(is_ok(save(faulty, path, tensors, {}, {})));
  EXPECT_TRUE(same_bytes(seen("t149"), bytes));
}

TEST_F(WriterTest, AFailedWriteOfManyNamesTheTensorThatBeginsWhereItFailed) {
  const std::string large = pattern(1 << 20, 3);
  const std::vector<NewTensor> tensors{u8("a", a), u8("none", ""), u8("large", large), u8("b", b), u8("end", "")};
  for (const auto &[nth, name] : {std::pair{0, ""}, {1, "a"}, {2, "large"}, {3, "b"}}) {
    int asked = 0;
    faulty.before = [&, nth = nth](Call call) { return call == Call::pwrite && asked++ == nth ? -ENOSPC : 0; };
    const auto failed = save(faulty, path, tensors, {}, {});
    EXPECT_TRUE(fails_with(Status::no_space, failed));
    EXPECT_EQ(failed.error().tensor, name);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

// As rclone without a cache, and other mounts of object stores.
TEST_F(WriterTest, WhatIsDeclaredIsWrittenFromTheBeginToTheEnd) {
  struct InOrder : FaultEnv {
    using FaultEnv::FaultEnv;
    ssize_t pwrite(int fd, const void *bytes, size_t n, uint64_t offset) override {
      if (offset != end) return -ESPIPE;
      end += n;
      return FaultEnv::pwrite(fd, bytes, n, offset);
    }
    uint64_t end = 0;
  };
  InOrder in_order(os::Env::posix());
  const std::string large = pattern(1 << 20, 3);
  ASSERT_TRUE(is_ok(save(in_order, path, {u8("b", b), u8("large", large), u8("a", a)}, {}, {})));
  EXPECT_TRUE(same_bytes(seen("large"), large));
  in_order.end = 0;
  auto w = Writer::open(in_order, path, {u8("a", a), u8("b", b)}, {}, {});
  ASSERT_TRUE(is_ok(w));
  EXPECT_TRUE(fails_with(Status::io, (*w)->put(u8("b", b))));
  in_order.end = 0;
  w = Writer::open(in_order, path, {u8("a", a), u8("b", b)}, {}, {});
  ASSERT_TRUE(is_ok(w));
  ASSERT_TRUE(is_ok((*w)->put(u8("a", a))));
  ASSERT_TRUE(is_ok((*w)->put(u8("b", b))));
  ASSERT_TRUE(is_ok((*w)->finish()));
  EXPECT_TRUE(same_bytes(seen("b"), b));
}

TEST_F(WriterTest, AFailedWriteEndsIt) {
  auto w = writer();
  faulty.before = [](Call call) { return call == Call::pwrite ? -EIO : 0; };
  auto failed = w->put(u8("a", a));
  EXPECT_TRUE(fails_with(Status::io, failed));
  EXPECT_EQ(failed.error().tensor, "a");
  faulty.before = nullptr;
  EXPECT_TRUE(fails_with(Status::txn_failed, w->put(u8("b", b))));
  EXPECT_TRUE(fails_with(Status::txn_failed, w->add("a", "", 0)));
  EXPECT_TRUE(fails_with(Status::txn_failed, w->finish()));
}

TEST_F(WriterTest, AForkedChildMayNotUseIt) {
  auto w = writer({u8("a", a)});
  faulty.forks = 1;
  EXPECT_TRUE(fails_with(Status::forked, w->add("a", a.data(), a.size())));
  EXPECT_TRUE(fails_with(Status::forked, w->put(u8("a", a))));
  EXPECT_TRUE(fails_with(Status::forked, w->finish()));
  faulty.forks = 0;
}

TEST_F(WriterTest, WithoutRoomNothingIsChanged) {
  const auto is_ext4_or_xfs = [&] {
    struct statfs s = {};
    return ::statfs(dir.path().c_str(), &s) == 0 && (s.f_type == 0xEF53 || s.f_type == 0x58465342);
  };
  faulty.told_of_disk = [](struct statfs &s) { s.f_bavail = s.f_bfree = 1; };
  auto refused = Writer::open(faulty, path, {u8("b", pattern(1 << 20, 4))}, {}, {});
  faulty.told_of_disk = nullptr;
  EXPECT_TRUE(fails_with(Status::no_space, refused));
  EXPECT_EQ(refused.error().os_errno, ENOSPC);
  // Nor where the disk says so when blocks are to be reserved; one that cannot reserve is told by the write.
  for (const auto &[error, status] :
       {std::pair{-ENOSPC, Status::no_space}, {-EOPNOTSUPP, Status::ok}, {-EINVAL, Status::ok}}) {
    faulty.before = [error = error](Call call) { return call == Call::fallocate ? error : 0; };
    auto opened = Writer::open(faulty, path, {u8("a", a)}, {}, {});
    const bool reserves = std::find(faulty.calls.begin(), faulty.calls.end(), Call::fallocate) != faulty.calls.end();
    if (!reserves && !is_ext4_or_xfs())
      GTEST_SKIP() << "this filesystem may gain nothing from blocks taken early: none are";
    EXPECT_TRUE(reserves);
    EXPECT_EQ(opened ? Status::ok : opened.error().status, status);
  }
}

// ---- what a new file inherits

class Inherits : public WriterTest {
 protected:
  Inherits() { put_bytes(path, "old"); }
  Result<void> replace(os::Env &env, Log log = {}) {
    const Log unlocked = [&](LogLevel level, const std::string &message) {
      const LockOfFile free(path);
      if (log) log(level, message);
    };
    return save(env, path, {u8("a", a)}, {}, {.log = unlocked});
  }
  static std::string attribute(const std::string &file, const char *name) {
    char value[256];
    const ssize_t n = ::getxattr(file.c_str(), name, value, sizeof value);
    return n < 0 ? text("errno ", errno) : std::string(value, static_cast<size_t>(n));
  }
  mode_t mode() const {
    struct stat s = {};
    ::stat(path.c_str(), &s);
    return s.st_mode & 07777;
  }
  bool can_have_attributes() const { return ::setxattr(path.c_str(), "user.libst", "value", 5, 0) == 0; }
  // An access ACL with an entry for a user of its own.
  static std::string acl() {
    std::string out("\2\0\0\0", 4);
    const auto entry = [&](char tag, char rights, const char *id) {
      out += std::string{tag, 0, rights, 0} + std::string(id, 4);
    };
    entry(0x01, 6, "\xff\xff\xff\xff");
    entry(0x02, 4, "\x92\x10\0\0");
    entry(0x04, 4, "\xff\xff\xff\xff");
    entry(0x10, 4, "\xff\xff\xff\xff");
    entry(0x20, 0, "\xff\xff\xff\xff");
    return out;
  }
};

TEST_F(Inherits, ModeAndAttributes) {
  if (!can_have_attributes()) GTEST_SKIP() << "no user attributes here: " << std::strerror(errno);
  ASSERT_EQ(::setxattr(path.c_str(), "user.empty", "", 0, 0), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(is_ok(replace(faulty)));
  EXPECT_EQ(mode(), 0640u);
  EXPECT_EQ(attribute(path, "user.libst"), "value");
  EXPECT_EQ(attribute(path, "user.empty"), "");
}

TEST_F(Inherits, AnAclAndNoneThatOnlyTheFolderGives) {
  constexpr const char *access = "system.posix_acl_access";
  const std::string wanted = acl();
  if (::setxattr(path.c_str(), access, wanted.data(), wanted.size(), 0) != 0)
    GTEST_SKIP() << "no ACLs here: " << std::strerror(errno);
  ASSERT_TRUE(is_ok(replace(faulty)));
  EXPECT_EQ(attribute(path, access), wanted);
  // The other way round: the folder gives each new file an ACL, which the old one does not have.
  ASSERT_EQ(::removexattr(path.c_str(), access), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_EQ(::setxattr(dir.path().c_str(), "system.posix_acl_default", wanted.data(), wanted.size(), 0), 0);
  ASSERT_TRUE(is_ok(replace(faulty)));
  EXPECT_EQ(attribute(path, access), text("errno ", ENODATA));
  EXPECT_EQ(mode(), 0644u);
}

TEST_F(Inherits, EachAttributeCallThatFailsFailsTheSave) {
  if (!can_have_attributes()) GTEST_SKIP() << "no user attributes here: " << std::strerror(errno);
  for (Call call : {Call::flistxattr, Call::fgetxattr, Call::fsetxattr, Call::fchmod})
    for (size_t n = 0; n < 2; ++n) {
      put_bytes(path, "old");
      size_t asked = 0;
      faulty.before = [&](Call made) { return made == call && asked++ == n ? -EIO : 0; };
      auto done = replace(faulty);
      faulty.before = nullptr;
      if (asked <= n) continue;  // it is not called so often
      EXPECT_TRUE(fails_with(Status::io, done)) << call_name(call) << n;
      EXPECT_TRUE(same_bytes(bytes_of(path), "old"));
    }
}

TEST_F(Inherits, NothingWhereTheFilesystemHasNoAttributes) {
  for (int error : {-EOPNOTSUPP, -ENOSYS, -EINVAL, -ENOTTY, -EIO}) {
    faulty.before = [error](Call call) { return call == Call::flistxattr || call == Call::fgetxattr ? error : 0; };
    EXPECT_TRUE(is_ok(replace(faulty))) << error;
  }
}

TEST_F(Inherits, TheModeWhereTheFilesystemHasOneForAllFiles) {
  faulty.before = [](Call call) { return call == Call::fchmod ? -EPERM : 0; };
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(is_ok(replace(faulty)));
  ASSERT_EQ(::chmod(path.c_str(), 0604), 0);
  EXPECT_TRUE(fails_with(Status::permission, replace(faulty)));
}

// Attributes may grow, or go, between asking how long they are and reading them.
TEST_F(Inherits, AttributesThatChangeWhileTheyAreRead) {
  if (!can_have_attributes()) GTEST_SKIP() << "no user attributes here: " << std::strerror(errno);
  size_t asked = 0;
  faulty.before = [&](Call call) { return call == Call::fgetxattr && asked++ == 1 ? -ERANGE : 0; };
  ASSERT_TRUE(is_ok(replace(faulty)));
  EXPECT_GT(asked, 3u);
  EXPECT_EQ(attribute(path, "user.libst"), "value");
  faulty.before = [&](Call call) { return call == Call::fgetxattr ? -ENODATA : 0; };
  ASSERT_TRUE(is_ok(replace(faulty)));
  EXPECT_EQ(attribute(path, "user.libst"), "");
}

TEST_F(Inherits, LabelsOfSecurityModulesAreTheirsToGiveButUsersAttributesMustCome) {
  class Labelled : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    ssize_t flistxattr(int, char *names, size_t size) override {
      if (size >= name.size() + 1) std::memcpy(names, name.c_str(), name.size() + 1);
      return static_cast<ssize_t>(name.size() + 1);
    }
    ssize_t fgetxattr(int fd, const char *asked, void *value, size_t size) override {
      if (asked != name) return FaultEnv::fgetxattr(fd, asked, value, size);
      if (size > 0) std::memcpy(value, "v", 1);
      return 1;
    }
    int fsetxattr(int, const char *, const void *, size_t) override { return -EPERM; }
    std::string name = "security.selinux";
  } labelled(faulty);
  EXPECT_TRUE(is_ok(replace(labelled)));
  for (const char *name : {"user.mine", "system.richacl"}) {
    labelled.name = name;
    EXPECT_TRUE(fails_with(Status::permission, replace(labelled))) << name;
  }
}

// The ACL keeps the file's owner from writing.
TEST_F(Inherits, AnAclThatForbidsToWriteKeepsNoOtherAttributeOut) {
  class AclFirst : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    ssize_t flistxattr(int, char *names, size_t size) override {
      if (size >= listed.size()) std::memcpy(names, listed.data(), listed.size());
      return static_cast<ssize_t>(listed.size());
    }
    ssize_t fgetxattr(int, const char *, void *value, size_t size) override {
      if (size > 0) std::memcpy(value, "v", 1);
      return 1;
    }
    int fsetxattr(int, const char *name, const void *, size_t) override {
      if (!set.empty() && set.back().starts_with("system.")) return -EACCES;
      set.push_back(name);
      return 0;
    }
    const std::string listed{"system.posix_acl_access\0user.mine\0", 34};
    std::vector<std::string> set;
  } first(faulty);
  ASSERT_TRUE(is_ok(replace(first)));
  EXPECT_EQ(first.set, (std::vector<std::string>{"user.mine", "system.posix_acl_access"}));
}

// A file of others, as its stat says; and nobody may give files away.
class Others : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int fstat(int fd, struct stat *out) override {
    const int r = FaultEnv::fstat(fd, out);
    if (out->st_size == 3) out->st_uid += 1, out->st_gid += 1;
    return r;
  }
  int fchown(int, uid_t, gid_t) override { return may_give ? 0 : -EPERM; }
  bool may_give = false;
};

TEST_F(Inherits, OfAFileThatNeverCameToBeNothingIsTold) {
  Others others(faulty);
  others.before = [](Call call) { return call == Call::renameat ? -EPERM : 0; };
  std::vector<std::string> told;
  EXPECT_TRUE(
      fails_with(Status::permission, replace(others, [&](LogLevel, const std::string &m) { told.push_back(m); })));
  EXPECT_TRUE(told.empty());
  EXPECT_TRUE(same_bytes(bytes_of(path), "old"));
}

TEST_F(Inherits, WhatIsDoneDoesNotFailForWantOfMemoryForAWarning) {
  Others others(faulty);
  size_t told = 0;
  EXPECT_TRUE(is_ok(replace(others, [&](LogLevel, const std::string &) {
    if (++told == 1) throw std::bad_alloc();
  })));
  EXPECT_EQ(told, 1u);
}

TEST_F(Inherits, WhereOwnerOrGroupCannotBeGivenRightsAreTakenAndItIsTold) {
  Others others(faulty);
  ASSERT_EQ(::chmod(path.c_str(), 06674), 0);
  std::vector<std::string> told;
  ASSERT_TRUE(is_ok(replace(others, [&](LogLevel, const std::string &m) { told.push_back(m); })));
  EXPECT_EQ(mode(), 0644u);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_NE(told[0].find("could not be given to group"), std::string::npos);
  EXPECT_NE(told[1].find("could not be given to user"), std::string::npos);
  // Nobody listens; and where files may be given away.
  struct Case {
    mode_t old, elsewhere;  // where the group cannot be given: never more than it, or others, could do
  };
  for (const Case &c : {Case{0674, 0644}, Case{0660, 0600}, Case{0646, 0646}, Case{0604, 0604}, Case{0656, 0646}})
    for (bool may_give : {false, true}) {
      put_bytes(path, "old");
      ASSERT_EQ(::chmod(path.c_str(), c.old), 0);
      others.may_give = may_give;
      ASSERT_TRUE(is_ok(replace(others)));
      EXPECT_EQ(mode(), may_give ? c.old : c.elsewhere);
    }
}

// ---- files that others hold or leave beside it

TEST_F(Inherits, AFileThatCannotBeLockedIsReplacedAllTheSame) {
  for (int error : {-EOPNOTSUPP, -ENOLCK, -EACCES}) {
    faulty.before = [error](Call call) { return call == Call::lock ? error : 0; };
    ASSERT_TRUE(is_ok(replace(faulty))) << error;
    EXPECT_EQ(seen("a"), a);
    EXPECT_EQ(testing::names_in(dir.path()).size(), 1u);
  }
}

TEST_F(Inherits, AWriterThatCannotTellWhatItWillShareLeavesNothing) {
  auto to = find_destination(faulty, path);
  ASSERT_TRUE(is_ok(to));
  const auto shares = [](Writer &, const os::File &) { return fail(Status::io, "the old file cannot be looked at"); };
  EXPECT_TRUE(fails_with(Status::io, Writer::open(std::move(*to), {{"a", Dtype::U8, {4}, 4}}, {}, {}, shares)));
  EXPECT_EQ(testing::names_in(dir.path()).size(), 1u);
}

// The folder may hold a hundred thousand files.
TEST_F(Inherits, ASaveDoesNotListItsFolder) {
  const auto listings = [&] { return std::count(faulty.calls.begin(), faulty.calls.end(), Call::list); };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(is_ok(replace(faulty)));
  std::filesystem::remove(path);
  ASSERT_TRUE(is_ok(replace(faulty)));
  auto arranged = writer({}, {.layout = Layout::canonical});  // by a second temporary
  ASSERT_TRUE(is_ok(arranged->put(u8("b", b))));
  ASSERT_TRUE(is_ok(arranged->put(u8("a", a))));
  ASSERT_TRUE(is_ok(arranged->finish()));
  EXPECT_EQ(listings(), 0);
}

TEST_F(Inherits, WhatTwoWritersAtOnceLeftIsFoundByTheNextAndTheRestWithIt) {
  const auto temporary = [&](std::string_view digits) {
    return dir / (".model.safetensors.st-tmp-" + std::string(digits));
  };
  put_bytes(dir / ".other.st-tmp-0000000000000001", "of another file");
  for (const std::string_view left : first_digits) {
    put_bytes(temporary(left), "half");
    put_bytes(temporary("0123456789abcdef"), "of a third");
    ASSERT_TRUE(is_ok(replace(faulty)));
    EXPECT_EQ(testing::names_in(dir.path()).size(), 2u) << left;
  }
  auto first = writer(), second = writer(), third = writer();
  EXPECT_EQ(testing::names_in(dir.path()).size(), 5u) << "living ones are left";
  for (auto *ended : {&first, &second, &third}) ended->reset();
  EXPECT_EQ(testing::names_in(dir.path()).size(), 2u);
  dir.may_hold_temporaries();
}

// Where the name's file can be removed by others than its writer, or belongs to a stranger.
TEST_F(Inherits, AFirstNameThatIsTakenForGoodIsPassedBy) {
  ASSERT_EQ(::mkfifo((dir / ".model.safetensors.st-tmp-0000000000000001").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", dir / ".model.safetensors.st-tmp-0000000000000002");
  ASSERT_TRUE(is_ok(replace(faulty)));
  EXPECT_EQ(seen("a"), a);
  EXPECT_EQ(testing::names_in(dir.path()).size(), 3u);
  dir.may_hold_temporaries();
}

TEST_F(Inherits, AFileThatHasTheTemporarysNameByNowIsNotRenamed) {
  const std::string temporary = dir / ".model.safetensors.st-tmp-0000000000000001";
  auto w = writer({{"a", Dtype::U8, {a.size()}, a.size()}});
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  std::filesystem::remove(temporary);
  put_bytes(temporary, "half of another writer's");
  const auto done = w->finish();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().os_errno, ENOENT);
  EXPECT_TRUE(same_bytes(bytes_of(path), "old"));
  w.reset();
  EXPECT_EQ(bytes_of(temporary), "half of another writer's");
  dir.may_hold_temporaries();
}

// Another sweep is faster, and a living writer takes the name, before the first one has its lock.
TEST_F(Inherits, AFirstNameThatALivingWriterHasByNowIsNotSwept) {
  const std::string temporary = dir / ".model.safetensors.st-tmp-0000000000000001";
  put_bytes(temporary, "half");
  std::unique_ptr<TemporaryFile> living;
  faulty.before = [&](Call call) {
    if (call != Call::lock || living) return 0;
    auto made = TemporaryFile::create(located(os::Env::posix(), path), 0600);
    EXPECT_TRUE(is_ok(made));
    living = std::move(*made);
    return 0;
  };
  EXPECT_TRUE(TemporaryFile::remove_stale(located(faulty, path), {temporary_infix}).empty());
  ASSERT_TRUE(living);
  EXPECT_TRUE(std::filesystem::exists(temporary)) << "it is the living one's";
}

// A sweep locks it before its writer does, and a third writer has the name by then.
TEST_F(Inherits, AFirstNameThatWasLostToASweepIsNotRemovedOnceMore) {
  const std::string temporary = dir / ".model.safetensors.st-tmp-0000000000000001";
  size_t locks = 0;
  faulty.before = [&](Call call) {
    if (call != Call::lock || locks++ > 0) return 0;
    std::filesystem::remove(temporary);
    put_bytes(temporary, "of a third");
    return -EAGAIN;
  };
  auto made = TemporaryFile::create(located(faulty, path), 0600);
  ASSERT_TRUE(is_ok(made));
  EXPECT_EQ(bytes_of(temporary), "of a third");
  dir.may_hold_temporaries();
}

TEST_F(Inherits, AFailedSaveTellsOfTheNameThatWasGiven) {
  for (const Call failing : {Call::fallocate, Call::pwrite, Call::fsync, Call::lock}) {
    bool met = false;
    faulty.before = [&](Call call) {
      if (call != failing) return 0;
      met = true;
      return -ENOSPC;
    };
    const auto done = replace(faulty);
    ASSERT_NE(done.has_value(), met) << testing::call_name(failing);
    if (!met) continue;  // tmpfs is not asked for space
    EXPECT_NE(done.error().message.find(path), std::string::npos) << done.error().message;
    EXPECT_EQ(done.error().message.find(".st-tmp-"), std::string::npos) << done.error().message;
  }
}

// They may lose their locks to each other, and must not know each other's names.
TEST_F(Inherits, WhereOtherHostsMayWriteAllNamesAreRandom) {
  class Mount : public FaultEnv {
   public:
    Mount(Env &base, uint32_t magic, std::string mountinfo) : FaultEnv(base), mountinfo_(std::move(mountinfo)) {
      told_of_disk = [magic](struct statfs &s) { s.f_type = magic; };
    }
    int openat(int at, const char *name, int flags, mode_t mode) override {
      const bool is_table = std::string_view(name) == "/proc/self/mountinfo";
      return FaultEnv::openat(at, is_table ? mountinfo_.c_str() : name, flags, mode);
    }
    int fstat(int fd, struct stat *out) override {
      const int r = FaultEnv::fstat(fd, out);
      out->st_dev = makedev(0, 77);
      return r;
    }
    int fstatat(int at, const char *name, struct stat *out, int flags) override {
      const int r = FaultEnv::fstatat(at, name, out, flags);
      out->st_dev = makedev(0, 77);
      return r;
    }

   private:
    const std::string mountinfo_;
  };
  constexpr uint32_t nfs = 0x6969, fuse = 0x65735546;
  const testing::TempDir elsewhere;
  for (const auto &[magic, type] :
       {std::pair(nfs, "nfs"), {fuse, "fuse.sshfs"}, {fuse, "fuse.gcsfuse"}, {fuse, "fuseblk"}}) {
    SCOPED_TRACE(type);
    const bool is_disk = std::string_view(type) == "fuseblk";
    put_bytes(elsewhere / "mountinfo", text("97 28 0:77 / ", dir.path(), " rw - ", type, " source rw\n"));
    Mount mount(faulty, magic, elsewhere / "mountinfo");
    put_bytes(dir / ".model.safetensors.st-tmp-0123456789abcdef", "half");
    auto made = TemporaryFile::create(located(mount, path), 0600);
    ASSERT_TRUE(is_ok(made));
    const auto names = testing::names_in(dir.path());
    EXPECT_EQ(names.size(), is_disk ? 3u : 2u) << "a listing finds what is left";
    EXPECT_EQ((*made)->temporary().ends_with(first_digits[0]), is_disk);
  }
  dir.may_hold_temporaries();
}

// Temporaries whose owner may not write the file.
class OnlyReads : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int openat(int dir_fd, const char *name, int flags, mode_t mode) override {
    const bool is_temporary = std::string_view(name).find(".st-tmp-") != std::string_view::npos;
    return is_temporary && (flags & O_ACCMODE) != O_RDONLY ? -EACCES : FaultEnv::openat(dir_fd, name, flags, mode);
  }
  int lock(int fd, int command, struct flock *range) override {
    if (!grants_all) return FaultEnv::lock(fd, command, range);
    if (command == F_OFD_GETLK) range->l_type = F_UNLCK;
    return 0;
  }
  bool grants_all = false;  // as some daemons do
};

// They share its lock. The first is stopped at one of its calls until the second is at one of its own, and goes on to
// its end. Then a living writer takes the name, which all know. It finishes at the second's next call.
TEST_F(Inherits, AFirstNameThatALivingWriterHasByNowIsNotSweptByTwoWhoMayOnlyRead) {
  put_bytes(path, "old");
  struct Reached {
    bool by_first, by_second;
  };
  const auto swept_by_two = [&](size_t first_stop, size_t second_stop) {
    put_bytes(dir / ".model.safetensors.st-tmp-0000000000000001", "half");
    OnlyReads first(os::Env::posix()), second(os::Env::posix());
    Reached reached{false, false};
    std::unique_ptr<TemporaryFile> living;
    const auto finish = [&] {
      EXPECT_TRUE(living->rename_into_place(Control({}, nullptr)).has_value());
      living.reset();
    };
    std::promise<void> second_stands, first_ended;
    second.before = [&, calls = size_t{0}](Call) mutable {
      if (calls == second_stop) {
        reached.by_second = true;
        second_stands.set_value();
        first_ended.get_future().wait();
      } else if (calls == second_stop + 1) {
        finish();
      }
      ++calls;
      return 0;
    };
    std::thread beside;
    first.before = [&, calls = size_t{0}](Call) mutable {
      if (calls++ != first_stop) return 0;
      reached.by_first = true;
      beside = std::thread([&] {
        TemporaryFile::remove_stale(located(second, path));
        if (!reached.by_second) second_stands.set_value();
      });
      second_stands.get_future().wait();
      return 0;
    };
    TemporaryFile::remove_stale(located(first, path));
    auto made = TemporaryFile::create(located(os::Env::posix(), path), 0600);
    EXPECT_TRUE(is_ok(made));
    living = std::move(*made);
    first_ended.set_value();
    if (beside.joinable()) beside.join();
    if (living) finish();
    TemporaryFile::remove_stale(located(os::Env::posix(), path));
    EXPECT_EQ(testing::names_in(dir.path()).size(), 1u);
    return reached;
  };
  size_t first_stop = 0, second_stop = 0;
  for (Reached reached{true, true}; reached.by_first; ++first_stop)
    for (second_stop = 0, reached.by_second = true; reached.by_first && reached.by_second; ++second_stop) {
      SCOPED_TRACE(text(first_stop, " ", second_stop));
      reached = swept_by_two(first_stop, second_stop);
    }
  EXPECT_GT(first_stop, 5u);
}

TEST_F(Inherits, AFirstNameThatMayOnlyBeReadIsSweptUnlessAnotherSweeperMayBeAtIt) {
  const std::string temporary = dir / ".model.safetensors.st-tmp-0000000000000001";
  put_bytes(temporary, "half");
  OnlyReads only_reads(faulty);
  const os::Location at = located(only_reads, path);
  faulty.before = [locks = 0](Call call) mutable { return call == Call::lock && locks++ == 1 ? -EIO : 0; };
  EXPECT_TRUE(TemporaryFile::remove_stale(at).empty());
  faulty.before = nullptr;
  {
    auto other = os::File::open(os::Env::posix(), AT_FDCWD, temporary, O_RDONLY, 0, temporary);
    ASSERT_TRUE(is_ok(other));
    auto lock = os::RangeLock::acquire(*other, {os::whole_file(false)}, {});
    ASSERT_TRUE(is_ok(lock));
    EXPECT_TRUE(TemporaryFile::remove_stale(at).empty());
  }
  EXPECT_EQ(TemporaryFile::remove_stale(at).size(), 1u);
  EXPECT_EQ(testing::names_in(dir.path()).size(), 1u);
}

// The owner may not write the file. Its writer died when the new file had these rights already.
TEST_F(Inherits, ADeadWritersTemporaryThatMayOnlyBeReadIsRemovedAndALivingOnesIsLeft) {
  OnlyReads only_reads(faulty);
  only_reads.grants_all = true;
  auto living = writer();
  const std::string dead = dir / ".model.safetensors.st-tmp-0123456789abcdef";
  put_bytes(dead, "half");
  const os::Location at = located(only_reads, path);
  EXPECT_TRUE(TemporaryFile::remove_stale(at).empty());
  EXPECT_TRUE(std::filesystem::exists(dead));
  only_reads.grants_all = false;
  EXPECT_EQ(TemporaryFile::remove_stale(at).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_EQ(testing::names_in(dir.path()).size(), 2u);
}

TEST_F(Inherits, TemporariesThatCannotBeLookedAtAreLeft) {
  const std::string dead = dir / ".model.safetensors.st-tmp-0123456789abcdef";
  put_bytes(dead, "half");
  const os::Location at = located(faulty, path);
  faulty.before = [](Call call) { return call == Call::list ? -EIO : 0; };
  TemporaryFile::remove_stale(at);
  EXPECT_TRUE(std::filesystem::exists(dead));
  for (size_t n = 0; n < 3; ++n) {  // itself, its lock, and itself again
    size_t asked = 0;
    faulty.before = [&](Call call) { return (call == Call::openat || call == Call::lock) && asked++ == n ? -EIO : 0; };
    TemporaryFile::remove_stale(at);
    EXPECT_TRUE(std::filesystem::exists(dead)) << n;
  }
  faulty.before = nullptr;
  TemporaryFile::remove_stale(at);
  EXPECT_FALSE(std::filesystem::exists(dead));
}

TEST_F(Inherits, TemporariesThatVanishAreTriedAgainAndThenTold) {
  class Gone : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int fstat(int fd, struct stat *out) override {
      const int r = FaultEnv::fstat(fd, out);
      if (gone > 0) --gone, out->st_nlink = 0;
      return r;
    }
    int gone = 0;
  } env(faulty);
  env.gone = 1;
  auto once = TemporaryFile::create(located(env, path), 0600);
  ASSERT_TRUE(is_ok(once));
  // And the one that is kept is locked, so that nobody takes it for stale.
  auto other = (*once)->open_again();
  ASSERT_TRUE(is_ok(other));
  EXPECT_TRUE(os::is_locked(*other, {0, 0, true}).value());
  once->reset();
  env.gone = 1000;
  EXPECT_TRUE(fails_with(Status::io, TemporaryFile::create(located(env, path), 0600)));
  dir.may_hold_temporaries();  // "vanished" ones
}

TEST_F(Inherits, ANameThatIsTakenIsTriedAgainAndThenTold) {
  const os::Location at = located(faulty, path);
  size_t fail = 1;
  faulty.before = [&](Call call) { return call == Call::openat && fail > 0 ? --fail, -EEXIST : 0; };
  EXPECT_TRUE(is_ok(TemporaryFile::create(at, 0600)));
  fail = 1000;
  EXPECT_FALSE(TemporaryFile::create(at, 0600));
  size_t opened = 0;
  faulty.before = [&](Call call) { return call == Call::openat && opened++ == 0 ? -EMFILE : 0; };
  EXPECT_FALSE(TemporaryFile::create(at, 0600));
}

TEST_F(Inherits, WhereADescriptorIsMissingTheOldFileStays) {
  ASSERT_TRUE(is_ok(replace(faulty)));
  const auto opens = std::count(faulty.calls.begin(), faulty.calls.end(), Call::openat);
  for (ptrdiff_t n = 0; n < opens; ++n) {
    put_bytes(path, "old");
    ptrdiff_t opened = 0;
    faulty.before = [&](Call call) { return call == Call::openat && opened++ == n ? -EMFILE : 0; };
    const auto done = replace(faulty);
    EXPECT_TRUE(done || same_bytes(bytes_of(path), "old")) << n << ": " << done.error().message;
  }
}

TEST_F(Inherits, AFileThatAnotherProgramKeepsStaysAndItIsSaid) {
  faulty.before = [](Call call) { return call == Call::renameat ? -ETXTBSY : 0; };
  const auto done = replace(faulty);
  ASSERT_TRUE(fails_with(Status::permission, done));
  EXPECT_NE(done.error().message.find("another program keeps"), std::string::npos) << done.error().message;
  EXPECT_TRUE(same_bytes(bytes_of(path), "old"));
}

TEST_F(Inherits, ARenameThatFailsAfterTheFactCounts) {
  class After : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
      if (does) FaultEnv::renameat(from_dir, from, to_dir, to);
      return -EIO;
    }
    bool does = true;
  } env(faulty);
  ASSERT_TRUE(is_ok(replace(env)));
  EXPECT_EQ(seen("a"), a);
  put_bytes(path, "old");
  env.does = false;
  EXPECT_TRUE(fails_with(Status::io, replace(env)));
  EXPECT_TRUE(same_bytes(bytes_of(path), "old"));
}

TEST_F(Inherits, AFolderThatCannotBeSyncedIsToldAsAnOpenOutcome) {
  size_t syncs = 0;
  faulty.before = [&](Call call) { return call == Call::fsync && ++syncs == 2 ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::needs_recovery, replace(faulty)));
  EXPECT_EQ(seen("a"), a);
}

TEST_F(Inherits, AFileThatIsReplacedAllTheTimeIsBusy) {
  class Replaced : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int fstatat(int at, const char *name, struct stat *out, int flags) override {
      const int r = FaultEnv::fstatat(at, name, out, flags);
      if (times > 0) --times, ++out->st_ino;
      return r;
    }
    int times = 0;
  } env(faulty);
  env.times = 1;
  EXPECT_TRUE(is_ok(lock_whole_file(located(env, path), {0, nullptr, nullptr})));
  env.times = 1000;
  EXPECT_TRUE(fails_with(Status::busy, lock_whole_file(located(env, path), {0, nullptr, nullptr})));
}

TEST_F(Inherits, WhatItIsThatWasOpenedMustBeKnownWhereLinksAreRefused) {
  const os::Location at = located(faulty, path);
  for (size_t n = 0; n < 2; ++n) {  // before it is locked, and when its name is looked at again
    faulty.before = testing::nth_call_fails(n, -EIO, false, [](Call call) { return call == Call::fstat; });
    EXPECT_TRUE(fails_with(Status::io, lock_whole_file(at, {0, nullptr, nullptr}))) << n;
  }
  faulty.before = nullptr;
  EXPECT_TRUE(is_ok(lock_whole_file(at, {0, nullptr, nullptr})));
}

TEST_F(Inherits, ALongNameIsCutBetweenCharactersForItsTemporary) {
  std::string name;
  while (name.size() < 230) name += "\xe9\x95\xbf";  // three bytes each
  name += ".safetensors";
  const std::string target = dir / name;
  auto made = TemporaryFile::create(located(faulty, target), 0600);
  ASSERT_TRUE(is_ok(made));
  bool found = false;
  for (const std::string &n : testing::names_in(dir.path())) {
    if (!n.starts_with(".")) continue;
    found = true;
    EXPECT_EQ(n.find(".st-tmp-"), 1u + 213u + 17u);  // and the hash of all of it
  }
  EXPECT_TRUE(found);
}

TEST_F(WriterTest, IsFinishedAgainWhereTooFewFilesCouldBeOpened) {
  put_bytes(path, "old");
  for (const std::vector<NewTensor> &declared : {std::vector<NewTensor>{}, {u8("a", a)}}) {
    for (const int error : {EMFILE, ENFILE}) {
      auto w = writer(declared, {.layout = Layout::canonical});
      if (declared.empty()) {
        ASSERT_TRUE(is_ok(w->put(u8("b", a))));  // so that they are arranged anew
      }
      ASSERT_TRUE(is_ok(w->put(u8("a", a))));
      int failures = 0;
      for (size_t n = 0;; ++n) {
        size_t opened = 0;
        faulty.before = [&](Call call) { return call == Call::openat && opened++ == n ? -error : 0; };
        const auto done = w->finish();
        if (done) break;
        ASSERT_EQ(done.error().os_errno, error) << n << done.error().message;
        ++failures;
      }
      faulty.before = nullptr;
      EXPECT_GT(failures, 1);
      EXPECT_EQ(seen("a"), a);
    }
  }
}

// ---- what comes to the name, or goes from it, while the new file is written

TEST_F(WriterTest, AFileThatComesMeanwhileIsNotReplacedWhileSomebodyChangesIt) {
  for (const bool instead : {false, true}) {  // of one that was there, and is locked
    SCOPED_TRACE(instead);
    if (instead) put_bytes(path, "old");
    auto w = writer({}, {.lock_timeout_ms = 0});
    ASSERT_TRUE(is_ok(w->put(u8("a", a))));
    another_saves_amid_the_sync();
    EXPECT_TRUE(fails_with(Status::busy, w->finish()));
    EXPECT_TRUE(same_bytes(bytes_of(path), "another's"));
    others->close();
    std::filesystem::permissions(path, std::filesystem::perms(0604));
    ASSERT_TRUE(is_ok(w->finish()));
    EXPECT_EQ(seen("a"), a);
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0604));
    faulty.before = nullptr;
    std::filesystem::remove(path);
  }
}

// Where the old file cannot be locked, as its owner may not write it, the name is looked at again all the same.
TEST_F(WriterTest, AFileThatComesInPlaceOfOneThatMayOnlyBeReadIsNotReplacedWhileSomebodyChangesIt) {
  faulty.before_open = [](std::string_view name, int flags) {
    return name == "model.safetensors" && (flags & O_ACCMODE) != O_RDONLY ? -EACCES : 0;
  };
  put_bytes(path, "old");
  auto w = writer({}, {.lock_timeout_ms = 0});
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  another_saves_amid_the_sync([&] { faulty.before_open = nullptr; });
  EXPECT_TRUE(fails_with(Status::busy, w->finish()));
  EXPECT_TRUE(same_bytes(bytes_of(path), "another's"));
  others->close();
  ASSERT_TRUE(is_ok(w->finish()));
  EXPECT_EQ(seen("a"), a);
}

class Goes : public Inherits {
 protected:
  // Rights that no new file has here; an ACL and another owner where that can be.
  void give_rights() const {
    ASSERT_EQ(::chmod(path.c_str(), 0601), 0);
    const std::string wanted = acl();
    static_cast<void>(::setxattr(path.c_str(), access, wanted.data(), wanted.size(), 0));
    const bool may_give = ::geteuid() == 0;
    ASSERT_TRUE(!may_give || ::chown(path.c_str(), 1234, 4321) == 0);
  }
  void has_those_of_a_new_file() const {
    const std::string other = dir / "new";
    put_bytes(other, "");
    struct stat is = {}, wanted = {};
    ASSERT_EQ(::stat(path.c_str(), &is), 0);
    ASSERT_EQ(::stat(other.c_str(), &wanted), 0);
    EXPECT_EQ(is.st_mode, wanted.st_mode);
    EXPECT_EQ(is.st_uid, wanted.st_uid);
    EXPECT_EQ(is.st_gid, wanted.st_gid);
    EXPECT_EQ(attribute(path, access), attribute(other, access));
    EXPECT_EQ(seen("a"), a);
    EXPECT_EQ(testing::names_in(dir.path()).size(), 2u);
  }
  static constexpr const char *access = "system.posix_acl_access";
};

TEST_F(Goes, MeanwhileItHandsOnNoRights) {
  for (const bool late : {false, true}) {  // when they were handed on
    SCOPED_TRACE(late);
    put_bytes(path, "old");
    give_rights();
    auto w = writer();
    ASSERT_TRUE(is_ok(w->put(u8("a", a))));
    if (!late) std::filesystem::remove(path);
    bool goes = late;  // with the first sync, which is the new file's
    faulty.before = [&](Call call) {
      if (call == Call::fsync && std::exchange(goes, false)) std::filesystem::remove(path);
      return 0;
    };
    ASSERT_TRUE(is_ok(w->finish()));
    faulty.before = nullptr;
    has_those_of_a_new_file();
  }
}

TEST_F(Goes, MeanwhileACopyHasTheModeOfItsSources) {
  put_bytes(path, "old");
  give_rights();
  auto w = writer({}, {.mode = 0600});
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  std::filesystem::remove(path);
  ASSERT_TRUE(is_ok(w->finish()));
  struct stat s = {};
  ASSERT_EQ(::stat(path.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 07777, 0600u);
}

// They were handed on by a call that another file kept from its end.
TEST_F(Goes, BetweenTwoCallsItHandsOnNoRights) {
  std::filesystem::remove(path);
  auto w = writer({u8("a", a)}, {.lock_timeout_ms = 0});
  ASSERT_TRUE(is_ok(w->put(u8("a", a))));
  put_bytes(path, "old");
  give_rights();
  another_saves_amid_the_sync();
  EXPECT_TRUE(fails_with(Status::busy, w->finish()));
  others->close();
  std::filesystem::remove(path);
  ASSERT_TRUE(is_ok(w->finish()));
  has_those_of_a_new_file();
}

// ---- what crashed writers left is finished before the file goes

class OverHotJournals : public testing::CrashScene {};

TEST_F(OverHotJournals, AreRecoveredBeforeTheFileIsReplaced) {
  leave({{a_at, pattern(4000, 8)}}, true);
  const std::string bytes = pattern(50, 1);
  ASSERT_TRUE(is_ok(save(env, path, {u8("x", bytes)}, {}, {})));
  EXPECT_FALSE(std::filesystem::exists(folder()) && !testing::names_in(folder()).empty());
  EXPECT_EQ(std::filesystem::file_size(path) % 64, 50u);
}

TEST_F(OverHotJournals, ThatCannotBeRecoveredKeepTheFile) {
  leave({{a_at, pattern(4000, 8)}}, true);
  FaultEnv faulty(env);
  size_t writes = 0;
  faulty.before = [&](Call call) { return call == Call::pwrite && ++writes > 2 ? -EIO : 0; };
  const std::string bytes = pattern(50, 1);
  EXPECT_FALSE(save(faulty, path, {u8("x", bytes)}, {}, {}));
  faulty.before = nullptr;
  auto done = recover();
  ASSERT_TRUE(is_ok(done));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, pattern(4000, 8)}})));
}

// Somebody has begun a change of it, and committed nothing.
TEST_F(WriterTest, AnIdleJournalIsInNobodysWay) {
  put_bytes(path, testing::file_of(std::vector{testing::u8_tensor("a", 10, 1)}));
  std::filesystem::create_directory(path + ".st-journal");
  std::filesystem::permissions(path + ".st-journal", std::filesystem::perms::owner_all);
  put_bytes(path + ".st-journal/0123456789abcdef", "");
  ASSERT_TRUE(is_ok(save(faulty, path, {u8("b", b)}, {}, {})));
  EXPECT_TRUE(same_bytes(seen("b"), b));
}

}  // namespace
}  // namespace st::write
