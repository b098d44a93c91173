// stctl info: the facts of a file, or of one tensor.
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "../commands.h"
#include "../handle.h"
#include "../json.h"
#include "../table.h"

namespace stctl {
namespace {

struct Info {
  std::string file;
  std::vector<std::string> deltas;
  std::optional<std::string> tensor;
};

constexpr size_t shown_metadata = 200;  // characters of a value, for people

struct Kind {  // of tensors: one dtype
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t nbytes = 0;
};

struct Summary {
  std::map<st_dtype, Kind> kinds;
  std::vector<Kind> shards;  // by the file they lie in
  Kind all;
};

Summary summarise(const File &file) {
  Summary summary = {};
  summary.shards.resize(file.file_count());
  for (const st_tensor &tensor : file.all()) {
    for (Kind *kind : {&summary.kinds[tensor.dtype], &summary.shards.at(tensor.shard), &summary.all}) {
      kind->tensors += 1;
      kind->elements += elements_of(tensor);
      kind->nbytes += tensor.nbytes;
    }
  }
  return summary;
}

// The largest power of two that divides the offset at which data starts.
uint64_t alignment_of(uint64_t offset) {
  return offset & (~offset + 1);
}

template <class Use>  // use(key, value)
void each_metadata(const File &file, Use use) {
  for (size_t i = 0; i < st_metadata_count(file.get()); ++i) {
    const char *key, *value;
    size_t key_len, value_len;
    check(st_metadata_at(file.get(), i, &key, &key_len, &value, &value_len));
    use(std::string_view(key, key_len), std::string_view(value, value_len));
  }
}

void write_kind(Json &json, const Kind &kind) {
  json.field("tensors", kind.tensors);
  json.field("parameters", kind.elements);
  json.field("nbytes", kind.nbytes);
}

struct Place {  // of the data in a file
  uint64_t header_size, data_offset, file_size;
};

std::vector<Place> places_of(const File &file) {
  std::vector<Place> places;
  for (uint32_t shard = 0; shard < file.file_count(); ++shard) {
    const st_io_info io = file.io_info(shard);
    places.push_back({io.header_size, io.data_offset, io.file_size});
  }
  return places;
}

uint64_t size_of(const std::vector<Place> &places) {
  uint64_t size = 0;
  for (const Place &place : places) size += place.file_size;
  return size;
}

void write_place(Json &json, const Place &place) {
  json.field("header_size", place.header_size);
  json.field("data_offset", place.data_offset);
  json.field("data_alignment", alignment_of(place.data_offset));
}

void file_json(Session &session, const File &file, const Summary &summary, const std::vector<Place> &places,
               const st_io_info &io) {
  Json json(session.out);
  json.begin_object();
  json.field("file", file.path());
  json.field("file_size", size_of(places));
  if (file.is_one_file()) write_place(json, places[0]);
  write_kind(json, summary.all);
  if (!file.is_one_file()) {
    json.key("shards");
    json.begin_array();
    for (uint32_t shard = 0; shard < file.file_count(); ++shard) {
      json.begin_object();
      json.field("shard", file.file_path(shard));
      json.field("file_size", places[shard].file_size);
      write_place(json, places[shard]);
      write_kind(json, summary.shards[shard]);
      json.end_object();
    }
    json.end_array();
  }
  json.key("dtypes");
  json.begin_object();
  for (const auto &[dtype, kind] : summary.kinds) {
    json.key(st_dtype_name(dtype));
    json.begin_object();
    write_kind(json, kind);
    json.end_object();
  }
  json.end_object();
  json.key("metadata");
  json.begin_object();
  each_metadata(file, [&](std::string_view key, std::string_view value) { json.field(key, value); });
  json.end_object();
  json.field("storage", storage_name(io.storage));
  json.field("filesystem", io.filesystem);
  json.field("map", map_name(io.map));
  json.field("reason", io.reason);
  json.end_object();
  session.out.write("\n");
}

std::string data_start(const Place &place) {
  return fmt::format("{}, a multiple of {}", place.data_offset, alignment_of(place.data_offset));
}

void file_text(Session &session, const File &file, const Summary &summary, const std::vector<Place> &places,
               const st_io_info &io) {
  Table facts({{"", Table::left}, {"", Table::left}});
  const auto bytes = [](uint64_t n) {
    return n < 1024 ? human_size(n) : fmt::format("{} ({} bytes)", human_size(n), grouped(n));
  };
  facts.add({"File", escape(file.path())});
  facts.add({"Tensors", grouped(summary.all.tensors)});
  facts.add({"Parameters", grouped(summary.all.elements)});
  facts.add({"Data", bytes(summary.all.nbytes)});
  if (file.is_one_file()) {
    facts.add({"Header", bytes(places[0].header_size)});
    facts.add({"Data starts at", data_start(places[0])});
  } else {
    facts.add({"Files", fmt::format("{}, {}", grouped(file.file_count()), bytes(size_of(places)))});
  }
  if (file.file_count() > 0)
    facts.add({"Filesystem", fmt::format("{} ({})", escape(io.filesystem), storage_name(io.storage))});
  facts.add({"Mapping", fmt::format("{}: {}", map_name(io.map), escape(io.reason))});
  facts.write(session.out);

  if (file.file_count() > 1) {
    Table shards({{"FILE", Table::left},
                  {"TENSORS", Table::right},
                  {"PARAMETERS", Table::right},
                  {"SIZE", Table::right},
                  {"HEADER", Table::right},
                  {"DATA STARTS AT", Table::left}});
    for (uint32_t shard = 0; shard < file.file_count(); ++shard) {
      const Kind &kind = summary.shards[shard];
      shards.add({escape(file.file_name(shard)), grouped(kind.tensors), grouped(kind.elements), human_size(kind.nbytes),
                  human_size(places[shard].header_size), data_start(places[shard])});
    }
    session.out.write("\n");
    shards.write(session.out);
  }

  if (summary.all.tensors > 0) {
    Table kinds(
        {{"DTYPE", Table::left}, {"TENSORS", Table::right}, {"PARAMETERS", Table::right}, {"SIZE", Table::right}});
    for (const auto &[dtype, kind] : summary.kinds) {
      kinds.add({st_dtype_name(dtype), grouped(kind.tensors), grouped(kind.elements), human_size(kind.nbytes)});
    }
    session.out.write("\n");
    kinds.write(session.out);
  }

  if (st_metadata_count(file.get()) > 0) {
    Table metadata({{"METADATA", Table::left}, {"", Table::left}});
    each_metadata(file, [&](std::string_view key, std::string_view value) {
      metadata.add({escape_short(key, shown_metadata), escape_short(value, shown_metadata)});
    });
    session.out.write("\n");
    metadata.write(session.out);
  }
}

void tensor_info(Session &session, const File &file, size_t index) {
  const st_tensor tensor = file.at(index);
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", file.path());
    json.field("index", uint64_t{index});
    write_description(json, file, tensor);
    json.field("bits", uint64_t{st_dtype_bits(tensor.dtype)});
    json.field("elements", elements_of(tensor));
    json.end_object();
    session.out.write("\n");
    return;
  }
  Table facts({{"", Table::left}, {"", Table::left}});
  facts.add({"Tensor", escape(name_of(tensor))});
  facts.add({"Dtype", fmt::format("{}, {} bits an element", st_dtype_name(tensor.dtype), st_dtype_bits(tensor.dtype))});
  facts.add({"Shape", shape_text(tensor.shape, tensor.rank)});
  facts.add({"Elements", grouped(elements_of(tensor))});
  facts.add({"Size", fmt::format("{} ({} bytes)", human_size(tensor.nbytes), grouped(tensor.nbytes))});
  if (!file.is_one_file()) facts.add({"File", escape(file.file_path(tensor.shard))});
  facts.add({"File bytes", fmt::format("{} to {}", tensor.file_offset, tensor.file_offset + tensor.nbytes)});
  facts.add({file.is_one_file() ? "Place in file" : "Place in all", fmt::format("{} of {}", index + 1, file.count())});
  facts.write(session.out);
}

int run(Session &session, const Info &options) {
  const File file(session, options.file, {.deltas = options.deltas});
  if (options.tensor) {
    tensor_info(session, file, look_at(file, [&] { return file.find(*options.tensor); }));
  } else {
    const Summary summary = look_at(file, [&] { return summarise(file); });
    const st_io_info io = file.io_info();
    const std::vector<Place> places = places_of(file);
    (session.json ? file_json : file_text)(session, file, summary, places, io);
  }
  return exit_ok;
}

}  // namespace

void add_info(CommandLine &line, Session &session) {
  auto options = std::make_shared<Info>();
  const Command command =
      line.command("info",
                   "The facts of a file, or of one tensor\n\n"
                   "For a file: number of tensors and parameters, sizes, where the data starts and how\n"
                   "well that is aligned, tensors by dtype and by shard, the metadata, and how the file would be\n"
                   "read. For a tensor: dtype, shape, size and its bytes in the file. Reads only the\n"
                   "header.",
                   "  stctl info model.safetensors\n"
                   "  stctl info model.safetensors lm_head.weight\n"
                   "  stctl info --json model.safetensors | jq .parameters\n");
  command.argument("FILE", options->file, "A safetensors file").required();
  command.argument("TENSOR", options->tensor, "A tensor's name");
  command.deltas(options->deltas);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
