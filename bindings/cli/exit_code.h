// What stctl answers to the shell: the one place where exit codes are chosen,
// and the text that --help prints about them.
#pragma once

#include <st/st.h>

namespace stctl {

enum ExitCode : int {
  exit_ok = 0,
  exit_failed = 1,          // the operation failed: no such file, a bad file, no such tensor …
  exit_usage = 2,           // the command line is not understood
  exit_busy = 3,            // another worker holds the lock
  exit_needs_recovery = 4,  // a committed journal waits
  exit_bad_file = 5,        // verify found an error in the file
  exit_output = 6,          // standard output could not be written; what it should have told may be done

  // Plus the signal's number: 130 for Ctrl-C. The process ends by the signal itself, and a shell makes this number of
  // it. On Windows, and as the first process of a container, the process exits with the number.
  exit_signal = 128,
};

inline ExitCode exit_code_of(st_status status) {
  switch (status) {
    case ST_OK: return exit_ok;
    case ST_E_BUSY: return exit_busy;
    case ST_E_NEEDS_RECOVERY: return exit_needs_recovery;
    default: return exit_failed;
  }
}

// True for the statuses that name a broken rule of the format, of shards and their index, too.
inline bool is_format_status(st_status status) {
  return status >= ST_E_HEADER_TOO_SMALL && status <= ST_E_SHARD_PATH;
}

inline constexpr const char *exit_codes_help =
    "Exit codes:\n"
    "    0  done\n"
    "    1  failed: no such file, a bad file, no such tensor, disk full …\n"
    "    2  the command line is not understood\n"
    "    3  busy: another process holds the lock (ST_E_BUSY); try again\n"
    "    4  needs recovery: a committed change waits to be finished where the file\n"
    "       can be written (ST_E_NEEDS_RECOVERY); see stctl recover\n"
    "    5  verify found an error in the file\n"
    "    6  standard output could not be written: disk full, or the reader left; a\n"
    "       change may have been made, and is durable then\n"
    "  130  interrupted by Ctrl-C (128 + signal); nothing is half-done. The process ends\n"
    "       by the signal, so that a script that runs it ends, too\n"
    "With several files, the first that fails decides.";

}  // namespace stctl
