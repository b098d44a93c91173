// Tensors, wherever they lie, as a new file: their bytes go from file to file
// inside the kernel, shared where the filesystem can. However many files they
// lie in, one at a time is held open for it.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "file/writer.h"
#include "model/catalogue.h"

namespace st::store {

// Writes the bytes of places[i] itself, or answers false.
using GiveBytes = std::function<Result<bool>(write::Writer &to, size_t i)>;

// The room that the new file takes beside the blocks that it shares with the old ones. `beside`: an open file where it
// is to lie.
Result<uint64_t> room_of_copy(std::span<const Place> places, const write::NewMetadata &metadata,
                              const write::SaveOptions &options, const os::File &beside);

// In that order, but see options.layout. `tell` is asked now and then, after so many more bytes, whether to go on, and
// after none while this waits for a lock; options.progress is not. `all_read`: nothing more is read. Statuses: those of
// saving.
Result<void> copy_out(write::Destination to, std::span<const Place> places, const write::NewMetadata &metadata,
                      write::SaveOptions options, const std::function<Result<void>(uint64_t more)> &tell,
                      const GiveBytes &give = {}, const std::function<void()> &all_read = {});

}  // namespace st::store
