// A process that dies at one of its system calls, while others live on: on their
// disk is all that it has written, synced or not.
#pragma once

#include <array>
#include <cerrno>
#include <set>
#include <string_view>
#include <vector>

#include "fault_env.h"
#include "sim_env.h"

namespace st::testing {

enum class Death { killed, killed_but_for_a_lock, failed_sync };

// What the process sees that dies at one of its calls that change the disk: all fail from there on. The kernel takes
// its locks, that of a journal perhaps last; or else it lives, and only a sync has failed.
class MortalEnv : public FaultEnv {
 public:
  explicit MortalEnv(SimEnv &disk) : FaultEnv(disk), disk_(disk) {
    before = [this](Call call) { return answer(call); };
  }
  ~MortalEnv() override {
    disk_.sync_fault = nullptr;
    for (const int fd : kept_) disk_.close(fd);
  }
  void die_at(size_t n, Death death) {
    n_ = n;
    death_ = death;
    armed_ = true;
  }
  bool died() const { return died_; }

  int openat(int dir, const char *path, int flags, mode_t mode) override {
    const int fd = FaultEnv::openat(dir, path, flags, mode);
    if (fd >= 0 && (flags & O_EXCL) && path[0] != '.') journals_.insert(fd);
    return fd;
  }
  int close(int fd) override {
    const bool keep = died_ && death_ == Death::killed_but_for_a_lock && journals_.count(fd);
    if (!keep) return FaultEnv::close(fd);
    kept_.push_back(fd);
    return 0;
  }

 private:
  static bool is_sync(Call call) { return call == Call::fsync || call == Call::fdatasync; }
  static bool changes(Call call) {
    return is_sync(call) || call == Call::pwrite || call == Call::fallocate || call == Call::clone_range ||
           call == Call::copy_range || call == Call::ftruncate || call == Call::openat || call == Call::mkdirat ||
           call == Call::unlinkat || call == Call::renameat;
  }
  int answer(Call call) {
    if (!armed_) return 0;
    if (death_ == Death::failed_sync) {
      if (!is_sync(call) || at_++ != n_) return 0;
      died_ = true;
      disk_.sync_fault = [this] { return disk_.sync_fault = nullptr, -EIO; };
      return 0;
    }
    if (!died_ && changes(call)) died_ = at_++ == n_;
    return died_ && can_fail(call) ? -EIO : 0;
  }

  SimEnv &disk_;
  size_t n_ = 0, at_ = 0;
  Death death_ = Death::killed;
  bool armed_ = false, died_ = false;
  std::set<int> journals_;
  std::vector<int> kept_;
};

inline std::string_view name_of(Death death) {
  return std::array{"killed", "killed but for a lock", "a sync fails"}[static_cast<size_t>(death)];
}

}  // namespace st::testing
