// Overlays of steps are read from a server in long reads, told and stopped as any long call, and aligned in memory.
// They name the delta that is damaged.
#include <future>
#include <set>
#include <thread>

#include "base/interrupt.h"
#include "counting_env.h"
#include "delta/delta_chain.h"
#include "delta/overlay.h"
#include "delta/read_ahead.h"
#include "delta/stepped_file.h"
#include "delta_scene.h"
#include "newfile/layout.h"
#include "told_progress.h"

namespace st::testing {
namespace {

// A server of one file, which counts how it is asked. It may fall silent: then only a caller that wants no more ends a
// read, and here a read fails instead of waiting.
class Server final : public os::Source {
 public:
  struct Asked {
    uint64_t reads = 0, longest = 0;
    bool is_silent = false;
  };
  Server(std::string bytes, uint64_t long_read, Asked *asked)
      : Source("a server", bytes.size(), 1), bytes_(std::move(bytes)), long_read_(long_read), asked_(asked) {}
  int read(std::span<const Range> ranges) override {
    if (asked_->is_silent) return InterruptCheck::stops() ? ECANCELED : EIO;
    uint64_t n = 0;
    for (const Range &r : ranges) {
      std::memcpy(r.to, bytes_.data() + r.offset, r.nbytes);
      n += r.nbytes;
    }
    ++asked_->reads;
    asked_->longest = std::max(asked_->longest, n);
    return 0;
  }
  uint64_t long_read() const override { return long_read_; }

 private:
  const std::string bytes_;
  const uint64_t long_read_;
  Asked *const asked_;
};

std::unique_ptr<store::DataFile> served(std::string bytes, uint64_t long_read, Server::Asked *asked) {
  auto source = std::make_shared<os::SourceEnv>(std::make_unique<Server>(std::move(bytes), long_read, asked));
  auto file = store::DataFile::open_source(source, {});
  EXPECT_TRUE(is_ok(file));
  return std::move(*file);
}

class SteppedOverlay : public ::testing::Test {
 protected:
  SteppedOverlay() {
    disk.make_folder("/m", 0755);
    unsure.told_of_disk = [](struct statfs &s) { s.f_type = 0x794C7630; };  // overlay
  }

  // The delta that makes `to` of `from`.
  std::string diff(const Holdings &from, const Holdings &to, const std::string &delta) {
    disk.add_file("/m/from", from.file());
    disk.add_file("/m/to", to.file());
    EXPECT_TRUE(is_ok(store::diff(disk, "/m/from", "/m/to", delta, {})));
    return delta;
  }
  Result<std::unique_ptr<store::Model>> open(std::vector<std::string> deltas, Progress progress = {},
                                             read::MapMode map = read::MapMode::automatic) {
    store::OpenOptions options;
    options.map = map;
    options.deltas = std::move(deltas);
    options.progress = std::move(progress);
    return store::open_path(unsure, "/m/base", options);
  }

