// stctl ls: the tensors of a file, one a line.
#include <memory>

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

int run(Session &session, const Ls &options) {
  const File file(session, options.file, {.deltas = options.deltas});
  std::vector<bool> matches(file.count(), options.patterns.empty());
  for (const std::string &pattern : options.patterns) {
    for (const size_t i : file.find_all(session, pattern)) matches[i] = true;
  }
  std::vector<st_tensor> chosen;
  uint64_t total = 0;
  for (size_t i = 0; i < file.count(); ++i) {
    if (!matches[i]) continue;
    const st_tensor tensor = file.at(i);
    chosen.push_back(tensor);
    total += tensor.nbytes;
  }
  if (chosen.empty() && !options.patterns.empty()) {
    throw Failure(exit_failed, fmt::format("no tensor of '{}' matches", escape(shown(options.file))));
  }

  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", shown(options.file));
    json.key("tensors");
    json.begin_array();
    for (const st_tensor &tensor : chosen) {
      json.begin_object();
      write_description(json, file, tensor);
      json.end_object();
    }
    json.end_array();
    json.field("count", uint64_t{chosen.size()});
    json.field("nbytes", total);
    json.end_object();
    session.out.write("\n");
    return exit_ok;
  }

  if (options.names) {
    for (const st_tensor &tensor : chosen) session.out.print("{}\n", escape(name_of(tensor)));
    return exit_ok;
  }
  const auto size = [&](uint64_t n) { return options.bytes ? std::to_string(n) : human_size(n); };
  std::vector<Table::Column> columns = {{"NAME", Table::left},
                                        {"DTYPE", Table::left},
                                        {"SHAPE", Table::left},
                                        {options.bytes ? "BYTES" : "SIZE", Table::right},
                                        {"OFFSET", Table::right}};
  if (!file.is_one_file()) columns.emplace_back("FILE", Table::left);
  Table table(columns);
  for (const st_tensor &tensor : chosen) {
    std::vector<std::string> cells = {escape(name_of(tensor)), st_dtype_name(tensor.dtype),
                                      shape_text(tensor.shape, tensor.rank), size(tensor.nbytes),
                                      std::to_string(tensor.file_offset)};
    if (!file.is_one_file()) cells.push_back(escape(file.file_name(tensor.shard)));
    table.add(std::move(cells));
  }
  table.write(session.out);
  session.out.print("{}, {}\n", counted(chosen.size(), "tensor"), options.bytes ? counted(total, "byte") : size(total));
  return exit_ok;
}

}  // namespace

void add_ls(CommandLine &line, Session &session) {
  auto options = std::make_shared<Ls>();
  const Command command =
      line.command("ls",
                   "List the tensors of a file\n\n"
                   "Prints name, dtype, shape, size and file offset of each tensor, and the file that it\n"
                   "lies in where there are several (shards, deltas), in the order in\n"
                   "which they lie in the file, and a line of totals. Reads only the header.",
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
