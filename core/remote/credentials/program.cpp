#include "remote/credentials/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/standard_streams.h"
#include "remote/credentials/secret.h"
#include "remote/stopping.h"

extern char **environ;

namespace st::remote {
namespace {

constexpr size_t longest_output = 64u << 10;
constexpr std::chrono::seconds longest_farewell{2};

using Variables = std::vector<std::pair<std::string, std::string>>;

// As execve takes them, with the null at their end.
std::vector<char *> pointers(const std::vector<std::string> &texts) {
  std::vector<char *> out;
  out.reserve(texts.size() + 1);
  for (const std::string &one : texts) out.push_back(const_cast<char *>(one.c_str()));
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> settings(const Variables &variables) {
  std::vector<std::string> out;
  for (const auto &[name, value] : variables) out.push_back(text(name, "=", value));
  return out;
}

bool is_set_by(const Variables &variables, std::string_view setting) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const auto &variable) { return variable.first == setting.substr(0, setting.find('=')); });
}

// A program under way, in a process group of its own, which ends with it.
class Child {
 public:
  explicit Child(const Program &program)
      : name_(in_quotes(program.words[0])),
        until_(std::chrono::steady_clock::now() + std::chrono::milliseconds(program.within_ms)) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      failed_ = errno;
      return;
    }
    for (int &end : ends) end = above_standard_streams(end);
    output_ = ends[0];
    if (std::min(ends[0], ends[1]) < 0) {
      failed_ = -std::min(ends[0], ends[1]);
      if (ends[1] >= 0) close(ends[1]);
      return;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);  // it may tell secrets there
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    const std::vector<char *> arguments = pointers(program.words);
    const std::vector<std::string> own = settings(program.variables);
    std::vector<char *> variables = pointers(own);
    variables.pop_back();
    for (char **other = environ; other && *other; ++other)
      if (!is_set_by(program.variables, *other)) variables.push_back(*other);
    variables.push_back(nullptr);
    failed_ = posix_spawnp(&process_, arguments[0], &actions, &attributes, arguments.data(), variables.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
  }
  ~Child() {
    if (output_ >= 0) close(output_);
    if (process_ <= 0) return;
    kill(-process_, SIGKILL);
    // One that is another user's by now, as sudo is, cannot be ended: it is left, and its output goes nowhere.
    until_ = std::chrono::steady_clock::now() + longest_farewell;
    while (!is_gone() && left_ms() > 0) poll(nullptr, 0, 1);
  }
  Child(const Child &) = delete;
  Child &operator=(const Child &) = delete;

  int failed() const { return failed_; }

  // All that it writes, until it ends with exit status 0. Else the sentence says why not.
  Result<std::string> output() {
    std::string out;
    while (out.size() < longest_output) {
      struct pollfd waiting = {output_, POLLIN, 0};
      const int left = left_ms();
      const int ready = poll(&waiting, 1, std::min(left, static_cast<int>(between_questions_ms)));
      if (left == 0 || is_stopped()) break;
      if (ready == 0) continue;
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0) break;
      char part[4096];
      const ssize_t n = read(output_, part, sizeof part);
      if (n == 0 && ended()) return ended_well(std::move(out));
      if (n <= 0) break;
      out.append(part, static_cast<size_t>(n));
      OPENSSL_cleanse(part, sizeof part);
    }
    wipe(out);
    return fail(Status::permission, name_, " did not end in time, or wrote too much");
  }

 private:
  int left_ms() const {
    const auto left = until_ - std::chrono::steady_clock::now();
    return static_cast<int>(std::max<int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(left).count(), 0));
  }

  bool is_gone() {
    const pid_t found = waitpid(process_, &status_, WNOHANG);
    if (found == 0 || (found < 0 && errno == EINTR)) return false;
    process_ = -1;  // also where the process ignores SIGCHLD, and there is nothing to wait for
    return true;
  }

  // A program may close its output before its end.
  bool ended() {
    while (!is_gone()) {
      if (left_ms() == 0 || is_stopped()) return false;
      poll(nullptr, 0, 1);
    }
    return true;
  }

  bool is_stopped() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_question_) return false;
    next_question_ = now + std::chrono::milliseconds(between_questions_ms);
    return Stopping::is_wanted();
  }

  Result<std::string> ended_well(std::string out) const {
    if (status_ == 0) return out;
    wipe(out);
    return fail(Status::permission, name_, " failed, with ",
                WIFEXITED(status_) ? text("exit status ", WEXITSTATUS(status_)) : text("signal ", WTERMSIG(status_)));
  }

  const std::string name_;
  std::chrono::steady_clock::time_point until_, next_question_ = {};
  pid_t process_ = -1;
  int output_ = -1, failed_ = 0, status_ = 0;
};

}  // namespace

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  char quote = 0;
  bool inside = false;  // of a word
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < line.size() &&
               (quote == 0 || line[i + 1] == '"' || line[i + 1] == '\\')) {
      words.back() += line[++i];
    } else {
      words.back() += c;
    }
  }
  return quote == 0 ? words : std::vector<std::string>();
}

Result<std::string> run_program(const Program &program) {
  if (program.words.empty()) return fail(Status::permission, "it names no program");
  Child child(program);
  if (child.failed() != 0)
    return fail(Status::permission, in_quotes(program.words[0]), " cannot be run: ", std::strerror(child.failed()));
  return child.output();
}

}  // namespace st::remote
