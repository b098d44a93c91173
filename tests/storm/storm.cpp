// A storm. Writers change one scene through st.h: a file, or with --shards the
// shards of an index. They are killed at random moments and replaced, beside
// readers, ours and stock. When all writers are dead, every so often, the scene is
// recovered and judged:
//
//   - each cell (of one file: each tensor) shows one whole value, checked over every byte;
//   - the values are such as some serial order of the transactions gives: see
//     serial_order.h for what can be proved, and is;
//   - every answer was one that the scene allows: ST_OK, ST_E_BUSY and little else;
//   - the stock reader was content each time;
//   - the first writer, which makes new files only, has not been kept out by the others, which are never all idle;
//   - no journal and no temporary file is left behind.
//
//   storm [--shards] [--full | --kills N | --seconds S] [--dir FOLDER [--other-host FOLDER]] [--writers N] [--seed N]
//         [--trouble COMMAND] [--stock-reader SCRIPT [--python PYTHON]] [--stay]
//
// --other-host: another mount of the same folder. Every other process works there, and judges and recovers there too.
// --trouble: of one file. Between two judgements a shell runs this command, beside the workers. It does something to
// the storage, and undoes it before it ends. Calls may then fail, by a status that says what holds; none may hang.
// It ends with 3 if a killed worker does not end: then its kernel waits for a filesystem that hangs.
// --stay: when something is wrong, the storm stops itself, beside its workers if they live, so that one can look at
// them.
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "file_scene.h"
#include "shard_scene.h"
#include "verdict.h"

namespace fs = std::filesystem;
using namespace st::testing;
using Clock = std::chrono::steady_clock;

namespace {

struct Settings {
  uint64_t kills = 0, seconds = 20;  // whichever comes first; 0: no limit
  uint32_t writers = 8, readers = 2;
  uint64_t seed = std::random_device{}();
  uint64_t chapter = 0;  // kills between two judgements; 0: 20 to 79
  bool shards = false, stay = false;
  std::string folder, other_host, trouble, stock_reader, python;
};

// Without a single commit: a deadlock. Unless the readers have come to nothing either: then the machine is busy.
// tests/run.sh ends a test after 450 s, and would do so before the storm has said what hangs.
constexpr auto patience = std::chrono::seconds(60), longest_patience = 4 * patience;
constexpr uint64_t reads_of_patience = 2000;
constexpr double longest_pause = 32;  // seconds, between two kills without a commit: less than patience

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A child that dies with its parent.
template <class Work>
pid_t spawn(Work work) {
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) std::perror("fork"), std::exit(1);
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  work();
  ::_exit(0);
}

// The stock package in a process of its own: see stock_reader.py.
class StockReader {
 public:
  StockReader(const Settings &settings, const std::string &path) {
    if (settings.stock_reader.empty()) return;
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) || ::pipe2(out, O_CLOEXEC)) std::perror("pipe"), std::exit(1);
    pid_ = spawn([&] {
      ::dup2(in[0], 0), ::dup2(out[1], 1);
      ::execlp(settings.python.c_str(), settings.python.c_str(), settings.stock_reader.c_str(), path.c_str(), nullptr);
      std::perror(settings.python.c_str());
      ::_exit(77);
    });
    ::close(in[0]), ::close(out[1]);
    quit_ = in[1];
    from_ = ::fdopen(out[0], "r");
    const std::string first = line();
    if (first == "ready") return;
    std::printf("no stock reader here: %s\n", first.c_str());
    finish();
    pid_ = -1;
  }

  bool runs() const { return pid_ > 0; }
  bool died() { return runs() && ::waitpid(pid_, nullptr, WNOHANG) != 0; }
  // How often it opened the file; nothing if it failed.
  std::optional<uint64_t> finish() {
    ::close(quit_);
    const std::string count = line();
    int status = 0;
    ::waitpid(pid_, &status, 0);
    std::fclose(from_);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
    return std::strtoull(count.c_str(), nullptr, 10);
  }

 private:
  std::string line() {
    char text[300] = {};
    if (!std::fgets(text, sizeof text, from_)) return {};
    text[std::strcspn(text, "\n")] = 0;
    return text;
  }
  pid_t pid_ = -1;
  int quit_ = -1;
  FILE *from_ = nullptr;
};

