#include "command_line.h"

#include <fmt/format.h>
#include <st/st.h>
#include <string.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "failure.h"
#include "session.h"
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

// CLI11 takes "[a,b]" apart into a and b where an option has many values; as a shell pattern or a name it is
// to stay whole. So such values are parsed with a mark at their end, which every option takes off. One that ends as if
// it had marks gets one more.
constexpr std::string_view whole = "]\x01";

bool ends_with_bracket_and_marks(std::string_view text) {
  const size_t last = text.find_last_not_of(whole.back());
  return last != text.npos && text[last] == whole.front();
}

// Also in --option=[a,b].
bool is_in_brackets(std::string_view arg) {
  if (arg.starts_with("--")) arg.remove_prefix(std::min(arg.find('='), arg.size() - 1) + 1);
  return arg.starts_with('[') && ends_with_bracket_and_marks(arg);
}

// `help COMMAND` as git has it: `COMMAND --help`. Options may stand before.
void take_help(const CLI::App &app, std::vector<std::string> &args) {
  const auto next_word = [&] {
    return std::find_if(args.begin(), args.end(), [](const std::string &arg) { return !arg.starts_with('-'); });
  };
  if (next_word() == args.end() || *next_word() != "help") return;
  args.erase(next_word());
  if (next_word() != args.end() && *next_word() == "help") args.erase(next_word());
  const auto is_it = [&](const CLI::App *command) { return command->get_name() == *next_word(); };
  if (next_word() != args.end() && app.get_subcommands(is_it).empty()) return;  // the error names it
  args.push_back("--help");
}

std::vector<std::string> marked(std::vector<std::string> args) {
  for (std::string &arg : args) {
    if (is_in_brackets(arg)) arg += whole.back();
  }
  std::reverse(args.begin(), args.end());  // as CLI11 wants them
  return args;
}

std::string unmarked(std::string value) {
  if (value.ends_with(whole.back()) && is_in_brackets(value)) value.pop_back();
  return value;
}

// In an error message the marks stand somewhere.
std::string unmarked_message(std::string text) {
  for (size_t at = text.find(whole); at != text.npos; at = text.find(whole, at + 1)) text.erase(at + 1, 1);
  return text;
}

// On the command line's either side of the command.
void add_common_flags(CLI::App &app, Session &session) {
  app.add_flag("--json", session.json, "Print one JSON object instead of text");
  app.add_flag("-q,--quiet", session.quiet, "No progress bar, no warnings");
  app.add_flag("-v,--verbose", session.verbose, "Tell also of recoveries and fallbacks");
}

// What is wrong where no command was found.
std::string no_command(const CLI::App &app) {
  const std::vector<std::string> words = app.remaining();
  if (words.empty()) return "a command is required";
  return fmt::format("no {} is named '{}'", words[0].starts_with('-') ? "option" : "command", words[0]);
}

// What is wrong where a command was found: arguments that are missing or too many are often an unknown option.
std::string wrong_arguments(const CLI::App &command, const CLI::ParseError &error) {
  if (dynamic_cast<const CLI::RequiredError *>(&error) || dynamic_cast<const CLI::ExtrasError *>(&error)) {
    for (const std::string &word : command.remaining()) {
      if (word == "--") break;  // behind it all are names
      if (word.starts_with('-') && word != "-") {
        return fmt::format("no option is named '{}'; a name that begins with '-' stands behind '--'", word);
      }
    }
  }
  // All values that are converted are whole numbers.
  std::string what = error.what();
  constexpr std::string_view not_converted = "Could not convert: ", is = " = ";
  const size_t value = what.find(is);
  if (!what.starts_with(not_converted) || value == what.npos) return what;
  return fmt::format("{} takes a whole number in range, not '{}'",
                     what.substr(not_converted.size(), value - not_converted.size()), what.substr(value + is.size()));
}

CommandText text_of(const CLI::App &app) {
  CommandText text = {app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option *option : app.get_options()) {
    OptionText entry = {};
    entry.help = option->get_description();
    entry.required = option->get_required();
    entry.many = option->get_items_expected_max() > 1;
    if (option->get_positional()) {
      entry.argument = option->get_name(true);
    } else if (option->get_type_size() != 0) {
      entry.type = option->get_type_name();
    }
    for (const std::string &name : option->get_snames()) entry.names.push_back("-" + name);
    for (const std::string &name : option->get_lnames()) entry.names.push_back("--" + name);
    text.options.push_back(std::move(entry));
  }
  for (const CLI::App *command : app.get_subcommands([](const CLI::App *c) { return !c->get_group().empty(); })) {
    text.commands.push_back(text_of(*command));
  }
  return text;
}

}  // namespace

Option Option::required() const {
  option_->required();
  return *this;
}

Option Option::repeated(int words) const {
  option_->type_size(words)->expected(1)->take_all()->allow_extra_args(false);  // what is behind them is not of it
  return *this;
}

Option Option::one_word() const {
  option_->expected(1);
  return *this;
}

Option Option::not_empty() const {
  const auto fault_of = [](const std::string &value) -> std::string {
    return value.empty() ? "the value is empty" : "";
  };
  option_->check(CLI::Validator(fault_of, ""));
  return *this;
}

Option Option::at_least(int32_t least) const {
  option_->check(CLI::Validator(CLI::Range(least, INT32_MAX)).description(""));
  return *this;
}

