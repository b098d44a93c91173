// stctl recover: finish, or drop, what crashed writers left beside a file.
#include <algorithm>
#include <memory>
#include <optional>

#include "../commands.h"
#include "../findings.h"
#include "../interrupt.h"
#include "../progress.h"
#include "../sized.h"
#include "../text.h"

namespace stctl {
namespace {

struct Recover {
  std::vector<std::string> files;
  int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT;
};

// Nothing was left beside what is no model, either: the path is wrong, or the file is bad.
std::optional<Failure> failure_of_opening(const std::string &path, int32_t lock_timeout_ms) {
  auto opts = sized<st_open_options>();
  opts.lock_timeout_ms = lock_timeout_ms;
  opts.progress = stop_if_interrupted;
  st_file *file = nullptr;
  const st_status status = st_open(path.c_str(), &opts, &file);
  if (status != ST_OK) return Failure::of_libst(status);
  st_close(file);
  return std::nullopt;
}

// What stands there waits for another, and the rest was recovered.
std::optional<Failure> failure_of(const Findings &findings) {
  const auto is_error = [](const Finding &finding) { return finding.level == ST_LOG_ERROR; };
  const auto first = std::find_if(findings.begin(), findings.end(), is_error);
  if (first == findings.end()) return std::nullopt;
  return Failure(exit_code_of(first->status), "not recovered: " + first->message, first->status);
}

std::string summary_of(const Findings &findings) {
  const auto is_done = [](const Finding &finding) { return finding.level == ST_LOG_INFO; };
  const bool did_some = std::any_of(findings.begin(), findings.end(), is_done);
  return fmt::format("{} ({})", did_some ? "recovered" : "nothing was recovered", counted(findings.size(), "finding"));
}

Outcome recover(const std::string &path, int32_t lock_timeout_ms, bool is_last) {
  Outcome outcome;
  auto opts = sized<st_recover_options>();
  opts.lock_timeout_ms = lock_timeout_ms;
  opts.report = collect_finding;
  opts.report_user = &outcome.findings;
  const Interruptible guard(nullptr);  // stops between journals
  const st_status status = st_recover(path.c_str(), &opts);
  if (status != ST_OK) {
    outcome.failure = Failure::of_libst(status);
  } else if (outcome.findings.empty()) {
    outcome.summary = "nothing to recover";
    // A signal comes too late to undo the recovery: it only spares the look.
    if (!interrupted()) outcome.failure = failure_of_opening(path, lock_timeout_ms);
    if (interrupted()) outcome.failure.reset();
  } else {
    outcome.failure = failure_of(outcome.findings);
    outcome.summary = summary_of(outcome.findings);
  }
  // There is nothing left to stop: what has been done is told.
  if (status == ST_OK && is_last) forget_interrupt();
  return outcome;
}

}  // namespace

void add_recover(CommandLine &line, Session &session) {
  auto options = std::make_shared<Recover>();
  const Command command =
      line.command("recover",
                   "Finish what a crashed writer left\n\n"
                   "A writer that dies leaves a journal beside the file. One that was committed is\n"
                   "applied, so the change is there whole; one that was not is dropped or rolled back, so the\n"
                   "file is as before; one that does not fit is moved aside. Prints what was found and\n"
                   "done. Opening a file does the same, so this is for looking, and for files that are\n"
                   "only read elsewhere. Safe at any time, again, and from many processes. A file that is\n"
                   "no model is a failure. So is a change that another user must finish.\n\n"
                   "A writer that dies while it makes a new file leaves what it had written. That is removed,\n"
                   "also where no file has the name yet.\n\n"
                   "Of shards it also removes the old ones that changes with --new-names left, before\n"
                   "their time too: readers of an older index no longer find them.",
                   "  stctl recover model.safetensors\n"
                   "  stctl recover --json --lock-timeout 0 *.safetensors\n");
  command.argument("FILE", options->files, "Safetensors files").required();
  command.lock_timeout(options->lock_timeout_ms);
  command.runs(session, [&session, options] {
    size_t left = options->files.size();
    return tell_outcomes(session, options->files,
                         [&](const std::string &file) { return recover(file, options->lock_timeout_ms, --left == 0); });
  });
}

}  // namespace stctl
