// A process that dies at one of its system calls, while others live on: on their
// disk is all that it has written, synced or not.
#pragma once

#include <array>
#include <cerrno>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "fault_env.h"
#include "sim_env.h"

namespace st::testing {

enum class Death {
  killed,
  killed_but_for_a_lock,
  killed_and_its_lock_goes_meanwhile,
  failed_sync,
  killed_after_a_failed_sync,
};
inline constexpr Death every_death[] = {Death::killed, Death::killed_but_for_a_lock,
                                        Death::killed_and_its_lock_goes_meanwhile, Death::failed_sync,
                                        Death::killed_after_a_failed_sync};

// What the process sees that dies at one of its calls that change the disk: all fail from there on. The kernel takes
// its locks, that of a journal perhaps last; or else it lives, and only a sync has failed. Or it is killed after the
// kernel has told it that a sync failed, but for the lock of its journal.
class MortalEnv : public FaultEnv {
 public:
  explicit MortalEnv(SimEnv &disk) : FaultEnv(disk), disk_(disk) {
    before = [this](Call call) { return answer(call); };
  }
  ~MortalEnv() override {
    disk_.sync_fault = nullptr;
    lose_locks();
  }
  void die_at(size_t n, Death death) {
    n_ = n;
    death_ = death;
    armed_ = true;
  }
  bool died() const { return died_; }
  SimEnv &disk() const { return disk_; }
  void lose_locks() {
    for (const int fd : kept_) disk_.close(fd);
    kept_.clear();
  }

  int openat(int dir, const char *path, int flags, mode_t mode) override {
    const int fd = FaultEnv::openat(dir, path, flags, mode);
    if (fd >= 0 && (flags & O_EXCL) && path[0] != '.') journals_.insert(fd);
    return fd;
  }
  int close(int fd) override {
    const bool is_last = death_ == Death::killed_but_for_a_lock || death_ == Death::killed_after_a_failed_sync ||
                         death_ == Death::killed_and_its_lock_goes_meanwhile;
    const bool keep = died_ && is_last && journals_.count(fd);
    if (!keep) return FaultEnv::close(fd);
    kept_.push_back(fd);
    return 0;
  }

 private:
  static bool is_sync(Call call) { return call == Call::fsync || call == Call::fdatasync || call == Call::wait_range; }
  static bool changes(Call call) {
    return is_sync(call) || call == Call::pwrite || call == Call::fallocate || call == Call::clone_range ||
           call == Call::copy_range || call == Call::ftruncate || call == Call::openat || call == Call::mkdirat ||
           call == Call::unlinkat || call == Call::renameat;
  }
  int answer(Call call) {
    if (!armed_) return 0;
    if (death_ == Death::failed_sync || death_ == Death::killed_after_a_failed_sync) {
      if (died_ && death_ == Death::killed_after_a_failed_sync && can_fail(call)) return -EIO;
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

// What another sees. Each time when it has asked whose a journal is, `asked` is called.
class AskingEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  std::function<void()> asked;
  int lock(int fd, int command, struct flock *lock) override {
    const bool of_journal = command == F_OFD_GETLK && lock->l_start == 0;  // of others only the turnstile's bytes
    const int r = FaultEnv::lock(fd, command, lock);
    if (of_journal && asked) asked();
    return r;
  }
};

inline std::string_view name_of(Death death) {
  return std::array{"killed", "killed but for a lock", "killed, and its lock goes meanwhile", "a sync fails",
                    "killed after a sync has failed"}[static_cast<size_t>(death)];
}

}  // namespace st::testing
