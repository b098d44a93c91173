// Journals that the fuzzer's bytes describe: built as a writer builds them, then
// damaged field by field, with the hashes above a damage made good again or
// not. So the fuzzer reaches what lies behind each hash without guessing it.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <string>
#include <vector>

#include "journal/journal_layout.h"

namespace st::fuzz {

// The data file that the journals are for: what it held, and what it may hold by now.
struct DataFile {
  std::string old_bytes;  // header included
  std::string now;        // each sector old, new (of some journal) or neither
  write::Identity identity;
};

struct ForgedJournal {
  std::string bytes;
  bool honest = false;  // as a writer would have left it
  bool is_undo = false;
  std::vector<write::RangeRecord> ranges;
};

// A number near a limit of this file and journal, or any.
uint64_t number(FuzzedDataProvider &in, const DataFile &file, uint64_t journal_bytes);

ForgedJournal forge(FuzzedDataProvider &in, const DataFile &file);

// What a transaction with these ranges writes: one byte pattern for all journals, so that they may agree.
std::string new_bytes(const DataFile &file, uint64_t offset, uint64_t length);

}  // namespace st::fuzz
