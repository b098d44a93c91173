// stctl shard, stctl join: a checkpoint as shards with an index, or as one file.
#include <algorithm>
#include <memory>

#include "../commands.h"
#include "../exit_code.h"
#include "../failure.h"
#include "../handle.h"
#include "../interrupt.h"
#include "../json.h"
#include "../made_file.h"
#include "../progress.h"
#include "../text.h"

namespace stctl {
namespace {

struct Reshape {
  std::string from, to, size;
  int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT;
};

// "5GB", "500MB", "5000000", "4GiB": as Hugging Face spells sizes, where GB is 10^9. "4G" as coreutils: 2^30.
uint64_t bytes_of(const std::string &size) {
  size_t end = 0;
  double number = 0;
  try {
    number = std::stod(size, &end);
  } catch (const std::exception &) {
    end = 0;
  }
  const std::string unit = size.substr(end);
  const std::pair<const char *, double> units[] = {
      {"", 1},         {"B", 1},        {"KB", 1e3},     {"MB", 1e6},   {"GB", 1e9},   {"TB", 1e12},  {"KiB", 0x1p10},
      {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40}};
  for (const auto &[name, factor] : units)
    if (end > 0 && unit == name && number > 0 && number * factor >= 1 && number * factor < 9e18)
      return static_cast<uint64_t>(number * factor);
  throw UsageFailure(fmt::format("{} is no size such as 5GB, 500MB or 4G", escape(size)));
}

template <class Call>
void run_with_progress(Session &session, const char *doing, const Reshape &options, Call call) {
  throw_if_interrupted();
  const Interruptible guard(nullptr);
  Progress progress(session.quiet, doing, 0);
  auto opts = sized<st_save_options>();
  opts.lock_timeout_ms = options.lock_timeout_ms;
  opts.progress = Progress::callback;
  opts.progress_user = &progress;
  call(opts);
  forget_interrupt();  // it is made
}

void tell(Session &session, const Reshape &options, const char *done, size_t shards) {
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", shown(options.from));
    json.field("to", options.to);
    json.field("shards", static_cast<uint64_t>(shards));
    json.end_object();
    session.out.write("\n");
  } else {
    session.out.print("{} {}: {}\n", done, escape(options.to), counted(shards, "file"));
  }
}

int run_shard(Session &session, const Reshape &options) {
  const uint64_t size = bytes_of(options.size);
  run_with_progress(session, "sharding", options, [&](const st_save_options &opts) {
    check_change(st_reshard(options.from.c_str(), options.to.c_str(), size, &opts));
  });
  // The index of a model without tensors names no shard, but there is one.
  const uint32_t named = File(session, options.to).file_count();
  tell(session, options, "sharded into", std::max(named, 1u));
  return exit_ok;
}

int run_join(Session &session, const Reshape &options) {
  MadeFile made(session, options.to, "a model");
  run_with_progress(session, "joining", options, [&](const st_save_options &opts) {
    check_change(st_join(options.from.c_str(), made.path().c_str(), &opts));
    made.pass_on();
  });
  if (!made.is_standard_output()) tell(session, options, "joined into", 1);
  return exit_ok;
}

}  // namespace

void add_shard(CommandLine &line, Session &session) {
  auto options = std::make_shared<Reshape>();
  const Command command =
      line.command("shard",
                   "Write a checkpoint as shards with an index\n\n"
                   "Into FOLDER, which may not hold a checkpoint yet, named as Hugging Face names them.\n"
                   "Tensors keep their order; one that is larger than SIZE gets a shard to itself.\n\n"
                   "MODEL is copied in one state: whoever changes it meanwhile waits. If this process is\n"
                   "killed, the next stctl shard into FOLDER removes what it left there.",
                   "  stctl shard model.safetensors sharded --max-size 5GB\n");
  command.argument("MODEL", options->from, "A file, an index of shards, or a folder with one").required();
  command.argument("FOLDER", options->to, "Made if it is not there").required();
  command
      .option("--max-size", options->size, "SIZE",
              "Bytes of tensors in a shard, at most. 5GB is\n5 * 10^9, as for Hugging Face; 5G and 5GiB are 5 * 2^30")
      .required();
  command.lock_timeout(options->lock_timeout_ms);
  command.runs(session, [&session, options] { return run_shard(session, *options); });
}

void add_join(CommandLine &line, Session &session) {
  auto options = std::make_shared<Reshape>();
  const Command command =
      line.command("join",
                   "Write a sharded checkpoint as one file\n\n"
                   "FILE is replaced whole if it is there, as by any save. Where it is standard output, a\n"
                   "pipe or a device, the model is first made under $TMPDIR.\n\n"
                   "MODEL is copied in one state: whoever changes it meanwhile waits.",
                   "  stctl join sharded model.safetensors\n"
                   "  stctl join sharded/model.safetensors.index.json model.safetensors\n"
                   "  stctl join sharded - | ssh host 'cat > model.safetensors'\n");
  command.argument("MODEL", options->from, "An index of shards, or the folder that holds it").required();
  command.argument("FILE", options->to, "The file to be written; - is standard output").required();
  command.lock_timeout(options->lock_timeout_ms);
  command.runs(session, [&session, options] { return run_join(session, *options); });
}

}  // namespace stctl
