// Programs that give keys: credential_process, and those of Google's external accounts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace st::remote {

// A command line in words, as a shell would cut it: quotes and backslashes, and nothing else that a shell does. Empty:
// a quote does not end.
std::vector<std::string> words_of(std::string_view line);

struct Program {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> variables = {};  // beside those of this process
  uint64_t within_ms = 60000;
};

// Runs it, without a shell, and gives what it writes to its standard output. Status permission: it failed, or took too
// long.
Result<std::string> run_program(const Program &program);

}  // namespace st::remote
