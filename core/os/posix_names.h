// Names of files as every POSIX system answers them, for the Envs of these. Answers are Env's.
#pragma once

#include <string>
#include <vector>

namespace st::os {

int real_path(const char *path, std::string *out);
int read_link(int dir, const char *name, std::string *out);
// The names in an open folder. Closes it.
int list_names(int folder, std::vector<std::string> *out);

}  // namespace st::os
