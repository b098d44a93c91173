// Calls that the last moments of a thread, or of the process, make: from destructors and handlers that run when libst's
// own thread_locals have ended.
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "sanitizers.h"
#include "scene.h"
#ifdef ST_UNDER_ASAN
#include <sanitizer/lsan_interface.h>
#endif

namespace st {
namespace {

using namespace testing;

class CapiLastMoments : public testing::CapiScene {
 public:
  bool works() {
    const std::string last = st_last_error();
    st_file *file = open();
    const st_tensor a = value(0, new_a);
    const bool updated = st_update(file, "a", ST_NTS, &a) == ST_OK && seen(file, "a") == new_a;
    st_close(file);
    return (last.empty() || last.find("/no/such/folder") != std::string::npos) && updated && tells_of_a_failure() &&
           tells_of_a_failure() && tells_its_version() && bytes_of(path) == with(a_at, new_a);
  }

 protected:
  // A failure whose sentence is too long to lie in its string.
  static bool tells_of_a_failure() {
    st_file *none = nullptr;
    return st_open("/no/such/folder/model.safetensors", nullptr, &none) == ST_E_NO_FILE &&
           std::string(st_last_error()).find("'/no/such/folder/model.safetensors'") != std::string::npos;
  }
  static bool tells_its_version() { return std::string(st_build_info()).starts_with("version: 2."); }
  static inline CapiLastMoments *scene = nullptr;
  static inline bool worked = false;

  void SetUp() override { scene = this; }
};

TEST_F(CapiLastMoments, OfAThreadMayCallLibst) {
  pthread_key_t key;
  const auto at_the_end = [](void *) {
#ifdef ST_UNDER_ASAN
    const __lsan::ScopedDisabler the_last_sentence_is_freed_by_nobody;
#endif
    worked = scene->works();
  };
  ASSERT_EQ(::pthread_key_create(&key, at_the_end), 0);
  std::thread([&] {
    EXPECT_TRUE(tells_of_a_failure() && tells_its_version());
    ::pthread_setspecific(key, this);
  }).join();
  ::pthread_key_delete(key);
  EXPECT_TRUE(worked);
}

TEST_F(CapiLastMoments, OfTheProcessMayCallLibst) {
  const auto end = [] {
    std::atexit([] { ::_exit(scene->works() ? 0 : 1); });
    std::exit(tells_of_a_failure() && tells_its_version() ? 2 : 3);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace st
