// stctl diff: the difference of two files, as a delta.
#include <memory>

#include "../commands.h"
#include "../delta.h"
#include "../failure.h"
#include "../interrupt.h"
#include "../made_file.h"
#include "../progress.h"
#include "../sized.h"
#include "../text.h"

namespace stctl {
namespace {

struct Diff {
  std::string from, to;
  std::string output;  // "" or "-": standard output
  uint32_t alignment = 0;
  int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT;
};

int run(Session &session, const Diff &options) {
  MadeFile made(session, options.output.empty() ? "-" : options.output, "a delta");
  st_delta_info info;
  {
    const Interruptible guard(nullptr);
    Progress progress(session.quiet, "comparing", 0);
    auto opts = sized<st_delta_create_options>();
    opts.alignment = options.alignment;
    opts.lock_timeout_ms = options.lock_timeout_ms;
    opts.progress = Progress::callback;
    opts.progress_user = &progress;
    check_change(st_delta_create(options.from.c_str(), options.to.c_str(), made.path().c_str(), &opts));
    if (!made.is_stream()) forget_interrupt();  // it is made
    info = delta_info(made.path());
    made.pass_on();
    forget_interrupt();
  }
  if (made.is_standard_output()) return exit_ok;
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("from", shown(options.from));
    json.field("to", shown(options.to));
    json.field("output", options.output);
    write_delta(json, info);
    json.end_object();
    session.out.write("\n");
  } else {
    session.out.print("{}: {}\n", escape(options.output), delta_summary(info));
  }
  return exit_ok;
}

}  // namespace

void add_diff(CommandLine &line, Session &session) {
  auto options = std::make_shared<Diff>();
  const Command command =
      line.command("diff",
                   "What makes one file of another, as a delta\n\n"
                   "Compares A and B tensor by tensor and writes a delta: a safetensors file that holds\n"
                   "the tensors of B that A has not, or has with other bytes, dtype or shape; its metadata\n"
                   "says what else is to be done, and to which base. See stctl patch and stctl merge.\n"
                   "Either may be sharded: give its index, or the folder.\n"
                   "With -o the delta is written whole and durably, or not at all; a FILE that is there is\n"
                   "replaced.",
                   "  stctl diff base.safetensors tuned.safetensors > tuned.delta\n"
                   "  stctl diff base.safetensors tuned.safetensors -o tuned.delta --json\n"
                   "  stctl ls tuned.delta           a delta is a safetensors file\n");
  command.argument("A", options->from, "The base").required();
  command.argument("B", options->to, "What is to be made of it").required();
  command.option("-o,--output", options->output, "FILE", "Write to a file; - is standard output").not_empty();
  command.option("--align", options->alignment, "BYTES", "Let data begin at a multiple of BYTES (default 64)");
  command.lock_timeout(options->lock_timeout_ms);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
