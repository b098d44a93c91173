// A delta applied to one file on a simulated disk; see delta_trials.h.
#include <gtest/gtest.h>

#include "delta_trials.h"
#include "engine/deltas.h"
#include "located.h"
#include "newfile/temporary_file.h"
#include "test_files.h"

namespace st::testing {
namespace {

struct Case {
  std::string_view name;
  bool publishes, reflinks, reverse_exists;
  bool elements = false;  // the delta holds steps
  bool whole = false;     // and a whole tensor beside them
  bool later = false;     // the base is synced at close
};
constexpr Case cases[] = {
    {"in place, redo journal", false, false, false},
    {"in place, undo journal", false, true, true},
    {"published, copied", true, false, true},
    {"published, blocks shared", true, true, false},
    {"elements, in place", false, false, false, true},
    {"elements, published", true, false, true, true},
    {"elements and whole ones, in place", false, false, true, true, true},
    {"elements and whole ones, shared blocks", false, true, false, true, true},
    {"elements and whole ones, synced later", false, false, true, true, true, true},
};

Model changed(const Case &c) {
  Model model = first_model();
  if (c.elements) {
    // In both sectors and pages that change and stay, and in the last, which is cut short.
    for (const size_t at : {size_t{0}, size_t{700}, size_t{8191}}) model.tensors["b"].bytes[at] ^= 1;
    for (const size_t at : {size_t{4500}, size_t{8999}}) model.tensors["d"].bytes[at] ^= 1;
    if (c.whole) model.tensors["b"].bytes = pattern(8192, 11);
  } else {
    model.tensors["b"].bytes = pattern(8192, 11);  // of which steps would be longer
    model.tensors["d"].bytes = pattern(9000, 12);
  }
  if (!c.publishes) return model;
  model.tensors.erase("a");
  model.tensors["c"] = {Dtype::F16, {100}, fill(200, 13)};
  model.tensors["new"] = u8(300, 14);
  model.metadata["k"] = "w";
  return model;
}

struct FileTrials final : DeltaTrials {
  const Case &c;

  explicit FileTrials(const Case &of) : c(of) {
    name = text("patching by a delta, ", c.name);
    base_path = layout_path;
    before = first_model();
    after = changed(c);
    later = c.later;
  }
  SimEnv fresh_disk() const override {
    SimEnv making = layout_disk({"", false, false});
    making.add_file(other_path, file_of(after));
    EXPECT_TRUE(store::diff(making, base_path, other_path, delta_path, {}));
    const bool holds_steps = making.contents(delta_path).find("\"st.delta.version\":\"2\"") != std::string::npos;
    EXPECT_EQ(holds_steps, c.elements);
    SimEnv env = layout_disk({"", c.reflinks && c.publishes, true});
    env.allow_reflinks(c.reflinks && !c.publishes);
    env.add_file(delta_path, making.contents(delta_path));
    if (c.reverse_exists) env.add_file(reverse_path, stale);
    return env;
  }
  std::string recover(SimEnv &env) const override {
    store::OpenOptions writable;
    writable.writable = true;
    if (auto opened = store::DataFile::open(env, base_path, writable); !opened) return opened.error().message;
    // POSIX lets a cut keep both names of a rename, and then the base has a second one.
    write::TemporaryFile::remove_stale(located(env, base_path));
    return {};
  }
  std::optional<Model> found(const SimEnv &env) const override { return model_of(env.contents(base_path)); }
};

class PatchingByDelta : public ::testing::TestWithParam<Case> {};

TEST_P(PatchingByDelta, LeavesOldOrNewAndAWayBackAtEveryCut) {
  const Case &c = GetParam();
  const FileTrials trials(c);
  SimEnv env = trials.fresh_disk();
  trials.cut_everywhere(env);
  // What changes is less than shared blocks.
  EXPECT_EQ(c.reflinks && !c.publishes && !c.elements, env.clones() > 0 && !c.publishes);
}

TEST_P(PatchingByDelta, LeavesOldOrNewAndAWayBackWhenAnyCallFails) {
  FileTrials(GetParam()).fail_every_call();
}

INSTANTIATE_TEST_SUITE_P(EveryWay, PatchingByDelta, ::testing::ValuesIn(cases), [](const auto &info) {
  std::string name;
  for (char ch : info.param.name) name += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return name;
});

}  // namespace
}  // namespace st::testing
