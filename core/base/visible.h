// Text that a stranger chose, in what is said to people: nothing in it may move a terminal's cursor, hide, or turn
// around what stands beside it.
#pragma once

#include <string_view>

namespace st {

// One character off the front of `text`, which is not empty. In what is not UTF-8 it is one byte.
struct Character {
  std::string_view bytes;
  bool is_visible;  // no control character, none without a width, and none that changes the direction
};
Character take_character(std::string_view *text);

}  // namespace st
