// What storage lies behind an open file: its class and its type as the mount
// table names it ("ext4", "fuse.gcsfuse").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "os/file.h"

namespace st::os {

enum class Storage : uint32_t {
  unknown = 0,
  local = 1,
  memory = 2,
  network = 3,
  parallel = 4,
  fuse = 5,
  object_store = 6
};

struct Filesystem {
  Storage storage = Storage::unknown;
  std::string type;
  bool mappable = true;  // false: no file of the kernel's lies behind it
  // Bytes are overwritten where they lie. All files lie on one device, and each sync of any of them flushes its cache.
  // So what the device has of one file is durable after a sync of another.
  bool syncs_flush_all = false;
};

std::string_view storage_name(Storage);

// May other hosts change files there, so that what this kernel has cached of them is out of date? On most object stores
// they may not: hosts share no locks there, so one host writes, and to ask the store again costs a request each. But
// JuiceFS and SeaweedFS keep locks for all hosts in a database beside the store. Pure.
bool may_have_other_hosts(const Filesystem &);

// Is it known that the kernel keeps pages there that another host has changed, also over a new open? Pure.
bool keeps_stale_pages(std::string_view type);

// Does a mapping from before a file's first change there show the file as it was, for ever? The change copies the file
// up, to another layer. Pure.
bool maps_what_was_opened(std::string_view type);

// May a client there, a process of FUSE, have a cache of its own, which O_DIRECT does not pass? MooseFS keeps for a
// minute what was read through a descriptor, and hears of other hosts' changes a little late. Pure.
bool keeps_what_was_read(std::string_view type);

// May a file be written there, and get another time only when the writer closes it? So Windows does. Or a rename leaves
// a file its times. Pure.
bool dates_changes_late(std::string_view type);

// Does a client there give an open file another name first, when a new one takes its own? Pure.
bool replaces_in_two_steps(std::string_view type);

// And does it remove the open file, as soon as that is closed, and yet refuse the new one? Pure.
bool removes_what_it_cannot_replace(std::string_view type);

// Are the files there those of another filesystem, which may lie anywhere? Pure.
bool shows_another(std::string_view type);

// Do the times of a file there tell, by this machine's clock, when it was changed last? Pure.
bool tells_times(const Filesystem &filesystem);

// Then: was it changed last before that second, its bytes and the file itself? False: perhaps, as the times lag behind
// the clock a little. Pure.
bool was_changed_before(const struct stat &file, uint64_t second);

// The class of a filesystem type as in the mount table. Pure.
Storage storage_of_type(std::string_view type);

// Does a filesystem of that type write changed bytes to a new place? Pure.
bool copies_on_write(std::string_view type);

// The type of the mount that holds device `dev`, from the text of
// /proc/self/mountinfo; empty if it lists none. Pure.
std::string type_from_mountinfo(std::string_view mountinfo, dev_t dev);

// The folders that an overlay mount lies over, from its filesystem's options as
// mountinfo writes them. Pure.
std::vector<std::string> overlay_layers(std::string_view options);

// As the kernel tells it. False if it does not tell. Fails where no descriptor is left to ask by.
Result<bool> lie_on_two_mounts(const File &a, const File &b);

// An overlay is judged by its layers, where they can be looked at. What cannot be told is Storage::unknown. Fails where
// the storage does not answer. Syncs are not asked about.
Result<Filesystem> ask_filesystem(const File &file);

// The same, and about syncs. Never fails: a storage that does not answer is Storage::unknown.
Filesystem probe_filesystem(const File &file);

}  // namespace st::os
