// What was chosen, and what it costs.
#include "boundary.h"

using namespace st;
using namespace st::capi;

namespace {

static_assert(static_cast<uint32_t>(os::Storage::local) == ST_STORAGE_LOCAL &&
              static_cast<uint32_t>(os::Storage::object_store) == ST_STORAGE_OBJECT_STORE);
static_assert(static_cast<uint32_t>(read::MapMode::shared) == ST_MAP_SHARED &&
              static_cast<uint32_t>(read::MapMode::none) == ST_MAP_NONE);

}  // namespace

void st_io_info_init(st_io_info *out) {
  if (out) *out = ST_IO_INFO_INIT;
}

st_status st_get_io_info(const st_file *file, st_io_info *out) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_get_io_info", file, out));
    const store::Snapshot &s = file->checkpoint->snapshot();
    st_io_info info = ST_IO_INFO_INIT;
    info.storage = static_cast<uint32_t>(s.filesystem.storage);
    info.map = static_cast<uint32_t>(s.content.map());
    info.map_fallbacks = s.content.fallbacks();
    info.file_size = s.file_size();
    info.header_size = s.header.json_bytes;
    info.data_offset = s.header.data_offset();
    copy_text(info.filesystem, s.filesystem.type);
    copy_text(info.reason, s.content.reason());
    return write_result(out, info);
  });
}

void st_stats_init(st_stats *out) {
  if (out) *out = ST_STATS_INIT;
}

st_status st_get_stats(const st_file *file, st_stats *out) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_get_stats", file, out));
    const store::Snapshot &s = file->checkpoint->snapshot();
    const store::Counters &c = file->checkpoint->counters();
    st_stats stats = ST_STATS_INIT;
    stats.map_fallbacks = s.content.fallbacks();
    stats.bytes_read = c.bytes_read + s.content.bytes_owned();
    stats.bytes_mapped = s.content.bytes_mapped();
    stats.bytes_resident = s.content.bytes_resident();
    stats.bytes_owned = s.content.bytes_owned();
    stats.index_bytes = s.header.index.memory_bytes();
    stats.bytes_written = c.bytes_written;
    stats.journal_bytes = c.journal_bytes;
    stats.commits = c.commits;
    stats.recoveries = c.recoveries;
    stats.lock_waits = c.lock_waits;
    return write_result(out, stats);
  });
}
