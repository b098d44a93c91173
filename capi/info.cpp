// What was chosen, and what it costs.
#include "boundary.h"
#include "engine/build_info.h"
#include "of_thread.h"

using namespace st;
using namespace st::capi;

namespace {

static_assert(static_cast<uint32_t>(os::Storage::local) == ST_STORAGE_LOCAL &&
              static_cast<uint32_t>(os::Storage::object_store) == ST_STORAGE_OBJECT_STORE);
static_assert(static_cast<uint32_t>(read::MapMode::shared) == ST_MAP_SHARED &&
              static_cast<uint32_t>(read::MapMode::none) == ST_MAP_NONE &&
              static_cast<uint32_t>(read::MapMode::copy_on_write) == ST_MAP_COPY_ON_WRITE);

struct BuildInfo {
  std::string text;
};

constexpr std::string_view no_shard = "there are no tensors, so the index names no shard";

st_io_info of_none() {
  st_io_info info{};
  info.map = ST_MAP_NONE;
  info.prefetch = ST_PREFETCH_NONE;
  info.direct = ST_DIRECT_OFF;
  copy_text(info.reason, no_shard);
  copy_text(info.prefetch_reason, no_shard);
  return info;
}

Result<st_io_info> of_member(const store::Catalogue &catalogue, uint32_t i) {
  ST_TRY(const auto member, catalogue.member(i));
  const store::Snapshot &s = *member.snapshot;
  ST_TRY(const auto content, s.content_here());
  const read::Strategy &strategy = member.data_file->strategy();
  st_io_info info{};
  info.storage = static_cast<uint32_t>(s.filesystem.storage);
  info.map = static_cast<uint32_t>(content->map());
  info.map_fallbacks = content->fallbacks();
  info.file_size = s.file_size();
  info.header_size = s.header.json_bytes;
  info.data_offset = s.header.data_offset();
  copy_text(info.filesystem, s.filesystem.type);
  copy_text(info.reason, content->reason());
  info.prefetch = static_cast<uint32_t>(strategy.prefetch);
  info.direct = static_cast<uint32_t>(strategy.direct);
  info.io_threads = strategy.threads;
  info.block_size = strategy.block;
  copy_text(info.prefetch_reason, strategy.reason);
  return info;
}

}  // namespace

const char *st_build_info(void) {
  std::string &told = of_thread<BuildInfo>().text;
  try {
    told = store::build_info(os::Env::posix(), st_version());
    return told.c_str();
  } catch (...) {  // memory ran out
    return "";
  }
}

st_status st_file_io_info(const st_file *file, st_io_info *out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_file_io_info", file, out));
    const store::Catalogue catalogue = file->model->catalogue();
    if (catalogue.members() == 0) return write_result(out, of_none());
    ST_TRY(const auto info, of_member(catalogue, 0));
    return write_result(out, info);
  });
}

st_status st_shard_io_info(const st_file *file, uint32_t shard, st_io_info *out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_shard_io_info", file, out));
    ST_TRY(const auto info, of_member(file->model->catalogue(), shard));
    return write_result(out, info);
  });
}

st_status st_file_stats(const st_file *file, st_stats *out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_file_stats", file, out));
    st_stats stats{};
    const store::Catalogue catalogue = file->model->catalogue();
    const store::Counters &c = file->model->account().counters;
    stats.index_bytes = catalogue.index_bytes();
    stats.bytes_read = c.bytes_read;
    stats.bytes_written = c.bytes_written;
    stats.journal_bytes = c.journal_bytes;
    stats.commits = c.commits;
    stats.recoveries = c.recoveries;
    stats.lock_waits = c.lock_waits;
    stats.read_requests = c.read_requests;
    stats.bytes_prefetched = c.bytes_prefetched;
    for (const store::Opened &opened : catalogue.opened()) {
      const store::Snapshot &s = *opened.snapshot;
      ST_TRY(auto content, s.content_here());
      stats.map_fallbacks += content->fallbacks();
      stats.bytes_mapped += content->bytes_mapped();
      stats.bytes_resident += content->bytes_resident();
      stats.bytes_private_dirty += content->bytes_private_dirty();
      stats.bytes_owned += content->bytes_owned();
      stats.index_bytes += s.header.index.memory_bytes();
      stats.reopens += s.reopens();
    }
    return write_result(out, stats);
  });
}
