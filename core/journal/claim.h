// Fencing, on storage where other hosts write, too. A host that was frozen or cut off may have lost its locks. Nobody
// tells it, and when it wakes up it goes on amid a commit, or amid a recovery. So:
//
//   - before a journal is acted on by anybody but its writer, it gets another name, and is read after that;
//   - a writer asks whether its journal has its name still: right before its record, and again right before its data
//     (JournalFolder::check_beside);
//   - a recoverer asks the same right before it applies a journal, and before that whether the file has its name.
//
// A writer that asked in time had a durable record by then, which the other one reads. Else the writer finds its name
// gone, and writes no more. tests/model/hosts.pml checks it, and has what remains. Where one host writes all of this
// costs no system call: its kernel takes locks from the dead alone.
#pragma once

#include <string>

#include "journal/hot_journal.h"
#include "os/location.h"

namespace st::write {

// False: `from` is gone.
Result<bool> rename_in(const os::File &folder, const std::string &from, const std::string &to);
// Gives a journal that was found another name, in `name`, and reads its state anew. False: it is gone.
Result<bool> claim(const Folder &folder, std::string *name, Found &found);
// As look_at(), of a journal that has this name, or had it before others claimed it: then `name` is its name by now.
Result<std::unique_ptr<Found>> look_for(const Folder &folder, std::string *name, const struct stat &data, bool write);
// Does the name still lead to the file that a recoverer has locked? If not, it has lost its locks, and a journal that
// it found may be of the file that has taken the name since. An error of ESTALE then: the next attempt locks that file.
Result<void> check_named(const os::Location &file, const os::File &locked);
// Has somebody else claimed it since? Then status busy. Asked where other hosts write (StillOurs).
Result<void> check_claimed(const Folder &folder, const std::string &name, const Found &found);
// What was carried out is durably empty, and goes. Status busy if somebody else has claimed it since: that host may
// carry it out again, so nobody goes on from here.
Result<void> drop_applied(const Folder &folder, const std::string &name, const Found &found);

// Does the entry of an open folder lead to this open file?
Result<bool> is_under_name(int folder, const std::string &name, const os::File &opened);

}  // namespace st::write
