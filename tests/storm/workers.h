// What the processes of a storm do until they are killed.
#pragma once

#include <string>

#include "ledger.h"
#include "tensor_file.h"

namespace st::testing {

// The file of a storm. Tensors of a group only ever change together, so that
// half a transaction shows however many others ran at the same time; the free
// ones change alone or in any company.
struct Field {
  std::string path;
  Layout layout;
  static constexpr uint32_t groups = 2, group_size = 4, first_free = groups * group_size, tensors = 16;

  static Layout make_layout();
};

// Changes random tensors in every way that st.h has, with every patience.
[[noreturn]] void write_for_ever(const Field &field, Ledger &ledger, uint32_t worker, uint64_t seed);
// Opens the file read-only and reads tensors. Values may be torn; calls may not fail.
[[noreturn]] void read_for_ever(const Field &field, Ledger &ledger, uint32_t worker, uint64_t seed);

// Opens the file, which recovers it, and answers the version of each tensor.
// Complains if one is torn, or if a status is not the one allowed.
enum class OpenAs { reader, writer, recoverer };
std::vector<uint64_t> judge(const Field &field, Ledger &ledger, OpenAs how);

}  // namespace st::testing
