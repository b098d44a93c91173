// Bytes from one file to another without passing through memory where that can
// be had: shared blocks (a reflink), a copy inside the kernel, and only then
// reading and writing. Never answers ok for bytes that are not there.
#pragma once

#include <functional>

#include "base/control.h"
#include "os/file.h"

namespace st::write {

struct Transferred {
  uint64_t shared = 0, copied = 0;
};

struct Range {
  uint64_t from = 0, to = 0, length = 0;
};

// Whole blocks of this size can be shared if they lie alike in both files; 0 if
// the filesystem of `file`, which must be open for writing, shares none.
// Changes nothing.
uint64_t shareable_block(const os::File &file);

// Can whole blocks of `from` be shared with `to`, so that they lie on one
// filesystem that shares any? Changes nothing.
bool may_share(const os::File &from, const os::File &to);

// The part of a range that is whole blocks in both files, of which `from` and
// `to` lie alike; empty where they do not.
Range whole_blocks(const Range &range, uint64_t block);

// What transfer() will do, if the kernel shares what can be shared.
Transferred expect_transfer(const Range &range, uint64_t block);

// `block` as shareable_block() said. `tell` is asked, between pieces, whether
// to go on after so many bytes. Pieces go in the order of the bytes.
Result<Transferred> transfer(const os::File &from, const os::File &to, const Range &range, uint64_t block,
                             const std::function<Result<void>(uint64_t done)> &tell);

}  // namespace st::write
