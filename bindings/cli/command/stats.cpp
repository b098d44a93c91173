// stctl stats: what a handle has read, mapped and written, and how much of the
// file is in memory now.
#include <errno.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "../commands.h"
#include "../handle.h"
#include "../interrupt.h"
#include "../json.h"
#include "../progress.h"
#include "../system.h"
#include "../table.h"
#include "../text.h"

namespace stctl {
namespace {

struct Stats {
  std::string file;
  uint32_t map = ST_MAP_AUTO;
  bool touch = false;
};

// The bytes of all tensors. A shard is opened when it is first asked for something, and only open shards have counts.
// So this call also makes the counts those of the whole checkpoint.
uint64_t nbytes_of(const File &file) {
  uint64_t nbytes = 0;
  for (const st_tensor &tensor : file.all()) nbytes += tensor.nbytes;
  return nbytes;
}

std::vector<FileState> states_of(const File &file) {
  std::vector<FileState> states;
  for (uint32_t shard = 0; shard < file.file_count(); ++shard) states.push_back(state_of(file.file_path(shard)));
  return states;
}

// The kernel has one answer for a file that ends before and for a disk that fails. The disk failed where the path still
// names the file that was opened, and that file is as long as the tensor needs.
Failure not_read(const File &file, const st_tensor &tensor, const FileState &opened) {
  const int err = errno;
  const std::string path = file.file_path(tensor.shard);
  if (err != EFAULT) return Failure::of_errno(err, "touch", path);
  const FileState now = state_of(path);
  const bool is_whole = static_cast<uint64_t>(now.size) >= tensor.file_offset + tensor.nbytes;
  if (now.exists && now.inode == opened.inode && is_whole) return Failure::of_errno(EIO, "read", path, ST_E_IO);
  return {exit_failed, fmt::format("cannot read '{}': it was truncated or replaced meanwhile", escape(path)),
          ST_E_FILE_CHANGED};
}

// So that all pages of all tensors are in memory.
void touch_all(Session &session, const File &file, uint64_t nbytes) {
  const Interruptible guard(file.get());
  const std::vector<FileState> opened = states_of(file);
  Progress progress(session.quiet, "reading", nbytes);
  uint64_t done = 0;
  constexpr uint64_t between_looks = 1 << 20;
  for (size_t i = 0; i < file.count(); ++i) {
    const st_tensor tensor = file.view(i);
    const char *bytes = static_cast<const char *>(tensor.data);
    for (uint64_t part = 0; part < tensor.nbytes; part += between_looks) {
      throw_if_interrupted();
      const uint64_t end = std::min(part + between_looks, tensor.nbytes);
      if (!touch_pages(bytes + part, static_cast<size_t>(end - part))) {
        throw not_read(file, tensor, opened[tensor.shard]);
      }
      progress.done(done += end - part);
    }
  }
}

int run(Session &session, const Stats &options) {
  const File file(session, options.file, {.map = options.map});
  const uint64_t nbytes = look_at(file, [&] { return nbytes_of(file); });
  if (options.touch) touch_all(session, file, nbytes);
  const st_stats s = file.stats();
  struct Line {
    const char *key;
    uint64_t value;
    const char *meaning;
    bool is_bytes;
  };
  const Line lines[] = {
      {"bytes_read", s.bytes_read, "read by libst itself", true},
      {"bytes_mapped", s.bytes_mapped, "of address space mapped", true},
      {"bytes_resident", s.bytes_resident, "of the mapping in memory now", true},
      {"bytes_private_dirty", s.bytes_private_dirty, "of the mapping copied on write", true},
      {"bytes_owned", s.bytes_owned, "of tensors in memory of the handle's own", true},
      {"index_bytes", s.index_bytes, "for names, shapes and offsets", true},
      {"bytes_written", s.bytes_written, "written into the file", true},
      {"journal_bytes", s.journal_bytes, "written into journals", true},
      {"map_fallbacks", s.map_fallbacks, "steps down from the mapping first tried", false},
      {"commits", s.commits, "transactions committed", false},
      {"recoveries", s.recoveries, "journals applied or dropped", false},
      {"lock_waits", s.lock_waits, "times that a lock was not free at once", false},
      {"bytes_prefetched", s.bytes_prefetched, "brought into the page cache ahead of use", true},
      {"read_requests", s.read_requests, "requests of bulk reads", false},
      {"reopens", s.reopens, "times that the handle opened itself anew after a fork", false},
  };
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", file.path());
    for (const Line &line : lines) json.field(line.key, line.value);
    json.end_object();
    session.out.write("\n");
    return exit_ok;
  }
  Table table({{"", Table::left}, {"", Table::right}, {"", Table::left}});
  for (const Line &line : lines) {
    table.add({line.key, line.is_bytes ? human_size(line.value) : grouped(line.value), line.meaning});
  }
  table.write(session.out);
  return exit_ok;
}

}  // namespace

void add_stats(CommandLine &line, Session &session) {
  auto options = std::make_shared<Stats>();
  const Command command =
      line.command("stats",
                   "What opening a file costs, and what of it is in memory\n\n"
                   "Opens a file and prints the counters of the handle: bytes read, mapped, in memory\n"
                   "now (also those that other processes brought in), owned, and what recovery did.\n"
                   "Of a sharded checkpoint, all shards are opened and their counters summed.\n"
                   "With --touch, every page of every tensor is looked at first.",
                   "  stctl stats model.safetensors              how much of it is in the page cache?\n"
                   "  stctl stats --touch model.safetensors      bring it all in\n"
                   "  stctl stats --json --map none --touch model.safetensors\n");
  command.argument("FILE", options->file, "A safetensors file").required();
  command.flag("--touch", options->touch, "Look at every page of every tensor first");
  command.map(options->map);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