// Never freed.
Ledger &shared_ledger() {
  void *memory =
      ::mmap(nullptr, Ledger::bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::perror("mmap"), std::exit(1);
  return Ledger::make(memory);
}

class Storm {
 public:
  Storm(const Settings &settings, const Scene &scene) : settings_(settings), scene_(scene), random_(settings.seed) {}

  // Empty, or what went wrong.
  std::string run() {
    scene_.make();
    ledger_.start_over(std::vector<uint64_t>(scene_.cells(), 0));
    ledger_.rough = !settings_.trouble.empty();
    struct statfs of_storage;
    ledger_.forgets_replaced = ::statfs(scene_.path().c_str(), &of_storage) == 0 &&
                               (of_storage.f_type == FUSE_SUPER_MAGIC || of_storage.f_type == NFS_SUPER_MAGIC);
    StockReader stock(settings_, scene_.path());
    for (uint32_t w = 0; w < settings_.writers + settings_.readers; ++w) pids_.push_back(start(w));

    std::string wrong;
    while (wrong.empty() && !is_over()) {
      const uint64_t until = kills_ + (settings_.chapter ? settings_.chapter : 20 + random_() % 60);
      make_trouble();
      while (wrong.empty() && (trouble_ > 0 || (kills_ < until && !is_over()))) {
        kill_one();
        if (wrong = why_not_over(); !wrong.empty()) break;
        if (stock.died()) wrong = "the stock reader failed; see above";
        if (wrong.empty()) wrong = trouble();
      }
      if (wrong.empty()) wrong = judgement(false);
      if (settings_.stay) report();
    }
    if (!wrong.empty() && settings_.stay) ::raise(SIGSTOP);
    for (uint32_t w = 0; w < pids_.size(); ++w) put_down(w);
    if (wrong.empty()) wrong = judgement(true);
    if (wrong.empty() && ledger_.commits > 1000 && ledger_.publishes == 0)
      wrong = "the one that publishes never got in";
    if (stock.runs() && wrong.empty()) {
      const auto opened = stock.finish();
      if (!opened) wrong = "the stock reader failed; see above";
      stock_opens_ = opened.value_or(0);
    }
    return wrong;
  }

  void report() const {
    std::printf(
        "%llu kills, %llu commits (%llu by the one that publishes, %llu by deltas), %llu recoveries, %llu times busy, "
        "%llu opens for "
        "writing, %llu reads, %llu opens by "
        "stock, %llu judgements, %.0f s",
        static_cast<unsigned long long>(kills_), count(ledger_.commits), count(ledger_.publishes),
        count(ledger_.deltas), count(ledger_.recoveries), count(ledger_.busy), count(ledger_.writer_opens),
        count(ledger_.reads), static_cast<unsigned long long>(stock_opens_),
        static_cast<unsigned long long>(judgements_), since(begin_));
    if (ledger_.rough)
      std::printf("; %llu times trouble, %llu calls failed", count(troubles_), count(ledger_.failures));
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  static unsigned long long count(uint64_t n) { return n; }
  bool is_writer(uint32_t worker) const { return worker < settings_.writers; }
  // Seconds. A server takes its time.
  double shortest_pause() const { return settings_.other_host.empty() ? 0.1 : 1; }
  bool is_over() const {
    return (settings_.kills && kills_ >= settings_.kills) ||
           (settings_.seconds && since(begin_) >= static_cast<double>(settings_.seconds));
  }

  pid_t start(uint32_t worker) {
    const uint64_t seed = random_();
    return spawn([&] {
      if (is_writer(worker)) scene_.write_for_ever(ledger_, worker, seed);
      scene_.read_for_ever(ledger_, worker, seed);
    });
  }

  void make_trouble() {
    if (settings_.trouble.empty()) return;
    ++troubles_;
    trouble_began_ = Clock::now();
    trouble_ = spawn([&] {
      ::execl("/bin/sh", "sh", "-c", settings_.trouble.c_str(), nullptr);
      std::perror("sh");
      ::_exit(127);
    });
  }
  // Looks whether the trouble has ended. Empty, or why it was none.
  std::string why_not_over() {
    int status = 0;
    if (trouble_ <= 0) return {};
    if (::waitpid(trouble_, &status, WNOHANG) == 0)
      return Clock::now() - trouble_began_ < longest_patience ? std::string() : "the trouble does not end";
    trouble_ = 0;
    return status == 0 ? std::string() : "the trouble failed";
  }

  // A number that was waited for may be another process's by now. A killed worker whose call waits for a server keeps
  // its locks until the server answers; the others cannot commit meanwhile, and that time is not held against them.
  void put_down(uint32_t worker) {
    const pid_t pid = std::exchange(pids_[worker], 0);
    if (pid == 0) return;
    const auto begin = Clock::now();
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, WNOHANG) == 0) {
      if (Clock::now() - begin > longest_patience)
        give_up("worker " + std::to_string(pid) + " was killed, and does not end; it waits in " + wchan(pid));
      ::usleep(1000);
    }
    last_progress_ += Clock::now() - begin;
    ledger_.bury(worker);
    ++kills_;
  }

  // Now and then one that applies a delta: this takes a small part of the time that making the delta takes.
  uint32_t a_victim() {
    const auto begin = Clock::now();
    for (bool applying = random_() % 5 == 0; applying && since(begin) < 0.1; ::usleep(50))
      for (uint32_t w = 0; w < settings_.writers; ++w) {
        if (ledger_.described(w).find("st_delta_apply") == std::string::npos) continue;
        ::usleep(static_cast<useconds_t>(random_() % 3000));
        return w;
      }
    return static_cast<uint32_t>(random_() % settings_.writers);
  }

  // After some commits, at any moment. Now and then one is only stopped for a
  // while, with whatever locks it holds.
  void kill_one() {
    const uint64_t before = ledger_.commits, enough = before + random_() % 6;
    const auto begin = Clock::now();
    while (ledger_.commits < enough && since(begin) < pause_ && !ledger_.has_complaint()) ::usleep(200);
    // What the dead leave takes the others time. Killed as fast on a slow machine, they would never come to a commit.
    if (ledger_.commits > before)
      pause_ = shortest_pause();
    else if (enough > before)
      pause_ = std::min(2 * pause_, longest_pause);
    ::usleep(static_cast<useconds_t>(random_() % 3000));
    const uint32_t victim = a_victim();
    if (random_() % 8 == 0) {
      ::kill(pids_[victim], SIGSTOP);
      ::usleep(static_cast<useconds_t>(random_() % 30000));
      ::kill(pids_[victim], SIGCONT);
      return;
    }
    put_down(victim);
    pids_[victim] = start(victim);
  }

  std::string trouble() {
    if (ledger_.has_complaint()) return ledger_.complaint();
    for (uint32_t w = 0; w < pids_.size(); ++w) {
      if (::waitpid(pids_[w], nullptr, WNOHANG) == 0) continue;
      pids_[w] = 0;
      return ledger_.has_complaint() ? ledger_.complaint()
                                     : "worker " + std::to_string(w) + " died by itself at " + ledger_.described(w);
    }
    if (ledger_.commits != last_commits_) {
      last_commits_ = ledger_.commits;
      progressed();
    }
    const auto without = Clock::now() - last_progress_;
    if (without < (ledger_.reads - last_reads_ < reads_of_patience ? longest_patience : patience)) return {};
    dump();
    return "no commit any more: a deadlock?";
  }

  // A server frees the locks of a dead process when it hears of its end: its kernel tells that later than its parent.
  // Until then the dead seem to live, and readers without a lock look at what they have half done. Each file is waited
  // for by itself, as the dead lock nothing anew. What is locked for ever, or empty.
  std::string await_locks_of_the_dead() const {
    if (settings_.other_host.empty()) return {};
    const auto begin = Clock::now();
    const fs::path folder = fs::path(scene_.path()).parent_path();
    // A reader may remove a journal amid the listing. Then it is listed anew.
    for (std::error_code error = std::make_error_code(std::errc::interrupted); error;) {
      error.clear();
      for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const int fd = ::open(at->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        auto is_locked = [fd] {
          struct flock lock = {};
          lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET;
          return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
        };
        bool held = is_locked();
        for (; held && Clock::now() - begin < longest_patience; held = is_locked()) ::usleep(1000);
        ::close(fd);
        if (held) return at->path().string();
      }
    }
    return {};
  }

  // All writers are dead. Several open the scene at once, then all must see the
  // same, and it must be right.
  std::string judgement(bool last) {
    for (uint32_t w = 0; w < settings_.writers && !last; ++w) put_down(w);
    ++judgements_;
    if (const std::string held = await_locks_of_the_dead(); !held.empty())
      give_up(held + " is locked for ever by the dead");
    auto *seen =
        static_cast<uint64_t *>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (seen == MAP_FAILED) std::perror("mmap"), std::exit(1);
    std::vector<OpenAs> judges = {OpenAs::reader, OpenAs::writer, OpenAs::lone};
    judges.push_back(random_() % 2 ? OpenAs::recoverer : OpenAs::reader);  // an open alone must do as well
    std::shuffle(judges.begin(), judges.end(), random_);
    std::vector<pid_t> pids;
    for (size_t j = 0; j < judges.size(); ++j)
      pids.push_back(spawn([&] {
        const auto versions = scene_.judge(ledger_, judges[j]);
        std::copy(versions.begin(), versions.end(), seen + j * scene_.cells());
      }));
    const auto called = Clock::now();
    while (!pids.empty()) {
      if (::waitpid(pids.back(), nullptr, WNOHANG) != 0) {
        pids.pop_back();
      } else if (Clock::now() - called > longest_patience) {
        dump();
        for (const pid_t judge : pids)
          if (!settings_.stay) ::kill(judge, SIGKILL);
        return "a judge waits for ever";
      } else {
        ::usleep(1000);
      }
    }
    std::vector<std::vector<uint64_t>> views;
    for (size_t j = 0; j < judges.size(); ++j)
      views.emplace_back(seen + j * scene_.cells(), seen + (j + 1) * scene_.cells());
    ::munmap(seen, 4096);

    if (std::string why = why_wrong(scene_, ledger_, views); !why.empty()) return why;
    const auto &versions = views.front();
    // A reader may be amid a recovery that it began before, and then the rest is left to it.
    const auto begin = Clock::now();
    Scene::Tidied tidied;
    do {
      tidied = scene_.tidy();
      if (!tidied.wrong.empty()) return tidied.wrong;
    } while (!tidied.left.empty() && since(begin) < static_cast<double>(patience.count()));
    if (!tidied.left.empty()) {
      dump();
      return "everybody is gone, but there still is " + tidied.left;
    }
    ledger_.start_over(versions);
    for (uint32_t w = 0; w < settings_.writers && !last; ++w) pids_[w] = start(w);
    progressed();
    return {};
  }
  void progressed() {
    last_progress_ = Clock::now();
    last_reads_ = ledger_.reads;
  }

  // The storage does not let a killed worker go, or keeps its locks. Nothing ends that: we cannot go on, nor tidy up.
  [[noreturn]] void give_up(const std::string &why) const {
    std::fprintf(stderr, "FAILED: %s\n", why.c_str());
    dump();
    std::fflush(stdout);
    ::_exit(3);
  }

  static std::string wchan(pid_t process) {
    std::string place;
    std::getline(std::ifstream("/proc/" + std::to_string(process) + "/wchan"), place);
    return place;
  }

  // For finding out why it stopped.
  void dump() const {
    for (uint32_t w = 0; w < pids_.size(); ++w) {
      std::fprintf(stderr, "%s %d: at %s, waits in %s\n", is_writer(w) ? "writer" : "reader", pids_[w],
                   ledger_.described(w).c_str(), wchan(pids_[w]).c_str());
    }
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);)
      if (line.find("OFDLCK") != std::string::npos) std::fprintf(stderr, "%s\n", line.c_str());
    // By another process, as the filesystem may be what hangs.
    const auto begin = Clock::now();
    const pid_t lister = spawn([&] { list_folder(); });
    while (::waitpid(lister, nullptr, WNOHANG) == 0 && since(begin) < 10) ::usleep(1000);
  }
  void list_folder() const {
    std::error_code ignored;
    for (const auto &entry : fs::recursive_directory_iterator(fs::path(scene_.path()).parent_path(), ignored))
      std::fprintf(stderr, "%s, %ju bytes\n", entry.path().c_str(), entry.file_size(ignored));
  }

  const Settings &settings_;
  const Scene &scene_;
  Ledger &ledger_ = shared_ledger();
  std::mt19937_64 random_;
  std::vector<pid_t> pids_;  // writers, then readers; 0: dead
  pid_t trouble_ = 0;        // its process; 0: there is none
  Clock::time_point trouble_began_;
  uint64_t troubles_ = 0;
  double pause_ = shortest_pause();  // before another is killed, if nobody commits
  uint64_t kills_ = 0, judgements_ = 0, stock_opens_ = 0, last_commits_ = 0, last_reads_ = 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_progress_ = begin_;
};

