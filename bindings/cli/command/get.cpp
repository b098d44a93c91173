// stctl get: the values of a tensor, or of a slice of it, as text, bytes or .npy.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "../array_text.h"
#include "../cast.h"
#include "../commands.h"
#include "../handle.h"
#include "../interrupt.h"
#include "../json.h"
#include "../made_file.h"
#include "../npy.h"
#include "../output.h"
#include "../progress.h"
#include "../slice.h"
#include "../system.h"
#include "../text.h"

namespace stctl {
namespace {

enum class Format { text, raw, npy, safetensors };

struct Get {
  std::string file;
  std::vector<std::string> deltas;
  std::string tensor;
  std::string slice;
  Option has_slice;
  std::string output;  // "": standard output, as text; "-": the same, as raw bytes
  std::string format, dtype;
  uint64_t limit = 1000;

  bool to_stdout() const { return output.empty() || output == "-"; }
};

constexpr uint64_t piece_bytes = 16 << 20;
constexpr uint64_t edge = 3;  // entries shown at each end of a dimension, as NumPy does

Format format_of(const Get &options) {
  if (!options.format.empty()) {
    return options.format == "npy"           ? Format::npy
           : options.format == "safetensors" ? Format::safetensors
           : options.format == "raw"         ? Format::raw
                                             : Format::text;
  }
  if (options.output.empty()) return Format::text;
  if (options.output.ends_with(".safetensors")) return Format::safetensors;
  return options.output.ends_with(".npy") ? Format::npy : Format::raw;
}

void write_text(Output &out, const Slice &slice, uint64_t limit) {
  if (limit == 0 || slice.elements() <= limit) {
    write_array(out, slice);
  } else {
    write_array(out, slice.corner(edge));
  }
}

void write_bytes(Output &out, const Session &session, const Slice &slice, bool npy) {
  if (npy) out.write(npy_header(slice.dtype(), slice.shape()));
  Progress progress(session.quiet, "reading", slice.nbytes());
  uint64_t done = 0;
  slice.read(piece_bytes, [&](std::string_view bytes) {
    out.write(npy ? unpacked(slice.dtype(), bytes) : std::string(bytes));
    progress.done(done += bytes.size());
  });
}

// A file of this one tensor, under its name.
void write_safetensors(const Session &session, const Slice &slice, MadeFile &made) {
  const std::vector<uint64_t> shape = slice.shape();
  st_tensor tensor = slice.tensor();
  tensor.dtype = slice.dtype();
  tensor.shape = shape.data();
  tensor.rank = static_cast<uint32_t>(shape.size());
  tensor.nbytes = slice.nbytes();
  struct Writer {
    st_writer *writer = nullptr;
    ~Writer() { st_writer_free(writer); }
  } out;
  check_change(st_writer_open(made.path().c_str(), &tensor, 1, nullptr, 0, nullptr, &out.writer));
  Progress progress(session.quiet, "reading", slice.nbytes());
  uint64_t done = 0;
  slice.read(piece_bytes, [&](std::string_view bytes) {
    check_change(st_writer_write(out.writer, tensor.name, tensor.name_len, bytes.data(), bytes.size()));
    progress.done(done += bytes.size());
  });
  check_change(st_writer_finish(out.writer));
  made.pass_on();
  forget_interrupt();  // it is there
}

void write_shape(Json &json, const std::vector<uint64_t> &shape) {
  json.key("shape");
  json.begin_array();
  for (uint64_t n : shape) json.value(n);
  json.end_array();
}

void write_json(Session &session, const Get &options, const Slice &slice) {
  Json json(session.out);
  json.begin_object();
  json.field("file", shown(options.file));
  json.field("name", name_of(slice.tensor()));
  json.field("dtype", st_dtype_name(slice.dtype()));
  if (slice.dtype() != slice.tensor().dtype) json.field("cast_from", st_dtype_name(slice.tensor().dtype));
  write_shape(json, slice.shape());
  json.field("nbytes", slice.nbytes());
  if (options.to_stdout()) {
    json.key("values");
    Progress progress(session.quiet, "reading", slice.nbytes());
    write_array(json, slice, piece_bytes, [&](uint64_t done) { progress.done(done); });
  } else {
    json.field("output", options.output);
  }
  json.end_object();
  session.out.write("\n");
}

// Nobody could tell the one from the other in what was written.
void refuse_mixture(const Session &session, Format format, bool is_standard_output, bool is_shown) {
  const char *what = format == Format::text ? "text" : "raw bytes";
  if (session.json && is_standard_output) {
    throw UsageFailure(fmt::format("--json and {} can't both be standard output: use -o FILE", what));
  }
  if (format != Format::text && is_shown) {
    throw UsageFailure("raw bytes are not for a terminal: use -o FILE, or a pipe");
  }
}

// Is it the model, one of its shards, their index, or a delta on it?
bool is_read(const std::string &path, const std::string &model, const File &file) {
  if (same_file(path, model)) return true;
  for (uint32_t i = 0; i < file.file_count(); ++i) {
    if (same_file(path, file.file_path(i))) return true;
  }
  std::error_code none;  // there is no entry if the model is no folder
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at(model, none); at != end; at.increment(none)) {
    const std::string name = at->path().filename().string();
    const bool is_index = name.find(".safetensors.index.") != name.npos && name.ends_with(".json");
    if (is_index && same_file(path, at->path().string())) return true;
  }
  return false;
}

int run(Session &session, const Get &options) {
  refuse_empty_slice(options.has_slice, options.slice);
  const Format format = format_of(options);
  std::optional<MadeFile> made;
  if (format == Format::safetensors) {
    made.emplace(session, options.to_stdout() ? "-" : options.output, "a safetensors file");
  } else if (options.to_stdout() && format != Format::text) {
    refuse_mixture(session, format, true, is_terminal(STDOUT_FILENO));
  }
  const File file(session, options.file, {.deltas = options.deltas});
  if (!options.to_stdout() && is_read(options.output, options.file, file)) {
    throw UsageFailure(fmt::format("-o '{}' would replace a file that is read", escape(options.output)));
  }
  const Interruptible guard(file.get());
  const Slice slice =
      look_at(file, [&] { return Slice(file, file.find(options.tensor), options.slice, parse_dtype(options.dtype)); });
  if (slice.dtype() != slice.tensor().dtype && !session.quiet) {
    say("note: " + cast_text(slice.tensor().dtype, slice.dtype()));
  }
  const auto write = [&](Output &out) {
    if (format == Format::text) {
      write_text(out, slice, options.limit);
    } else {
      write_bytes(out, session, slice, format == Format::npy);
    }
  };

  if (made) {
    write_safetensors(session, slice, *made);
    if (session.json) write_json(session, options, slice);
    return exit_ok;
  }
  if (options.to_stdout()) {
    if (session.json) {
      write_json(session, options, slice);
    } else {
      write(session.out);
    }
    return exit_ok;
  }
  OutputFile out(options.output);
  refuse_mixture(session, format, out.goes_to(STDOUT_FILENO), out.goes_to_terminal());
  write(out);
  out.commit();
  forget_interrupt();  // it is there
  if (session.json) write_json(session, options, slice);
  return exit_ok;
}

}  // namespace

