#include "manual.h"

#include <fmt/format.h>

#include <string_view>

#include "exit_code.h"

namespace stctl {
namespace {

// Text as roff: nothing in it is a request or an escape.
std::string plain(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    begins = c == '\n';
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Paragraphs; lines that are set in are kept as they are.
std::string paragraphs(std::string_view text) {
  std::string out;
  bool verbatim = false, gap = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.empty()) {
      gap = true;
      continue;
    }
    const bool set_in = line.starts_with(' ');
    if (verbatim && !set_in) out += ".fi\n.RE\n";
    if (gap || set_in != verbatim) out += set_in && !gap ? "" : ".PP\n";
    if (set_in && !verbatim) out += ".RS 2\n.nf\n";
    out += plain(set_in ? line.substr(2) : line) + "\n";
    verbatim = set_in;
    gap = false;
  }
  if (verbatim) out += ".fi\n.RE\n";
  return out;
}

std::string section(std::string_view title, std::string_view text) {
  std::string body = paragraphs(text);
  if (body.starts_with(".PP\n")) body.erase(0, 4);  // the title begins one
  return fmt::format(".SH {}\n", title) + body;
}

std::string option_entries(const CommandText &all) {
  std::string out;
  for (const OptionText &option : all.options) {
    const std::string names = plain(fmt::format("{}", fmt::join(option.names, ",")));
    out += ".TP\n" + (option.is_argument() ? "\\fI" + plain(option.argument) + "\\fR" : "\\fB" + names + "\\fR");
    if (option.has_value()) out += " \\fI" + plain(option.type) + "\\fR";
    out += "\n" + plain(option.help) + "\n";
  }
  return out;
}

std::string synopsis(const CommandText &command) {
  std::string out = fmt::format("\\fBstctl {}\\fR [options]", command.name);
  for (const OptionText &option : command.options) {
    if (!option.is_argument()) continue;
    std::string name = "\\fI" + plain(option.argument) + "\\fR";
    if (option.many) name += " ...";
    out += option.required ? " " + name : " [" + name + "]";
  }
  return out + "\n";
}

// The footer without the exit codes, which have a section of their own.
std::string examples(const CommandText &command) {
  const std::string footer = command.footer;
  return footer.substr(0, footer.find(exit_codes_help));
}

}  // namespace

std::string manual(const CommandText &all, const std::string &version) {
  const std::string description = all.description;
  const size_t first_line = description.find('\n');
  std::string out = fmt::format(".TH STCTL 1 \"\" \"libst {}\" \"User Commands\"\n", version);
  out += ".SH NAME\nstctl \\- " + plain(description.substr(sizeof "stctl: " - 1, first_line - sizeof "stctl: ")) + "\n";
  out += ".SH SYNOPSIS\n\\fBstctl\\fR \\fICOMMAND\\fR [options] \\fIFILE\\fR ...\n";
  out += section("DESCRIPTION", std::string_view(description).substr(first_line));
  out += paragraphs(examples(all));
  out += ".SH OPTIONS\n" + option_entries(all);
  out += ".SH COMMANDS\n";
  for (const CommandText &command : all.commands) {
    const std::string text = command.description;
    out += fmt::format(".SS {}\n", command.name);
    out += synopsis(command) + paragraphs(text) + option_entries(command) + paragraphs(examples(command));
  }
  out += section("EXIT STATUS", std::string_view(exit_codes_help).substr(sizeof "Exit codes:" - 1));
  return out;
}

}  // namespace stctl