  SimEnv disk;
  FaultEnv unsure{disk};  // nobody knows when its files were changed, so each refresh reads them
};

class SteppedFromAServer : public SteppedOverlay {
 protected:
  SteppedFromAServer() {
    a = {{u8_tensor("w", size, 1)}, {}};
    b = changed(a, 2);
    c = changed(b, 3);
  }
  // Every third byte is any other one.
  static Holdings changed(Holdings h, unsigned seed) {
    std::string &w = h.tensors[0].bytes;
    const std::string by = pattern(w.size() / 3, seed);
    for (size_t i = 0; i < by.size(); ++i) w[3 * i] ^= static_cast<char>(by[i] | 1);
    return h;
  }
  // How each delta of the chain is asked, and the base, as an overlay takes their steps.
  void lay_over(const std::vector<std::string> &paths, const Holdings &wanted) {
    base = {};
    asked.assign(paths.size(), {});
    const auto below = served(a.file(), long_read, &base);
    const store::ModelView view(*below);
    std::vector<store::DeltaFile> deltas;
    for (size_t i = 0; i < paths.size(); ++i) {
      auto delta = store::DeltaFile::of(served(disk.contents(paths[i]), long_read, &asked[i]));
      ASSERT_TRUE(is_ok(delta));
      ASSERT_TRUE(delta->notes.tensors[0].steps);
      steps_bytes = delta->index().at(0).nbytes;
      deltas.push_back(std::move(*delta));
    }
    auto chained = store::chain(view, deltas);
    ASSERT_TRUE(is_ok(chained));
    base.reads = 0;
    for (Server::Asked &each : asked) each = {};
    const auto tell = [](uint64_t) { return Result<void>(); };
    const auto layer = static_cast<uint32_t>(deltas.size() + 1);
    const auto map = read::MapMode::automatic;
    auto made = store::SteppedFile::make(disk, view, deltas, layer, &chained->listing, map, tell);
    ASSERT_TRUE(is_ok(made));
    const auto *bytes = reinterpret_cast<const char *>((*made)->file().view((*made)->snapshot(), 0).value());
    EXPECT_TRUE(same_bytes(std::string_view(bytes, size), wanted.tensors[0].bytes));
  }
  static uint64_t reads_of(uint64_t bytes, uint64_t at_once) { return (bytes + at_once - 1) / at_once; }

