// stctl merge: a base and deltas folded into a new file.
#include <memory>

#include "../commands.h"
#include "../handle.h"
#include "../interrupt.h"
#include "../json.h"
#include "../made_file.h"
#include "../progress.h"
#include "../text.h"

namespace stctl {
namespace {

struct Merge {
  std::string base, output;
  std::vector<std::string> deltas;
  bool canonical = false;
  uint32_t alignment = 0;
  uint64_t reserve = 0;
  int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT;
};

int run(Session &session, const Merge &options) {
  MadeFile made(session, options.output, "a model");
  std::vector<const char *> deltas;
  for (const std::string &path : options.deltas) deltas.push_back(path.c_str());
  uint64_t size = 0, tensors = 0;
  {
    const Interruptible guard(nullptr);
    Progress progress(session.quiet, "merging", 0);
    auto opts = sized<st_save_options>();
    opts.layout = options.canonical ? ST_LAYOUT_CANONICAL : ST_LAYOUT_KEEP;
    opts.alignment = options.alignment;
    opts.header_reserve = options.reserve;
    opts.lock_timeout_ms = options.lock_timeout_ms;
    opts.progress = Progress::callback;
    opts.progress_user = &progress;
    check_change(st_delta_merge(options.base.c_str(), deltas.data(), deltas.size(), made.path().c_str(), &opts));
    if (!made.is_stream()) forget_interrupt();  // it is made
    {
      const File file(session, made.path());
      size = file.io_info().file_size;
      tensors = file.count();
    }
    made.pass_on();
    forget_interrupt();
  }
  if (made.is_standard_output()) return exit_ok;
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", shown(options.base));
    json.field("output", options.output);
    json.field("count", tensors);
    json.field("file_size", size);
    json.end_object();
    session.out.write("\n");
  } else {
    session.out.print("{}: {}, {}\n", escape(options.output), counted(tensors, "tensor"), human_size(size));
  }
  return exit_ok;
}

}  // namespace

void add_merge(CommandLine &line, Session &session) {
  auto options = std::make_shared<Merge>();
  const Command command =
      line.command("merge",
                   "Fold deltas and their base into a new file\n\n"
                   "Each delta must be made for what lies before it. The base is left as it is; where the\n"
                   "filesystem can, the new file shares blocks with it. Shards, too, become one file; see\n"
                   "stctl shard to cut that up again. All are read in one state: whoever changes them\n"
                   "meanwhile waits. A FILE that is there is replaced, but not the base or a delta.",
                   "  stctl merge base.safetensors tuned.delta -o tuned.safetensors\n"
                   "  stctl merge base.safetensors step1.delta step2.delta -o step2.safetensors\n");
  command.argument("BASE", options->base, "A safetensors file, an index of shards, or a folder of one").required();
  command.argument("DELTA", options->deltas, "Deltas, the oldest first").required();
  command.option("-o,--output", options->output, "FILE", "The new file; - is standard output").required().not_empty();
  command.flag("--canonical", options->canonical, "Tensors by descending dtype, then name");
  command.option("--align", options->alignment, "BYTES", "Let data begin at a multiple of BYTES");
  command.option("--reserve", options->reserve, "BYTES", "Leave BYTES of spare room in the header").at_least(0);
  command.lock_timeout(options->lock_timeout_ms);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
