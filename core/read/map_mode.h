// How the bytes of a file are reached: by which mapping, and by what else where the filesystem refuses it.
#pragma once

#include <string>

#include "base/control.h"
#include "os/file.h"
#include "os/filesystem.h"
#include "os/mapping.h"

namespace st::read {

enum class MapMode : uint32_t { automatic = 0, shared = 1, private_copy = 2, none = 3, copy_on_write = 4 };

struct Mapped {
  os::Mapping mapping;  // empty where mode is none: memory of our own is then filled by reading
  MapMode mode;
  std::string reason;      // of the choice, or of the last refusal
  uint32_t fallbacks = 0;  // refused mappings: a shared one, then a private one
};

// Status invalid_argument: `wanted` leaves the mapping to ST_MAP, and that is no word for one. An open asks this.
Result<void> check_map_setting(os::Env &env, MapMode wanted);

// Maps `size` > 0 bytes as wanted; `automatic` decides by the storage and by ST_MAP. A refusal is no error; each is
// logged as a warning. More bytes than this machine has addresses are not mapped. An unknown word in ST_MAP counts for
// nothing here: a commit must not fail when it looks at the file that it has made.
Result<Mapped> map_or_fall_back(const os::File &file, uint64_t size, MapMode wanted, const os::Filesystem &filesystem,
                                const Log &log);

}  // namespace st::read
