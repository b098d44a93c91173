#include "completion.h"

#include <fmt/format.h>

#include <string_view>

#include "manual.h"

namespace stctl {
namespace {

enum class Takes { nothing, files, tensors };

// By what the help calls it.
Takes taken_by(std::string_view word) {
  if (word == "FILE") return Takes::files;
  return word == "TENSOR" || word == "PATTERN" || word == "TENSOR NAME" ? Takes::tensors : Takes::nothing;
}

bool has_value(const CLI::Option &option) {
  return !option.get_positional() && option.get_type_size() != 0;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// In single quotes, on one line.
std::string in_quotes(std::string text) {
  return "'" + replaced(replaced(std::move(text), "'", "'\\''"), "\n", " ") + "'";
}

std::vector<std::string> names_of(const CLI::Option &option) {
  std::vector<std::string> names;
  for (const std::string &name : option.get_snames()) names.push_back("-" + name);
  for (const std::string &name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string zsh_action(std::string_view word) {
  switch (taken_by(word)) {
    case Takes::files: return "_files";
    case Takes::tensors: return "_stctl_tensors";
    default: return " ";
  }
}

}  // namespace

std::string bash_completion(const CLI::App &app) {
  std::string commands, cases;
  for (const CLI::App *command : commands_of(app)) {
    std::string options, values, arguments;
    for (const CLI::Option *option : command->get_options()) {
      if (option->get_positional()) {
        arguments += option->get_name(true) + " ";
        continue;
      }
      for (const std::string &name : names_of(*option)) {
        options += name + " ";
        if (has_value(*option)) {
          const std::string type = option->get_type_name();
          values += fmt::format("{}={} ", name, type.substr(0, type.find(' ')));
        }
      }
    }
    commands += command->get_name() + " ";
    cases += fmt::format("    {}) options='{}' values=' {}' arguments='{}' ;;\n", command->get_name(), options, values,
                         arguments);
  }
  std::string top;
  for (const CLI::Option *option : app.get_options()) {
    for (const std::string &name : names_of(*option)) top += name + " ";
  }
  return "# bash completion for stctl, generated from its options\n"
         "_stctl_describe() {\n"
         "  case $1 in\n" +
         cases +
         "  esac\n"
         "}\n"
         "\n"
         "_stctl() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} command='' file='' takes='' options='' values='' arguments=''\n"
         "  local word i given=0 names\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    word=${COMP_WORDS[i]}\n"
         "    if [[ -n $takes ]]; then\n"
         "      takes=''\n"
         "    elif [[ $word == -* ]]; then\n"
         "      [[ $values == *\" $word=\"* ]] && takes=${values#*\" $word=\"} && takes=${takes%% *}\n"
         "    elif [[ -z $command ]]; then\n"
         "      command=$word\n"
         "      _stctl_describe \"$command\"\n"
         "    else\n"
         "      ((given++ == 0)) && file=${word//[\\\\\\'\\\"]/}\n"
         "    fi\n"
         "  done\n"
         "  COMPREPLY=()\n"
         "  if [[ -z $command ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         commands + top +
         "' -- \"$current\")\n"
         "    return\n"
         "  fi\n"
         "  if [[ -z $takes && $current == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
         "    return\n"
         "  fi\n"
         "  if [[ -z $takes ]]; then\n"
         "    local -a order\n"
         "    read -ra order <<<\"$arguments\"\n"
         "    ((${#order[@]})) && takes=${order[given < ${#order[@]} ? given : ${#order[@]} - 1]}\n"
         "  fi\n"
         "  compopt -o filenames 2>/dev/null # quotes what needs it\n"
         "  case $takes in\n"
         "    FILE) mapfile -t COMPREPLY < <(compgen -f -- \"$current\") ;;\n"
         "    TENSOR | PATTERN)\n"
         "      mapfile -t names < <(stctl ls --names \"${file/#\\~/$HOME}\" 2>/dev/null)\n"
         "      for word in \"${names[@]}\"; do [[ $word == \"${current//[\\\\\\'\\\"]/}\"* ]] && "
         "COMPREPLY+=(\"$word\"); "
         "done\n"
         "      ;;\n"
         "  esac\n"
         "}\n"
         "complete -F _stctl stctl\n";
}

std::string zsh_completion(const CLI::App &app) {
  const auto bracketed = [](const std::string &text) {  // as _arguments wants descriptions
    return replaced(replaced(replaced(text, "[", "("), "]", ")"), ":", "\\:");
  };
  std::string commands, cases;
  for (const CLI::App *command : commands_of(app)) {
    commands += fmt::format("    {}\n", in_quotes(command->get_name() + ":" + bracketed(summary_of(*command))));
    cases += fmt::format("    {})\n      _arguments -s", command->get_name());
    for (const CLI::Option *option : command->get_options()) {
      const std::string description = bracketed(option->get_description());
      if (option->get_positional()) {
        const std::string name = option->get_name(true);
        const char *which = option->get_items_expected_max() > 1 ? "*" : "";
        cases +=
            " \\\n        " + in_quotes(fmt::format("{}:{}:{}", which, replaced(name, "=", "\\="), zsh_action(name)));
        continue;
      }
      const std::string type = option->get_type_name();
      const std::string value = has_value(*option) ? fmt::format(":{}:{}", type, zsh_action(type)) : "";
      for (const std::string &name : names_of(*option)) {
        cases += " \\\n        " + in_quotes(fmt::format("{}[{}]{}", name, description, value));
      }
    }
    cases += "\n      ;;\n";
  }
  return "#compdef stctl\n"
         "# zsh completion for stctl, generated from its options\n"
         "_stctl_tensors() {\n"
         "  local -a names\n"
         "  local word\n"
         "  for word in ${words[2,-1]}; do\n"
         "    [[ -f ${(Q)~word} ]] || continue\n"
         "    names=(\"${(@f)$(stctl ls --names ${(Q)~word} 2>/dev/null)}\")\n"
         "    compadd -a names\n"
         "    return\n"
         "  done\n"
         "}\n"
         "\n"
         "_stctl() {\n"
         "  local -a commands\n"
         "  local curcontext=$curcontext state line\n"
         "  commands=(\n" +
         commands +
         "  )\n"
         "  _arguments -C '1:command:->command' '*::argument:->argument'\n"
         "  [[ $state == command ]] && _describe command commands\n"
         "  [[ $state == argument ]] || return\n"
         "  case $line[1] in\n" +
         cases +
         "  esac\n"
         "}\n"
         "\n"
         "_stctl \"$@\"\n";
}

std::string fish_completion(const CLI::App &app) {
  std::string out =
      "# fish completion for stctl, generated from its options\n"
      "function __stctl_tensors\n"
      "  for word in (commandline -opc)[3..]\n"
      "    test -f $word; or continue\n"
      "    stctl ls --names $word 2>/dev/null\n"
      "    return\n"
      "  end\n"
      "end\n"
      "function __stctl_has_file\n"
      "  for word in (commandline -opc)[3..]\n"
      "    test -f $word; and return\n"
      "  end\n"
      "  return 1\n"
      "end\n";
  for (const CLI::App *command : commands_of(app)) {
    const std::string &name = command->get_name();
    out += fmt::format("complete -c stctl -n __fish_use_subcommand -f -a {} -d {}\n", name,
                       in_quotes(summary_of(*command)));
    const std::string when = fmt::format("complete -c stctl -n '__fish_seen_subcommand_from {}", name);
    for (const CLI::Option *option : command->get_options()) {
      if (option->get_positional()) {
        if (taken_by(option->get_name(true)) == Takes::tensors) {
          out += when + "; and __stctl_has_file' -f -a '(__stctl_tensors)'\n";
        }
        continue;
      }
      out += when + "'";
      for (const std::string &word : option->get_snames()) out += " -s " + word;
      for (const std::string &word : option->get_lnames()) out += " -l " + word;
      if (has_value(*option)) {
        const Takes takes = taken_by(option->get_type_name());
        out += takes == Takes::files ? " -r -F" : takes == Takes::tensors ? " -x -a '(__stctl_tensors)'" : " -x";
      }
      out += " -d " + in_quotes(option->get_description()) + "\n";
    }
  }
  return out;
}

}  // namespace stctl
