// stctl mv: give a tensor another name.
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
  steps.rename(file, options.from, options.to);
  return steps.run(session, file, options.layout, "renaming", false);
}

}  // namespace

void add_mv(CLI::App &app, Session &session) {
  auto options = std::make_shared<Move>();
  CLI::App *command =
      add_command(app, session, "mv",
                  "Rename a tensor\n\n"
                  "A name that is taken is refused. A new file takes the old one's place; see stctl put.",
                  "  stctl mv model.safetensors model.norm.weight norm.weight\n");
  command->add_option("FILE", options->file, "The safetensors file to change")->required()->type_name("");
  command->add_option("TENSOR", options->from, "Its name")->required()->type_name("");
  command->add_option("NAME", options->to, "Its new name")->required()->type_name("");
  add_layout_options(*command, options->layout);
  command->callback([&session, options] { session.run = [&session, options] { return run(session, *options); }; });
}

}  // namespace stctl
