// Which record a patch gets. A redo record has the new bytes, and the old ones are written over once it counts. An undo
// record shares the old blocks, so that the new bytes are written once: where files can share blocks, and where that
// costs less than it saves. And how often a patch waits until the device has flushed its cache: see patch.h.
#pragma once

#include <cstdint>
#include <functional>

#include "base/error.h"
#include "os/filesystem.h"

namespace st::write {

enum class Record { redo, undo };
enum class Flushes {
  four,  // each step is durable before the next begins
  two,   // the record shares a flush with all that it needs; its emptiness is flushed with what comes next
};
// For a redo record. `on_one_device`: the journal lies where the file does.
inline Flushes choose_flushes(const os::Filesystem &filesystem, bool on_one_device) {
  return filesystem.syncs_flush_all && on_one_device ? Flushes::two : Flushes::four;
}

inline constexpr uint64_t never = UINT64_MAX;

// From how many bytes on the new value of a tensor is borrowed, so that its old one can be saved instead: `never` where
// blocks cannot be shared. ST_JOURNAL=redo and =undo (whatever the size) override. Status invalid_argument: it is
// another word.
Result<uint64_t> undo_from(os::Env &env, const os::Filesystem &filesystem);

// For a patch of so many bytes that are in the journal, or must go there, and so many that are borrowed (Piece::fits):
// undo, if these are more, and `has_room`, asked then, finds room for what is written to new places.
Record choose_record(uint64_t staged, uint64_t borrowed, const std::function<bool()> &has_room);

// Undo was chosen, and its first step failed so: does this file never share its blocks?
bool refuses_to_share(const Error &e);

}  // namespace st::write
