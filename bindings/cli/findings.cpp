#include "findings.h"

#include "interrupt.h"
#include "json.h"
#include "text.h"

namespace stctl {
namespace {

const char *level_name(uint32_t level) {
  switch (level) {
    case ST_LOG_INFO: return "note";
    case ST_LOG_WARNING: return "warning";
    default: return "error";
  }
}

void tell_text(Session &session, const std::string &file, const Outcome &outcome) {
  const std::string name = escape(shown(file));
  for (const Finding &finding : outcome.findings) {
    if (outcome.failure && finding.message == outcome.failure->what()) continue;  // it is told last
    if (finding.level == ST_LOG_INFO && outcome.notes_are_details && !session.verbose) continue;
    session.out.print("{}: {}: {}", name, level_name(finding.level), harmless(finding.message));
    if (finding.offset != UINT64_MAX) session.out.print(" [at byte {}]", finding.offset);
    if (finding.status != ST_OK) session.out.print(" ({})", st_status_name(finding.status));
    session.out.write("\n");
  }
  if (!outcome.failure) {
    session.out.print("{}: {}\n", name, outcome.summary);
  } else if (outcome.is_verdict) {
    session.out.print("{}: {}\n", name, harmless(outcome.failure->sentence()));
  }
}

void tell_json(Json &json, const std::string &file, const Outcome &outcome) {
  json.begin_object();
  json.field("file", shown(file));
  json.field("ok", !outcome.failure.has_value());
  for (const auto &[key, value] : outcome.facts) json.field(key, value);
  json.key("findings");
  json.begin_array();
  for (const Finding &finding : outcome.findings) {
    json.begin_object();
    json.field("level", level_name(finding.level));
    json.key("status");
    if (finding.status == ST_OK) {
      json.null();
    } else {
      json.value(st_status_name(finding.status));
    }
    json.field("message", finding.message);
    if (finding.offset != UINT64_MAX) json.field("offset", finding.offset);
    json.end_object();
  }
  json.end_array();
  if (outcome.failure) {
    json.key("error");
    outcome.failure->write(json);
  }
  json.end_object();
}

}  // namespace

int collect_finding(void *user, const st_report *report) {
  try {  // no exception may cross libst: a lack of memory becomes ST_E_CANCELLED
    static_cast<Findings *>(user)->push_back({report->level, report->status, report->offset, report->message});
  } catch (...) {
    return 1;
  }
  return interrupted() != 0;
}

int tell_outcomes(Session &session, const std::vector<std::string> &files,
                  const std::function<Outcome(const std::string &file)> &judge) {
  int code = exit_ok;
  Json json(session.out);
  if (session.json) {
    json.begin_object();
    json.key("files");
    json.begin_array();
  }
  for (const std::string &file : files) {
    throw_if_interrupted();
    const Outcome outcome = judge(file);
    if (session.json) {
      tell_json(json, file, outcome);
    } else {
      tell_text(session, file, outcome);
      session.out.flush();
    }
    if (!outcome.failure) continue;
    if (code == exit_ok) code = outcome.failure->exit_code();
    if (!outcome.is_verdict) say(outcome.failure->sentence());
  }
  if (session.json) {
    json.end_array();
    json.field("ok", code == exit_ok);
    json.end_object();
    session.out.write("\n");
  }
  return code;
}

}  // namespace stctl
