#include "journal/redo_or_undo.h"

#include <cerrno>
#include <string_view>

#include "os/setting.h"

namespace st::write {

Result<uint64_t> undo_from(os::Env &env, const os::Filesystem &filesystem) {
  // Below, sharing blocks costs more than it saves: tests/bench/journals.py.
  constexpr uint64_t worth_it = uint64_t{1} << 20;
  const std::string_view wanted = os::setting(env, "ST_JOURNAL").value_or("auto");
  if (wanted != "auto" && wanted != "redo" && wanted != "undo")
    return os::no_such_setting("ST_JOURNAL", wanted, "auto, redo or undo");
  if (filesystem.type != "xfs" && filesystem.type != "btrfs") return never;
  return wanted == "undo" ? 0 : wanted == "redo" ? never : worth_it;
}

Record choose_record(uint64_t staged, uint64_t borrowed, const std::function<bool()> &has_room) {
  return borrowed > staged && has_room() ? Record::undo : Record::redo;
}

bool refuses_to_share(const Error &e) {
  switch (e.os_errno) {
    case EOPNOTSUPP:
    case ENOTTY:
    case ENOSYS:
    case EINVAL:
    case EXDEV:
    case EPERM: return true;
    default: return false;
  }
}

}  // namespace st::write
