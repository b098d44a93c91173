#include "delta.h"

#include <errno.h>
#include <unistd.h>

#include <vector>

#include "failure.h"
#include "interrupt.h"
#include "sized.h"
#include "system.h"
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

TemporaryDelta::TemporaryDelta() {
  if (!make_temporary_folder(&folder_)) throw Failure::of_errno(errno, "make a folder", folder_);
  path_ = folder_ + "/delta.safetensors";
}

TemporaryDelta::~TemporaryDelta() {
  remove();
}

void TemporaryDelta::remove() const {
  unlink(path_.c_str());
  remove_folder(folder_);
}

void TemporaryDelta::copy_to(Output &out) const {
  const int fd = open_to_read(path_);
  if (fd < 0) throw Failure::of_errno(errno, "open", path_);
  const struct Closed {
    int fd;
    ~Closed() { close(fd); }
  } closed{fd};
  remove();  // a signal while `out` is full ends the process
  std::vector<char> block(1 << 20);
  for (;;) {
    throw_if_interrupted();
    const ssize_t n = read(fd, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure::of_errno(errno, "read", path_);
    if (n == 0) return;
    out.write({block.data(), static_cast<size_t>(n)});
  }
}

}  // namespace stctl
