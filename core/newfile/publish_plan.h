// The plan of a publish: the header of the new file, and for every byte after
// it where that comes from. Pure: no I/O.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/header.h"
#include "newfile/layout.h"

namespace st::write {

// A tensor of the new file, in its order (but see the layout).
struct PlannedTensor {
  std::string_view name;
  Dtype dtype;
  std::span<const uint64_t> shape;
  uint64_t nbytes;
  bool kept;  // from the old file, `from` on; else payload number `from`
  uint64_t from;
};

struct PlannedSegment {
  uint64_t to, length;
  bool kept;
  uint64_t from;  // as above
};

struct PlanOptions {
  Layout layout = Layout::keep;
  uint64_t alignment = 0;  // of the first data byte; 0: what shares most, else 64
  uint64_t reserve = 0;    // spare bytes in the header, at least
  uint64_t block = 0;      // blocks of this size can be shared; 0: none
  bool align = false;      // the kept layout, where it is not aligned
  bool compact = false;    // data is to begin at a multiple of the usual alignment, where none is given
};

struct PublishPlan {
  std::string header;
  std::vector<PlannedSegment> segments;
  uint64_t size = 0;     // of the new file
  uint64_t written = 0;  // bytes that come from the process: the header and payloads
  uint64_t shared = 0;   // of the old file, in shared blocks
  uint64_t copied = 0;   // of the old file, copied
  std::string how;       // one sentence
};

Result<PublishPlan> plan_publish(uint64_t old_data_offset, std::vector<PlannedTensor> tensors, MetadataPairs metadata,
                                 const PlanOptions &options);

}  // namespace st::write
