// Kernels and sandboxes that lack the newer calls. Each call answers ENOSYS by itself, and then all of them; an advice
// that is too new answers EINVAL. Changes and reads go on without it.
#include <sys/mman.h>

#include "store_scene.h"

namespace st::store::old_kernel {
namespace {

using namespace testing;

enum Lacks : unsigned {
  openat2 = 1,            // Linux 5.6
  getrandom = 2,          // 3.17
  copy_file_range = 4,    // 4.5
  clone = 8,              // 4.5; and of most filesystems
  process_vm_readv = 16,  // 3.2; forbidden in many sandboxes; only with undo journals
  populate = 32,          // 5.14
  wait_for_range = 64,    // 2.6.17; not of every filesystem
  mincore_call = 128,
  fiemap = 256,
  fallocate_call = 512,
  all = 1023,
};

class OldKernel : public FaultEnv {
 public:
  explicit OldKernel(unsigned lacks) : FaultEnv(os::Env::posix()), lacks_(lacks) {}

  int openat_without_links(int dir, const char *path, int flags) override {
    return lacks(openat2) ? -ENOSYS : FaultEnv::openat_without_links(dir, path, flags);
  }
  int random(void *out, size_t n) override { return lacks(getrandom) ? -ENOSYS : FaultEnv::random(out, n); }
  ssize_t copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    return lacks(copy_file_range) ? -ENOSYS : FaultEnv::copy_range(to_fd, from_fd, from, n, to);
  }
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    return lacks(clone) ? -ENOTTY : FaultEnv::clone_range(to_fd, from_fd, from, n, to);
  }
  ssize_t copy_memory(void *to, const void *from, size_t n) override {
    return lacks(process_vm_readv) ? -ENOSYS : FaultEnv::copy_memory(to, from, n);
  }
  int madvise(void *address, size_t n, int advice) override {
    constexpr int populate_read = 22, populate_write = 23;
    const bool newer = advice == populate_read || advice == populate_write;
    return newer && lacks(populate) ? -EINVAL : FaultEnv::madvise(address, n, advice);
  }
  int sync_range(int fd, uint64_t offset, uint64_t n) override {
    return lacks(wait_for_range) ? -ENOSYS : FaultEnv::sync_range(fd, offset, n);
  }
  int wait_range(int fd, uint64_t offset, uint64_t n) override {
    return lacks(wait_for_range) ? -ENOSYS : FaultEnv::wait_range(fd, offset, n);
  }
  int mincore(void *address, size_t n, unsigned char *out) override {
    return lacks(mincore_call) ? -ENOSYS : FaultEnv::mincore(address, n, out);
  }
  int extents(int fd, struct fiemap *map) override { return lacks(fiemap) ? -ENOTTY : FaultEnv::extents(fd, map); }
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override {
    return lacks(fallocate_call) ? -ENOSYS : FaultEnv::fallocate(fd, mode, offset, n);
  }

  unsigned asked = 0;  // of those that are missing

 private:
  bool lacks(unsigned call) {
    if (lacks_ & call) asked |= call;
    return lacks_ & call;
  }
  const unsigned lacks_;
};

class OldKernelTest : public StoreScene {
 protected:
  // Everything that takes a file from one state to the next; what was asked for in vain.
  unsigned lives_without(unsigned lacks) {
    testing::put_bytes(path, old);
    OldKernel kernel(lacks);
    auto handle = open(kernel);
    EXPECT_TRUE(is_ok(update(*handle, "a", new_a)));
    EXPECT_EQ(seen(*handle, "a"), new_a);

    const std::string added = pattern(5000, 91);
    auto publish = begin(*handle);
    EXPECT_TRUE(is_ok(publish->put("more", {static_cast<uint32_t>(Dtype::U8), shape, added.data(), added.size()})));
    EXPECT_TRUE(is_ok(publish->update("b", value(*handle, "b", new_b))));
    EXPECT_TRUE(is_ok(publish->commit()));
    publish.reset();

    auto reader = open(os::Env::posix());
    EXPECT_EQ(seen(*reader, "a"), new_a);
    EXPECT_EQ(seen(*reader, "b"), new_b);
    EXPECT_EQ(seen(*reader, "more"), added);
    EXPECT_EQ(seen(*handle, "more"), added);

    OpenOptions views;
    views.writable = true;
    views.map = read::MapMode::copy_on_write;
    auto writes = open(kernel, views);
    const std::string kept = seen(*writes, "a");
    EXPECT_TRUE(is_ok(update(*handle, "a", new_c.substr(0, 3000) + std::string(1000, 'c'))));
    EXPECT_EQ(seen(*writes, "a"), kept);
    return kernel.asked;
  }
  const std::vector<uint64_t> shape_of_added = {5000};
  const std::span<const uint64_t> shape = shape_of_added;
};

TEST_F(OldKernelTest, EachMissingCallHasItsFallBack) {
  for (unsigned missing = 1; missing < all; missing *= 2) {
    SCOPED_TRACE(missing);
    lives_without(missing);
  }
}

TEST_F(OldKernelTest, AllOfThemMayBeMissing) {
  const unsigned asked = lives_without(all);
  for (unsigned call : {openat2, getrandom, copy_file_range, clone, populate, fallocate_call})
    EXPECT_TRUE(asked & call) << call << " was never asked for";
}

}  // namespace
}  // namespace st::store::old_kernel