void add_get(CommandLine &line, Session &session) {
  auto options = std::make_shared<Get>();
  const Command command =
      line.command("get",
                   "The values of a tensor, or of a slice of it\n\n"
                   "Prints values as NumPy does, all 22 dtypes decoded, with … in place of the middle of\n"
                   "large tensors; or writes the bytes, raw or as a .npy file (as ml_dtypes writes them where\n"
                   "NumPy has no such dtype), or a safetensors file of this tensor. Reads only the bytes that\n"
                   "it needs. A file is complete or not there. With --json all values are in \"values\",\n"
                   "nested; NaN and infinities are strings, complex numbers [re, im].",
                   "  stctl get model.safetensors lm_head.weight\n"
                   "  stctl get model.safetensors lm_head.weight --slice 0:2,:,::2\n"
                   "  stctl get model.safetensors lm_head.weight --slice=-1 -o last_row.npy\n"
                   "  stctl get model.safetensors lm_head.weight --cast F32 -o head.npy\n"
                   "  stctl get model.safetensors lm_head.weight -o - | sha256sum\n"
                   "  stctl get --json model.safetensors step | jq .values\n");
  command.argument("FILE", options->file, "A safetensors file").required();
  command.argument("TENSOR", options->tensor, "A tensor's name").required();
  options->has_slice = command.option("--slice", options->slice, "SLICE",
                                      "What to take of each dimension, as NumPy: start:stop:step,\n"
                                      "an index, or ... for all dimensions between");
  command.option("-o,--output", options->output, "FILE", "Write to a file; - is standard output").not_empty();
  command
      .option("--format", options->format, "FORMAT",
              "text, raw (little-endian, C order), npy or safetensors. Default:\n"
              "text; with -o, npy or safetensors if FILE ends so, else raw")
      .one_of({"text", "raw", "npy", "safetensors"});
  command
      .option("--limit", options->limit, "N",
              "Print all of at most N elements, else the edges; 0: always\n"
              "all (default 1000)")
      .at_least(0);
  command
      .option("--cast", options->dtype, "DTYPE",
              "As elements of another dtype: each to the nearest, ties to\n"
              "even. What is out of an integer's range, or of a float's that has\n"
              "no infinity, is refused")
      .not_empty();
  command.deltas(options->deltas);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
