// stctl compact: rewrite a file in canonical order, without spare room.
#include <memory>
#include <utility>

#include "../commands.h"
#include "../interrupt.h"
#include "../json.h"
#include "../progress.h"
#include "../steps.h"
#include "../text.h"

namespace stctl {
namespace {

struct Compact {
  std::string file;
  LayoutOptions layout;
};

int run(Session &session, const Compact &options) {
  const auto [before, names_before] = [&] {
    const File file(session, options.file, {.warns_later = true});
    return std::pair(file.size_of_files(), ShardNames(file, options.layout.new_names));
  }();
  throw_if_interrupted();
  {
    const Interruptible guard(nullptr);
    Progress progress(session.quiet, "compacting", 0);
    st_txn_options opts = txn_options(options.layout);
    opts.progress = Progress::callback;
    opts.progress_user = &progress;
    check(st_compact(options.file.c_str(), &opts));
    forget_interrupt();
  }
  const File file(session, options.file, {.warns_later = true});
  const uint64_t after = file.size_of_files();
  const size_t shards = file.file_count();
  ShardNames names = names_before;
  names.compare(file);
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", options.file);
    json.field("shards", uint64_t{shards});
    json.field("size_before", before);
    json.field("file_size", after);
    names.write(json);
    json.end_object();
    session.out.write("\n");
  } else {
    session.out.print("compacted {}: {}{} before, {} after\n", escape(options.file),
                      shards == 1 ? "" : counted(shards, "shard") + ", ", counted(before, "byte"),
                      counted(after, "byte"));
    names.tell(session.out);
  }
  return exit_ok;
}

}  // namespace

void add_compact(CommandLine &line, Session &session) {
  auto options = std::make_shared<Compact>();
  const Command command =
      line.command("compact",
                   "Rewrite a file without spare room\n\n"
                   "Tensors by descending dtype then name, and the header no longer than it must be;\n"
                   "on xfs and btrfs less than a block longer, where that lets blocks be shared.\n"
                   "The new file takes the old one's place, whole. Shards are rewritten one after the\n"
                   "other: a failure leaves those that are done.",
                   "  stctl compact model.safetensors\n"
                   "  stctl compact model.safetensors --align 4096 --reserve 65536\n");
  command.argument("FILE", options->file, "The safetensors file").required();
  command.lock_timeout(options->layout.lock_timeout_ms);
  command.option("--align", options->layout.alignment, "BYTES", "Let data begin at a multiple of BYTES (default 64)");
  command.option("--reserve", options->layout.reserve, "BYTES", "Leave BYTES of spare room in the header").at_least(0);
  command.flag("--break-links", options->layout.break_links,
               "Change a file that has other hard links, which keep the\nold bytes");
  add_new_names_options(command, options->layout.new_names);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
