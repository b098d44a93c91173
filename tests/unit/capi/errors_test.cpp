// What a failed call leaves: a status with a name, a sentence, and its parts.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "scene.h"

namespace st {
namespace {

using namespace testing;

// Straight from the header, so that none is forgotten.
TEST(CapiStatus, EveryOneInTheHeaderHasItsName) {
  const std::string header = bytes_of(ST_HEADER);
  const std::regex line("#define (ST_OK|ST_E_[A-Z0-9_]+) ([0-9]+)");
  std::set<int> numbers;
  for (std::sregex_iterator it(header.begin(), header.end(), line), end; it != end; ++it) {
    const int number = std::stoi((*it)[2]);
    EXPECT_EQ((*it)[1], st_status_name(number));
    EXPECT_TRUE(numbers.insert(number).second) << number << " stands twice";
  }
  EXPECT_GE(numbers.size(), 44u);
  for (int number = -5; number < 200; ++number)
    EXPECT_EQ(std::string(st_status_name(number)) == "ST_E_UNKNOWN", !numbers.contains(number)) << number;
  for (int number : {INT32_MIN, INT32_MAX}) EXPECT_STREQ(st_status_name(number), "ST_E_UNKNOWN");
}

TEST(CapiStatus, EveryOneHasTheActionOfItsComment) {
  const std::string header = bytes_of(ST_HEADER);
  const std::regex status("#define (ST_E_[A-Z0-9_]+) ([0-9]+) +/\\* ([a-z]+):");
  const std::regex action("#define ST_ACTION_([A-Z]+) ([0-9]+)u");
  std::map<std::string, uint32_t> actions;
  for (std::sregex_iterator it(header.begin(), header.end(), action), end; it != end; ++it) {
    std::string word = (*it)[1];
    for (char &c : word) c = static_cast<char>(std::tolower(c));
    actions[word] = static_cast<uint32_t>(std::stoul((*it)[2]));
  }
  EXPECT_EQ(actions.size(), 8u);
  size_t statuses = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), status), end; it != end; ++it, ++statuses)
    EXPECT_EQ(st_status_action(std::stoi((*it)[2])), actions.at((*it)[3])) << (*it)[1];
  EXPECT_GE(statuses, 44u);
  EXPECT_EQ(st_status_action(ST_E_BUSY), ST_ACTION_RETRY);
  for (int number : {ST_OK, -1, 99, 150, INT32_MIN, INT32_MAX}) EXPECT_EQ(st_status_action(number), ST_ACTION_NONE);
}

TEST(CapiDtype, EveryOneInTheHeaderIsParsedAndNamed) {
  const std::string header = bytes_of(ST_HEADER);
  const std::regex line("#define ST_DTYPE_([A-Z0-9_]+) ([0-9]+)");
  size_t count = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), line), end; it != end; ++it, ++count) {
    const std::string name = (*it)[1];
    const auto number = static_cast<st_dtype>(std::stoul((*it)[2]));
    st_dtype parsed = 0;
    ASSERT_ST(ST_OK, st_dtype_parse(name.c_str(), ST_NTS, &parsed));
    EXPECT_EQ(parsed, number);
    EXPECT_EQ(name, st_dtype_name(number));
    EXPECT_GT(st_dtype_bits(number), 0u);
  }
  EXPECT_EQ(count, 22u);
  st_dtype untouched = 77;
  EXPECT_ST(ST_E_DTYPE, st_dtype_parse("f32", ST_NTS, &untouched));
  EXPECT_EQ(untouched, 77u);
  for (st_dtype number : {0u, 23u, UINT32_MAX}) {
    EXPECT_EQ(st_dtype_name(number), nullptr);
    EXPECT_EQ(st_dtype_bits(number), 0u);
  }
}

TEST(CapiVersion, IsTheHeaders) {
  EXPECT_EQ(st_version(), std::to_string(ST_VERSION_MAJOR) + "." + std::to_string(ST_VERSION_MINOR) + "." +
                              std::to_string(ST_VERSION_PATCH));
}

TEST(CapiVersion, BuildInfoIsLinesOfNamesAndValuesForEachThread) {
  const std::string told = st_build_info();
  EXPECT_TRUE(std::regex_match(told, std::regex("(.+: .+\n)+"))) << told;
  EXPECT_EQ(told.find(std::string("version: ") + st_version() + "\n"), 0u);
  const char *mine = st_build_info(), *other = nullptr;
  std::thread([&other] { other = st_build_info(); }).join();
  EXPECT_NE(mine, other);
  EXPECT_EQ(mine, told);
}

