// stctl view: a picture of a file: its modules, how large they are, and where they lie.
#include <fmt/color.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>

#include "../commands.h"
#include "../handle.h"
#include "../json.h"
#include "../module_tree.h"
#include "../table.h"
#include "../terminal.h"

namespace stctl {
namespace {

struct View {
  std::string file;
  uint32_t depth = 2;
};

struct Kind {  // the tensors of one dtype
  uint64_t tensors = 0;
  uint64_t nbytes = 0;
};

// What a row says of a module, in the order of the file.
struct Facts {
  std::map<st_dtype, Kind> dtypes;
  uint64_t nbytes = 0;
  uint64_t begin = UINT64_MAX, end = 0;
};

struct Scene {
  const std::vector<st_tensor> &tensors;
  st_io_info io;
  uint64_t nbytes;
  uint32_t levels;
};

Facts facts_of(const Scene &scene, const Module &module) {
  Facts facts;
  for (size_t i : module.tensors) {
    const st_tensor &t = scene.tensors[i];
    Kind &kind = facts.dtypes[t.dtype];
    kind.tensors += 1;
    kind.nbytes += t.nbytes;
    facts.nbytes += t.nbytes;
    facts.begin = std::min(facts.begin, t.file_offset);
    facts.end = std::max(facts.end, t.file_offset + t.nbytes);
  }
  return facts;
}

fmt::terminal_color colour_of(st_dtype dtype) {
  const uint32_t bits = st_dtype_bits(dtype);
  const bool is_float = st_dtype_name(dtype)[0] == 'F' || dtype == ST_DTYPE_BF16;
  if (!is_float) return fmt::terminal_color::yellow;
  return bits < 8     ? fmt::terminal_color::red
         : bits == 8  ? fmt::terminal_color::magenta
         : bits == 16 ? fmt::terminal_color::cyan
                      : fmt::terminal_color::green;
}

std::string coloured(st_dtype dtype, const std::string &text) {
  return fmt::format(fmt::fg(colour_of(dtype)), "{}", text);
}

// The file's data from its first byte to its last in `columns` cells, each as full as the module fills it, so that
// what is full is its share.
std::string picture(const Scene &scene, const Module &module, size_t columns, bool colour) {
  static constexpr const char *fillings[] = {"·", "░", "▒", "▓", "█"};
  const uint64_t size = std::max<uint64_t>(scene.io.file_size - scene.io.data_offset, 1);
  std::vector<std::map<st_dtype, double>> cells(columns);
  for (size_t i : module.tensors) {
    const st_tensor &t = scene.tensors[i];
    if (t.nbytes == 0) continue;
    const double scale = static_cast<double>(columns) / static_cast<double>(size);
    const double begin = static_cast<double>(t.file_offset - scene.io.data_offset) * scale;
    const double end = begin + static_cast<double>(t.nbytes) * scale;
    for (size_t cell = static_cast<size_t>(begin); cell < columns && static_cast<double>(cell) < end; ++cell) {
      const double left = static_cast<double>(cell);
      cells[cell][t.dtype] += std::min(end, left + 1) - std::max(begin, left);
    }
  }
  std::string out;
  for (const std::map<st_dtype, double> &cell : cells) {
    double full = 0;
    auto most = cell.begin();
    for (auto it = cell.begin(); it != cell.end(); ++it) {
      full += it->second;
      if (it->second > most->second) most = it;
    }
    const size_t filling = std::min<size_t>(static_cast<size_t>(full * 4 + 0.5), std::size(fillings) - 1);
    const std::string text = cell.empty() ? " " : fillings[filling];
    out += colour && !cell.empty() ? coloured(most->first, text) : text;
  }
  return out;
}

std::string share_text(uint64_t part, uint64_t all) {
  return all == 0 ? "" : fmt::format("{:.1f}%", 100 * static_cast<double>(part) / static_cast<double>(all));
}

std::string dtypes_text(const Scene &scene, const Module &module, const Facts &facts) {
  std::string out;
  for (const auto &[dtype, kind] : facts.dtypes) out += (out.empty() ? "" : ", ") + std::string(st_dtype_name(dtype));
  if (!module.children.empty()) return out;
  const st_tensor &t = scene.tensors[module.tensors[0]];
  return out + " " + shape_text(t.shape, t.rank);
}

// The text, escaped already, cut to so many columns.
std::string fitted(const std::string &text, size_t columns) {
  if (width(text) <= columns) return text;
  std::string out;
  std::string_view rest = text;
  while (true) {
    const std::string_view before = rest;
    take_code_point(rest);
    const std::string_view character = before.substr(0, before.size() - rest.size());
    if (width(out) + width(character) + 1 > columns) return out + "…";
    out += character;
  }
}

struct Row {
  std::vector<std::string> cells;
  const Module *module;
};

void add_rows(const Scene &scene, const Module &module, uint32_t level, size_t name_columns, std::vector<Row> &rows) {
  for (const Module &child : module.children) {
    const Facts facts = facts_of(scene, child);
    rows.push_back({{fitted(std::string(2 * level, ' ') + escape(child.label), name_columns),
                     grouped(child.tensors.size()), human_size(facts.nbytes), share_text(facts.nbytes, scene.nbytes),
                     std::to_string(facts.begin), dtypes_text(scene, child, facts)},
                    &child});
    if (level + 1 < scene.levels) add_rows(scene, child, level + 1, name_columns, rows);
  }
}

void draw(Session &session, const File &file, const Scene &scene, const Module &root) {
  const bool colour = output_has_colour();
  const size_t columns = output_columns();
  const Facts all = facts_of(scene, root);
  session.out.print("{}: {}, {}", escape(file.path()), counted(root.tensors.size(), "tensor"), human_size(all.nbytes));
  for (const auto &[dtype, kind] : all.dtypes) {
    const std::string name = st_dtype_name(dtype);
    session.out.print(", {} {}", colour ? coloured(dtype, name) : name, share_text(kind.nbytes, all.nbytes));
  }
  session.out.write("\n");
  if (root.children.empty()) return;

  std::vector<Row> rows;
  add_rows(scene, root, 0, std::max<size_t>(columns * 2 / 5, 16), rows);
  const std::vector<Table::Column> headings = {
      {"MODULE", Table::left},  {"TENSORS", Table::right}, {"SIZE", Table::right},        {"SHARE", Table::right},
      {"OFFSET", Table::right}, {"DTYPE", Table::left},    {"PLACE IN FILE", Table::left}};
  size_t taken = 0;
  for (size_t column = 0; column + 1 < headings.size(); ++column) {
    size_t widest = width(headings[column].first);
    for (const Row &row : rows) widest = std::max(widest, width(row.cells[column]));
    taken += widest + 2;
  }
  const size_t left = columns > taken ? columns - taken : 0;
  Table table(headings);
  for (Row &row : rows) {
    row.cells.push_back(picture(scene, *row.module, std::max(left, width(headings.back().first)), colour));
    table.add(std::move(row.cells));
  }
  session.out.write("\n");
  table.write(session.out);
}

void write_modules(Json &json, const Scene &scene, const Module &module, const std::string &name, uint32_t level) {
  json.key("modules");
  json.begin_array();
  for (const Module &child : module.children) {
    const Facts facts = facts_of(scene, child);
    const std::string full = name.empty() ? child.label : name + "." + child.label;
    json.begin_object();
    json.field("name", full);
    json.field("copies", child.copies);
    json.field("tensors", uint64_t{child.tensors.size()});
    json.field("nbytes", facts.nbytes);
    json.field("begin", facts.begin);
    json.field("end", facts.end);
    json.key("dtypes");
    json.begin_object();
    for (const auto &[dtype, kind] : facts.dtypes) {
      json.key(st_dtype_name(dtype));
      json.begin_object();
      json.field("tensors", kind.tensors);
      json.field("nbytes", kind.nbytes);
      json.end_object();
    }
    json.end_object();
    if (level + 1 < scene.levels && !child.children.empty()) write_modules(json, scene, child, full, level + 1);
    json.end_object();
  }
  json.end_array();
}

void write_json(Session &session, const File &file, const Scene &scene, const Module &root) {
  Json json(session.out);
  json.begin_object();
  json.field("file", file.path());
  json.field("file_size", scene.io.file_size);
  json.field("data_offset", scene.io.data_offset);
  json.field("tensors", uint64_t{root.tensors.size()});
  json.field("nbytes", scene.nbytes);
  write_modules(json, scene, root, "", 0);
  json.end_object();
  session.out.write("\n");
}

int run(Session &session, const View &options) {
  const File file(session, options.file);
  std::vector<st_tensor> tensors;
  uint64_t nbytes = 0;
  for (size_t i = 0; i < file.count(); ++i) {
    tensors.push_back(file.at(i));
    nbytes += tensors.back().nbytes;
  }
  const Scene scene = {tensors, file.io_info(), nbytes, options.depth == 0 ? UINT32_MAX : options.depth};
  (session.json ? write_json : draw)(session, file, scene, module_tree(tensors));
  return exit_ok;
}

}  // namespace

void add_view(CommandLine &line, Session &session) {
  auto options = std::make_shared<View>();
  const Command command =
      line.command("view",
                   "A picture of a file: its modules, and where they lie\n\n"
                   "Names are split at dots into modules; numbered ones that hold the same (layers.0,\n"
                   "layers.1 …) are one row. Each row has the number of tensors, their size and share of\n"
                   "all, the offset of the first, the dtypes, and the file from its first byte of data to\n"
                   "its last, shaded as far as it is the module's. On a terminal the shade's colour is the\n"
                   "dtype's, unless NO_COLOR is set. Reads only the header.",
                   "  stctl view model.safetensors\n"
                   "  stctl view model.safetensors --depth 0           down to every tensor\n"
                   "  stctl view --json model.safetensors | jq '.modules[] | {name, nbytes}'\n");
  command.argument("FILE", options->file, "A safetensors file").required();
  command.option("--depth", options->depth, "N", "Show N levels of modules; 0: all (default 2)");
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
