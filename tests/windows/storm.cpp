// A storm on Windows: workers are processes that TerminateProcess ends, and that are stopped, at any moment. What they
// do, and what must hold then, is of tests/storm: the scenes, the ledger, the judgement.
//   storm [--seconds N] [--kills N] [--writers N] [--seed N] [--shards]
#include "other_process.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "../storm/file_scene.h"
#include "../storm/shard_scene.h"
#include "../storm/verdict.h"

namespace fs = std::filesystem;
using namespace st::testing;
using Clock = std::chrono::steady_clock;

namespace {

struct Settings {
  uint64_t kills = 0, seconds = 10;  // whichever comes first; 0: no limit
  uint32_t writers = 4, readers = 1;
  uint64_t seed = std::random_device{}();
  bool shards = false;
  std::string folder, memory;  // of a worker: where the storm is, and the name of what is shared
};

constexpr auto patience = std::chrono::seconds(60);  // without a single commit: a deadlock
constexpr size_t most_cells = 512;                   // of all judges

std::unique_ptr<const Scene> scene_of(const Settings &s) {
  if (s.shards) return std::make_unique<ShardScene>(s.folder, "");
  return std::make_unique<FileScene>(s.folder, "");
}

// The ledger, and behind it what judges saw.
void *shared_memory(const std::string &name, bool make) {
  const uint64_t bytes = Ledger::bytes() + most_cells * sizeof(uint64_t);
  const HANDLE section =
      make ? ::CreateFileMappingA(INVALID_HANDLE_VALUE, nullptr, PAGE_READWRITE, static_cast<DWORD>(bytes >> 32),
                                  static_cast<DWORD>(bytes), name.c_str())
           : ::OpenFileMappingA(FILE_MAP_ALL_ACCESS, FALSE, name.c_str());
  void *memory = section ? ::MapViewOfFile(section, FILE_MAP_ALL_ACCESS, 0, 0, 0) : nullptr;
  if (!memory) std::printf("no shared memory: error %lu\n", ::GetLastError()), std::exit(1);
  return memory;
}
uint64_t *seen_in(void *memory) {
  return reinterpret_cast<uint64_t *>(static_cast<std::byte *>(memory) + Ledger::bytes());
}

class Storm {
 public:
  Storm(const Settings &settings, const Scene &scene)
      : settings_(settings),
        scene_(scene),
        memory_(shared_memory(settings.memory, true)),
        ledger_(Ledger::make(memory_)),
        random_(settings.seed) {}

  // Empty, or what went wrong.
  std::string run() {
    scene_.make();
    ledger_.start_over(std::vector<uint64_t>(scene_.cells(), 0));
    for (uint32_t w = 0; w < settings_.writers + settings_.readers; ++w) workers_.push_back(start(w));
    std::string wrong;
    while (wrong.empty() && !is_over()) {
      for (const uint64_t until = kills_ + 5 + random_() % 10; wrong.empty() && kills_ < until && !is_over();) {
        kill_one();
        wrong = trouble();
      }
      if (wrong.empty()) wrong = judgement(false);
    }
    for (uint32_t w = 0; w < workers_.size(); ++w) put_down(w);
    return wrong.empty() ? judgement(true) : wrong;
  }

  void report() const {
    const auto n = [](uint64_t count) { return static_cast<unsigned long long>(count); };
    std::printf(
        "%llu ended, %llu commits (%llu by the one that publishes), %llu recoveries, %llu times busy, %llu "
        "opens for writing, %llu reads, %llu judgements, %.0f s\n",
        n(kills_), n(ledger_.commits), n(ledger_.publishes), n(ledger_.recoveries), n(ledger_.busy),
        n(ledger_.writer_opens), n(ledger_.reads), n(judgements_), since_begin());
  }

 private:
  double since_begin() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool is_over() const {
    return (settings_.kills && kills_ >= settings_.kills) ||
           (settings_.seconds && since_begin() >= static_cast<double>(settings_.seconds));
  }

  OtherProcess start(const char *what, uint32_t worker) {
    return OtherProcess("--worker " + std::string(what) + " " + std::to_string(worker) + " --seed " +
                        std::to_string(random_()) + (settings_.shards ? " --shards" : "") + " --folder \"" +
                        settings_.folder + "\" --memory " + settings_.memory);
  }
  OtherProcess start(uint32_t worker) { return start(worker < settings_.writers ? "write" : "read", worker); }
  void put_down(uint32_t worker) {
    workers_[worker].end();
    ledger_.bury(worker);
    ++kills_;
  }

  // After some commits, at any moment. Now and then one is only stopped for a while, with whatever locks it holds.
  void kill_one() {
    const uint64_t enough = ledger_.commits + random_() % 6;
    for (const auto begin = Clock::now(); ledger_.commits < enough && Clock::now() - begin < std::chrono::seconds(1);)
      ::Sleep(1);
    ::Sleep(static_cast<DWORD>(random_() % 4));
    const auto victim = static_cast<uint32_t>(random_() % settings_.writers);
    if (random_() % 8 == 0) {
      workers_[victim].stop();
      ::Sleep(static_cast<DWORD>(random_() % 30));
      workers_[victim].go_on();
      return;
    }
    put_down(victim);
    workers_[victim] = start(victim);
  }

