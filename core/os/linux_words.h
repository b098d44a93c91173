// Words of Env that are of Linux alone, for the vocabularies of other systems. They are compared with, and never
// answered there.
#pragma once

#include <cstdint>

#define FALLOC_FL_KEEP_SIZE 1
#define FALLOC_FL_UNSHARE_RANGE 0x40
#define FIEMAP_EXTENT_SHARED 0x2000
#define PROC_SUPER_MAGIC 0x9fa0
#ifndef S_ISVTX
#define S_ISVTX 01000
#endif

struct fiemap_extent {
  uint64_t fe_logical, fe_physical, fe_length;
  uint32_t fe_flags;
};
struct fiemap {
  uint64_t fm_start, fm_length;
  uint32_t fm_flags, fm_mapped_extents, fm_extent_count;
  fiemap_extent fm_extents[1];  // and more
};
