// Operations that change what a file holds, on a simulated disk.
#pragma once

#include <string>
#include <vector>

#include "file/transaction.h"
#include "model.h"
#include "sim_env.h"

namespace st::testing {

inline const std::string layout_path = "/models/m.safetensors";

struct LayoutOperation {
  std::string_view name;
  std::string_view group;  // for the table of promises
  store::TransactionOptions options;
  Stage stage;
};
const std::vector<LayoutOperation> &layout_operations();

// How the disk moves bytes from one file to another.
struct Disk {
  std::string_view name;
  bool reflink, copies_ranges;
};
inline constexpr Disk disks[] = {
    {"blocks shared", true, true}, {"copied in the kernel", false, true}, {"read and written", false, false}};

Model first_model();
SimEnv empty_disk(const Disk &disk);  // with a folder /models, durable
SimEnv layout_disk(const Disk &disk);

}  // namespace st::testing