class CapiErrors : public testing::CapiScene {
 protected:
  static st_error_info last() {
    auto info = sized<st_error_info>();
    EXPECT_ST(ST_OK, st_last_error_info(&info));
    return info;
  }
  // What has failed just now has `words` in its sentence.
  static void expect_told(st_status wanted, const char *words, std::string_view tensor, st_status status) {
    EXPECT_STREQ(st_status_name(status), st_status_name(wanted)) << st_last_error();
    EXPECT_NE(std::string(st_last_error()).find(words), std::string::npos) << st_last_error();
    const st_error_info told = last();
    ASSERT_NE(told.tensor, nullptr) << st_last_error();
    EXPECT_EQ(std::string_view(told.tensor, told.tensor_len), tensor) << st_last_error();
  }
};

TEST_F(CapiErrors, AThreadThatNeverFailedHasNone) {
  std::thread([] {
    EXPECT_STREQ(st_last_error(), "");
    const st_error_info info = last();
    EXPECT_EQ(info.status, ST_OK);
    EXPECT_STREQ(info.message, "");
    EXPECT_EQ(info.tensor, nullptr);
    EXPECT_EQ(info.offset, UINT64_MAX);
  }).join();
}

TEST_F(CapiErrors, AreOfTheThreadThatFailed) {
  st_file *file = open(0);
  st_tensor t;
  EXPECT_ST(ST_E_NOT_FOUND, st_get(file, "mine", ST_NTS, &t));
  const std::string mine = st_last_error();
  std::thread([&] {
    EXPECT_ST(ST_E_NOT_FOUND, st_get(file, "others", ST_NTS, &t));
    EXPECT_NE(std::string(st_last_error()).find("others"), std::string::npos);
  }).join();
  EXPECT_EQ(mine, st_last_error());
  EXPECT_NE(mine.find("'mine'"), std::string::npos);
  EXPECT_ST(ST_OK, st_get(file, "a", ST_NTS, &t));  // success leaves it as it is
  EXPECT_EQ(mine, st_last_error());
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_at(file, 3, 1, &t));
  EXPECT_NE(mine, st_last_error());
  st_close(file);
}

TEST_F(CapiErrors, HaveTheErrnoOfTheSystem) {
  st_file *file = nullptr;
  ASSERT_ST(ST_E_NO_FILE, st_open((dir / "missing").c_str(), nullptr, &file));
  EXPECT_EQ(last().os_errno, ENOENT);
  EXPECT_EQ(last().status, ST_E_NO_FILE);
  EXPECT_STREQ(last().message, st_last_error());
  EXPECT_NE(std::string(last().message).find(dir / "missing"), std::string::npos);
  std::filesystem::create_directory(dir / "folder");  // without a model in it
  ASSERT_ST(ST_E_NOT_REGULAR, st_open((dir / "folder").c_str(), nullptr, &file));
  EXPECT_EQ(last().tensor, nullptr);
}

TEST_F(CapiErrors, NameTheTensorWithItsLength) {
  st_file *file = open();
  st_tensor t = {};
  ASSERT_ST(ST_E_NOT_FOUND, st_get(file, "n\0L", 3, &t));
  ASSERT_NE(last().tensor, nullptr);
  EXPECT_EQ(std::string(last().tensor, last().tensor_len), std::string("n\0L", 3));
  const st_tensor wrong = value(0, new_b);
  ASSERT_ST(ST_E_NBYTES_MISMATCH, st_update(file, "a", ST_NTS, &wrong));
  EXPECT_STREQ(last().tensor, "a");
  EXPECT_EQ(last().tensor_len, 1u);
  ASSERT_ST(ST_E_NOT_FOUND, st_get(file, "", ST_NTS, &t));
  EXPECT_STREQ(last().tensor, "");  // about a tensor, whose name is empty
  st_close(file);
}

