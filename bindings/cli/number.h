// One element of a tensor as text, and a number as an element: all 22 dtypes of
// the format, for display and for `update --fill` only. libst itself never
// looks into elements.
#pragma once

#include <st/st.h>

#include <string>
#include <string_view>

namespace stctl {

// Element i of packed little-endian elements. Elements of 4 and 6 bits are packed from the low bits
// up: element 0 of F4 is the low half of byte 0.
//
// Floats print as the shortest text that reads back as the same element ("0.1" for BF16).
// Integers below 10^16 print all their digits ("65504.0"). So do the formats of 8 bits and fewer,
// because one wants to see their exact value ("0.1015625").
std::string element_text(st_dtype dtype, std::string_view bytes, uint64_t i);

// The same as JSON: true, numbers, [re, im]; "NaN", "Infinity" and "-Infinity" are strings. Floats of 32 bits and
// fewer are the shortest number that is theirs when read as a 32-bit float (for BF16, 0.100097656).
std::string element_json(st_dtype dtype, std::string_view bytes, uint64_t i);

// `nbytes` bytes of elements that are all `text`, rounded to the nearest element. UsageFailure if it is no
// such number, or out of the dtype's range.
std::string filled(st_dtype dtype, uint64_t nbytes, const std::string &text);

}  // namespace stctl
