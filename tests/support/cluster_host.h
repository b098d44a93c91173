// A host of a simulated cluster: a client of a server that lives in memory (sim_env.h), with caches that nobody tells
// of what others change (stale_env.h). Beyond that:
//
//   - it writes whole pages: it reads the page, puts its bytes in, and writes the page back. Where a descriptor has
//     become direct it writes these bytes alone;
//   - it may be frozen until the server has given its locks away. The server takes its requests after that, or refuses
//     those that need a lock;
//   - a lock may be granted when the host has given up waiting for the answer;
//   - an answer may be lost when the server has done what was asked;
//   - it may die.
//
// One thread at a time.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "sim_env.h"
#include "stale_env.h"

namespace st::testing {

enum class LateRequests { taken, refused };

// Writes to the server page by page, but for descriptors that became direct.
class WholePages : public FaultEnv {
 public:
  explicit WholePages(os::Env &server) : FaultEnv(server), server_(server) {}
  int set_direct(int fd) override { return direct_.insert(fd), 0; }
  int close(int fd) override { return direct_.erase(fd), FaultEnv::close(fd); }
  std::function<void()> amid_write;  // between a page that was read and the same that is written
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override;

 private:
  os::Env &server_;
  std::set<int> direct_;
};

struct HasWholePages {
  explicit HasWholePages(os::Env &server) : pages(server) {}
  WholePages pages;
};

class ClusterHost : public HasWholePages, public StaleEnv {
 public:
  explicit ClusterHost(SimEnv &server, LateRequests late = LateRequests::taken, Client by = Client::remembers);

  // Called before each call, with its number.
  std::function<void(Call, size_t)> at_call;
  void count_anew() { made_ = 0; }

  void die() { dead_ = true; }
  // And the server goes on to hold its locks, until it is told that the host is dead.
  void die_unnoticed() { dead_ = locks_stay_ = true; }
  void notice_death();
  bool is_dead() const { return dead_; }
  void lose_locks() override;
  // The next call is done, but the host is told that it failed: a lock that it is taken, all else that there is EIO.
  void lose_the_answer() { answer_is_lost_ = true; }
  // It sent data, or renamed a file over the model, under locks that it had lost since it last asked whether they are
  // its own. core/journal/README.md says that nothing is promised then.
  bool wrote_late() const { return wrote_late_; }

  int openat(int dir, const char *path, int flags, mode_t mode) override;
  int close(int fd) override;
  int set_direct(int fd) override;
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override;
  int fsync(int fd) override { return acts_on_ = fd, told(StaleEnv::fsync(fd)); }
  int fdatasync(int fd) override { return acts_on_ = fd, told(StaleEnv::fdatasync(fd)); }
  int ftruncate(int fd, uint64_t size) override { return acts_on_ = fd, told(StaleEnv::ftruncate(fd, size)); }
  int mkdirat(int dir, const char *name, mode_t mode) override { return told(StaleEnv::mkdirat(dir, name, mode)); }
  int unlinkat(int dir, const char *name, int flags) override { return told(StaleEnv::unlinkat(dir, name, flags)); }
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override;
  int renew_name(int dir, const char *name) override;
  int lock(int fd, int command, struct flock *lock) override;

 private:
  int answer(Call call);
  template <class R>
  R told(R answer) {
    return std::exchange(answer_is_lost_, false) && answer >= 0 ? static_cast<R>(-EIO) : answer;
  }

  bool is_late() const;

  const SimEnv &server_;
  const LateRequests late_;
  std::set<int> data_, revoked_;  // descriptors: of the model; of what was locked once
  std::vector<int> held_;         // descriptors that it had when it died
  int acts_on_ = -1;              // the descriptor of the call under way, if it needs a lock
  size_t made_ = 0;
  uint64_t own_moves_ = 0, others_moves_ = 0;  // of names on the server; of others' when it last asked
  bool dead_ = false, locks_stay_ = false, answer_is_lost_ = false, asked_ = true, wrote_late_ = false;
};

}  // namespace st::testing
