// stctl put: add tensors to a file, or replace them by others of any dtype and shape.
#include <memory>

#include "../commands.h"
#include "../steps.h"

namespace stctl {
namespace {

struct Put {
  std::string file;
  std::vector<std::string> names;
  std::string raw, npy, from, dtype, shape;
  CLI::Option *has_raw = nullptr, *has_npy = nullptr, *has_from = nullptr, *has_shape = nullptr;
  LayoutOptions layout;
};

int run(Session &session, const Put &options) {
  const int sources = !!*options.has_raw + !!*options.has_npy + !!*options.has_from;
  if (sources != 1) throw UsageFailure("one of --npy, --from-raw and --from is needed");
  if (!*options.has_from && options.names.size() != 1) {
    throw UsageFailure(fmt::format("--npy and --from-raw put one tensor, but {} were named", options.names.size()));
  }
  if (*options.has_raw && (options.dtype.empty() || !*options.has_shape)) {
    throw UsageFailure("--from-raw needs --dtype and --shape");
  }
  Steps steps;
  if (*options.has_from) {
    steps.put_from(session, options.from, options.names);
  } else if (*options.has_npy) {
    steps.put_npy(options.names[0], options.npy);
  } else {
    steps.put_raw(options.names[0], options.raw, options.dtype, options.shape);
  }
  const File file(session, options.file, {.write = true, .lock_timeout_ms = options.layout.lock_timeout_ms});
  return steps.run(session, file, options.layout, "putting", false);
}

}  // namespace

void add_put(CLI::App &app, Session &session) {
  auto options = std::make_shared<Put>();
  CLI::App *command =
      add_command(app, session, "put",
                  "Add tensors, or replace them by any dtype and shape\n\n"
                  "A new file is made beside the old one and takes its name: every reader sees the\n"
                  "old file or the new one, whole. Where the filesystem can (xfs, btrfs) both share\n"
                  "what stays, so adding costs what is added; elsewhere the kernel copies. A tensor\n"
                  "that is replaced keeps its place; others come last. stctl plan tells the cost first.",
                  "  stctl put model.safetensors lora.weight --npy lora.npy\n"
                  "  stctl put model.safetensors --from more.safetensors            all of its tensors\n"
                  "  generate | stctl put model.safetensors w --from-raw - --dtype BF16 --shape 4096,4096\n");
  command->add_option("FILE", options->file, "The safetensors file to change")->required()->type_name("");
  command->add_option("TENSOR", options->names, "Names: one; with --from any number, none for all")->type_name("");
  options->has_npy = command->add_option("--npy", options->npy, "A NumPy file")->type_name("FILE");
  options->has_raw =
      command->add_option("--from-raw", options->raw, "Little-endian elements in C order; - is standard input")
          ->type_name("FILE");
  options->has_from =
      command->add_option("--from", options->from, "Tensors of another safetensors file")->type_name("FILE");
  command->add_option("--dtype", options->dtype, "Of raw bytes: F32, BF16, F8_E4M3 …")->type_name("DTYPE");
  options->has_shape = command->add_option("--shape", options->shape, "Of raw bytes: 2,3; \"\" is a scalar")
                           ->type_name("N,N")
                           ->expected(1);
  add_layout_options(*command, options->layout);
  command->callback([&session, options] { session.run = [&session, options] { return run(session, *options); }; });
}

}  // namespace stctl
