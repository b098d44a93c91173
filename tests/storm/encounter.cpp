#include "encounter.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace fs = std::filesystem;

namespace st::testing {

constexpr int patience_ms = 300'000;  // which only a deadlock takes

void Line::tell(char letter) {
  if (::write(out_, &letter, 1) != 1) throw std::runtime_error("nobody listens");
}

char Line::hear() {
  pollfd waiting = {in_, POLLIN, 0};
  char letter = 0;
  if (::poll(&waiting, 1, patience_ms) != 1 || ::read(in_, &letter, 1) != 1) return 0;
  return letter;
}

Worker::Worker(Kind kind, std::function<void(Line &)> work) {
  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC) || ::pipe2(from, O_CLOEXEC)) throw std::runtime_error("no pipe");
  fds_[0] = to[0], fds_[1] = to[1], fds_[2] = from[0], fds_[3] = from[1];
  line_ = Line(from[0], to[1]);
  auto run = [work = std::move(work), in = to[0], out = from[1]]() -> std::string {
    Line line(in, out);
    try {
      work(line);
      return {};
    } catch (const std::exception &e) {
      return e.what();
    }
  };
  if (kind == thread) {
    thread_ = std::thread([this, run] { failure_ = run(); });
    return;
  }
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("no fork");
  if (pid_ > 0) {
    ::close(std::exchange(fds_[0], -1)), ::close(std::exchange(fds_[3], -1));  // so that its death is heard
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(to[1]), ::close(from[0]);
  const std::string failure = run();
  if (!failure.empty()) std::fprintf(stderr, "in a worker: %s\n", failure.c_str());
  ::_exit(failure.empty() ? 0 : 1);
}

bool Worker::join() {
  joined_ = true;
  if (pid_ < 0) {
    thread_.join();
    if (!failure_.empty()) std::fprintf(stderr, "in a worker: %s\n", failure_.c_str());
    return failure_.empty();
  }
  int status = 0;
  const bool ended = eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) {
    std::fprintf(stderr, "a worker does not end\n");
    kill();
  }
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void Worker::kill() {
  joined_ = true;
  if (pid_ <= 0) throw std::logic_error("a thread cannot be killed");
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Worker::~Worker() {
  if (!joined_ && pid_ > 0) kill();
  if (!joined_ && pid_ < 0) ::close(std::exchange(fds_[1], -1)), thread_.join();
  for (const int fd : fds_)
    if (fd >= 0) ::close(fd);
}

Arena::Arena(std::vector<uint64_t> sizes, bool on_disk) : layout_(std::move(sizes)) {
  ::signal(SIGPIPE, SIG_IGN);  // telling a dead worker something is an error, not a death
  const char *tmp = std::getenv("TMPDIR");
  const std::string disk = tmp && *tmp ? tmp : "/tmp";
  folder_ = (on_disk || ::access("/dev/shm", W_OK) != 0 ? disk : "/dev/shm") + "/libst-arena-" +
            std::to_string(::getpid()) + "-XXXXXX";
  if (!::mkdtemp(folder_.data())) throw std::runtime_error("no folder " + folder_);
  path_ = fs::canonical(folder_) / "model.safetensors";
  layout_.write(path_);
}

Arena::~Arena() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

FileHandle Arena::open(uint32_t flags, int32_t lock_timeout_ms) const {
  return open_file(path_, open_options(flags, lock_timeout_ms));
}

st_status Arena::update(st_file *file, uint32_t tensor, uint64_t version) const {
  const Bytes bytes = layout_.value(tensor, version);
  const st_tensor value = layout_.described(tensor, bytes.data());
  return st_update(file, layout_.name(tensor), ST_NTS, &value);
}

st_txn *Arena::begin(st_file *file, std::vector<uint32_t> tensors, uint64_t version, int32_t lock_timeout_ms) const {
  auto options = sized<st_txn_options>();
  options.flags = ST_TXN_COPY;
  options.lock_timeout_ms = lock_timeout_ms;
  st_txn *txn = nullptr;
  DEMAND_OK(st_txn_begin(file, &options, &txn));
  for (const uint32_t t : tensors) {
    const Bytes bytes = layout_.value(t, version);
    const st_tensor value = layout_.described(t, bytes.data());
    DEMAND_OK(st_txn_update(txn, layout_.name(t), ST_NTS, &value));
  }
  return txn;
}

void Arena::commit_stopping(Line &line, std::vector<uint32_t> tensors, uint64_t version) const {
  struct Stop {
    Line &line;
    bool armed = false;
  } stop{line};
  const FileHandle file = open();
  DEMAND(file);
  auto options = sized<st_txn_options>();
  options.progress_user = &stop;
  options.progress = [](void *user, uint64_t, uint64_t) {
    auto &s = *static_cast<Stop *>(user);
    if (!std::exchange(s.armed, false)) return 0;
    s.line.tell('i');
    return s.line.hear() == 'g' ? 0 : 1;
  };
  st_txn *txn = nullptr;
  DEMAND_OK(st_txn_begin(file.get(), &options, &txn));
  std::vector<Bytes> values;
  for (const uint32_t t : tensors) {
    values.push_back(layout_.value(t, version));
    const st_tensor value = layout_.described(t, values.back().data());
    DEMAND_OK(st_txn_update(txn, layout_.name(t), ST_NTS, &value));
  }
  stop.armed = true;
  DEMAND_OK(commit(txn));
  line.tell('d');
}

std::vector<std::string> Arena::journals() const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto &entry : fs::directory_iterator(path_ + ".st-journal", ignored))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Hold::Hold(const std::string &path, uint64_t begin, uint64_t length, short type)
    : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(begin);
  lock.l_len = static_cast<off_t>(length);
  had_ = ::fcntl(fd_, F_OFD_SETLK, &lock) == 0;
}

void Hold::release() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

st_error_info last_error() {
  auto info = sized<st_error_info>();
  EXPECT_EQ(st_last_error_info(&info), ST_OK);
  return info;
}

bool has_open(pid_t process, const std::string &path) {
  std::error_code ignored;
  for (const auto &fd : fs::directory_iterator("/proc/" + std::to_string(process) + "/fd", ignored))
    if (fs::read_symlink(fd.path(), ignored) == path) return true;
  return false;
}

bool eventually(const std::function<bool()> &condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::usleep(1000);
  }
  return true;
}

}  // namespace st::testing
