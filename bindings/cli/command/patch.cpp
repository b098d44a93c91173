// stctl patch: apply a delta to its base.
#include <memory>

#include "../commands.h"
#include "../delta.h"
#include "../failure.h"
#include "../interrupt.h"
#include "../output.h"
#include "../progress.h"
#include "../sized.h"
#include "../text.h"

namespace stctl {
namespace {

struct Patch {
  std::string base, delta, reverse;
  bool publish = false, break_links = false;
  int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT;
};

const char *kind_name(uint32_t kind) {
  return kind == ST_PLAN_PATCH ? "patch" : kind == ST_PLAN_PUBLISH ? "publish" : "nothing";
}

int run(Session &session, const Patch &options) {
  if (!options.reverse.empty() && is_stream(options.reverse)) {
    throw UsageFailure(fmt::format(
        "the reverse delta is on the disk before the change is decided, and '{}' is a stream: give --reverse "
        "the name of a file",
        escape(options.reverse)));
  }
  const std::string reverse = options.reverse.empty() ? "" : target_of(options.reverse);
  const st_delta_info info = delta_info(options.delta);
  auto plan = sized<st_plan>();
  throw_if_interrupted();
  {
    const Interruptible guard(nullptr);
    Progress progress(session.quiet, "patching", 0);
    auto opts = sized<st_delta_apply_options>();
    opts.flags = (options.publish ? ST_TXN_PUBLISH : 0) | (options.break_links ? ST_TXN_BREAK_LINKS : 0);
    opts.reverse = reverse.empty() ? nullptr : reverse.c_str();
    opts.lock_timeout_ms = options.lock_timeout_ms;
    opts.progress = Progress::callback;
    opts.progress_user = &progress;
    check_change(st_delta_apply(options.base.c_str(), options.delta.c_str(), &opts, &plan));
    forget_interrupt();  // it is done
  }
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", options.base);
    json.field("delta", shown(options.delta));
    if (!options.reverse.empty()) json.field("reverse", options.reverse);
    json.field("kind", kind_name(plan.kind));
    json.field("bytes_written", plan.bytes_written);
    json.field("bytes_shared", plan.bytes_shared);
    json.field("bytes_copied", plan.bytes_copied);
    write_delta(json, info);
    json.end_object();
    session.out.write("\n");
  } else {
    session.out.print("patched {}: {}\n{}\n", escape(options.base), delta_summary(info), plan.how);
  }
  return exit_ok;
}

}  // namespace

void add_patch(CommandLine &line, Session &session) {
  auto options = std::make_shared<Patch>();
  const Command command =
      line.command("patch",
                   "Apply a delta to its base\n\n"
                   "As one transaction, whole or not at all: in place if only the bytes of tensors change,\n"
                   "else by a new file that takes the old one's place. A base that the delta was not made\n"
                   "for, or that has it already, is refused. With --reverse the delta that undoes this one\n"
                   "is on the disk before the change is decided; a FILE that is there is replaced. Give\n"
                   "each apply a reverse name of its own: an earlier one may be the only way back.",
                   "  stctl patch model.safetensors tuned.delta --reverse back.delta\n"
                   "  stctl patch model.safetensors back.delta\n");
  command.argument("BASE", options->base, "The file to change, or the index of shards, or its folder").required();
  command.argument("DELTA", options->delta, "A delta, as stctl diff makes them").required();
  command.option("--reverse", options->reverse, "FILE", "Write the delta that undoes this one").not_empty();
  command.flag("--atomic", options->publish, "Make a new file in any case, so that no reader sees a mix");
  command.flag("--break-links", options->break_links,
               "Change a file that has other hard links, which keep the\nold bytes");
  command.lock_timeout(options->lock_timeout_ms);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
