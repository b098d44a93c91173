// The modules of a model, as its tensors' names tell them: split at dots, numbered
// siblings of one form (layers.0, layers.1 …) folded into one. Pure.
#pragma once

#include <st/st.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stctl {

struct Module {
  std::string label;             // "embed_tokens", "layers.0…31": what it adds to the name of the module around it
  uint64_t copies = 1;           // numbered siblings that it stands for
  std::vector<size_t> tensors;   // the numbers of all in it, ascending; of a tensor and its copies, theirs
  std::vector<Module> children;  // in the order of their first tensors; none: a tensor
};

// `tensors` as they lie in the file. The module around them all has no label.
Module module_tree(const std::vector<st_tensor> &tensors);

}  // namespace stctl
