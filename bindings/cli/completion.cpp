#include "completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace stctl {
namespace {

enum class Takes { nothing, files, tensors };

// What the help calls files and folders.
constexpr std::string_view file_words[] = {"FILE", "A", "B", "BASE", "DELTA", "MODEL", "FOLDER"};

// By what the help calls it.
Takes taken_by(std::string_view word) {
  if (std::find(std::begin(file_words), std::end(file_words), word) != std::end(file_words)) return Takes::files;
  return word == "TENSOR" || word == "PATTERN" || word == "TENSOR NAME" ? Takes::tensors : Takes::nothing;
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

std::string zsh_action(std::string_view word) {
  switch (taken_by(word)) {
    case Takes::files: return "_files";
    case Takes::tensors: return "_stctl_tensors";
    default: return " ";
  }
}

}  // namespace

std::string bash_completion(const CommandText &all) {
  std::string commands, cases;
  for (const CommandText &command : all.commands) {
    std::string options, values, arguments;
    for (const OptionText &option : command.options) {
      if (option.is_argument()) {
        arguments += option.argument + " ";
        continue;
      }
      for (const std::string &name : option.names) {
        options += name + " ";
        if (option.has_value()) {
          const std::string type = option.type;
          values += fmt::format("{}={} ", name, type.substr(0, type.find(' ')));
        }
      }
    }
    commands += command.name + " ";
    cases +=
        fmt::format("    {}) options='{}' values=' {}' arguments='{}' ;;\n", command.name, options, values, arguments);
  }
  std::string top;
  for (const OptionText &option : all.options) {
    for (const std::string &name : option.names) top += name + " ";
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
         "    " +
         fmt::format("{}", fmt::join(file_words, " | ")) +
         ") mapfile -t COMPREPLY < <(compgen -f -- \"$current\") ;;\n"
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

std::string zsh_completion(const CommandText &all) {
  const auto bracketed = [](const std::string &text) {  // as _arguments wants descriptions
    return replaced(replaced(replaced(text, "[", "("), "]", ")"), ":", "\\:");
  };
  std::string commands, cases;
  for (const CommandText &command : all.commands) {
    commands += fmt::format("    {}\n", in_quotes(command.name + ":" + bracketed(command.summary())));
    cases += fmt::format("    {})\n      _arguments -s", command.name);
    for (const OptionText &option : command.options) {
      const std::string description = bracketed(option.help);
      if (option.is_argument()) {
        const std::string name = option.argument;
        const char *which = option.many ? "*" : "";
        cases +=
            " \\\n        " + in_quotes(fmt::format("{}:{}:{}", which, replaced(name, "=", "\\="), zsh_action(name)));
        continue;
      }
      const std::string type = option.type;
      const std::string value = option.has_value() ? fmt::format(":{}:{}", type, zsh_action(type)) : "";
      for (const std::string &name : option.names) {
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

std::string fish_completion(const CommandText &all) {
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
  for (const CommandText &command : all.commands) {
    const std::string &name = command.name;
    out +=
        fmt::format("complete -c stctl -n __fish_use_subcommand -f -a {} -d {}\n", name, in_quotes(command.summary()));
    const std::string when = fmt::format("complete -c stctl -n '__fish_seen_subcommand_from {}", name);
    for (const OptionText &option : command.options) {
      if (option.is_argument()) {
        if (taken_by(option.argument) == Takes::tensors) {
          out += when + "; and __stctl_has_file' -f -a '(__stctl_tensors)'\n";
        }
        continue;
      }
      out += when + "'";
      for (const std::string &word : option.names) {
        out += word.starts_with("--") ? " -l " + word.substr(2) : " -s " + word.substr(1);
      }
      if (option.has_value()) {
        const Takes takes = taken_by(option.type);
        out += takes == Takes::files ? " -r -F" : takes == Takes::tensors ? " -x -a '(__stctl_tensors)'" : " -x";
      }
      out += " -d " + in_quotes(option.help) + "\n";
    }
  }
  return out;
}

}  // namespace stctl
