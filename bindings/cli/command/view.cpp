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
  std::vector<std::string> deltas;
  uint32_t depth = 2;
};

struct OfDtype {  // the tensors of one dtype
  uint64_t tensors = 0;
  uint64_t nbytes = 0;
};

// From the first byte to the last of some tensors, in one file.
struct Extent {
  uint64_t begin = UINT64_MAX, end = 0;

  void add(const st_tensor &t) {
    begin = std::min(begin, t.file_offset);
    end = std::max(end, t.file_offset + t.nbytes);
  }
};

// What a row says of a module, in the order of the file.
struct Facts {
  std::map<st_dtype, OfDtype> dtypes;
  uint64_t nbytes = 0;
  std::map<uint32_t, Extent> places;  // by the number of the file
};

// The tensors of one file, or of several that are drawn one behind the other.
struct Scene {
  std::vector<st_tensor> tensors;
  std::map<uint32_t, Extent> files;     // by number; none where no tensor lies
  std::map<uint32_t, uint64_t> before;  // by number: how long the files before it are together
  uint64_t length = 0;                  // of all
  uint64_t nbytes = 0;
  bool one_file;
  uint32_t levels;

  uint64_t place(const st_tensor &t) const { return before.at(t.shard) + (t.file_offset - files.at(t.shard).begin); }
};

Scene scene_of(const File &file, const View &options) {
  Scene scene;
  scene.one_file = file.is_one_file();
  scene.levels = options.depth == 0 ? UINT32_MAX : options.depth;
  scene.tensors = file.all();
  for (const st_tensor &t : scene.tensors) {
    scene.files[t.shard].add(t);
    scene.nbytes += t.nbytes;
  }
  for (const auto &[shard, extent] : scene.files) {
    scene.before[shard] = scene.length;
    scene.length += extent.end - extent.begin;
  }
  return scene;
}

