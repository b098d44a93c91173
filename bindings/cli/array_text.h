// Arrays as text, in the way of NumPy: rows in brackets, right-aligned, wrapped, with … for
// what was left out; or as nested JSON arrays.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "output.h"
#include "slice.h"

namespace stctl {

// All of it. Its bytes are in memory, but not its text.
void write_array(Output &out, const Slice &slice);
void write_array(Output &out, const Slice::Corner &corner);

// The value of one key: numbers nested as the shape says, all of them. An array
// without elements is [], whatever its shape.
void write_array(Json &json, const Slice &slice, uint64_t piece, const std::function<void(uint64_t)> &progress);

}  // namespace stctl
