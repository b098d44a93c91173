// Changes larger than the buffers they pass through, where small ones (tests/crash) reach no call in the middle: each
// failable call made to fail, and each word of progress to cancel. The file is then the old one or, if the answer says
// that recovery decides, what recovery makes of it.
#include <cstring>

#include "bound.h"
#include "sim_env.h"
#include "store_scene.h"

namespace st::store {
namespace {

using testing::Call;
using namespace testing;

enum class Way { redo, redo_copied, undo, undo_copied, publish, publish_copied };

class LargeFailures : public ::testing::TestWithParam<Way> {
 protected:
  static bool copies() { return GetParam() == Way::redo_copied || GetParam() == Way::undo_copied || publishes_copy(); }
  static bool publishes_copy() { return GetParam() == Way::publish_copied; }
  static bool publishes() { return GetParam() == Way::publish || publishes_copy(); }
  static bool undoes() { return GetParam() == Way::undo || GetParam() == Way::undo_copied; }

  SimEnv fresh_disk() const {
    SimEnv disk;
    disk.allow_reflinks(undoes());
    disk.add_file(path, old);
    return disk;
  }
  // Small, of several buffers, small, of little more than one, and smaller than a sector.
  Result<void> change(os::Env &env, const Progress &progress = {}) const {
    OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 0;
    auto opened = DataFile::open(env, path, options);
    if (!opened) return Failure(opened.error());
    auto t = Transaction::begin(**opened, {.copy = copies(), .lock_timeout_ms = 0, .progress = progress});
    if (!t) return Failure(t.error());
    if (publishes())
      if (auto put = (*t)->put("new", value_of("new", added)); !put) return put;
    for (size_t i = 0; i < tensors.size(); ++i)
      if (auto staged = (*t)->update(tensors[i].name, value_of(tensors[i].name, changed[i].bytes)); !staged)
        return staged;
    return (*t)->commit();
  }
  NewBytes value_of(std::string_view name, const std::string &bytes) const {
    for (const auto &tensor : changed)
      if (tensor.name == name) return {static_cast<uint32_t>(Dtype::U8), tensor.shape, bytes.data(), bytes.size()};
    return {static_cast<uint32_t>(Dtype::U8), added_shape, bytes.data(), bytes.size()};
  }
  // Old or new by its tensors, whatever the layout; "" if it is neither.
  std::string state(const std::string &file) const {
    const auto holds = [&](const std::vector<testing::TestTensor> &all) {
      uint64_t n = 0;
      for (const auto &t : all) {
        n += t.bytes.size();
        // Not find(), every step of which AddressSanitizer checks to the end of the bytes.
        if (!::memmem(file.data(), file.size(), t.bytes.data(), t.bytes.size())) return false;
      }
      return n < file.size();
    };
    return holds(tensors) ? "old" : holds(changed) ? "new" : "";
  }
  void expect_sound(SimEnv &disk, const Result<void> &answer, const std::string &where) const {
    EXPECT_EQ(disk.open_files(), 0u) << where;
    if (!answer) {
      EXPECT_NE(answer.error().status, Status::internal) << where;
      EXPECT_NE(answer.error().message, "") << where;
      if (answer.error().status != Status::needs_recovery) {
        EXPECT_TRUE(same_bytes(disk.contents(path), old)) << where << ": " << answer.error().message;
      }
    }
    OpenOptions options;
    options.writable = true;
    EXPECT_TRUE(is_ok(DataFile::open(disk, path, options))) << where;
    const std::string found = state(disk.contents(path));
    EXPECT_TRUE(found == "new" || (found == "old" && !answer)) << where << ", recovered: '" << found << "'";
  }

  const std::string path = "/model.safetensors", added = pattern(300'001, 90);
  const uint64_t added_shape[1] = {300'001};
  const std::vector<testing::TestTensor> tensors = {u8_tensor("a", 700, 1), u8_tensor("b", 1'100'001, 2),
                                                    u8_tensor("c", 5000, 3), u8_tensor("d", 300'001, 4),
                                                    u8_tensor("e", 9, 5)};
  const std::vector<testing::TestTensor> changed = {u8_tensor("a", 700, 11), u8_tensor("b", 1'100'001, 12),
                                                    u8_tensor("c", 5000, 13), u8_tensor("d", 300'001, 14),
                                                    u8_tensor("e", 9, 15)};
  const std::string old = file_of(tensors);
};

TEST_P(LargeFailures, ChangeTheFileIfNothingFails) {
  SimEnv disk = fresh_disk();
  const Result<void> done = change(disk);
  ASSERT_TRUE(is_ok(done));
  expect_sound(disk, done, "nothing failed");
}

TEST_P(LargeFailures, OfAnyCallLeaveTheOldFileOrAreDecidedByRecovery) {
  EveryNth failing(3, 2);
  for (int error : {-EIO, FaultEnv::short_io + 0})
    for (size_t n = failing.first();; n += failing.step) {
      SimEnv disk = fresh_disk();
      FaultEnv env(disk);
      size_t calls = 0;
      bool hit = false;
      env.before = [&](Call call) {
        const bool is_sync = call == Call::fsync || call == Call::fdatasync;  // tests/crash fails those
        if (!testing::can_fail(call) || is_sync || calls++ != n) return 0;
        hit = true;
        return error;
      };
      const Result<void> answer = change(env);
      env.before = nullptr;
      expect_sound(disk, answer, text("call ", n, ", errno ", -error));
      if (!hit || HasFailure()) break;
    }
}

TEST_P(LargeFailures, OfWhoeverIsToldOfProgressCancelThem) {
  for (size_t n = 0;; n += bounded(3, 2, 1)) {
    SimEnv disk = fresh_disk();
    size_t told = 0;
    const Result<void> answer = change(disk, [&](uint64_t, uint64_t) { return told++ != n; });
    if (!answer) {
      ASSERT_TRUE(fails_with(Status::cancelled, answer)) << n;
    }
    expect_sound(disk, answer, text("word ", n));
    if (answer || HasFailure()) {
      EXPECT_GT(n, 3u);
      break;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Way> &way) {
  constexpr const char *names[] = {"Redo", "RedoCopied", "Undo", "UndoCopied", "Publish", "PublishCopied"};
  return names[static_cast<int>(way.param)];
}
INSTANTIATE_TEST_SUITE_P(Ways, LargeFailures,
                         ::testing::Values(Way::redo, Way::redo_copied, Way::undo, Way::undo_copied, Way::publish,
                                           Way::publish_copied),
                         name_of);

}  // namespace
}  // namespace st::store
