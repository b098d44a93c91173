// For the commands that judge several files (verify, recover): what libst
// reports about each, and the one way in which all of that is told.
#pragma once

#include <st/st.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "session.h"

namespace stctl {

struct Finding {
  uint32_t level;  // ST_LOG_INFO, ST_LOG_WARNING, ST_LOG_ERROR
  st_status status;
  uint64_t offset;
  std::string message;
};
using Findings = std::vector<Finding>;

// The st_report_fn that collects (user: a Findings) and stops after a signal.
int collect_finding(void *user, const st_report *report);

// What came of one file.
struct Outcome {
  Findings findings;
  std::optional<Failure> failure;
  bool is_verdict = false;         // the failure is what the command was asked to find: not an error of its own
  bool notes_are_details = false;  // shown with --verbose only
  std::string summary;             // without a failure: "ok (3 tensors, 64 bytes)"
  std::vector<std::pair<const char *, uint64_t>> facts;  // for --json
};

// Judges one file after another and tells each outcome. Returns the exit code of the first that failed.
int tell_outcomes(Session &session, const std::vector<std::string> &files,
                  const std::function<Outcome(const std::string &file)> &judge);

}  // namespace stctl
