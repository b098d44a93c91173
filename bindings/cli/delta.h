// What diff, patch and merge have in common: a delta described, and a folder for
// one that goes to standard output.
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

// A folder of our own under $TMPDIR. It and the one file in it go with this object; or before it is copied, where a
// file that is open can go.
class TemporaryDelta {
 public:
  TemporaryDelta();
  ~TemporaryDelta();
  TemporaryDelta(const TemporaryDelta &) = delete;
  TemporaryDelta &operator=(const TemporaryDelta &) = delete;

  const std::string &path() const { return path_; }
  void copy_to(Output &out) const;  // once

 private:
  void remove() const;
  std::string folder_, path_;
};

}  // namespace stctl
