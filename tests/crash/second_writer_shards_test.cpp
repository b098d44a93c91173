// The same as second_writer_test.cpp, of shards: a writer of several dies, and
// another changes one of them alone, or several again.
#include <gtest/gtest.h>

#include <cstdio>

#include "bound.h"
#include "cuts.h"
#include "engine/open.h"
#include "engine/recover_all.h"
#include "model/model.h"
#include "mortal_env.h"
#include "shards_workload.h"
#include "test_files.h"

namespace st::testing {
namespace {

// What the second writer changes, and by which path: that of the index, or of a shard alone.
struct Change {
  std::string file;
  std::vector<std::pair<std::string, int>> updates;  // tensors and seeds of their bytes
  std::optional<std::string> origin;                 // of the index's metadata
  bool publishes = false;

  Stage stage() const {
    std::vector<Stage> stages;
    for (const auto &[tensor, seed] : updates) stages.push_back(stage::update(tensor, seed));
    if (origin) stages.push_back(stage::metadata("origin", origin));
    return stage::all(std::move(stages));
  }
  Model after(Model model) const {
    for (const auto &[tensor, seed] : updates) {
      std::string &bytes = model.tensors.at(tensor).bytes;
      bytes = fill(bytes.size(), seed);
    }
    if (origin) model.metadata["origin"] = *origin;
    return model;
  }
};

class SecondWriterOfShards : public ::testing::Test {
 protected:
  static std::unique_ptr<store::Model> open(os::Env &env, const std::string &file) {
    auto opened = store::open_path(env, shards_folder + "/" + file, {.writable = true, .lock_timeout_ms = 50});
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  static Result<void> commit(store::Model &file, const Change &change) {
    auto begun = file.begin({.lock_timeout_ms = 50, .publish = change.publishes});
    if (!begun) return Failure(std::move(begun.error()));
    Model ignored = first_whole();
    return run(**begun, change.stage(), ignored);
  }

  static ino_t number_of(SimEnv &env, const std::string &path) {
    struct stat s = {};
    EXPECT_EQ(env.fstatat(AT_FDCWD, path.c_str(), &s, 0), 0);
    return s.st_ino;
  }

  // What is wrong with what a cut leaves. Empty: the second's change is there, and the first's in all shards or in
  // none.
  std::string wrong_after_a_cut(const SimDisk &disk, const Change &second, const Model &fresh) {
    for (const SimDisk &left : Cuts(4, 12).of(disk, 0)) {
      ++states;
      SimEnv env(left);
      auto done = store::recover_all(env, index_path, {}, {});
      if (!done) return "it does not recover: " + done.error().message;
      if (done->aside > 0) return "moved aside: " + done->why_aside;
      const Seen seen = follow_index(env);
      if (!seen.wrong.empty()) return seen.wrong;
      if (seen.whole != second.after(first_whole()) && seen.whole != second.after(fresh))
        return "what was acknowledged is lost, or half of what was not is there";
      if (std::string wrong = check_strictly(env); !wrong.empty()) return wrong;
    }
    return {};
  }

  std::string trial(const ShardOperation &one, const Model &fresh, Death death, size_t at, const Change &second,
                    bool was_open, bool *ended) {
    SimEnv env = shards_disk(disks[0]);
    AskingEnv second_env(env);
    std::unique_ptr<store::Model> file;
    ino_t read_index = 0;
    if (was_open) {
      file = open(second_env, second.file);
      // So that it has journals, and their names are durable. All is as it was.
      Change parks = second;
      parks.publishes = false;
      if (parks.origin) parks.origin = "here";
      for (auto &[tensor, seed] : parks.updates) seed = tensor == "a" ? 1 : tensor == "c" ? 3 : 4;
      if (auto parked = commit(*file, parks); !parked) return "it cannot begin: " + parked.error().message;
      read_index = number_of(env, index_path);
    }
    MortalEnv mortal(env);
    {
      Model ignored = first_whole();
      auto first = store::Shards::open(mortal, index_path, {.writable = true, .lock_timeout_ms = 50});
      mortal.die_at(at, death);
      static_cast<void>(run(**first, one, ignored));
    }
    *ended = !mortal.died();

    if (!file) {
      file = open(second_env, second.file);
      read_index = number_of(env, index_path);
    }
    if (death == Death::killed_and_its_lock_goes_meanwhile) second_env.asked = [&] { mortal.lose_locks(); };
    const auto answer = commit(*file, second);
    second_env.asked = nullptr;
    if (!answer) {
      // The first died with its new index in place, and that is not the one that was read: nothing of the second's.
      const bool refused = second.file == index && answer.error().status == Status::file_changed;
      if (!refused || number_of(env, index_path) == read_index)
        return "the second writer fails: " + answer.error().message;
      return wrong_after_a_cut(env.disk(), {index, {}, {}}, fresh);
    }
    std::string wrong = wrong_after_a_cut(env.disk(), second, fresh);
    if (!wrong.empty()) return wrong;
    file.reset();
    wrong = wrong_after_a_cut(env.disk(), second, fresh);
    return wrong.empty() ? wrong : wrong + ", when it was closed";
  }

  // Old bytes, those of the first writer, and others.
  void all_after(const ShardOperation &one, const std::vector<Change> &seconds) {
    SimEnv undisturbed = shards_disk(disks[0]);
    Model fresh = first_whole();
    ASSERT_TRUE(is_ok(run(**store::Shards::open(undisturbed, index_path, {.writable = true}), one, fresh)));
    EveryNth call(29, 11);
    for (const Death death : every_death)
      for (const Change &second : seconds)
        for (const bool was_open : {true, false}) {
          bool ended = false;
          for (size_t at = call.first(); !ended; at += call.step)
            EXPECT_EQ(trial(one, fresh, death, at, second, was_open, &ended), "")
                << one.name << ", " << name_of(death) << " at " << at << ", then " << second.file
                << (second.publishes ? " published" : "") << " by one that " << (was_open ? "was open" : "opens")
                << ", seed " << (second.updates.empty() ? 0 : second.updates[0].second);
        }
    std::printf("%s: %zu distinct disks after a death and a cut\n", std::string(one.name).c_str(), states);
    EXPECT_GT(states, bounded(170, 310, 3'000));
  }
  size_t states = 0;
  const std::string index = "m.safetensors.index.json";
};

TEST_F(SecondWriterOfShards, KeepsWhatItWasPromisedAfterUpdatesThatDied) {
  std::vector<Change> seconds;
  for (const int seed : {1, 31, 77})
    for (const bool publishes : {false, true}) seconds.push_back({shard_names[0], {{"a", seed}}, {}, publishes});
  for (const auto &[a, d] : {std::pair(1, 4), {31, 32}, {77, 78}}) seconds.push_back({index, {{"a", a}, {"d", d}}, {}});
  all_after(shard_operations()[0], seconds);
}

TEST_F(SecondWriterOfShards, KeepsWhatItWasPromisedAfterElementsThatDied) {
  std::vector<Change> seconds;
  for (const int seed : {1, 77}) seconds.push_back({shard_names[0], {{"a", seed}}, {}, seed == 77});
  for (const auto &[a, d] : {std::pair(1, 4), {77, 78}}) seconds.push_back({index, {{"a", a}, {"d", d}}, {}});
  all_after(shard_operations()[11], seconds);
}

TEST_F(SecondWriterOfShards, KeepsWhatItWasPromisedAfterAChangeOfTheIndexThatDied) {
  std::vector<Change> seconds;
  for (const char *origin : {"here", "there", "elsewhere"}) seconds.push_back({index, {}, origin});
  all_after(shard_operations()[5], seconds);
}

TEST_F(SecondWriterOfShards, KeepsWhatItWasPromisedAfterAPublishOfAllThatDied) {
  std::vector<Change> seconds;
  for (const int seed : {3, 41, 77})
    for (const bool publishes : {false, true}) seconds.push_back({shard_names[1], {{"c", seed}}, {}, publishes});
  for (const int seed : {3, 41, 77}) seconds.push_back({index, {{"a", seed}, {"c", seed}}, {}});
  all_after(shard_operations()[8], seconds);
}

}  // namespace
}  // namespace st::testing
