// How the bytes of a file are best fetched in bulk, from what storage lies
// behind it and what the user asked for. Decides; reads nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "os/env.h"
#include "os/filesystem.h"
#include "os/source_env.h"

namespace st::read {

enum class Prefetch : uint32_t { automatic = 0, none = 1, sequential = 2, parallel = 3 };
enum class Direct : uint32_t { automatic = 0, off = 1, on = 2 };

// What the caller asked for; zeros leave it to the storage.
struct ReadOptions {
  Prefetch prefetch = Prefetch::automatic;
  Direct direct = Direct::automatic;
  uint32_t threads = 0;
  uint32_t block = 0;
  uint32_t workers = 1;  // that read the file at the same time
};

struct Strategy {
  Prefetch prefetch = Prefetch::none;  // never automatic
  Direct direct = Direct::off;         // automatic: a first load of what is not in memory (see cold.h)
  uint32_t threads = 1;
  uint32_t direct_threads = 8;               // the most that read past the page cache
  uint32_t block = 0;                        // bytes of one request
  uint64_t gap = 0;                          // unwanted bytes that are cheaper to read through than to seek over
  uint64_t memory_gap = 0;                   // the same where they are in memory, and only copied; not above `gap`
  uint64_t thread_work = uint64_t{4} << 20;  // bytes: for fewer, one more thread costs more than it saves
  bool own_range = false;  // each thread reads a contiguous range of its own, so that the storage sees sequences
  std::string reason;      // one sentence
};

// `wishes` over the environment (ST_PREFETCH, ST_DIRECT, ST_IO_THREADS,
// ST_BLOCK_SIZE) over what suits the storage. Status invalid_argument: a
// variable that holds no such value.
Result<Strategy> choose_strategy(os::Env &env, const ReadOptions &wanted, const os::Filesystem &filesystem);

// The same of a source.
Strategy strategy_of_source(const ReadOptions &wanted, const os::Source &source);

}  // namespace st::read
