// stctl put: add tensors to a file, or replace them by others of any dtype and shape.
#include <memory>

#include "../commands.h"
#include "../steps.h"

namespace stctl {
namespace {

struct Put {
  std::string file;
  std::vector<std::string> names;
  std::string raw, npy, from, dtype, shape, cast;
  Option has_raw, has_npy, has_from, has_shape;
  LayoutOptions layout;
};

int run(Session &session, const Put &options) {
  const size_t sources = size_t{options.has_raw.given()} + options.has_npy.given() + options.has_from.given();
  check_one_source(sources, "--npy, --from-raw and --from");
  if (!options.has_from.given() && options.names.size() != 1) {
    throw UsageFailure(fmt::format("--npy and --from-raw put one tensor, but {} were named", options.names.size()));
  }
  if (options.has_raw.given() && (options.dtype.empty() || !options.has_shape.given())) {
    throw UsageFailure("--from-raw needs --dtype and --shape");
  }
  if (!options.has_raw.given() && options.has_shape.given()) throw UsageFailure("--shape goes with --from-raw");
  if (options.has_from.given() && !options.dtype.empty()) {
    throw UsageFailure("--dtype goes with --from-raw and --npy; --cast changes elements");
  }
  const bool will_cast = !options.cast.empty();
  Steps steps;
  if (options.has_from.given()) {
    steps.put_from(session, options.from, options.names);
  } else if (options.has_npy.given()) {
    steps.put_npy(options.names[0], options.npy, options.dtype, will_cast);
  } else {
    steps.put_raw(options.names[0], options.raw, options.dtype, options.shape, will_cast);
  }
  if (will_cast) steps.cast_puts(parse_dtype(options.cast));
  const File file(session, options.file, {.write = true, .lock_timeout_ms = options.layout.lock_timeout_ms});
  return steps.run(session, file, options.layout, "putting", false);
}

}  // namespace

void add_put(CommandLine &line, Session &session) {
  auto options = std::make_shared<Put>();
  const Command command =
      line.command("put",
                   "Add tensors, or replace them by any dtype and shape\n\n"
                   "A new file is made beside the old one and takes its name: every reader sees the\n"
                   "old file or the new one, whole. Where the filesystem can (xfs, btrfs) both share\n"
                   "what stays, so adding costs what is added; elsewhere the kernel copies. A tensor\n"
                   "that is replaced keeps its place; others come last. What --from would cost, all of its\n"
                   "tensors, stctl plan --put-from tells first.",
                   "  stctl put model.safetensors lora.weight --npy lora.npy\n"
                   "  stctl put model.safetensors --from more.safetensors            all of its tensors\n"
                   "  generate | stctl put model.safetensors w --from-raw - --dtype BF16 --shape 4096,4096\n");
  command.argument("FILE", options->file, "The safetensors file to change").required();
  command.argument("TENSOR", options->names, "Names: one; with --from any number, none for all");
  options->has_npy = command.option("--npy", options->npy, "FILE", "A NumPy file").not_empty();
  options->has_raw =
      command.option("--from-raw", options->raw, "FILE", "Little-endian elements in C order; - is standard input")
          .not_empty();
  options->has_from =
      command.option("--from", options->from, "FILE", "Tensors of another safetensors file").not_empty();
  command
      .option("--dtype", options->dtype, "DTYPE",
              "Of raw bytes: F32, BF16, F8_E4M3 …; or of a NumPy file whose\n"
              "elements are of one byte that it does not name ('V1')")
      .not_empty();
  command
      .option("--cast", options->cast, "DTYPE",
              "Put elements of this dtype: each the nearest, ties to even. What\n"
              "is out of an integer's range, or of a float's that has no\n"
              "infinity, is refused")
      .not_empty();
  options->has_shape =
      command.option("--shape", options->shape, "N,N", "Of raw bytes: 2,3; \"\" is a scalar").one_word();
  add_layout_options(command, options->layout);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
