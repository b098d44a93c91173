// What a test leaves behind makes it fail: open descriptors, mappings of files, threads, child processes, scratch
// folders, and under AddressSanitizer memory. Programs get it by linking gtest_dep, without a word in their source;
// this header is for the test of the check itself. It must never blame one test for what another left, nor take a
// thread that is just ending for one that stays.
#pragma once

#include <string>
#include <vector>

namespace st::testing {

// What a process has at a moment, each as a line that tells a reader what it is.
struct Belongings {
  std::vector<std::string> descriptors, mappings, folders;  // each sorted
  size_t threads = 0;
  bool children = false;

  static Belongings now();
  // What is here and was not there: a line each. Empty if there is nothing.
  std::string more_than(const Belongings &before) const;
};

}  // namespace st::testing
