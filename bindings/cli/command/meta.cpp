// stctl meta: show a file's metadata, or change it.
#include <memory>

#include "../commands.h"
#include "../json.h"
#include "../steps.h"
#include "../text.h"

namespace stctl {
namespace {

struct Meta {
  std::string file;
  std::vector<std::string> pairs, removed;
  LayoutOptions layout;
};

int show(Session &session, const std::string &path) {
  const File file(session, path);
  Json json(session.out);
  if (session.json) {
    json.begin_object();
    json.field("file", shown(path));
    json.key("metadata");
    json.begin_object();
  }
  for (size_t i = 0; i < st_metadata_count(file.get()); ++i) {
    const char *key = nullptr, *value = nullptr;
    size_t key_len = 0, value_len = 0;
    check(st_metadata_at(file.get(), i, &key, &key_len, &value, &value_len));
    if (session.json) {
      json.field({key, key_len}, std::string_view(value, value_len));
    } else {
      session.out.print("{}={}\n", escape({key, key_len}), escape({value, value_len}));
    }
  }
  if (session.json) {
    json.end_object();
    json.end_object();
    session.out.write("\n");
  }
  return exit_ok;
}

int run(Session &session, const Meta &options) {
  if (options.pairs.empty() && options.removed.empty()) {
    if (!are_given(options.layout)) return show(session, options.file);
    throw UsageFailure("only a change takes options of the layout: give KEY=VALUE or --remove; or see stctl edit");
  }
  const File file(session, options.file, {.write = true, .lock_timeout_ms = options.layout.lock_timeout_ms});
  Steps steps;
  for (const std::string &pair : options.pairs) steps.set_metadata(pair);
  for (const std::string &key : options.removed) steps.remove_metadata(key);
  return steps.run(session, file, options.layout, "writing", false);
}

}  // namespace

void add_meta(CommandLine &line, Session &session) {
  auto options = std::make_shared<Meta>();
  const Command command =
      line.command("meta",
                   "Show the metadata, or change it\n\n"
                   "Without pairs and --remove it prints what there is. Changes make a new file that takes\n"
                   "the old one's place; see stctl put. Pairs are set in the order in which they are given,\n"
                   "so the last of a key counts; a key that is set can't be removed, too.\n"
                   "Keys are taken as they are printed, with \\n, \\x00 and other escapes. A VALUE is taken\n"
                   "letter by letter, but is printed with escapes; --json prints it as it is.",
                   "  stctl meta model.safetensors\n"
                   "  stctl meta model.safetensors format=pt author=me\n"
                   "  stctl meta model.safetensors --remove author\n");
  command.argument("FILE", options->file, "The safetensors file").required();
  command.argument("KEY=VALUE", options->pairs, "Pairs to set");
  command.option("--remove", options->removed, "KEY", "A key to remove").repeated();
  add_layout_options(command, options->layout);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
