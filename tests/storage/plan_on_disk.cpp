// Random transactions on a real filesystem, which nothing else writes to: does the disk do what each plan says, and is
// the room that the plan names enough?
//
//   plan_on_disk FOLDER SEED TRANSACTIONS SHARDS [new-names]    ends with a line of what was tried, or tells what did
//   not hold
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "counting_env.h"
#include "engine/open.h"
#include "engine/recover_all.h"
#include "os/filesystem.h"
#include "random_model.h"

namespace st::testing {
namespace {

constexpr uint64_t KiB = 1024, MiB = 1024 * KiB;

// Sees how full the disk is at each step of a commit after which less is taken. Also sees how much of the new files is
// shared.
class WatchingEnv : public CountingEnv {
 public:
  explicit WatchingEnv(std::string folder)
      : CountingEnv(os::Env::posix()), folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY)) {}
  ~WatchingEnv() override { ::close(folder_); }

  uint64_t used() const {
    // Blocks that xfs has taken ahead, for later writes, it gives back when it is asked (or when the disk is full).
    struct {
      uint32_t version = 1, wait = 1, unused[4] = {};
      uint64_t more[13] = {};
    } all;
    static_assert(sizeof all == 128);
    struct statfs fs;
    if (::syncfs(folder_) != 0) std::abort();
    ::ioctl(folder_, _IOR('X', 58, decltype(all)), &all);  // XFS_IOC_FREE_EOFBLOCKS; ENOTTY elsewhere
    if (::fstatfs(folder_, &fs) != 0) std::abort();
    return (fs.f_blocks - fs.f_bfree) * static_cast<uint64_t>(fs.f_bsize);
  }
  void begin() {
    forget();
    shared_blocks = peak_ = 0;
    before_ = used();
    watching_ = true;
  }
  uint64_t end() {
    look();
    watching_ = false;
    return peak_ - std::min(peak_, before_);
  }
  int fsync(int fd) override { return looked(CountingEnv::fsync(fd)); }
  int fdatasync(int fd) override { return looked(CountingEnv::fdatasync(fd)); }
  int unlinkat(int dir, const char *name, int flags) override {
    look();
    return CountingEnv::unlinkat(dir, name, flags);
  }
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
    look();
    if (watching_) shared_blocks += shared_of(from_dir, from);
    return CountingEnv::renameat(from_dir, from, to_dir, to);
  }

  uint64_t shared_blocks = 0;  // bytes of them, in files that took their names

 private:
  void look() {
    if (watching_) peak_ = std::max(peak_, used());
  }
  int looked(int r) {
    look();
    return r;
  }
  static uint64_t shared_of(int dir, const char *name) {
    const int fd = ::openat(dir, name, O_RDONLY);
    uint64_t sum = 0;
    constexpr uint32_t at_once = 256;
    alignas(struct fiemap) static std::array<char, sizeof(struct fiemap) + at_once * sizeof(struct fiemap_extent)>
        memory;
    for (uint64_t at = 0;;) {
      memory.fill(0);
      auto *map = reinterpret_cast<struct fiemap *>(memory.data());
      map->fm_start = at, map->fm_length = UINT64_MAX - at, map->fm_flags = FIEMAP_FLAG_SYNC;
      map->fm_extent_count = at_once;
      if (::ioctl(fd, FS_IOC_FIEMAP, map) != 0 || map->fm_mapped_extents == 0) break;
      for (uint32_t i = 0; i < map->fm_mapped_extents; ++i) {
        const struct fiemap_extent &e = map->fm_extents[i];
        if (e.fe_flags & FIEMAP_EXTENT_SHARED) sum += e.fe_length;
        at = e.fe_logical + e.fe_length;
      }
    }
    ::close(fd);
    return sum;
  }

  const int folder_;
  bool watching_ = false;
  uint64_t before_ = 0, peak_ = 0;
};

// A file that takes all of the disk but so many bytes.
class Ballast {
 public:
  explicit Ballast(std::string path) : path_(std::move(path)) {}
  ~Ballast() { remove(); }
  void leave(WatchingEnv &env, uint64_t bytes) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT, 0600);
    uint64_t size = 0;
    for (uint64_t free = free_of(env, fd), tries = 0; free > bytes && tries < 4; free = free_of(env, fd), ++tries) {
      const uint64_t more = (free - bytes) / (4 * KiB) * (4 * KiB);
      if (more == 0 || ::fallocate(fd, 0, static_cast<off_t>(size), static_cast<off_t>(more)) != 0) break;
      size += more;
    }
    ::close(fd);
  }
  void remove() { ::unlink(path_.c_str()); }

 private:
  static uint64_t free_of(WatchingEnv &env, int fd) {
    env.used();  // what waits is written
    struct statfs fs;
    if (::fstatfs(fd, &fs) != 0) std::abort();
    uint64_t blocks = fs.f_bavail;
    if (fs.f_type == 0xEF53 && ::geteuid() == 0) {  // ext4's reserve is root's, but for what it needs itself
      const uint64_t its_own = std::min<uint64_t>({fs.f_blocks / 32, 4096, fs.f_bfree});
      blocks = std::max<uint64_t>(blocks, fs.f_bfree - its_own);
    }
    return blocks * static_cast<uint64_t>(fs.f_frsize);
  }
  const std::string path_;
};