TEST_F(CapiErrors, NameTheTensorThatAnArgumentDoesNotFit) {
  st_file *file = open();
  char room[4];
  expect_told(ST_E_BUFFER_SIZE, "4000 bytes for tensor 'a' but", "a", st_read(file, "a", 1, room, 4, nullptr));
  expect_told(ST_E_INVALID_ARGUMENT, "tensor 'a'", "a", st_read(file, "a", 1, nullptr, 4000, nullptr));
  st_read_request request = {"b", 1, 0, room, sizeof room, nullptr, 0, 0};
  expect_told(ST_E_BUFFER_SIZE, "10007 bytes for tensor 'b' but", "b", st_read_many(file, &request, 1, nullptr));
  const st_range still = {0, 4000, 0};
  expect_told(ST_E_INVALID_ARGUMENT, "tensor 'a': the step of dimension 0", "a",
              st_read_slice(file, "a", 1, &still, 1, room, 4, nullptr));
  request.ranges = &still;
  request.range_count = 1;
  expect_told(ST_E_INVALID_ARGUMENT, "tensor 'b': the step", "b", st_read_many(file, &request, 1, nullptr));
  st_tensor nothing = value(0, new_a);
  nothing.data = nullptr;
  expect_told(ST_E_INVALID_ARGUMENT, "of tensor 'a' has 4000 bytes but no data", "a",
              st_update(file, "a", ST_NTS, &nothing));
  st_tensor shapeless = value(0, new_a);
  shapeless.shape = nullptr;
  expect_told(ST_E_INVALID_ARGUMENT, "of tensor 'a' has rank 1 but no shape", "a", st_update(file, "a", 1, &shapeless));
  st_tensor later = value(0, new_a);
  later.reserved0 = 1;
  expect_told(ST_E_UNSUPPORTED, "reserved field", "a", st_update(file, "a", 1, &later));
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  const int64_t outside = 4000;
  st_tensor one = value(0, new_a);
  const uint64_t shape = 1;
  one.shape = &shape;
  one.nbytes = 1;
  expect_told(ST_E_OUT_OF_RANGE, "tensor 'a': index 4000 lies outside", "a",
              st_txn_update_slice(txn, "a", 1, nullptr, 0, &outside, 1, &one));
  expect_told(ST_E_INVALID_ARGUMENT, "of tensor 'new' has 4000 bytes but", "new",
              st_txn_put(txn, "new", ST_NTS, &nothing));
  EXPECT_ST(ST_E_NOT_FOUND, st_txn_set_metadata(txn, "zz", 2, nullptr, ST_NTS));
  EXPECT_NE(std::string(st_last_error()).find(path), std::string::npos) << st_last_error();
  st_txn_free(txn);
  EXPECT_ST(ST_E_NOT_FOUND, st_metadata_get(file, "zz", 2, nullptr, nullptr));
  EXPECT_NE(std::string(st_last_error()).find(path), std::string::npos) << st_last_error();
  st_close(file);
  st_tensor unnamed[2] = {value(0, new_a), value(0, new_a)};
  unnamed[0].name = "a";
  unnamed[0].name_len = 1;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save((dir / "saved").c_str(), unnamed, 2, nullptr, 0, nullptr));
  EXPECT_NE(std::string(st_last_error()).find("tensor 1 of"), std::string::npos) << st_last_error();
}

TEST_F(CapiErrors, NameTheIndexWhoseMetadataLacksTheKey) {
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), (dir / "shards").c_str(), 10007, nullptr));
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open((dir / "shards").c_str(), nullptr, &file));
  EXPECT_ST(ST_E_NOT_FOUND, st_metadata_get(file, "zz", 2, nullptr, nullptr));
  EXPECT_NE(std::string(st_last_error()).find(".safetensors.index.json' has no key 'zz'"), std::string::npos)
      << st_last_error();
  st_close(file);
}

