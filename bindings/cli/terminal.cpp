#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "system.h"

namespace stctl {

size_t output_columns() {
  if (const size_t wide = terminal_columns(); wide > 0) return wide;
  const char *columns = getenv("COLUMNS");
  const long said = columns ? strtol(columns, nullptr, 10) : 0;
  return said > 0 && said <= 10000 ? static_cast<size_t>(said) : 80;
}

bool output_has_colour() {
  const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
  return !(none && *none) && !(term && strcmp(term, "dumb") == 0) && obeys_escapes(STDOUT_FILENO);
}

}  // namespace stctl
