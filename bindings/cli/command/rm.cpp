// stctl rm: remove tensors from a file.
#include <memory>

#include "../commands.h"
#include "../steps.h"

namespace stctl {
namespace {

struct Remove {
  std::string file;
  std::vector<std::string> names;
  LayoutOptions layout;
};

int run(Session &session, const Remove &options) {
  const File file(session, options.file, {.write = true, .lock_timeout_ms = options.layout.lock_timeout_ms});
  Steps steps;
  steps.remove(session, file, options.names);
  return steps.run(session, file, options.layout, "removing", false);
}

}  // namespace

void add_rm(CommandLine &line, Session &session) {
  auto options = std::make_shared<Remove>();
  const Command command =
      line.command("rm",
                   "Remove tensors\n\n"
                   "By name as ls prints it; or if there is none of that name, by shell pattern; see\n"
                   "stctl ls. A new file without them takes the old one's place; see stctl put.",
                   "  stctl rm model.safetensors lm_head.weight\n"
                   "  stctl rm model.safetensors 'layers.31.*'\n");
  command.argument("FILE", options->file, "The safetensors file to change").required();
  command.argument("TENSOR", options->names, "Names, or patterns").required();
  add_layout_options(command, options->layout);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
