// stctl: look at safetensors files and change them safely, from a shell.
// Parses the command line and runs one sub-command. Turns a failure into a
// sentence on standard error, an "error" object with --json, and an exit code.
#include <errno.h>
#include <fmt/format.h>
#include <st/st.h>
#include <string.h>

#include <new>
#include <string_view>
#include <utility>

#include "commands.h"
#include "failure.h"
#include "interrupt.h"
#include "json.h"
#include "system.h"

namespace stctl {
namespace {

const char *const description =
    "stctl: look at safetensors files and change them safely, on any storage.\n"
    "\n"
    "Changes are transactions: they happen whole or not at all, also through a crash\n"
    "or a power cut, and the file is a plain safetensors file before and after.\n";

const char *const footer =
    "Examples:\n"
    "  stctl ls model.safetensors '*.weight'\n"
    "  stctl get model.safetensors lm_head.weight --slice 0:2,:8\n"
    "  stctl update model.safetensors lm_head.weight --npy new.npy\n"
    "  stctl COMMAND --help           what a sub-command does, with examples\n"
    "\n"
    "Tensor names are printed with \\n, \\x00, \\u{202e} for characters that a terminal\n"
    "would not show, and \\\\ for a backslash; they can be given in the same form.\n"
    "With --json, standard output is one JSON object; if the command fails it has\n"
    "\"error\": {\"status\", \"message\", \"exit_code\", …}, status being null where the\n"
    "failure is not libst's. A failure amid the output leaves the start of an object:\n"
    "look at the exit code first. A path that is not UTF-8 has U+FFFD there.\n"
    "\n";

// Those that wait. If the refusal repeats one, nothing "was passed over", as the warning says at its end.
void tell_warnings(Session &session, std::string_view refusal = {}) {
  for (const std::string &warning : std::exchange(session.warnings, {})) {
    const bool is_repeated = !refusal.empty() && warning.starts_with(refusal);
    if (!is_repeated && !session.quiet) say("warning: " + warning);
  }
}

// The failure, where scripts and people look for it. Returns the exit code.
int tell(Session &session, const Failure &failure) {
  tell_warnings(session, failure.what());
  say(failure.sentence());
  forget_interrupt();  // this is the answer to it, if there was one
  // What was half-printed is not worth having: one JSON object, or the start of one.
  if (session.json && session.out.discard()) {
    Json json(session.out);
    json.begin_object();
    json.key("error");
    failure.write(json);
    json.end_object();
    session.out.write("\n");
  }
  session.out.close();
  return failure.exit_code();
}

int run(Session &session, int argc, char **argv) {
  CommandLine line(
      session,
      fmt::format("stctl {}.{}.{} (libst {})", ST_VERSION_MAJOR, ST_VERSION_MINOR, ST_VERSION_PATCH, st_version()),
      description, footer);
  add_ls(line, session);
  add_view(line, session);
  add_info(line, session);
  add_get(line, session);
  add_update(line, session);
  add_put(line, session);
  add_rm(line, session);
  add_mv(line, session);
  add_meta(line, session);
  add_compact(line, session);
  add_shard(line, session);
  add_join(line, session);
  add_edit(line, session);
  add_plan(line, session);
  add_diff(line, session);
  add_patch(line, session);
  add_merge(line, session);
  add_verify(line, session);
  add_recover(line, session);
  add_journal(line, session);
  add_io(line, session);
  add_stats(line, session);
  add_generate(line, session);
  int code = exit_ok;
  if (const std::optional<std::string> answer = line.parse(argc, argv)) {
    session.out.write(*answer);
  } else {
    code = session.run();
    tell_warnings(session);
  }
  session.out.close();
  return code;
}

int stctl_main(int argc, char **argv) {
  prepare_standard_descriptors();
  catch_signals();
  Session session;
  try {
    try {
      return run(session, argc, argv);
    } catch (const Failure &failure) {
      return tell(session, failure);
    } catch (const std::bad_alloc &) {
      return tell(session, Failure(exit_failed, "memory could not be had"));
    } catch (const std::exception &error) {
      return tell(session, Failure(exit_failed, fmt::format("a bug in stctl, please report it: {}", error.what())));
    }
  } catch (const OutputFailure &failure) {
    tell_warnings(session);
    if (failure.os_errno != EPIPE) {
      say(fmt::format("cannot write to standard output: {}", strerror(failure.os_errno)));
    }
    return exit_output;
  }
}

}  // namespace
}  // namespace stctl

int main(int argc, char **argv) {
  const int code = stctl::stctl_main(argc, argv);
  stctl::end_if_interrupted(code);
  return code;
}
