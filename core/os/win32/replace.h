// Entries of folders that take other names, or go, also while they are open: replace.cpp says how.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "os/win32/nt.h"

namespace st::os {

// The entry `from`, which `handle` is open at, takes another name. 0 or -errno, as all here.
int rename_entry(HANDLE handle, const std::wstring &from, HANDLE to_dir, const std::wstring &to);
// The entry goes at once, also if the file is open. Only an empty folder goes, and with its last handle where there are
// no POSIX semantics: a name aside would take along what others make in it by their handles, and nobody would find it.
int remove_entry(HANDLE handle, HANDLE dir, bool is_folder);
// Has an open file that was last changed then been removed by a name aside?
bool is_removed_by(const FILETIME &changed);
// Is it the name of what was removed or replaced, and is perhaps open still?
bool is_aside(std::wstring_view name);
// Has this process left something aside that was mapped?
bool has_left_something();
// Removes what lies aside, but for what is mapped still.
void sweep(HANDLE dir);
// There is no such entry. A process that was to replace the file may have died on the way: then the old file has its
// name again. What lies aside of that name: nothing; what was replaced, or will soon be; or what a process is about to
// replace, or was.
enum class Aside { none, changing, undecided };
Aside restore_replaced(HANDLE dir, const std::wstring &name);

// All but . and .., as they are now.
int list_names(HANDLE dir, std::vector<std::wstring> *out);

}  // namespace st::os
