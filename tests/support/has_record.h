// Does a journal beside a file have a record?
#pragma once

#include "journal/journal_folder.h"
#include "test_files.h"

namespace st::testing {

inline bool has_record(const std::string &file) {
  namespace fs = std::filesystem;
  const std::string folder = file + std::string(write::folder_suffix);
  if (!fs::exists(folder)) return false;
  for (const auto &journal : fs::directory_iterator(folder))
    if (const std::string bytes = bytes_of(journal.path().string()); !bytes.empty() && bytes[0] != 0) return true;
  return false;
}

}  // namespace st::testing
