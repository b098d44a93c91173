// What standard output can show: how wide it is, and whether it likes colour.
#pragma once

#include <cstddef>

namespace stctl {

// The terminal's; else what COLUMNS says; else 80.
size_t output_columns();

// On a terminal that is not dumb, unless NO_COLOR is set (https://no-color.org).
bool output_has_colour();

}  // namespace stctl
