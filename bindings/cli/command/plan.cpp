// stctl plan: what a change would cost, without touching anything.
#include <memory>

#include "../commands.h"
#include "../steps.h"

namespace stctl {
namespace {

struct Plan {
  std::string file;
  std::vector<std::string> removed, moved, pairs, keys, from;
  LayoutOptions layout;
};

int run(Session &session, const Plan &options) {
  if (options.moved.size() % 2 != 0) throw UsageFailure("--mv takes a name and a new name");
  const File file(session, options.file, {.write = true, .lock_timeout_ms = options.layout.lock_timeout_ms});
  Steps steps;
  steps.remove(file, options.removed);
  for (size_t i = 0; i + 1 < options.moved.size(); i += 2) steps.rename(file, options.moved[i], options.moved[i + 1]);
  for (const std::string &path : options.from) steps.put_from(session, path, {});
  for (const std::string &pair : options.pairs) steps.set_metadata(pair);
  for (const std::string &key : options.keys) steps.remove_metadata(key);
  return steps.run(session, file, options.layout, "planning", true);
}

}  // namespace

void add_plan(CommandLine &line, Session &session) {
  auto options = std::make_shared<Plan>();
  const Command command =
      line.command("plan",
                   "What a change would cost, without making it\n\n"
                   "A dry run of put, rm, mv and meta together: bytes written, bytes shared with the old\n"
                   "file, bytes copied, space needed and free, and how it would be done. Nothing is\n"
                   "touched.",
                   "  stctl plan model.safetensors --rm 'layers.31.*'\n"
                   "  stctl plan model.safetensors --put-from more.safetensors --meta format=pt\n"
                   "  stctl plan model.safetensors --mv old.name new.name --json\n");
  command.argument("FILE", options->file, "The safetensors file").required();
  const auto many = [command](const char *name, std::vector<std::string> &values, const char *type, const char *what,
                              int each) { command.option(name, values, type, what).repeated(each); };
  many("--put-from", options->from, "FILE", "As stctl put --from", 1);
  many("--rm", options->removed, "TENSOR", "As stctl rm", 1);
  many("--mv", options->moved, "TENSOR NAME", "As stctl mv", 2);
  many("--meta", options->pairs, "KEY=VALUE", "As stctl meta", 1);
  many("--remove-meta", options->keys, "KEY", "As stctl meta --remove", 1);
  add_layout_options(command, options->layout);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
