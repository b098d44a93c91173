#include "delta.h"

#include "failure.h"
#include "sized.h"
#include "text.h"

namespace stctl {

st_delta_info delta_info(const std::string &path) {
  auto info = sized<st_delta_info>();
  check(st_delta_describe(path.c_str(), &info));
  return info;
}

void write_delta(Json &json, const st_delta_info &info) {
  json.field("changed", info.changed);
  json.field("added", info.added);
  json.field("deleted", info.deleted);
  json.field("metadata_set", info.metadata_set);
  json.field("metadata_removed", info.metadata_removed);
  json.field("data_bytes", info.data_bytes);
  json.field("base", info.base);
  json.field("result", info.result);
}

std::string delta_summary(const st_delta_info &info) {
  std::string text = fmt::format("{} changed, {} added, {} deleted, {}", counted(info.changed, "tensor"), info.added,
                                 info.deleted, human_size(info.data_bytes));
  const uint64_t keys = info.metadata_set + info.metadata_removed;
  return keys ? text + fmt::format(", {} of metadata", counted(keys, "key")) : text;
}

}  // namespace stctl
