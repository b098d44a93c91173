// A thread beside the caller's, which computes while the caller reads and writes. It makes no system call of an Env: so
// their order stays that of one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace st::os {

class Helper {
 public:
  Helper() = default;
  ~Helper();
  Helper(const Helper &) = delete;
  Helper &operator=(const Helper &) = delete;

  // One piece of work at a time, which throws nothing. Where there is no thread to be had, it is done at once.
  using Work = std::function<void()>;
  void begin(Work work);
  // Until it is done.
  void wait();
  // Lives shorter than what the work refers to.
  struct WaitsAtEnd {
    Helper &helper;
    ~WaitsAtEnd() { helper.wait(); }
  };

 private:
  void serve();

  std::thread thread_;
  std::mutex mutex_;  // of what follows
  std::condition_variable news_;
  Work work_;
  bool busy_ = false, over_ = false;
  bool alone_ = false;  // no thread could be had
};

}  // namespace st::os
