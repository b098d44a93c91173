#include "model/mode_of_copy.h"

#include "newfile/temporary_file.h"

namespace st::store {

Result<mode_t> mode_of_copy(std::span<const ModelView *const> of) {
  mode_t all = 0666;  // on vfat and the like all files may be executed
  bool has_files = false;
  for (const ModelView *view : of)
    for (const Opened &f : view->files()) {
      if (f.data_file->path().empty()) continue;
      // Somebody may have changed it since the file was opened.
      ST_TRY(const auto here, f.snapshot->here());
      ST_TRY(const auto s, here.file.stat());
      all &= s.st_mode;
      has_files = true;
    }
  return has_files ? static_cast<mode_t>(all | 0600) : write::mode_of_new;
}

}  // namespace st::store
