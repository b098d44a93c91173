// stctl verify: is this a good safetensors file?
#include <algorithm>
#include <memory>

#include "../commands.h"
#include "../delta.h"
#include "../findings.h"
#include "../handle.h"
#include "../input.h"
#include "../interrupt.h"
#include "../progress.h"
#include "../text.h"

namespace stctl {
namespace {

struct Verify {
  std::vector<std::string> files, deltas;
};

void tell_counts(uint64_t files, uint64_t tensors, uint64_t bytes, const char *file_noun, Outcome &outcome) {
  outcome.facts = {{"shards", files}, {"tensors", tensors}, {"bytes", bytes}};
  outcome.summary = fmt::format("ok ({}{}, {})", files == 1 ? "" : counted(files, file_noun) + ", ",
                                counted(tensors, "tensor"), counted(bytes, "byte"));
}

// st_open would finish what a crashed writer left, and verify changes nothing: so a journal that waits is counted
// around, in memory, where the file is one, and not at all where there are several.
void count(Session &session, const std::string &path, const std::vector<std::string> &deltas, Outcome &outcome) {
  outcome.summary = "ok";
  const auto waits = [](const Finding &finding) { return finding.level != ST_LOG_INFO; };
  if (std::none_of(outcome.findings.begin(), outcome.findings.end(), waits)) {
    const File base(session, path);
    uint64_t files = base.file_count(), tensors = base.count(), bytes = base.size_of_files();
    // Not by a look through them: that holds tensors in memory of which they have elements alone.
    for (const std::string &delta : deltas) {
      const st_delta_info info = delta_info(delta);
      files += 1;
      tensors += info.added - info.deleted;
      bytes += info.file_size;
    }
    return tell_counts(files, tensors, bytes, deltas.empty() ? "shard" : "file", outcome);
  }
  const std::optional<Input> input = Input::map(path);
  st_file *file = nullptr;
  if (!input || st_open_memory(input->bytes().data(), input->bytes().size(), &file) != ST_OK) return;
  tell_counts(1, st_count(file), input->bytes().size(), "file", outcome);
  st_close(file);
}

Outcome verify(Session &session, const std::string &path, const std::vector<std::string> &deltas) {
  Outcome outcome;
  outcome.notes_are_details = true;
  st_status status;
  {
    Interruptible interruptible(nullptr);
    Progress progress(session.quiet, "reading", 0);
    auto options = sized<st_verify_options>();
    options.report = collect_finding;
    options.report_user = &outcome.findings;
    options.progress = Progress::callback;
    options.progress_user = &progress;
    std::vector<const char *> layers;
    for (const std::string &delta : deltas) layers.push_back(delta.c_str());
    options.deltas = layers.data();
    options.delta_count = layers.size();
    status = st_verify(path.c_str(), &options);
  }
  throw_if_interrupted();
  if (status == ST_OK) {
    count(session, path, deltas, outcome);
    return outcome;
  }
  const Failure failure = Failure::of_libst(status);
  const bool is_bad =
      is_format_status(status) || status == ST_E_JOURNAL || status == ST_E_DELTA || status == ST_E_DELTA_BASE;
  outcome.is_verdict = is_bad || status == ST_E_NEEDS_RECOVERY;
  outcome.failure = is_bad ? failure.with_exit_code(exit_bad_file) : failure;
  return outcome;
}

}  // namespace

void add_verify(CommandLine &line, Session &session) {
  auto options = std::make_shared<Verify>();
  const Command command =
      line.command("verify",
                   "Check files against every rule of the format\n\n"
                   "Checks the header and the layout of each file and reads all its bytes once, so that\n"
                   "a bad disk shows too. Prints what it finds, and as the last line of each file\n"
                   "\"FILE: ok (…)\" or what is wrong. Changes nothing; journals that wait for recovery\n"
                   "are reported and left alone. With --delta also the deltas are checked, and that they\n"
                   "fit the file and each other, to the last byte.",
                   "  stctl verify model.safetensors\n"
                   "  stctl verify base.safetensors --delta tuned.delta\n"
                   "  stctl verify --json *.safetensors | jq -r '.files[] | select(.ok | not).file'\n");
  command.argument("FILE", options->files, "Safetensors files").required();
  command.deltas(options->deltas);
  command.runs(session, [&session, options] {
    if (!options->deltas.empty() && options->files.size() > 1)
      throw UsageFailure("--delta lies on one file, not on several");
    return tell_outcomes(session, options->files,
                         [&](const std::string &file) { return verify(session, file, options->deltas); });
  });
}

}  // namespace stctl
