// Calls that wait for a server that says nothing. Their caller is asked meanwhile, and may end them.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/interrupt.h"
#include "engine/open.h"
#include "test_files.h"

namespace st::store {
namespace {

using namespace testing;

// A server of one file. Once it is silent, only a caller that wants no more ends a read.
class Server final : public os::Source {
 public:
  Server(const std::string &bytes, const std::atomic<bool> &silent)
      : Source("a server", bytes.size(), 4), bytes_(bytes), silent_(silent) {}
  int read(std::span<const Range> ranges) override {
    while (silent_) {
      if (InterruptCheck::stops()) return ECANCELED;
      std::this_thread::yield();
    }
    for (const Range &r : ranges) std::memcpy(r.to, bytes_.data() + r.offset, r.nbytes);
    return 0;
  }

 private:
  const std::string &bytes_;
  const std::atomic<bool> &silent_;
};

class WaitsTest : public ::testing::Test {
 protected:
  static constexpr size_t size = 20u << 20;
  const std::string bytes =
      raw_file(R"({"a":{"dtype":"U8","shape":[20971520],"data_offsets":[0,20971520]}})", std::string(size, 'a'));
  std::atomic<bool> silent = false;
  std::unique_ptr<Model> model;
  enum class By { progress, exception, interrupt } by = By::progress;
  std::atomic<uint32_t> asked = 0;  // since it is silent
  const std::thread::id caller = std::this_thread::get_id();

  Result<std::unique_ptr<Model>> open() {
    OpenOptions options;
    options.progress = [this](uint64_t, uint64_t) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      if (!silent || ++asked < 5) return true;
      if (by == By::interrupt) model->interrupt();
      if (by == By::exception) throw std::bad_alloc();
      return by != By::progress;
    };
    return open_source(std::make_shared<os::SourceEnv>(std::make_unique<Server>(bytes, silent)), std::move(options));
  }
};

TEST_F(WaitsTest, EveryReadIsEndedByItsCaller) {
  ASSERT_TRUE(is_ok(open()));
  model = *open();
  const DataFile &file = *model->file();
  const Snapshot &state = file.snapshot();
  std::string room(size, '\0');
  auto *to = reinterpret_cast<std::byte *>(room.data());
  const Range half[] = {{0, INT64_MAX, 2}}, some[] = {{5, 9, 1}};
  const auto every_second = *SlicePlan::make(Dtype::U8, state.header.index.at(0).shape, half);
  const auto four = *SlicePlan::make(Dtype::U8, state.header.index.at(0).shape, some);
  const std::function<Result<void>()> calls[] = {
      [&]() -> Result<void> {
        ST_TRY(file.view(state, 0));
        return {};
      },
      [&] { return file.read(state, 0, to); },
      [&] { return file.read_slice(state, 0, every_second, to); },
      [&] { return file.read_slice(state, 0, four, to); },
      [&] {
        return file.read_many(state, {{0, nullptr, to}}, {});
      },
      [&] { return file.prefetch(state, {0}, {}); },
      [&] { return file.load(state, {0}, false, false, {}); },
  };
  for (const By each : {By::progress, By::exception, By::interrupt})
    for (size_t i = 0; i < std::size(calls); ++i) {
      by = each;
      asked = 0;
      silent = true;
      const auto done = calls[i]();
      silent = false;
      ASSERT_FALSE(done) << i;
      const Status wanted = by == By::progress    ? Status::cancelled
                            : by == By::interrupt ? Status::interrupted
                                                  : Status::nomem;
      EXPECT_EQ(done.error().status, wanted) << i << ": " << done.error().message;
    }
  for (const auto &call : calls) EXPECT_TRUE(is_ok(call()));
  EXPECT_EQ(room[size - 1], 'a');
}

// Another exception of a callback is a bug of somebody, and goes over no border of C either.
TEST_F(WaitsTest, NothingIsThrownWhereItIsAsked) {
  EXPECT_FALSE(InterruptCheck::stops());
  EXPECT_FALSE(InterruptCheck::stopped());
  uint32_t asked_here = 0;
  const InterruptScope outer([&]() -> Result<void> {
    ++asked_here;
    throw std::runtime_error("");
  });
  {
    const InterruptScope inner([]() -> Result<void> { return {}; });
    EXPECT_FALSE(InterruptCheck::stops());
  }
  EXPECT_TRUE(InterruptCheck::stops());
  EXPECT_TRUE(InterruptCheck::stops());
  EXPECT_EQ(asked_here, 1u);
  EXPECT_EQ(InterruptCheck::stopped()->status, Status::internal);
  const InterruptScope of_no_class([]() -> Result<void> { throw "not even an exception of std"; });
  EXPECT_TRUE(InterruptCheck::stops());
  EXPECT_EQ(InterruptCheck::stopped()->status, Status::internal);
}

}  // namespace
}  // namespace st::store
