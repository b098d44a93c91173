// Copying tensors out of a file with pread: whole, or by slice. A file that was
// truncated meanwhile is an error here, never a signal.
#pragma once

#include "base/control.h"
#include "format/slice.h"
#include "os/file.h"

namespace st::read {

// Where copies come from: a file, or memory where the file was given as such.
struct Source {
  const os::File *file;  // null: take bytes from `memory`
  const std::byte *memory;

  Result<void> read(void *to, size_t n, uint64_t offset) const;
};

// n bytes at `offset` into `to`, telling progress as it goes. A copy of at most 64 KiB tells none.
Result<void> copy(const Source &source, uint64_t offset, uint64_t n, void *to, const Control &control);

// The runs of `plan`, of a tensor that begins at `offset`, packed into `to`.
// Runs near each other are fetched with one read. Answers the bytes read.
Result<uint64_t> copy_slice(const Source &source, uint64_t offset, const SlicePlan &plan, void *to,
                            const Control &control);

}  // namespace st::read
