// Overlays of deltas.
#include "delta/delta_chain.h"
#include "delta_scene.h"
#include "fault_env.h"
#include "format/base_identity.h"

namespace st::testing {
namespace {

class SteppedOverlay : public ::testing::Test {
 protected:
  SteppedOverlay() { disk.make_folder("/m", 0755); }

  // The delta that makes `to` of `from`.
  std::string diff(const Holdings &from, const Holdings &to, const std::string &delta) {
    disk.add_file("/m/from", from.file());
    disk.add_file("/m/to", to.file());
    EXPECT_TRUE(is_ok(store::diff(disk, "/m/from", "/m/to", delta, {})));
    return delta;
  }
  Result<std::unique_ptr<store::Model>> open(std::vector<std::string> deltas, Progress progress = {}) {
    store::OpenOptions options;
    options.deltas = std::move(deltas);
    options.progress = std::move(progress);
    return store::open_path(unsure, "/m/base", options);
  }

  // Nobody knows when its files were changed, so each refresh reads them.
  class Unsure : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int fstatfs(int fd, struct statfs *out) override {
      const int r = FaultEnv::fstatfs(fd, out);
      out->f_type = static_cast<decltype(out->f_type)>(0x794C7630);  // overlay
      return r;
    }
  };
  SimEnv disk;
  Unsure unsure{disk};
};

// Each identity sorts all names.
TEST_F(SteppedOverlay, OfALongChainTakeEachIdentityOnce) {
  constexpr size_t n = 50;
  for (const bool forms_change : {false, true}) {
    Holdings last{{u8_tensor("a", 10, 1), u8_tensor("b", 9000, 2)}, {}};
    disk.add_file("/m/base", last.file());
    std::vector<std::string> paths;
    for (size_t i = 0; i < n; ++i) {
      Holdings next = last;
      next.tensors[1].bytes[100 * i % 9000] ^= 1;
      if (forms_change) next.tensors[0] = u8_tensor("a", 11 + i, 1);
      paths.push_back(diff(last, next, text("/m/d", i)));
      last = std::move(next);
    }
    auto base = store::open_path(disk, "/m/base", {});
    ASSERT_TRUE(is_ok(base));
    const auto view = store::ModelView::of(**base);
    ASSERT_TRUE(is_ok(view));
    const auto deltas = store::open_deltas(disk, paths, {});
    ASSERT_TRUE(is_ok(deltas));
    const uint64_t before = identities_taken();
    ASSERT_TRUE(is_ok(store::chain(*view, *deltas)));
    EXPECT_EQ(identities_taken() - before, forms_change ? n + 1 : 1);
  }
}

}  // namespace
}  // namespace st::testing
