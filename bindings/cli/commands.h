// The sub-commands. Each add_…() declares one, in a file of the same name under
// command/, and has it set Session::run; main.cpp calls them in the order of --help.
#pragma once

#include "command_line.h"
#include "session.h"

namespace stctl {

void add_ls(CommandLine &line, Session &session);
void add_view(CommandLine &line, Session &session);
void add_info(CommandLine &line, Session &session);
void add_get(CommandLine &line, Session &session);
void add_update(CommandLine &line, Session &session);
void add_put(CommandLine &line, Session &session);
void add_rm(CommandLine &line, Session &session);
void add_mv(CommandLine &line, Session &session);
void add_meta(CommandLine &line, Session &session);
void add_compact(CommandLine &line, Session &session);
void add_shard(CommandLine &line, Session &session);
void add_join(CommandLine &line, Session &session);
void add_edit(CommandLine &line, Session &session);
void add_plan(CommandLine &line, Session &session);
void add_diff(CommandLine &line, Session &session);
void add_patch(CommandLine &line, Session &session);
void add_merge(CommandLine &line, Session &session);
void add_verify(CommandLine &line, Session &session);
void add_recover(CommandLine &line, Session &session);
void add_journal(CommandLine &line, Session &session);
void add_io(CommandLine &line, Session &session);
void add_stats(CommandLine &line, Session &session);
void add_generate(CommandLine &line, Session &session);

}  // namespace stctl