// At once, and the transaction stays as it was.
TEST_F(CapiErrors, NameWhatIsNoUtf8) {
  const std::string folder = dir / "shards";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), 10007, nullptr));
  for (const std::string &model : {path, folder}) {
    st_file *file = open_at(model);
    st_txn *txn = nullptr;
    ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
    const st_tensor good = value(0, new_a);
    ASSERT_ST(ST_OK, st_txn_put(txn, "new", ST_NTS, &good));
    expect_told(ST_E_HEADER_UTF8, "'\\xff\\xfe'", "\xff\xfe", st_txn_put(txn, "\xff\xfe", 2, &good));
    expect_told(ST_E_HEADER_UTF8, "'x\\xff'", "x\xff", st_txn_rename(txn, "a", 1, "x\xff", 2));
    EXPECT_ST(ST_E_HEADER_UTF8, st_txn_set_metadata(txn, "k\xff", 2, "v", 1));
    EXPECT_NE(std::string(st_last_error()).find("key 'k\\xff'"), std::string::npos) << st_last_error();
    EXPECT_ST(ST_E_HEADER_UTF8, st_txn_set_metadata(txn, "key", 3, "\xff", 1));
    EXPECT_NE(std::string(st_last_error()).find("metadata 'key'"), std::string::npos) << st_last_error();
    ASSERT_ST(ST_OK, st_txn_commit(txn));
    st_txn_free(txn);
    EXPECT_TRUE(same_bytes(seen(file, "new"), new_a));
    EXPECT_TRUE(same_bytes(seen(file, "a"), tensors[0].bytes));
    st_close(file);
  }
  st_tensor wrong = value(0, new_a);
  wrong.name = "ok\xff";
  wrong.name_len = 3;
  const std::string saved = dir / "saved";
  expect_told(ST_E_HEADER_UTF8, "'ok\\xff'", "ok\xff", st_save(saved.c_str(), &wrong, 1, nullptr, 0, nullptr));
  const st_metadata pairs[] = {{"k", 1, "v", 1}, {"m\xff", 2, "v", 1}};
  EXPECT_ST(ST_E_HEADER_UTF8, st_save(saved.c_str(), nullptr, 0, pairs, 2, nullptr));
  EXPECT_NE(std::string(st_last_error()).find("key 'm\\xff'"), std::string::npos) << st_last_error();
}

TEST_F(CapiErrors, SayWhichShardIsDamaged) {
  const std::string folder = dir / "shards", damaged = folder + "/model-00002-of-00003.safetensors";
  const std::vector<TestTensor> equal = {u8_tensor("a", 4000, 1), u8_tensor("b", 4000, 2), u8_tensor("c", 4000, 3)};
  put_bytes(path, file_of(equal));
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), 4000, nullptr));
  std::filesystem::resize_file(damaged, 300);
  auto options = sized<st_verify_options>();
  std::string told;
  options.report_user = &told;
  options.report = [](void *user, const st_report *report) {
    if (report->level == ST_LOG_ERROR) *static_cast<std::string *>(user) += report->message;
    return 0;
  };
  EXPECT_ST(ST_E_TRUNCATED, st_verify(folder.c_str(), &options));
  EXPECT_EQ(told, st_last_error());
  EXPECT_EQ(told.find("'" + damaged + "'"), told.rfind("'" + damaged + "'")) << told;
  EXPECT_NE(told.find("'" + damaged + "'"), std::string::npos) << told;
  EXPECT_EQ(last().shard, 1u);
}

TEST_F(CapiErrors, AForkedChildIsToldToBeginAnew) {
  st_file *file = open();
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  const st_tensor good = value(0, new_a);
  ASSERT_ST(ST_OK, st_txn_update(txn, "a", 1, &good));
  st_writer *writer = nullptr;
  ASSERT_ST(ST_OK, st_writer_open((dir / "written").c_str(), nullptr, 0, nullptr, 0, nullptr, &writer));
  const auto has = [](const char *words) { return std::string(st_last_error()).find(words) != std::string::npos; };
  static pid_t child;
  child = ::fork();
  if (child == 0) {
    int wrong = 0;
    if (st_txn_commit(txn) != ST_E_FORKED || !has("begin another one here")) wrong |= 1;
    if (st_writer_finish(writer) != ST_E_FORKED || !has("open another one here")) wrong |= 2;
    if (st_update(file, "a", 1, &good) != ST_OK) wrong |= 4;
    ::_exit(wrong);
  }
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  auto options = sized<st_save_options>();
  child = -1;
  options.progress = [](void *, uint64_t, uint64_t) {
    if (child < 0) child = ::fork();
    return 0;
  };
  st_tensor named = good;
  named.name = "a";
  named.name_len = 1;
  const st_status saved = st_save((dir / "saved").c_str(), &named, 1, nullptr, 0, &options);
  if (child == 0) ::_exit(saved == ST_E_FORKED && has("so call it anew here") ? 0 : 1);
  EXPECT_EQ(saved, ST_OK);
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  st_txn_free(txn);
  st_writer_free(writer);
  st_close(file);
}