class Trials {
 public:
  Trials(const std::string &folder, uint64_t seed, size_t shards, bool new_names)
      : env_(folder), model_(folder, seed, shards, 2 * MiB), ballast_(folder + "/ballast"), seed_(seed) {
    auto file = os::File::open(env_, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, folder);
    const std::string type = os::probe_filesystem(*file).type;
    model_.new_names = new_names;
    on_btrfs_ = type == "btrfs";
    tells_shared_ = type == "xfs" || on_btrfs_;
  }

  int run(int transactions) {
    for (int i = 0; i < transactions && failures_ < 5; ++i) one(i);
    std::printf("%d transactions: %zu in place, %zu by new files; %zu on a full disk, %zu refused; %llu MiB shared\n",
                transactions, kinds_[1], kinds_[2], full_, refused_, static_cast<unsigned long long>(shared_ / MiB));
    return failures_ > 0;
  }

 private:
  void one(int i) {
    what_ = text("seed ", seed_, ", transaction ", i);
    if (!expect(store::recover_all(os::Env::posix(), model_.path, {}, {}), "remove old shards")) return;
    store::OpenOptions options;
    options.writable = true;
    auto c = store::open_path(env_, model_.path, options);
    if (!expect(c, "open")) return;
    auto t = (*c)->begin(model_.options());
    if (!expect(t, "begin") || !expect(model_.stage(**t), "stage")) return;
    auto plan = (*t)->plan();
    if (!expect(plan, "plan")) return;
    what_ = text(what_, " (", plan->how, ")");
    const bool fill = model_.one_in(2);
    const bool refuse = fill && plan->space_needed > 0 && model_.one_in(3);
    if (fill) {
      ballast_.leave(env_, plan->space_needed - (refuse ? std::min(plan->space_needed, 64 * KiB) : 0));
      ++full_;
    }
    env_.begin();
    plan = (*t)->plan();  // the disk is quiet by now, and says what it has
    if (!expect(plan, "plan again")) return;
    auto done = (*t)->commit();
    const uint64_t peak = env_.end();
    ballast_.remove();
    // What was freed before may still be on its way.
    const uint64_t on_its_way = on_btrfs_ ? 4 * MiB : 32 * KiB;
    if (done && plan->space_free + on_its_way < plan->space_needed) tell("a commit that does not fit is not refused");
    if (!done) {
      ++refused_;
      if (plan->space_free >= plan->space_needed || done.error().status != Status::no_space)
        return tell(text("its plan fits (", plan->space_needed, " of ", plan->space_free,
                         " bytes), and it fails: ", done.error().message));
      if (env_.written + env_.copied + env_.shared > 0) tell("a commit that is refused has begun");
      return;
    }
    model_.accept();
    ++kinds_[plan->kind];
    shared_ += plan->cost.shared;
    alike("written", plan->cost.written, env_.written);
    alike("copied", plan->cost.copied, env_.copied);
    alike("shared", plan->cost.shared, env_.shared);
    if (plan->kind == store::CommitPlan::publish && tells_shared_ && plan->cost.shared > 0)
      alike("shared, by FIEMAP", plan->cost.shared, env_.shared_blocks);
    if (plan->kind != store::CommitPlan::nothing)
      alike("space", plan->cost.room, peak, on_btrfs_ ? 16 * MiB : 64 * KiB);
  }

  // Within 1 % and 64 KiB; space on btrfs, whose trees take some, within 5 % and 16 MiB.
  void alike(const char *figure, uint64_t planned, uint64_t real, uint64_t slack = 64 * KiB) {
    const uint64_t allowed = real / (slack == 16 * MiB ? 20 : 100) + slack;
    if (std::max(planned, real) - std::min(planned, real) > allowed)
      tell(text(figure, ": planned ", planned, ", really ", real));
  }
  template <class T>
  bool expect(const Result<T> &r, const char *call) {
    if (!r) tell(text(call, ": ", r.error().message));
    return r.has_value();
  }
  void tell(const std::string &failure) {
    ++failures_;
    std::printf("%s: %s\n", what_.c_str(), failure.c_str());
  }

  WatchingEnv env_;
  RandomModel model_;
  Ballast ballast_;
  const uint64_t seed_;
  bool on_btrfs_ = false, tells_shared_ = false;
  std::string what_;
  int failures_ = 0;
  size_t kinds_[3] = {}, full_ = 0, refused_ = 0;
  uint64_t shared_ = 0;
};

}  // namespace
}  // namespace st::testing

int main(int count, char **arguments) {
  if (count != 5 && count != 6) return 2;
  const auto number = [&](int i) { return std::strtoull(arguments[i], nullptr, 10); };
  return st::testing::Trials(arguments[1], number(2), number(4), count == 6).run(static_cast<int>(number(3)));
}
