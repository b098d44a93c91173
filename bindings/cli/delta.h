// What diff and patch have in common: a delta described.
#pragma once

#include <st/st.h>

#include <string>

#include "json.h"

namespace stctl {

st_delta_info delta_info(const std::string &path);

// The fields "changed", "added", "deleted", "metadata_set", "metadata_removed", "data_bytes", "base", "result".
void write_delta(Json &json, const st_delta_info &info);

// "3 tensors changed, 1 added, 2 deleted, 12.00 MiB"
std::string delta_summary(const st_delta_info &info);

}  // namespace stctl
