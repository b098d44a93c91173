// stctl mv: give tensors other names.
#include <memory>

#include "../commands.h"
#include "../steps.h"

namespace stctl {
namespace {

struct Move {
  std::string file, from, to;
  LayoutOptions layout;
};

int run(Session &session, const Move &options) {
  const File file(session, options.file, {.write = true, .lock_timeout_ms = options.layout.lock_timeout_ms});
  Steps steps;
  steps.rename(session, file, options.from, options.to);
  return steps.run(session, file, options.layout, "renaming", false);
}

}  // namespace

void add_mv(CommandLine &line, Session &session) {
  auto options = std::make_shared<Move>();
  const Command command =
      line.command("mv",
                   "Rename tensors\n\n"
                   "One by its name; or all that match a shell pattern: then each * of the new name\n"
                   "stands for what the same * of the pattern matched, the shortest that will do.\n"
                   "In the new name \\* is the star itself, and \\\\ a backslash.\n"
                   "A name that is taken is refused. A new file takes the old one's place; see stctl put.",
                   "  stctl mv model.safetensors model.norm.weight norm.weight\n"
                   "  stctl mv model.safetensors 'model.*' 'transformer.*'\n");
  command.argument("FILE", options->file, "The safetensors file to change").required();
  command.argument("TENSOR", options->from, "Its name, or a pattern").required();
  command.argument("NAME", options->to, "Its new name; a * for each of the pattern").required();
  add_layout_options(command, options->layout);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
