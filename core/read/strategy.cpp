#include "read/strategy.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include "base/round.h"
#include "os/setting.h"

namespace st::read {
namespace {

using os::Storage;

constexpr uint64_t KiB = 1024, MiB = 1024 * KiB;
constexpr uint32_t max_threads = 64, min_block = 64 * KiB, max_block = 256 * MiB;

struct Habit {
  Storage storage;
  Prefetch prefetch;
  uint32_t threads;  // 0: one a processor
  uint32_t block;
  uint64_t gap;
  std::string_view why;
};
constexpr Habit habits[] = {
    {Storage::local, Prefetch::parallel, 0, 4 * MiB, 32 * KiB, "a disk serves several readers at once"},
    {Storage::memory, Prefetch::none, 0, 4 * MiB, 4 * KiB, "the bytes are in memory already"},
    {Storage::network, Prefetch::parallel, 2, 8 * MiB, 1 * MiB, "a server streams each sequence of reads"},
    {Storage::parallel, Prefetch::parallel, 4, 16 * MiB, 1 * MiB, "several servers hold the file's parts"},
    {Storage::fuse, Prefetch::sequential, 1, 8 * MiB, 1 * MiB, "a daemon reads ahead for one sequence at a time"},
    {Storage::object_store, Prefetch::parallel, 2, 1 * MiB, 1 * MiB, "each sequence of reads is one streaming request"},
    {Storage::unknown, Prefetch::sequential, 1, 8 * MiB, 256 * KiB, "sequences suit every storage"},
};

// A number from the environment, if the caller gave none.
Result<uint32_t> number(os::Env &env, const char *name, uint32_t asked, std::string_view takes) {
  const auto value = os::setting(env, name);
  if (asked || !value) return asked;
  uint32_t n = 0;
  const char *end = value->data() + value->size();
  const auto parsed = std::from_chars(value->data(), end, n);
  if (parsed.ec != std::errc() || parsed.ptr != end) return os::no_such_setting(name, *value, takes);
  return n;
}

Result<Prefetch> wanted_prefetch(os::Env &env, Prefetch asked) {
  const auto value = os::setting(env, "ST_PREFETCH");
  if (asked != Prefetch::automatic || !value) return asked;
  constexpr std::string_view names[] = {"auto", "none", "sequential", "parallel"};
  const auto *found = std::find(std::begin(names), std::end(names), *value);
  if (found == std::end(names)) return os::no_such_setting("ST_PREFETCH", *value, "auto, none, sequential or parallel");
  return static_cast<Prefetch>(found - std::begin(names));
}

Result<Direct> wanted_direct(os::Env &env, Direct asked) {
  const auto value = os::setting(env, "ST_DIRECT");
  if (asked != Direct::automatic || !value) return asked;
  if (*value != "0" && *value != "1") return os::no_such_setting("ST_DIRECT", *value, "0 or 1");
  return *value == "1" ? Direct::on : Direct::off;
}

std::string_view past(Direct direct) {
  if (direct == Direct::automatic) return ", and a first load of what is not in memory past the page cache";
  return direct == Direct::on ? ", past the page cache" : "";
}

}  // namespace

Result<Strategy> choose_strategy(os::Env &env, const ReadOptions &wanted, const os::Filesystem &filesystem) {
  ST_TRY(auto prefetch, wanted_prefetch(env, wanted.prefetch));
  ST_TRY(auto direct, wanted_direct(env, wanted.direct));
  ST_TRY(auto threads, number(env, "ST_IO_THREADS", wanted.threads, "a number of threads, or 0"));
  ST_TRY(auto block, number(env, "ST_BLOCK_SIZE", wanted.block, "a number of bytes, or 0"));

  const Habit &habit = *std::find_if(std::begin(habits), std::end(habits) - 1,
                                     [&](const Habit &h) { return h.storage == filesystem.storage; });
  Strategy s;
  s.prefetch = prefetch == Prefetch::automatic ? habit.prefetch : prefetch;
  s.threads = habit.threads ? habit.threads : std::min(env.cpus(), 4u);
  s.own_range = filesystem.storage != Storage::local && filesystem.storage != Storage::memory;
  if (s.own_range && wanted.workers > 1) s.threads = 1;  // the workers are the readers
  if (prefetch == Prefetch::sequential) s.threads = 1;
  if (prefetch == Prefetch::parallel) s.threads = std::max(s.threads, 4u);
  if (threads) s.threads = std::min(threads, max_threads);
  if (threads || prefetch == Prefetch::sequential)
    s.direct_threads = s.threads;
  else if (wanted.workers > 1)
    s.direct_threads = std::max(s.direct_threads / wanted.workers, 1u);
  s.block = block ? round_down(std::clamp(block, min_block, max_block), 4 * KiB) : habit.block;
  s.gap = s.memory_gap = habit.gap;
  if (filesystem.storage == Storage::local) s.memory_gap = 4 * KiB;
  // A caller that sets the number of readers, or shares a file with other workers, wants the page cache.
  const bool left_to_us = prefetch == Prefetch::automatic && !threads && wanted.workers <= 1;
  s.direct =
      direct == Direct::automatic && (filesystem.storage != Storage::local || !left_to_us) ? Direct::off : direct;

  s.reason = text(filesystem.type, " is ", os::storage_name(filesystem.storage), " storage, where ", habit.why, ": ",
                  s.threads, s.threads == 1 ? " reader" : " readers", s.own_range && s.threads > 1 ? " of ranges" : "",
                  " in file order, ", s.block / KiB, " KiB a request", past(s.direct));
  if (prefetch != Prefetch::automatic || threads || block || direct != Direct::automatic)
    s.reason += " (changed by the caller or the environment)";
  return s;
}

Strategy strategy_of_source(const ReadOptions &wanted, const os::Source &source) {
  const unsigned most_reads = source.most_reads();
  Strategy s;
  s.threads = std::min(most_reads, max_threads);
  if (wanted.threads) s.threads = std::min(s.threads, wanted.threads);
  if (wanted.prefetch == Prefetch::sequential) s.threads = 1;
  s.prefetch = wanted.prefetch;
  if (s.prefetch == Prefetch::automatic) s.prefetch = s.threads > 1 ? Prefetch::parallel : Prefetch::sequential;
  s.block = wanted.block ? round_down(std::clamp(wanted.block, min_block, max_block), 4 * KiB)
                         : static_cast<uint32_t>(source.best_read());
  s.gap = s.memory_gap = 1 * MiB;
  s.thread_work = 1;  // each read is worth a thread, which waits for it
  const std::string how = source.how();
  s.reason = text("a source that takes ", most_reads, most_reads == 1 ? " read" : " reads", " at once: ", s.threads,
                  s.threads == 1 ? " reader" : " readers", " in file order, ", s.block / KiB, " KiB a request",
                  how.empty() ? "" : "; ", how);
  return s;
}

}  // namespace st::read
