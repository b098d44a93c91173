// A file takes the name of another. Clients of NFS and SMB do so in two steps where a program on their host has the old
// file open: that one gets a name aside, and then the new file its name. Between the two there is no file, and a
// process that dies there leaves none. What lies aside goes when the old file is closed. So the old file gets a second
// name before: `.<name>.st-was-<16 digits>`, with the digits of the temporary. An open that finds no file finds that
// one. Clients of SMB refuse, and remove the old file all the same, when it is closed. So there it is moved to that
// name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "os/location.h"

namespace st::os {

// The entry `temporary` of the folder takes its name. 0 or -errno; then the old file has the name, or nobody can say.
// Where the old file is moved first and its name leaves no room for the second one: -ENAMETOOLONG.
// `needed`: the old file may have its second name alone, and is found by that only beside the temporary.
int rename_over(const Location &to, int from_dir, const std::string &temporary, bool *needed = nullptr);
Result<bool> is_too_long_to_replace(const Location &at);

// There is no such file. If another is taking its place, this waits for that. If that one's writer is dead, the old
// file gets its name back. False: there was none. Status busy: time is up.
Result<bool> await_rename_over(const Location &at, const LockWait &wait);

// What has the name, once nothing is taking its place. Status of the system's errno.
Result<struct stat> look_up(const Location &at, const LockWait &wait);

// Is that how a file here is replaced, which is open? Fails where its storage does not answer.
Result<bool> is_replaced_in_two_steps(const Location &at);

// The caller has locked all of the file that has the name. A second name of it that is there still is a dead writer's,
// and goes.
void remove_second_names(const Location &at);

inline constexpr std::string_view second_name_infix = ".st-was-";
// The file that an entry of a folder is the second name of, or empty.
std::string_view had_name(std::string_view entry);
// To the names in a folder, those that have none for a moment, as they are about to be replaced.
void add_replaced(std::vector<std::string> *listed);

}  // namespace st::os
