// stctl verify: is this a good safetensors file?
#include <memory>

#include "../commands.h"
#include "../findings.h"
#include "../input.h"
#include "../interrupt.h"
#include "../progress.h"
#include "../text.h"

namespace stctl {
namespace {

struct Verify {
  std::vector<std::string> files, deltas;
};

// Counted without st_open, which would finish what a crashed writer left: verify changes nothing.
void count(const std::string &path, Outcome &outcome) {
  const std::optional<Input> input = Input::map(path);
  st_file *file = nullptr;
  if (!input || st_open_memory(input->bytes().data(), input->bytes().size(), &file) != ST_OK) {
    outcome.summary = "ok";
    return;
  }
  const uint64_t tensors = st_count(file);
  const uint64_t bytes = input->bytes().size();
  st_close(file);
  outcome.facts = {{"tensors", tensors}, {"bytes", bytes}};
  outcome.summary = fmt::format("ok ({}, {})", counted(tensors, "tensor"), counted(bytes, "byte"));
}

Outcome verify(Session &session, const std::string &path, const std::vector<std::string> &deltas) {
  Outcome outcome;
  outcome.notes_are_details = true;
  st_status status;
  {
    Interruptible interruptible(nullptr);
    Progress progress(session.quiet, "reading", 0);
    st_verify_options options = ST_VERIFY_OPTIONS_INIT;
    options.report = collect_finding;
    options.report_user = &outcome.findings;
    options.progress = Progress::callback;
    options.progress_user = &progress;
    std::vector<const char *> layers;
    for (const std::string &delta : deltas) layers.push_back(delta.c_str());
    options.deltas = layers.data();
    options.delta_count = layers.size();
    status = st_verify_with(path.c_str(), &options);
  }
  throw_if_interrupted();
  if (status == ST_OK) {
    count(path, outcome);
    return outcome;
  }
  const Failure failure = Failure::of_libst(status);
  outcome.is_verdict =
      is_format_status(status) || status == ST_E_JOURNAL || status == ST_E_DELTA || status == ST_E_DELTA_BASE;
  outcome.failure = outcome.is_verdict ? failure.with_exit_code(exit_bad_file) : failure;
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