  static constexpr uint64_t size = uint64_t{16} << 20, long_read = uint64_t{4} << 20;
  Holdings a, b, c;
  Server::Asked base;
  std::vector<Server::Asked> asked;
  uint64_t steps_bytes = 0;
};

TEST_F(SteppedFromAServer, AreReadInLongReads) {
  lay_over({diff(a, b, "/m/d")}, b);
  EXPECT_GT(steps_bytes, long_read);
  EXPECT_EQ(base.reads, reads_of(size, long_read));
  EXPECT_EQ(asked[0].reads, reads_of(steps_bytes, long_read));
}

TEST_F(SteppedFromAServer, ShareTheMemoryOfOneLongRead) {
  lay_over({diff(a, b, "/m/d"), diff(b, c, "/m/e")}, c);
  for (const Server::Asked &each : asked) {
    EXPECT_EQ(each.longest, long_read / 2);
    EXPECT_EQ(each.reads, reads_of(steps_bytes, long_read / 2));
  }
}

// The base is locked meanwhile.
TEST_F(SteppedFromAServer, AreAppliedInLongReads) {
  diff(a, b, "/m/d");
  disk.add_file("/m/base", a.file());
  store::OpenOptions writing;
  writing.writable = true;
  auto below = store::open_path(disk, "/m/base", writing);
  ASSERT_TRUE(is_ok(below));
  Server::Asked of_delta;
  auto delta = store::DeltaFile::of(served(disk.contents("/m/d"), long_read, &of_delta));
  ASSERT_TRUE(is_ok(delta));
  const uint64_t once = reads_of(delta->index().at(0).nbytes, long_read);
  of_delta = {};
  ASSERT_TRUE(is_ok(store::patch(disk, **below, std::move(*delta), {})));
  EXPECT_EQ(of_delta.reads, 2 * once);  // they are checked before
  EXPECT_EQ(holdings_of(disk.contents("/m/base")), b);
}

TEST_F(SteppedFromAServer, AreNotReadBeyondTheirEnd) {
  for (const uint64_t at_once : {uint64_t{0}, long_read}) {
    const auto file = served(a.file(), at_once, &base);
    const auto reach = file->snapshot().here();
    ASSERT_TRUE(is_ok(reach));
    store::ReadAhead bytes(reach->file, 8, 5, 1);
    char to[6];
    EXPECT_TRUE(is_ok(bytes.read(reach->file, to, 2)));
    EXPECT_TRUE(fails_with(Status::internal, bytes.read(reach->file, to, 4)));
    EXPECT_TRUE(is_ok(bytes.read(reach->file, to, 3)));
    EXPECT_TRUE(fails_with(Status::internal, bytes.read(reach->file, to, 1)));
  }
}

// Deltas of elements of a tensor of three blocks.
class SteppedInTime : public SteppedOverlay {
 protected:
  SteppedInTime() {
    a = {{u8_tensor("a", 4000, 1), {"w", Dtype::BF16, {1200000}, pattern(2400000, 5)}}, {}};
    b = touched(a, 1);
    c = touched(b, 4);
    disk.add_file("/m/base", a.file());
    diff(a, b, "/m/d");
  }
  static Holdings touched(Holdings h, char by) {
    std::string &w = h.tensors.back().bytes;
    for (size_t i = 0; i < w.size(); i += 400) w[i] ^= by;
    return h;
  }
  static std::string_view w_of(const store::Model &model) {
    const store::Place p = model.catalogue().find("w").value();
    return {reinterpret_cast<const char *>(p.member->view(*p.snapshot, p.index).value()), 2400000};
  }
  Holdings a, b, c;
};

TEST_F(SteppedInTime, TellTheirProgressAndAreCancelled) {
  ToldProgress told;
  ASSERT_TRUE(is_ok(open({"/m/d"}, told.progress())));
  told.expect_one_count(2400000);
  for (int after = 0; after < 3; ++after) {
    int asked = 0;
    EXPECT_TRUE(fails_with(Status::cancelled, open({"/m/d"}, [&](uint64_t, uint64_t) { return asked++ < after; })));
    EXPECT_EQ(asked, after + 1);
  }
}

TEST_F(SteppedInTime, AreInterruptedWhileTheyAreRefreshed) {
  std::unique_ptr<store::Model> overlay;
  bool interrupts = false;
  auto opened = open({"/m/d"}, [&](uint64_t, uint64_t) {
    if (interrupts) overlay->interrupt();
    return true;
  });
  ASSERT_TRUE(is_ok(opened));
  overlay = std::move(*opened);
  const char *const at = w_of(*overlay).data();
  for (const bool is_another : {false, true}) {
    if (is_another) diff(a, c, "/m/d");
    interrupts = true;
    EXPECT_TRUE(fails_with(Status::interrupted, overlay->refresh()));
    EXPECT_EQ(w_of(*overlay).data(), at);
    EXPECT_TRUE(same_bytes(w_of(*overlay), b.tensors.back().bytes));
    interrupts = false;
    ASSERT_TRUE(is_ok(overlay->refresh()));
    EXPECT_TRUE(same_bytes(w_of(*overlay), (is_another ? c : b).tensors.back().bytes));
  }
}

// As of any copy-on-write view: further views show it, and no read does.
TEST_F(SteppedInTime, AreReadAsTheyAreWhateverIsWrittenIntoTheirViews) {
  auto overlay = open({"/m/d"}, {}, read::MapMode::copy_on_write);
  ASSERT_TRUE(is_ok(overlay));
  const std::string &w = b.tensors.back().bytes;
  const std::string_view mine = w_of(**overlay);
  EXPECT_TRUE(same_bytes(mine, w));
  const_cast<char *>(mine.data())[777] ^= 1;
  EXPECT_EQ(w_of(**overlay).data(), mine.data());

  const store::Place place = (*overlay)->catalogue().find("w").value();
  std::string room(w.size(), '?');
  const auto to = reinterpret_cast<std::byte *>(room.data());
  ASSERT_TRUE(is_ok(place.member->read(*place.snapshot, place.index, to)));
  EXPECT_TRUE(same_bytes(room, w));
  const Range part[] = {{100, 1000, 1}}, scattered[] = {{100, 1000, 3}};
  for (const std::span<const Range> ranges : {std::span<const Range>(part), std::span<const Range>(scattered)}) {
    const TensorView t = place.tensor();
    const SlicePlan plan = SlicePlan::make(t.dtype, t.shape, ranges).value();
    std::string wanted;
    for (auto i = ranges[0].start; i < ranges[0].stop; i += ranges[0].step) wanted += w.substr(2 * i, 2);
    room.assign(w.size(), '?');
    ASSERT_TRUE(is_ok(place.member->read_slice(*place.snapshot, place.index, plan, to)));
    EXPECT_TRUE(same_bytes(room.substr(0, plan.nbytes()), wanted));
    room.assign(w.size(), '?');
    ASSERT_TRUE(is_ok((*overlay)->read_many({{place, &plan, to}}, {})));
    EXPECT_TRUE(same_bytes(room.substr(0, plan.nbytes()), wanted));
  }
  ASSERT_TRUE(is_ok((*overlay)->read_many({{place, nullptr, to}}, {})));
  EXPECT_TRUE(same_bytes(room, w));
  // Like memory that the handle owns, a copy stays where it is.
  ASSERT_TRUE(is_ok((*overlay)->load((*overlay)->catalogue(), std::nullopt, false, false, {})));
  EXPECT_EQ(w_of(**overlay).data(), mine.data());
  EXPECT_NE(mine[777], w[777]);
}

// They make one copy together.
TEST_F(SteppedInTime, AreLookedAtByManyThreadsAtFirst) {
  auto overlay = open({"/m/d"}, {}, read::MapMode::copy_on_write);
  ASSERT_TRUE(is_ok(overlay));
  std::vector<const char *> seen(8);
  std::vector<std::thread> threads;
  for (const char *&each : seen) threads.emplace_back([&] { each = w_of(**overlay).data(); });
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 1u);
  EXPECT_TRUE(same_bytes({seen[0], 2400000}, b.tensors.back().bytes));
}

// It began later than another refresh, and reads when that one shows what it found. So it reads once more.
TEST_F(SteppedInTime, TellOneProgressWhereARefreshBeginsAnew) {
  ToldProgress told;
  std::promise<void> later_reads, other_ended;
  std::thread later;
  std::unique_ptr<store::Model> overlay;
  int rounds = 0;
  const auto in_later = [&, tell = told.progress()](uint64_t done, uint64_t total) {
    if (rounds++ == 0) {
      later_reads.set_value();
      other_ended.get_future().wait();
    }
    return tell(done, total);
  };
  auto opened = open({"/m/d"}, [&, other = std::this_thread::get_id()](uint64_t done, uint64_t total) {
    if (!overlay) return true;
    if (std::this_thread::get_id() != other) return in_later(done, total);
    if (later.joinable()) return true;
    later = std::thread([&] { EXPECT_TRUE(is_ok(overlay->refresh())); });
    later_reads.get_future().wait();
    return true;
  });
  ASSERT_TRUE(is_ok(opened));
  overlay = std::move(*opened);
  diff(a, c, "/m/d");
  EXPECT_TRUE(is_ok(overlay->refresh()));
  other_ended.set_value();
  later.join();
  EXPECT_EQ(rounds, 6) << "three blocks, twice";
  told.expect_one_count(2400000);
  EXPECT_TRUE(same_bytes(w_of(*overlay), c.tensors.back().bytes));
}

// The base is a file here, and the delta lies on a server that falls silent once its header was read.
TEST_F(SteppedInTime, AreStoppedWhileAServerIsSilent) {
  static Server::Asked asked;
  asked = {};
  const store::OpenLayers layers = [](os::Env &env, const std::string &path,
                                      const store::OpenOptions &options) -> Result<store::Layers> {
    store::OpenOptions below = options;
    below.deltas.clear();
    store::Layers out;
    ST_TRY(out.base, store::open_path(env, path, below));
    store::DataFile &delta = *out.deltas.emplace_back(served(static_cast<SimEnv &>(env).contents("/m/d"), 1, &asked));
    EXPECT_TRUE(is_ok(store::DeltaFile::of(delta)));
    asked.is_silent = true;
    return out;
  };
  store::OpenOptions options;
  options.deltas = {"/m/d"};
  options.progress = [](uint64_t, uint64_t) { return !asked.is_silent; };
  EXPECT_TRUE(fails_with(Status::cancelled, store::Overlay::open(disk, "/m/base", options, layers)));
}

class DamagedLayer : public SteppedInTime {
 protected:
  void is_named(const std::vector<std::string> &deltas, const std::string &damaged) {
    const auto opened = open(deltas);
    ASSERT_TRUE(fails_with(Status::delta, opened));
    const std::string &why = opened.error().message;
    for (const std::string &other : deltas)
      EXPECT_EQ(why.find("'" + other + "'") != std::string::npos, other == damaged) << why;
  }
  // Other bytes of the last tensor, and the hashes that it had.
  void damage(const std::string &delta, const std::function<void(TestTensor &)> &how) {
    Holdings d = holdings_of(disk.contents(delta));
    how(d.tensors.back());
    disk.add_file(delta, d.file());
  }
};

// They are sound, and lead elsewhere.
TEST_F(DamagedLayer, OfStepsIsNamedWhereverItLies) {
  diff(b, c, "/m/e");
  Holdings elsewhere = b;
  elsewhere.tensors.back().bytes[76] ^= 1;
  const TestTensor foreign = holdings_of(disk.contents(diff(a, elsewhere, "/m/x"))).tensors.back();
  for (const std::string damaged : {"/m/d", "/m/e"}) {
    const std::string sound = disk.contents(damaged);
    damage(damaged, [&](TestTensor &w) { w = foreign; });
    is_named({"/m/d", "/m/e"}, damaged);
    disk.add_file(damaged, sound);
  }
  EXPECT_TRUE(is_ok(open({"/m/d", "/m/e"})));
}

TEST_F(DamagedLayer, OfTheBytesBelowStepsIsNamed) {
  b.tensors.back().bytes = pattern(2400000, 77);  // another tensor: it is held whole
  diff(a, b, "/m/d");
  diff(b, touched(b, 4), "/m/e");
  EXPECT_TRUE(is_ok(open({"/m/d", "/m/e"})));
  damage("/m/d", [](TestTensor &w) { w.bytes[1500001] ^= 1; });
  is_named({"/m/d", "/m/e"}, "/m/d");
}

TEST_F(DamagedLayer, IsNoMatterOfABaseThatIsAnother) {
  diff(b, c, "/m/e");
  a.tensors.back().bytes[1500001] ^= 1;
  disk.add_file("/m/base", a.file());
  EXPECT_TRUE(fails_with(Status::delta_base, open({"/m/d", "/m/e"})));
}

// In the base narrow elements lie before wide ones, an odd number of them.
TEST_F(SteppedOverlay, LieAtMultiplesOfTheirElements) {
  Holdings a{{{"half", Dtype::BF16, {5001}, pattern(10002, 1)},
              u8_tensor("byte", 5003, 2),
              {"float", Dtype::F32, {3000}, pattern(12000, 3)},
              {"double", Dtype::F64, {1501}, pattern(12008, 4)}},
             {}};
  Holdings b = a;
  for (TestTensor &t : b.tensors)
    for (size_t i = 0; i < t.bytes.size(); i += 200) t.bytes[i] ^= 1;
  disk.add_file("/m/base", a.file());
  diff(a, b, "/m/d");
  EXPECT_EQ(seen_through(unsure, "/m/base", {"/m/d"}), b);
  auto overlay = open({"/m/d"});
  ASSERT_TRUE(is_ok(overlay));
  const auto views = [&] {
    std::map<std::string, const std::byte *> all;
    const store::Catalogue catalogue = (*overlay)->catalogue();
    for (size_t i = 0; i < catalogue.size(); ++i) {
      const store::Place p = catalogue.at(i).value();
      const TensorView t = p.tensor();
      const std::byte *view = p.member->view(*p.snapshot, p.index).value();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view) % write::element_bytes(t.dtype), 0u) << t.name;
      all.emplace(t.name, view);
    }
    return all;
  };
  const auto before = views();
  EXPECT_EQ(before.size(), 4u);
  ASSERT_TRUE(is_ok((*overlay)->refresh()));
  EXPECT_EQ(views(), before);
}

}  // namespace
}  // namespace st::testing
