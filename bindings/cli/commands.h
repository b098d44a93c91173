// The sub-commands. Each add_…() declares one, in a file of the same name under
// command/, and has it set Session::run; main.cpp calls them in the order of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "session.h"

namespace stctl {

void add_ls(CLI::App &app, Session &session);
void add_view(CLI::App &app, Session &session);
void add_info(CLI::App &app, Session &session);
void add_get(CLI::App &app, Session &session);
void add_update(CLI::App &app, Session &session);
void add_put(CLI::App &app, Session &session);
void add_rm(CLI::App &app, Session &session);
void add_mv(CLI::App &app, Session &session);
void add_meta(CLI::App &app, Session &session);
void add_compact(CLI::App &app, Session &session);
void add_shard(CLI::App &app, Session &session);
void add_join(CLI::App &app, Session &session);
void add_plan(CLI::App &app, Session &session);
void add_diff(CLI::App &app, Session &session);
void add_patch(CLI::App &app, Session &session);
void add_merge(CLI::App &app, Session &session);
void add_verify(CLI::App &app, Session &session);
void add_recover(CLI::App &app, Session &session);
void add_io(CLI::App &app, Session &session);
void add_stats(CLI::App &app, Session &session);

// A sub-command with --json, --quiet and --verbose. The first line of `description` is for the
// list of commands; `examples` are printed at the end of --help, before the exit codes.
CLI::App *add_command(CLI::App &app, Session &session, const char *name, const char *description, const char *examples);

// --lock-timeout MS, into `ms`.
void add_lock_timeout(CLI::App &command, int32_t &ms);

// --delta FILE, any number of times, into `deltas`: what lies on the file that is read.
void add_deltas(CLI::App &command, std::vector<std::string> &deltas);

// --map WAY, into `map` (ST_MAP_…).
void add_map(CLI::App &command, uint32_t &map);

}  // namespace stctl
