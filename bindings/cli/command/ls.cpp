// stctl ls: the tensors of a file, one a line.
#include <memory>
#include <optional>

#include "../commands.h"
#include "../handle.h"
#include "../json.h"
#include "../table.h"
#include "../text.h"

namespace stctl {
namespace {

struct Ls {
  std::string file;
  std::vector<std::string> deltas;
  std::vector<std::string> patterns;
  bool bytes = false;
  bool names = false;
};

struct Choice {
  std::vector<st_tensor> tensors;
  uint64_t nbytes = 0;
  std::vector<std::string> by_pattern;  // these words
  std::optional<Failure> failure;       // some words match nothing
};

Choice choose(const Ls &options, const File &file) {
  Choice choice;
  std::vector<bool> matches(file.count());
  std::string unmatched;
  const std::vector<Matches> found = file.find_all_of_each(options.patterns);
  for (size_t w = 0; w < found.size(); ++w) {
    const std::string &word = options.patterns[w];
    for (const size_t i : found[w].tensors) matches[i] = true;
    if (found[w].by_pattern) choice.by_pattern.push_back(word);
    if (found[w].tensors.empty()) unmatched += fmt::format("{}'{}'", unmatched.empty() ? "" : ", ", escape(word));
  }
  if (options.patterns.empty()) choice.tensors = file.all();
  for (size_t i = 0; i < matches.size(); ++i)
    if (matches[i]) choice.tensors.push_back(file.at(i));
  for (const st_tensor &tensor : choice.tensors) choice.nbytes += tensor.nbytes;
  if (!unmatched.empty()) {
    choice.failure.emplace(exit_failed,
                           fmt::format("no tensor of '{}' matches {}", escape(shown(options.file)), unmatched),
                           ST_E_NOT_FOUND);
  }
  return choice;
}

void write_json(Session &session, const Ls &options, const File &file, const Choice &choice) {
  Json json(session.out);
  json.begin_object();
  json.field("file", shown(options.file));
  json.key("tensors");
  json.begin_array();
  for (const st_tensor &tensor : choice.tensors) {
    json.begin_object();
    write_description(json, file, tensor);
    json.end_object();
  }
  json.end_array();
  json.field("count", uint64_t{choice.tensors.size()});
  json.field("nbytes", choice.nbytes);
  if (choice.failure) {
    json.key("error");
    choice.failure->write(json);
  }
  json.end_object();
  session.out.write("\n");
}

void write_table(Session &session, const Ls &options, const File &file, const Choice &choice) {
  const auto size = [&](uint64_t n) { return options.bytes ? std::to_string(n) : human_size(n); };
  std::vector<Table::Column> columns = {{"NAME", Table::left},
                                        {"DTYPE", Table::left},
                                        {"SHAPE", Table::left},
                                        {options.bytes ? "BYTES" : "SIZE", Table::right},
                                        {"OFFSET", Table::right}};
  if (!file.is_one_file()) columns.emplace_back("FILE", Table::left);
  Table table(columns);
  for (const st_tensor &tensor : choice.tensors) {
    std::vector<std::string> cells = {escape(name_of(tensor)), st_dtype_name(tensor.dtype),
                                      shape_text(tensor.shape, tensor.rank), size(tensor.nbytes),
                                      std::to_string(tensor.file_offset)};
    if (!file.is_one_file()) cells.push_back(escape(file.file_name(tensor.shard)));
    table.add(std::move(cells));
  }
  table.write(session.out);
  session.out.print("{}, {}\n", counted(choice.tensors.size(), "tensor"),
                    options.bytes ? counted(choice.nbytes, "byte") : size(choice.nbytes));
}

int run(Session &session, const Ls &options) {
  const File file(session, options.file, {.deltas = options.deltas});
  const Choice choice = look_at(file, [&] { return choose(options, file); });
  for (const std::string &word : choice.by_pattern) note_pattern(session, word);
  if (session.json) {
    write_json(session, options, file, choice);
  } else if (options.names) {
    for (const st_tensor &tensor : choice.tensors) session.out.print("{}\n", escape(name_of(tensor)));
  } else if (!choice.tensors.empty() || !choice.failure) {
    write_table(session, options, file, choice);
  }
  if (!choice.failure) return exit_ok;
  session.out.flush();  // or the sentence would precede the list where both go to one place
  say(choice.failure->sentence());
  return choice.failure->exit_code();
}

}  // namespace

void add_ls(CommandLine &line, Session &session) {
  auto options = std::make_shared<Ls>();
  const Command command =
      line.command("ls",
                   "List the tensors of a file\n\n"
                   "Prints name, dtype, shape, size and file offset of each tensor, and the file that it\n"
                   "lies in where there are several (shards, deltas), in the order in\n"
                   "which they lie in the file, and a line of totals. Reads only the header.\n"
                   "If a PATTERN matches nothing, the others are listed, and the exit code is 1.",
                   "  stctl ls model.safetensors\n"
                   "  stctl ls model.safetensors '*.weight' 'model.layers.[0-3].*'\n"
                   "  stctl ls --json model.safetensors | jq -r '.tensors[].name'\n");
  command.argument("FILE", options->file, "A safetensors file").required();
  command.argument("PATTERN", options->patterns,
                   "List the tensor of this name, as ls prints it; or if there is none,\n"
                   "those that match a shell pattern: * ? [a-z] [!a-z], \\* for * itself,\n"
                   "\\n and others as ls prints them");
  command.flag("--names", options->names, "Only the names");
  command.flag("--bytes", options->bytes, "Exact sizes, in bytes");
  command.deltas(options->deltas);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
