#include "base/error_number.h"

namespace st {

Status status_of_errno(int err) {
  switch (err) {
    case ENOENT:
    case ENOTDIR: return Status::no_file;
    case EACCES:
    case EPERM:
    case EROFS:
    case ETXTBSY: return Status::permission;
    case ENOSPC:
    case EDQUOT: return Status::no_space;
    case ENOMEM: return Status::nomem;
    case EISDIR:
    case ENXIO: return Status::not_regular;
    case ESTALE: return Status::file_changed;
    case ECANCELED: return Status::cancelled;
    case EOPNOTSUPP: return Status::unsupported;
    case EBADMSG: return Status::checksum;  // of Linux's filesystems too
    default: return Status::io;
  }
}

}  // namespace st