Settings parse(int argc, char **argv) {
  Settings s;
  const char *tmp = std::getenv("TMPDIR");
  s.folder = tmp && *tmp ? tmp : "/tmp";
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--full") {
      s.kills = 10000, s.seconds = 0;
      continue;
    }
    if (option == "--shards") {
      s.shards = true;
      continue;
    }
    if (option == "--stay") {
      s.stay = true;
      continue;
    }
    if (i + 1 == argc) std::fprintf(stderr, "%s: what?\n", option.c_str()), std::exit(2);
    const char *value = argv[++i];
    if (option == "--kills")
      s.kills = std::strtoull(value, nullptr, 10), s.seconds = 0;
    else if (option == "--seconds")
      s.seconds = std::strtoull(value, nullptr, 10);
    else if (option == "--chapter")
      s.chapter = std::strtoull(value, nullptr, 10);
    else if (option == "--writers")
      s.writers = static_cast<uint32_t>(std::atoi(value));
    else if (option == "--seed")
      s.seed = std::strtoull(value, nullptr, 10);
    else if (option == "--dir")
      s.folder = value;
    else if (option == "--other-host")
      s.other_host = value;
    else if (option == "--trouble")
      s.trouble = value;
    else if (option == "--stock-reader")
      s.stock_reader = value;
    else if (option == "--python")
      s.python = value;
    else
      std::fprintf(stderr, "%s is no option of the storm\n", option.c_str()), std::exit(2);
  }
  // tests/run.sh names the Python that has the stock package.
  if (const char *python = std::getenv("PYTHON"); python && *python) s.python = python;
  if (::access(s.python.c_str(), X_OK) != 0) s.python = "python3";
  if (s.writers < 1 || s.writers + s.readers > Ledger::most_workers) std::exit(2);
  return s;
}

}  // namespace

int main(int argc, char **argv) {
  const Settings settings = parse(argc, argv);
  std::string folder = settings.folder + "/libst-storm-XXXXXX";
  if (!::mkdtemp(folder.data())) return std::perror(folder.c_str()), 1;
  const std::string elsewhere =
      settings.other_host.empty() ? std::string() : settings.other_host + folder.substr(folder.rfind('/'));
  std::unique_ptr<const Scene> scene;
  if (settings.shards)
    scene = std::make_unique<ShardScene>(folder, elsewhere);
  else
    scene = std::make_unique<FileScene>(folder, elsewhere);
  Storm storm(settings, *scene);
  std::printf("%u writers, %u readers, seed %llu\n", settings.writers, settings.readers,
              static_cast<unsigned long long>(settings.seed));
  const std::string wrong = storm.run();
  storm.report();
  if (wrong.empty()) return fs::remove_all(folder), 0;
  std::fprintf(stderr, "FAILED: %s\nall is kept: %s\n", wrong.c_str(), folder.c_str());
  return 1;
}
