#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace stctl {

size_t output_columns() {
  struct winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char *columns = getenv("COLUMNS");
  const long said = columns ? strtol(columns, nullptr, 10) : 0;
  return said > 0 && said <= 10000 ? static_cast<size_t>(said) : 80;
}

bool output_has_colour() {
  const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
  return isatty(STDOUT_FILENO) && !(none && *none) && !(term && strcmp(term, "dumb") == 0);
}

}  // namespace stctl