  std::string trouble() {
    if (ledger_.has_complaint()) return ledger_.complaint();
    for (uint32_t w = 0; w < workers_.size(); ++w)
      if (!workers_[w].lives())
        return ledger_.has_complaint() ? ledger_.complaint()
                                       : "worker " + std::to_string(w) + " died by itself at " + ledger_.described(w);
    if (ledger_.commits != last_commits_) {
      last_commits_ = ledger_.commits;
      last_progress_ = Clock::now();
    }
    if (Clock::now() - last_progress_ < patience) return {};
    dump();
    return "no commit any more: a deadlock?";
  }

  // All writers are dead. Several open the scene at once, then all must see the same, and it must be right.
  std::string judgement(bool last) {
    for (uint32_t w = 0; w < settings_.writers && !last; ++w) put_down(w);
    ++judgements_;
    std::vector<const char *> judges = {"reader", "writer", "lone", random_() % 2 ? "recoverer" : "reader"};
    std::shuffle(judges.begin(), judges.end(), random_);
    std::vector<OtherProcess> processes;
    for (uint32_t j = 0; j < judges.size(); ++j) processes.push_back(start(judges[j], j));
    for (OtherProcess &judge : processes)
      if (const int code = judge.wait(); code != 0) return "a judge died: " + std::to_string(code);
    std::vector<std::vector<uint64_t>> views;
    const uint64_t *seen = seen_in(memory_);
    for (size_t j = 0; j < judges.size(); ++j)
      views.emplace_back(seen + j * scene_.cells(), seen + (j + 1) * scene_.cells());
    if (std::string why = why_wrong(scene_, ledger_, views); !why.empty()) return why;
    // A reader may be amid a recovery that it began before, and then the rest is left to it.
    Scene::Tidied tidied;
    const auto begin = Clock::now();
    do {
      tidied = scene_.tidy();
      if (!tidied.wrong.empty()) return tidied.wrong;
    } while (!tidied.left.empty() && Clock::now() - begin < patience);
    if (!tidied.left.empty()) return dump(), "everybody is gone, but there still is " + tidied.left;
    ledger_.start_over(views.front());
    for (uint32_t w = 0; w < settings_.writers && !last; ++w) workers_[w] = start(w);
    last_progress_ = Clock::now();
    return {};
  }

  // For finding out why it stopped.
  void dump() const {
    for (uint32_t w = 0; w < workers_.size(); ++w) std::printf("worker %u: %s\n", w, ledger_.described(w).c_str());
    std::error_code ignored;
    for (const auto &entry : fs::recursive_directory_iterator(settings_.folder, ignored))
      std::printf("%s\n", entry.path().string().c_str());
  }

  const Settings &settings_;
  const Scene &scene_;
  void *const memory_;
  Ledger &ledger_;
  std::mt19937_64 random_;
  std::vector<OtherProcess> workers_;  // writers, then readers
  uint64_t kills_ = 0, judgements_ = 0, last_commits_ = 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_progress_ = begin_;
};

int work(const Settings &settings, const std::string &what, uint32_t number) {
  const auto scene = scene_of(settings);
  void *memory = shared_memory(settings.memory, false);
  Ledger &ledger = Ledger::at(memory);
  if (what == "write") scene->write_for_ever(ledger, number, settings.seed);
  if (what == "read") scene->read_for_ever(ledger, number, settings.seed);
  const OpenAs how = what == "writer"      ? OpenAs::writer
                     : what == "lone"      ? OpenAs::lone
                     : what == "recoverer" ? OpenAs::recoverer
                                           : OpenAs::reader;
  const auto versions = scene->judge(ledger, how);
  std::copy(versions.begin(), versions.end(), seen_in(memory) + number * scene->cells());
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  Settings s;
  std::string what;
  uint32_t number = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto next = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (option == "--shards") s.shards = true;
    if (option == "--kills") s.kills = std::strtoull(next(), nullptr, 10), s.seconds = 0;
    if (option == "--seconds") s.seconds = std::strtoull(next(), nullptr, 10);
    if (option == "--writers") s.writers = static_cast<uint32_t>(std::atoi(next()));
    if (option == "--seed") s.seed = std::strtoull(next(), nullptr, 10);
    if (option == "--folder") s.folder = next();
    if (option == "--memory") s.memory = next();
    if (option == "--worker") what = next(), number = static_cast<uint32_t>(std::atoi(next()));
  }
  if (!what.empty()) return work(s, what, number);
  const std::string id = std::to_string(::GetCurrentProcessId());
  s.memory = "libst-storm-" + id;
  const fs::path folder = fs::temp_directory_path() / ("libst-storm-" + id);
  if (!fs::create_directory(folder)) return std::printf("%s is there\n", folder.string().c_str()), 1;
  s.folder = folder.generic_string();
  std::printf("%u writers, %u readers, seed %llu\n", s.writers, s.readers, static_cast<unsigned long long>(s.seed));
  std::string wrong;
  {
    const auto scene = scene_of(s);
    Storm storm(s, *scene);
    wrong = storm.run();
    storm.report();
  }
  if (wrong.empty()) return fs::remove_all(folder), 0;
  std::printf("FAILED: %s\nall is kept: %s\n", wrong.c_str(), s.folder.c_str());
  return 1;
}