TEST_F(CapiErrors, SayWhereInTheFile) {
  put_bytes(path, old + "xyz");
  st_file *file = nullptr;
  ASSERT_ST(ST_E_TRAILING_DATA, st_open(path.c_str(), nullptr, &file));
  EXPECT_EQ(last().offset, old.size());
  put_bytes(path, old);
  file = open(0, ST_MAP_NONE);
  std::filesystem::resize_file(path, b_at + 100);
  std::string room(10007, '?');
  ASSERT_ST(ST_E_FILE_CHANGED, st_read(file, "b", ST_NTS, room.data(), room.size(), nullptr));
  EXPECT_EQ(last().offset, b_at + 100);
  EXPECT_STREQ(last().tensor, "b");
  st_close(file);
}

TEST_F(CapiErrors, SayWhoHoldsTheLock) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  ASSERT_GE(holder, 0);
  if (holder == 0) {
    const int fd = ::open(path.c_str(), O_RDWR);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_start = static_cast<off_t>(b_at + 9);
    lock.l_len = 1;
    if (::fcntl(fd, F_OFD_SETLK, &lock) != 0) ::_exit(1);
    static_cast<void>(!::write(ready[1], "x", 1));
    ::pause();
    ::_exit(0);
  }
  ::close(ready[1]);  // so that a holder that fails ends the read
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  st_file *file = open();
  const st_tensor t = value(1, new_b);
  EXPECT_ST(ST_E_BUSY, st_update(file, "b", ST_NTS, &t));
  EXPECT_EQ(last().holder_pid, holder);
  EXPECT_STREQ(last().tensor, "b");
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_ST(ST_OK, st_update(file, "b", ST_NTS, &t));
  st_close(file);
  ::close(ready[0]);
}

TEST_F(CapiErrors, AskingForThemIsNoFailure) {
  st_file *file = nullptr;
  st_open((dir / "missing").c_str(), nullptr, &file);
  const std::string before = st_last_error();
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_last_error_info(nullptr));
  st_error_info sizeless = {};
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_last_error_info(&sizeless));
  EXPECT_EQ(before, st_last_error());
}

// One file for each status that a broken header has: the ABI passes them on.
TEST_F(CapiErrors, OfTheFormatArriveAsTheirStatus) {
  const std::pair<st_status, std::string> files[] = {
      {ST_E_HEADER_TOO_SMALL, "1234567"},
      {ST_E_HEADER_TOO_LARGE, std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)},
      {ST_E_HEADER_TRUNCATED, std::string("\x03\0\0\0\0\0\0\0{}", 10)},
      {ST_E_HEADER_UTF8, testing::raw_file("{\"\xff\":1}", "")},
      {ST_E_HEADER_JSON, testing::raw_file("{]", "")},
      {ST_E_METADATA, testing::raw_file(R"({"__metadata__":[]})", "")},
      {ST_E_TENSOR_INFO, testing::raw_file(R"({"a":1})", "")},
      {ST_E_DTYPE, testing::raw_file(R"({"a":{"dtype":"X","shape":[1],"data_offsets":[0,1]}})", "x")},
      {ST_E_SHAPE_OVERFLOW,
       testing::raw_file(R"({"a":{"dtype":"U8","shape":[9223372036854775808,4],"data_offsets":[0,1]}})", "x")},
      {ST_E_OFFSETS, testing::raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "x")},
      {ST_E_OVERLAP,
       testing::raw_file(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           "xyz")},
      {ST_E_HOLE, testing::raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy")},
      {ST_E_SIZE_MISMATCH, testing::raw_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", "x")},
      {ST_E_SUBBYTE, testing::raw_file(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "x")},
      {ST_E_TRUNCATED, testing::raw_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "x")},
      {ST_E_TRAILING_DATA, testing::raw_file("{}", "x")},
      {ST_E_DUPLICATE_NAME,
       testing::raw_file(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           "xy")},
  };
  st_status expected = 40;
  for (const auto &[status, bytes] : files) {
    EXPECT_EQ(status, expected++);  // none is missing here
    put_bytes(path, bytes);
    st_file *file = nullptr;
    EXPECT_STREQ(st_status_name(st_open(path.c_str(), nullptr, &file)), st_status_name(status));
    EXPECT_STREQ(st_status_name(st_open_memory(bytes.data(), bytes.size(), &file)), st_status_name(status));
    EXPECT_STREQ(st_status_name(st_verify(path.c_str(), nullptr)), st_status_name(status));
    EXPECT_EQ(file, nullptr);
  }
  EXPECT_STREQ(st_status_name(expected), "ST_E_SHARD_INDEX");  // those of a file end here
}

}  // namespace
}  // namespace st
