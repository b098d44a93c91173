// A sub-command's options and arguments, as its file declares them. CLI11 parses them, but its header takes longer to
// compile than any command: command_line.cpp is the only file that sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stctl {

struct Session;

class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option *option) : option_(option) {}

  Option required() const;
  Option repeated(int words = 1) const;  // any number of times, each with so many words
  Option one_word() const;               // which may be empty
  Option not_empty() const;              // an empty value is not taken for none
  Option at_least(int32_t least) const;
  Option one_of(const std::vector<std::string> &words) const;
  bool given() const;

 private:
  CLI::Option *option_ = nullptr;
};

class Command {
 public:
  explicit Command(CLI::App *command) : command_(command) {}

  // Value is std::string, std::optional<std::string>, std::vector<std::string>, int32_t, uint32_t or uint64_t.
  template <class Value>
  Option argument(const char *name, Value &value, const char *help) const;
  template <class Value>
  Option option(const char *names, Value &value, const char *type, const char *help) const;
  Option flag(const char *names, bool &value, const char *help) const;

  void lock_timeout(int32_t &ms) const;                 // --lock-timeout MS, as libst has it (ST_TIMEOUT_…)
  void deltas(std::vector<std::string> &deltas) const;  // --delta FILE, any number of times: what lies on the file
  void map(uint32_t &map) const;                        // --map WAY (ST_MAP_…)
  void runs(Session &session, std::function<int()> run) const;  // what it does; answers an exit code

 private:
  CLI::App *command_;
};

// What --help says of a command and its options, for the man page and the shells.
struct OptionText {
  std::string argument;            // "FILE"; "" for an option
  std::vector<std::string> names;  // "-q", "--quiet"
  std::string type;                // of its value; "" for a flag or an argument
  std::string help;
  bool required;
  bool many;  // of an argument: takes several words

  bool is_argument() const { return !argument.empty(); }
  bool has_value() const { return !type.empty(); }
};
struct CommandText {
  std::string name, description, footer;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;  // those that are for people, in the order of --help

  std::string summary() const { return description.substr(0, description.find('\n')); }
};

class CommandLine {
 public:
  CommandLine(Session &session, const std::string &version, const std::string &description, const std::string &footer);
  ~CommandLine();

  // A sub-command with --json, --quiet and --verbose. The first line of `description` is for the
  // list of commands; `examples` are printed at the end of --help, before the exit codes.
  Command command(const char *name, const char *description, const char *examples);
  // One that --help does not list, without these options.
  Command hidden_command(const char *name, const char *description);

  // Sets Session::run; or answers the help or the version, if one is asked for. UsageFailure.
  std::optional<std::string> parse(int argc, char **argv);

  CommandText text() const;

 private:
  Session &session_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace stctl