Facts facts_of(const Scene &scene, const Module &module) {
  Facts facts;
  for (size_t i : module.tensors) {
    const st_tensor &t = scene.tensors[i];
    OfDtype &kind = facts.dtypes[t.dtype];
    kind.tensors += 1;
    kind.nbytes += t.nbytes;
    facts.nbytes += t.nbytes;
    facts.places[t.shard].add(t);
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

// All data from the first byte to the last in `columns` cells, each as full as the module fills it. So the
// full cells are the module's share.
std::string picture(const Scene &scene, const Module &module, size_t columns, bool colour) {
  static constexpr const char *fillings[] = {"·", "░", "▒", "▓", "█"};
  const uint64_t size = std::max<uint64_t>(scene.length, 1);
  std::vector<std::map<st_dtype, double>> cells(columns);
  for (size_t i : module.tensors) {
    const st_tensor &t = scene.tensors[i];
    if (t.nbytes == 0) continue;
    const double scale = static_cast<double>(columns) / static_cast<double>(size);
    const double begin = static_cast<double>(scene.place(t)) * scale;
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

// In one file the offset of the first byte; of several, their numbers as their names count them.
std::string place_text(const Scene &scene, const Facts &facts) {
  const auto &[first, extent] = *facts.places.begin();
  if (scene.one_file) return std::to_string(extent.begin);
  const uint32_t last = facts.places.rbegin()->first;
  return first == last ? std::to_string(first + 1) : fmt::format("{}–{}", first + 1, last + 1);
}

struct Row {
  std::vector<std::string> cells;
  const Module *module;
};

enum Cell { name_cell, tensors_cell, size_cell, share_cell, dtype_cell, place_cell };

void add_rows(const Scene &scene, const Module &module, uint32_t level, std::vector<Row> &rows) {
  for (const Module &child : module.children) {
    const Facts facts = facts_of(scene, child);
    rows.push_back(
        {{std::string(2 * level, ' ') + escape(child.label), grouped(child.tensors.size()), human_size(facts.nbytes),
          share_text(facts.nbytes, scene.nbytes), dtypes_text(scene, child, facts), place_text(scene, facts)},
         &child});
    if (level + 1 < scene.levels) add_rows(scene, child, level + 1, rows);
  }
}

// Cuts the rows so that a picture fits beside them: names at two fifths of the line, then the offsets go, then dtypes
// and names are cut further. Answers the columns that are left for the picture.
size_t fit(std::vector<Table::Column> &headings, std::vector<Row> &rows, size_t columns) {
  constexpr size_t picture_columns = 13, gap = 2, dtype_columns = 12, name_columns = 8;
  const auto cut = [&](Cell cell, size_t to) {
    for (Row &row : rows) row.cells[cell] = fitted(row.cells[cell], to);
  };
  const auto widest = [&](size_t cell) {
    size_t most = width(headings[cell].first);
    for (const Row &row : rows) most = std::max(most, width(row.cells[cell]));
    return most;
  };
  const auto taken = [&] {
    size_t sum = 0;
    for (size_t cell = 0; cell < headings.size(); ++cell) sum += widest(cell) + gap;
    return sum;
  };
  const auto too_wide = [&] { return taken() + picture_columns > columns ? taken() + picture_columns - columns : 0; };
  const auto shrink = [&](Cell cell, size_t least) {
    const size_t now = widest(cell), over = too_wide();
    if (over > 0) cut(cell, std::max(least, now > over ? now - over : 0));
  };
  cut(name_cell, std::max<size_t>(columns * 2 / 5, 16));
  shrink(dtype_cell, 2 * dtype_columns);
  if (too_wide() > 0 && headings[place_cell].first == "OFFSET") {
    headings.pop_back();
    for (Row &row : rows) row.cells.pop_back();
  }
  shrink(dtype_cell, dtype_columns);
  shrink(name_cell, name_columns);
  return std::max(columns > taken() ? columns - taken() : 0, picture_columns);
}

void draw(Session &session, const File &file, const Scene &scene, const Module &root) {
  const bool colour = output_has_colour();
  const size_t columns = output_columns();
  const Facts all = facts_of(scene, root);
  session.out.print("{}: {}{}, {}", escape(file.path()),
                    scene.one_file ? "" : counted(file.file_count(), "file") + ", ",
                    counted(root.tensors.size(), "tensor"), human_size(all.nbytes));
  for (const auto &[dtype, kind] : all.dtypes) {
    const std::string name = st_dtype_name(dtype);
    session.out.print(", {} {}", colour ? coloured(dtype, name) : name, share_text(kind.nbytes, all.nbytes));
  }
  session.out.write("\n");
  if (root.children.empty()) return;

  std::vector<Row> rows;
  add_rows(scene, root, 0, rows);
  std::vector<Table::Column> headings = {{"MODULE", Table::left}, {"TENSORS", Table::right},
                                         {"SIZE", Table::right},  {"SHARE", Table::right},
                                         {"DTYPE", Table::left},  {scene.one_file ? "OFFSET" : "FILES", Table::right}};
  const size_t pictured = fit(headings, rows, columns);
  headings.emplace_back(scene.one_file ? "PLACE IN FILE" : "PLACE IN ALL", Table::left);
  Table table(headings);
  for (Row &row : rows) {
    row.cells.push_back(picture(scene, *row.module, pictured, colour));
    table.add(std::move(row.cells));
  }
  session.out.write("\n");
  table.write(session.out);
}

void write_modules(Json &json, const File &file, const Scene &scene, const Module &module, const std::string &name,
                   uint32_t level) {
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
    json.key("places");
    json.begin_array();
    for (const auto &[shard, extent] : facts.places) {
      json.begin_object();
      json.field("shard", file.file_path(shard));
      json.field("begin", extent.begin);
      json.field("end", extent.end);
      json.end_object();
    }
    json.end_array();
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
    if (level + 1 < scene.levels && !child.children.empty()) write_modules(json, file, scene, child, full, level + 1);
    json.end_object();
  }
  json.end_array();
}

void write_tree(Session &session, const File &file, const Scene &scene, const Module &root) {
  Json json(session.out);
  json.begin_object();
  json.field("file", file.path());
  json.field("file_size", file.size_of_files());
  json.field("shards", uint64_t{file.file_count()});
  json.field("tensors", uint64_t{root.tensors.size()});
  json.field("nbytes", scene.nbytes);
  write_modules(json, file, scene, root, "", 0);
  json.end_object();
  session.out.write("\n");
}

int run(Session &session, const View &options) {
  const File file(session, options.file, {.deltas = options.deltas});
  const Scene scene = look_at(file, [&] { return scene_of(file, options); });
  (session.json ? write_tree : draw)(session, file, scene, module_tree(scene.tensors));
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
                   "all, the dtypes, the offset of the first, and the file from its first byte of data to\n"
                   "its last, shaded as far as it is the module's. Shards, and deltas on a file, are drawn\n"
                   "one behind the other, and FILES says in which of them a module lies. On a terminal the\n"
                   "shade's colour is the dtype's, unless NO_COLOR is set. A narrow terminal shows no\n"
                   "offsets. Reads only headers.",
                   "  stctl view model.safetensors\n"
                   "  stctl view model.safetensors --depth 0           down to every tensor\n"
                   "  stctl view --json model.safetensors | jq '.modules[] | {name, nbytes}'\n");
  command.argument("FILE", options->file, "A safetensors file").required();
  command.deltas(options->deltas);
  command.option("--depth", options->depth, "N", "Show N levels of modules; 0: all (default 2)");
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
