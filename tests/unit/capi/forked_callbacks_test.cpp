// Progress functions that fork, and return in the child, too.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string_view>

#include "scene.h"

namespace st::testing {
namespace {

// Whose n-th call forks, and returns in the child.
struct ForksOnce {
  static int tell(void *user, uint64_t, uint64_t) { return static_cast<ForksOnce *>(user)->fork(); }
  int fork() {
    if (++calls != nth) return 0;
    child = ::fork();
    if (child == 0)
      ::alarm(20);  // ends it where it hangs
    else
      ::waitpid(child, &status, 0);
    return 0;
  }
  // In the parent, what the child says. It ends here, and is right if the call was ended.
  int status_after(st_status answered) {
    if (child == 0) {
      const bool is_told =
          answered == ST_E_FORKED && std::string_view(st_last_error()).find("forked") != std::string::npos;
      ::_exit(is_told || (answered == ST_OK && is_last) ? 0 : 1);
    }
    EXPECT_ST(ST_OK, answered);
    return status;
  }
  const int nth;
  const bool is_last = false;
  int calls = 0, status = 0;
  pid_t child = -1;
};

class CapiForkedCallbacks : public CapiScene {
 protected:
  CapiForkedCallbacks() {
    put_bytes(path, file_of(std::vector{u8_tensor("long", length, 1)}));
    std::vector changed{u8_tensor("long", length, 1)};
    for (size_t i = 0; i < length; i += 1000) changed[0].bytes[i] ^= 1;
    put_bytes(other, file_of(changed));
    base = bytes_of(path);
  }
  st_status create(ForksOnce &forks) {
    auto options = sized<st_delta_create_options>();
    options.progress = ForksOnce::tell;
    options.progress_user = &forks;
    return st_delta_create(path.c_str(), other.c_str(), delta.c_str(), &options);
  }
  st_status apply(ForksOnce &forks, uint32_t flags) {
    auto options = sized<st_delta_apply_options>();
    options.progress = ForksOnce::tell;
    options.progress_user = &forks;
    options.flags = flags;
    options.reverse = back.c_str();
    return st_delta_apply(path.c_str(), delta.c_str(), &options, nullptr);
  }
  // At each call of the progress function: the child's call ends, and the parent's goes on.
  void fork_at_each(const std::function<st_status(ForksOnce &)> &call) {
    ForksOnce counts{0};
    ASSERT_ST(ST_OK, call(counts));
    ASSERT_GT(counts.calls, 4);
    for (int nth = 1; nth <= counts.calls; ++nth) {
      ForksOnce forks{nth, nth == counts.calls};
      EXPECT_EQ(forks.status_after(call(forks)), 0) << nth;
    }
  }

  static constexpr size_t length = 6 << 20;
  const std::string other = dir / "other.safetensors", delta = dir / "delta.safetensors", back = dir / "back";
  std::string base;
};

TEST_F(CapiForkedCallbacks, ADiffGoesOnInTheParentAlone) {
  fork_at_each([&](ForksOnce &forks) { return create(forks); });
}

TEST_F(CapiForkedCallbacks, APatchGoesOnInTheParentAlone) {
  ASSERT_ST(ST_OK, st_delta_create(path.c_str(), other.c_str(), delta.c_str(), nullptr));
  for (const uint32_t flags : {0u, ST_TXN_PUBLISH})
    fork_at_each([&](ForksOnce &forks) {
      put_bytes(path, base);
      const st_status answered = apply(forks, flags);
      if (forks.child != 0) {
        EXPECT_TRUE(same_bytes(bytes_of(path), bytes_of(other))) << forks.nth;
      }
      return answered;
    });
}

}  // namespace
}  // namespace st::testing
