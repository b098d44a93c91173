#include "module_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "handle.h"
#include "text.h"

namespace stctl {
namespace {

// A name is a stranger's: one of a million dots is no module of a million levels.
constexpr size_t max_levels = 64;

struct Named {
  size_t tensor;
  std::vector<std::string_view> parts;
};

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t dot = name.find('.'); dot != name.npos && parts.size() + 1 < max_levels; dot = name.find('.')) {
    parts.push_back(name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
  parts.push_back(name);
  return parts;
}

struct Node {
  std::string label;
  std::string form;  // equal for those that hold tensors of the same names, dtypes and shapes
  std::vector<size_t> tensors;
  std::vector<Node> children;  // by label
};

Node leaf(const std::vector<st_tensor> &tensors, size_t i, std::string_view label) {
  const st_tensor &t = tensors[i];
  return {std::string(label), fmt::format("{} {}", t.dtype, shape_text(t.shape, t.rank)), {i}, {}};
}

// The nodes of `names`, which are sorted and agree in all parts before `level`.
std::vector<Node> nodes_of(const std::vector<st_tensor> &tensors, std::span<const Named> names, size_t level) {
  std::vector<Node> nodes;
  while (!names.empty()) {
    const std::string_view label = names[0].parts[level];
    const auto other =
        std::find_if(names.begin(), names.end(), [&](const Named &n) { return n.parts[level] != label; });
    std::span<const Named> group(names.begin(), other);
    names = names.subspan(group.size());
    const bool has_own = group[0].parts.size() == level + 1;  // the shortest is the first
    if (has_own && group.size() == 1) {
      nodes.push_back(leaf(tensors, group[0].tensor, label));
      continue;
    }
    Node node{std::string(label), {}, {}, nodes_of(tensors, group.subspan(has_own), level + 1)};
    if (has_own) node.children.insert(node.children.begin(), leaf(tensors, group[0].tensor, "(itself)"));
    for (const Node &child : node.children) {
      node.form += fmt::format("{}:{}{{{}}}", child.label.size(), child.label, child.form);
      node.tensors.insert(node.tensors.end(), child.tensors.begin(), child.tensors.end());
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

bool is_number(std::string_view label) {
  return !label.empty() && label.size() <= 9 && label.find_first_not_of("0123456789") == label.npos &&
         (label.size() == 1 || label[0] != '0');
}

// Both have the same form, so the same children.
void add_to(Node &node, Node &&twin) {
  node.tensors.insert(node.tensors.end(), twin.tensors.begin(), twin.tensors.end());
  for (size_t i = 0; i < node.children.size(); ++i) add_to(node.children[i], std::move(twin.children[i]));
}

std::string label_of(const std::vector<uint64_t> &numbers) {
  if (numbers.size() == 1) return std::to_string(numbers[0]);
  const std::string range = fmt::format("{}…{}", numbers.front(), numbers.back());
  const bool all = numbers.back() - numbers.front() + 1 == numbers.size();
  return all ? range : fmt::format("{} ({} of them)", range, numbers.size());
}

std::vector<Module> folded(std::vector<Node> nodes);

Module module_of(Node &&node, uint64_t copies) {
  std::sort(node.tensors.begin(), node.tensors.end());
  Module module{std::move(node.label), copies, std::move(node.tensors), folded(std::move(node.children))};
  if (module.children.size() == 1) {  // one row says as much as two
    Module only = std::move(module.children[0]);
    only.label = module.label + "." + only.label;
    only.copies *= copies;
    return only;
  }
  return module;
}

std::vector<Module> folded(std::vector<Node> nodes) {
  std::vector<Module> modules;
  std::map<std::string, std::map<uint64_t, Node>> numbered;  // by form, by number
  for (Node &node : nodes) {
    if (is_number(node.label)) {
      numbered[node.form].emplace(std::stoull(node.label), std::move(node));
    } else {
      modules.push_back(module_of(std::move(node), 1));
    }
  }
  for (auto &[form, twins] : numbered) {
    std::vector<uint64_t> numbers;
    for (const auto &[number, node] : twins) numbers.push_back(number);
    Node first = std::move(twins.begin()->second);
    twins.erase(twins.begin());
    for (auto &[number, node] : twins) add_to(first, std::move(node));
    first.label = label_of(numbers);
    modules.push_back(module_of(std::move(first), numbers.size()));
  }
  std::sort(modules.begin(), modules.end(),
            [](const Module &a, const Module &b) { return a.tensors.front() < b.tensors.front(); });
  return modules;
}

}  // namespace

Module module_tree(const std::vector<st_tensor> &tensors) {
  std::vector<Named> names;
  for (size_t i = 0; i < tensors.size(); ++i) names.push_back({i, parts_of(name_of(tensors[i]))});
  std::sort(names.begin(), names.end(), [](const Named &a, const Named &b) { return a.parts < b.parts; });
  Module all;
  for (size_t i = 0; i < tensors.size(); ++i) all.tensors.push_back(i);
  all.children = folded(nodes_of(tensors, names, 0));
  return all;
}

}  // namespace stctl
