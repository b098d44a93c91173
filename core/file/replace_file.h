// The last step of a save: a new file, whole but for its name, takes that of
// another or of none. What is replaced hands on its rights, and is neither being
// changed nor waiting for recovery when it goes.
#pragma once

#include <memory>
#include <string>

#include "base/control.h"
#include "newfile/temporary_file.h"

namespace st::write {

// Where the new file is to go.
struct Destination {
  os::Location at;
  bool exists;  // there is a file to be replaced
};
// Statuses: not_regular if that is there, but no plain file; invalid_argument for the name of an index of shards.
Result<Destination> find_destination(os::Env &env, const std::string &path);
Result<Destination> destination_at(os::Location at);

// The temporary. `mode` is that of a file that replaces none there. A file that will inherit another's rights is nobody
// else's until then.
Result<std::unique_ptr<TemporaryFile>> create_for(const Destination &to, mode_t mode,
                                                  TemporaryFile::Stale stale = TemporaryFile::Stale::to_be_removed);

// `mode`: as above. What has the name is looked at once more when the new file is durable, which may take long: another
// save may have come first. Status busy: nothing has changed, and it may be called again. Status needs_recovery: the
// new file stands, but a power cut may bring the old one back. Once it stands, `made` is null. The log is told last,
// when neither file is locked.
Result<void> replace_file(const os::Location &target, std::unique_ptr<TemporaryFile> &made, mode_t mode,
                          int32_t lock_timeout_ms, const Control &control, const Log &log);

}  // namespace st::write
