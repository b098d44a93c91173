// stctl edit, stctl plan: many changes as one transaction, or what they would cost.
#include <memory>

#include "../commands.h"
#include "../steps.h"
#include "../text.h"

namespace stctl {
namespace {

struct Edit {
  std::string file;
  std::vector<std::string> removed, moved, pairs, keys, from;
  LayoutOptions layout;
};

// Where a word is forgotten, the option that follows would be the new name.
void check_new_names(const std::vector<std::string> &moved) {
  for (size_t i = 1; i < moved.size(); i += 2) {
    if (!moved[i].starts_with('-')) continue;
    throw UsageFailure(
        fmt::format("--mv takes a name and a new name, not '{}'; in one that begins with '-' that is "
                    "written \\x2d",
                    escape(moved[i])));
  }
}

int run(Session &session, const Edit &options, const char *label, bool dry_run) {
  check_new_names(options.moved);
  const File file(session, options.file, {.write = true, .lock_timeout_ms = options.layout.lock_timeout_ms});
  Steps steps;
  steps.remove(session, file, options.removed);
  for (size_t i = 0; i + 1 < options.moved.size(); i += 2) {
    steps.rename(session, file, options.moved[i], options.moved[i + 1]);
  }
  for (const std::string &path : options.from) steps.put_from(session, path, {});
  for (const std::string &pair : options.pairs) steps.set_metadata(pair);
  for (const std::string &key : options.keys) steps.remove_metadata(key);
  return steps.run(session, file, options.layout, label, dry_run);
}

void add(const Command &command, Session &session, const char *label, bool dry_run) {
  auto options = std::make_shared<Edit>();
  command.argument("FILE", options->file, "The safetensors file").required();
  command.option("--put-from", options->from, "FILE", "As stctl put --from").repeated().not_empty();
  command.option("--rm", options->removed, "TENSOR", "As stctl rm").repeated();
  command.option("--mv", options->moved, "TENSOR NAME", "As stctl mv").repeated(2);
  command.option("--meta", options->pairs, "KEY=VALUE", "As stctl meta").repeated();
  command.option("--remove-meta", options->keys, "KEY", "As stctl meta --remove").repeated();
  add_layout_options(command, options->layout);
  command.runs(session, [=, &session] { return run(session, *options, label, dry_run); });
}

}  // namespace

void add_edit(CommandLine &line, Session &session) {
  add(line.command("edit",
                   "Many changes as one transaction\n\n"
                   "Those of put, rm, mv and meta together: all of them, or none. Tensors are removed\n"
                   "first, then renamed, one --mv after the other, then put; metadata is set and removed\n"
                   "last, and a key not both. A new file takes the old one's place; see stctl put.\n"
                   "stctl plan takes the same options, and tells the cost first.",
                   "  stctl edit model.safetensors --rm 'layers.31.*' --mv 'model.*' 'transformer.*'\n"
                   "  stctl edit model.safetensors --put-from more.safetensors --meta format=pt\n"),
      session, "editing", false);
}

void add_plan(CommandLine &line, Session &session) {
  add(line.command("plan",
                   "What a change would cost, without making it\n\n"
                   "A dry run of stctl edit: bytes written, bytes shared with the old file, bytes\n"
                   "copied, space needed and free, and how it would be done. The file stays as it\n"
                   "is. It must be one that may be written, as plan opens it like stctl edit: what a\n"
                   "crashed writer left there is finished or dropped first.",
                   "  stctl plan model.safetensors --rm 'layers.31.*'\n"
                   "  stctl plan model.safetensors --put-from more.safetensors --meta format=pt\n"
                   "  stctl plan model.safetensors --mv old.name new.name --json\n"),
      session, "planning", true);
}

}  // namespace stctl
