// What every command has: its standard output, the options that all commands
// share, the work that the command line chose, and warnings that wait.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "output.h"

namespace stctl {

struct Session {
  Output out{1};
  bool json = false;         // one JSON object on standard output, also on failure
  bool quiet = false;        // no progress bar, no warnings
  bool verbose = false;      // also what libst does that is no problem: recovery, fallbacks
  std::function<int()> run;  // set by the sub-command; returns an exit code
  // They wait until a change of their file is decided. Where its refusal repeats one, the refusal is enough.
  std::vector<std::string> warnings;
};

}  // namespace stctl