Option Option::one_of(const std::vector<std::string> &words) const {
  option_->check(CLI::IsMember(words).description(""));
  return *this;
}

bool Option::given() const {
  return option_->count() > 0;
}

template <class Value>
Option Command::option(const char *names, Value &value, const char *type, const char *help) const {
  return Option(command_->add_option(names, value, help)->type_name(type));
}

template <class Value>
Option Command::argument(const char *name, Value &value, const char *help) const {
  return option(name, value, "", help);
}

template Option Command::argument(const char *, std::string &, const char *) const;
template Option Command::argument(const char *, std::optional<std::string> &, const char *) const;
template Option Command::argument(const char *, std::vector<std::string> &, const char *) const;
template Option Command::option(const char *, std::string &, const char *, const char *) const;
template Option Command::option(const char *, std::vector<std::string> &, const char *, const char *) const;
template Option Command::option(const char *, uint32_t &, const char *, const char *) const;
template Option Command::option(const char *, uint64_t &, const char *, const char *) const;

Option Command::flag(const char *names, bool &value, const char *help) const {
  return Option(command_->add_flag(names, value, help));
}

void Command::lock_timeout(int32_t &ms) const {
  command_
      ->add_option_function<int32_t>(
          "--lock-timeout", [&ms](const int32_t &given) { ms = given == 0 ? ST_TIMEOUT_NONE : given; },
          "Wait MS milliseconds for other writers; 0: not at all,\n"
          "-1: for ever (default 10000)")
      ->type_name("MS")
      ->check(CLI::Validator(CLI::Range(-1, INT32_MAX)).description(""));
}

void Command::deltas(std::vector<std::string> &deltas) const {
  option("--delta", deltas, "FILE",
         "Look at the file as patched with this delta; may be given\n"
         "several times, the oldest first")
      .repeated()
      .not_empty();
}

void Command::map(uint32_t &map) const {
  static const std::map<std::string, uint32_t> ways = {
      {"auto", ST_MAP_AUTO},
      {"shared", ST_MAP_SHARED},
      {"private", ST_MAP_PRIVATE},
      {"none", ST_MAP_NONE},
      {"copy-on-write", ST_MAP_COPY_ON_WRITE},
  };
  command_
      ->add_option_function<std::string>(
          "--map", [&map](const std::string &way) { map = ways.at(way); },
          "How to reach the data: auto (as the storage asks),\nshared, private, none or copy-on-write")
      ->type_name("WAY")
      ->check(CLI::Validator(CLI::IsMember(ways)).description(""));
}

void Command::runs(Session &session, std::function<int()> run) const {
  command_->callback([&session, run = std::move(run)] { session.run = run; });
}

CommandLine::CommandLine(Session &session, const std::string &version, const std::string &description,
                         const std::string &footer)
    : session_(session), app_(std::make_unique<CLI::App>(description, "stctl")) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->get_formatter()->label("SUBCOMMAND", "COMMAND");
  app_->get_formatter()->label("Subcommands", "Commands");
  app_->footer(footer + exit_codes_help);
  app_->set_version_flag(
      "--version", version,
      "Print the version; with --verbose, also how libst was built and\nwhat it finds on this system");
  app_->require_subcommand(1);
  add_common_flags(*app_, session_);
}

CommandLine::~CommandLine() = default;

Command CommandLine::command(const char *name, const char *description, const char *examples) {
  CLI::App *command = app_->add_subcommand(name, std::string(description) + "\n");
  command->footer(fmt::format("Examples:\n{}\n{}", examples, exit_codes_help));
  command->group("Commands");
  add_common_flags(*command, session_);
  return Command(command);
}

Command CommandLine::hidden_command(const char *name, const char *description) {
  CLI::App *command = app_->add_subcommand(name, description);
  command->group("");
  return Command(command);
}

std::optional<std::string> CommandLine::parse(int argc, char **argv) {
  for (CLI::App *command : app_->get_subcommands({})) {
    for (CLI::Option *option : command->get_options()) option->transform(unmarked);
  }
  try {
    std::vector<std::string> args(argv + 1, argv + argc);
    take_help(*app_, args);
    app_->parse(marked(std::move(args)));
    return std::nullopt;
  } catch (const CLI::CallForHelp &) {
    return app_->help();
  } catch (const CLI::CallForVersion &version) {
    const bool all = app_->get_option("--verbose")->count() > 0;
    return fmt::format("{}\n{}", version.what(), all ? st_build_info() : "");
  } catch (const CLI::ParseError &error) {
    // Not all options have been seen: a script that asked for JSON gets it nevertheless.
    session_.json = std::any_of(argv, argv + argc, [](const char *arg) { return strcmp(arg, "--json") == 0; });
    const std::vector<CLI::App *> chosen = app_->get_subcommands();
    const std::string command = chosen.empty() ? "stctl" : "stctl " + chosen[0]->get_name();
    const bool wants_command = chosen.empty() && dynamic_cast<const CLI::RequiredError *>(&error);
    const std::string what = !chosen.empty() ? wrong_arguments(*chosen[0], error)
                             : wants_command ? no_command(*app_)
                                             : error.what();
    throw UsageFailure(fmt::format("{}; see {} --help", escape(unmarked_message(what)), command));
  }
}

CommandText CommandLine::text() const {
  return text_of(*app_);
}

}  // namespace stctl
