// A checkpoint's folder as the fuzzer's choices describe it: the disk at any
// moment of a commit across shards, after a power cut or not, then damaged: the
// super-journal field by field, its parts' journals, the new files, the shards,
// the index. And what must hold of whatever recovery makes of it.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <memory>

#include "shards/shards.h"

namespace st::fuzz {

// Nothing is read or written beyond the folder. No file changes but as a trusted
// super-journal says, and an undamaged one is carried out. A second recovery does
// nothing, and a power cut on the way makes no difference.
void check_hostile_folder(FuzzedDataProvider &in);

Result<std::unique_ptr<store::Shards>> open_writable(os::Env &env);
// Every tensor that can be had, through the handle.
void read_all(const store::Shards &shards);
// A transaction on what the handle shows; what it answers that it did is there.
void change_something(store::Shards &shards);

}  // namespace st::fuzz
