// stctl: look at safetensors files and change them safely, from a shell.
// Parses the command line, runs one sub-command, and turns what goes wrong into
// a sentence on standard error, an "error" object with --json, and an exit code.
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <new>

#include "commands.h"
#include "failure.h"
#include "interrupt.h"
#include "json.h"
#include "text.h"

namespace stctl {
namespace {

// Lists each sub-command by the first line of its description alone.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App *sub) const override {
    std::string summary = sub->get_description();
    summary.resize(std::min(summary.size(), summary.find('\n')));
    return fmt::format("  {:<10}{}\n", sub->get_name(), summary);
  }
};

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
    "failure is not libst's.\n"
    "\n";

// CLI11 takes "[a,b]" apart into a and b where an option has many values; as a shell pattern or a name it is
// to stay whole. So such arguments are parsed with a mark at their end, which every option takes off.
constexpr std::string_view whole = "]\x01";

std::vector<std::string> marked(int argc, char **argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  for (std::string &arg : args) {
    if (arg.starts_with('[') && arg.ends_with(']')) arg += whole.back();
  }
  std::reverse(args.begin(), args.end());  // as CLI11 wants them
  return args;
}

std::string unmarked(std::string text) {
  const size_t at = text.find(whole);  // in an error message it stands somewhere
  if (at != text.npos) text.erase(at + 1, 1);
  return text;
}

// The failure, where scripts and people look for it. Returns the exit code.
int tell(Session &session, const Failure &failure) {
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

int parse_and_run(Session &session, CLI::App &app, int argc, char **argv) {
  try {
    app.parse(marked(argc, argv));
  } catch (const CLI::CallForHelp &) {
    session.out.write(app.help());
    session.out.close();
    return exit_ok;
  } catch (const CLI::CallForVersion &version) {
    session.out.print("{}\n", version.what());
    session.out.close();
    return exit_ok;
  } catch (const CLI::ParseError &error) {
    // Not all options have been seen: a script that asked for JSON gets it nevertheless.
    session.json = std::any_of(argv, argv + argc, [](const char *arg) { return strcmp(arg, "--json") == 0; });
    const std::vector<CLI::App *> chosen = app.get_subcommands();
    const std::string command = chosen.empty() ? "stctl" : "stctl " + chosen[0]->get_name();
    throw UsageFailure(fmt::format("{}; see {} --help", escape(unmarked(error.what())), command));
  }
  const int code = session.run();
  session.out.close();
  return code;
}

int stctl_main(int argc, char **argv) {
  reserve_standard_descriptors();
  catch_signals();
  Session session;
  try {
    try {
      CLI::App app(description, "stctl");
      app.formatter(std::make_shared<HelpFormatter>());
      app.get_formatter()->label("SUBCOMMAND", "COMMAND");
      app.get_formatter()->label("Subcommands", "Commands");
      app.footer(std::string(footer) + exit_codes_help);
      app.set_version_flag("--version", fmt::format("stctl {}.{}.{} (libst {})", ST_VERSION_MAJOR, ST_VERSION_MINOR,
                                                    ST_VERSION_PATCH, st_version()));
      app.require_subcommand(1);
      add_ls(app, session);
      add_view(app, session);
      add_info(app, session);
      add_get(app, session);
      add_update(app, session);
      add_put(app, session);
      add_rm(app, session);
      add_mv(app, session);
      add_meta(app, session);
      add_compact(app, session);
      add_shard(app, session);
      add_join(app, session);
      add_plan(app, session);
      add_diff(app, session);
      add_patch(app, session);
      add_merge(app, session);
      add_verify(app, session);
      add_recover(app, session);
      add_io(app, session);
      add_stats(app, session);
      for (CLI::App *command : app.get_subcommands({})) {
        for (CLI::Option *option : command->get_options()) option->transform(unmarked);
      }
      return parse_and_run(session, app, argc, argv);
    } catch (const Failure &failure) {
      return tell(session, failure);
    } catch (const std::bad_alloc &) {
      return tell(session, Failure(exit_failed, "memory could not be had"));
    } catch (const std::exception &error) {
      return tell(session, Failure(exit_failed, fmt::format("a bug in stctl, please report it: {}", error.what())));
    }
  } catch (const OutputFailure &failure) {
    if (failure.os_errno != EPIPE) {
      say(fmt::format("cannot write to standard output: {}", strerror(failure.os_errno)));
    }
    return exit_output;
  }
}

}  // namespace

CLI::App *add_command(CLI::App &app, Session &session, const char *name, const char *text, const char *examples) {
  CLI::App *command = app.add_subcommand(name, std::string(text) + "\n");
  command->footer(fmt::format("Examples:\n{}\n{}", examples, exit_codes_help));
  command->group("Commands");
  command->add_flag("--json", session.json, "Print one JSON object instead of text");
  command->add_flag("-q,--quiet", session.quiet, "No progress bar, no warnings");
  command->add_flag("-v,--verbose", session.verbose, "Tell also of recoveries and fallbacks");
  return command;
}

void add_lock_timeout(CLI::App &command, int32_t &ms) {
  command
      .add_option("--lock-timeout", ms,
                  "Wait MS milliseconds for other writers; 0: not at all,\n"
                  "-1: for ever (default 10000)")
      ->type_name("MS")
      ->check(CLI::Validator(CLI::Range(-1, INT32_MAX)).description(""));
}

void add_deltas(CLI::App &command, std::vector<std::string> &deltas) {
  command
      .add_option("--delta", deltas,
                  "Look at the file as patched with this delta; may be given\n"
                  "several times, the oldest first")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
}

void add_map(CLI::App &command, uint32_t &map) {
  static const std::map<std::string, uint32_t> ways = {
      {"auto", ST_MAP_AUTO}, {"shared", ST_MAP_SHARED}, {"private", ST_MAP_PRIVATE}, {"none", ST_MAP_NONE}};
  command.add_option("--map", map, "How to reach the data: auto (as the storage asks),\nshared, private or none")
      ->type_name("WAY")
      ->transform(CLI::CheckedTransformer(ways).description(""));
}

}  // namespace stctl

int main(int argc, char **argv) {
  return stctl::stctl_main(argc, argv);
}
