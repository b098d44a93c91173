#include "store/verify.h"

#include <algorithm>
#include <memory>

#include "store/snapshot.h"
#include "write/recover.h"

namespace st::store {
namespace {

class Verifier {
 public:
  Verifier(os::Env &env, std::string path, const Control &control, const Report &report)
      : env_(env), path_(std::move(path)), control_(control), report_(report) {}

  Result<void> run() {
    if (auto told = check(); !told) return told;
    if (first_error_.status != Status::ok) return Failure(std::move(first_error_));
    return {};
  }

 private:
  // The outer result is for being told to stop; findings go to tell().
  Result<void> check();
  Result<void> check_journals(const os::File &file);
  Result<void> check_alignment(const Snapshot &snapshot);
  Result<void> read_all(const Snapshot &snapshot);
  Result<void> tell(Severity severity, Error e);

  os::Env &env_;
  const std::string path_;
  const Control &control_;
  const Report &report_;
  Error first_error_ = {Status::ok, {}};
};

Result<void> Verifier::tell(Severity severity, Error e) {
  const Finding finding{severity, e.status, e.offset, e.message};
  if (severity == Severity::error && first_error_.status == Status::ok) first_error_ = std::move(e);
  if (report_ && !report_(finding)) return fail(Status::cancelled, "the report callback stopped the verification");
  return {};
}

Result<void> Verifier::check() {
  std::string real;
  if (const int r = env_.realpath(path_.c_str(), &real); r < 0)
    return tell(Severity::error, os_error(-r, "open", path_));
  auto file = open_regular(env_, real, O_RDONLY);
  if (!file) return tell(Severity::error, std::move(file.error()));
  if (auto told = check_journals(*file); !told) return told;
  auto snapshot = Snapshot::take(std::move(*file), read::MapMode::none, {});
  if (!snapshot) return tell(Severity::error, std::move(snapshot.error()));
  if (auto told = check_alignment(**snapshot); !told) return told;
  if (auto told = read_all(**snapshot); !told) return told;
  if (first_error_.status != Status::ok) return {};
  const Index &index = (*snapshot)->header.index;
  return tell(Severity::info,
              error(Status::ok, index.size(), " tensors, ", index.data_bytes(), " bytes of data, header of ",
                    (*snapshot)->header.json_bytes, " bytes: every rule of the format holds"));
}

Result<void> Verifier::check_journals(const os::File &file) {
  auto s = file.stat();
  if (!s) return tell(Severity::error, std::move(s.error()));
  auto folder = write::Folder::open(env_, file.path(), *s, {});
  if (!folder) return tell(Severity::error, std::move(folder.error()));
  if (!*folder) return {};
  auto orphans = write::find_orphans(**folder, *s);
  if (!orphans) return tell(Severity::error, std::move(orphans.error()));
  if (!orphans->committed) return {};
  return tell(Severity::error,
              error(Status::needs_recovery, "a committed journal waits in ", quoted((*folder)->dir().path()),
                    "; recover the file (stctl recover, st_recover) to finish its change"));
}

// Legal, but views of such tensors are slower, and some loaders copy them.
Result<void> Verifier::check_alignment(const Snapshot &snapshot) {
  const Index &index = snapshot.header.index;
  size_t unaligned = 0;
  uint64_t first = no_offset;
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    const uint64_t element = std::max<uint64_t>(dtype_bits(t.dtype) / 8, 1);
    if (t.nbytes == 0 || snapshot.file_offset(t) % element == 0) continue;
    if (unaligned++ == 0) first = snapshot.file_offset(t);
  }
  if (unaligned == 0) return {};
  return tell(Severity::warning,
              error(Status::ok, unaligned, " tensors do not begin at a multiple of their element's size, the first at ",
                    first, "; that is legal, but slower to use in place")
                  .at_offset(first));
}

Result<void> Verifier::read_all(const Snapshot &snapshot) {
  constexpr uint64_t block = uint64_t{4} << 20;
  const auto buffer = std::make_unique_for_overwrite<char[]>(block);
  const uint64_t begin = snapshot.header.data_offset(), end = snapshot.file_size();
  for (uint64_t at = begin; at < end; at += block) {
    if (auto go = control_.check(at - begin, end - begin); !go) return go;
    if (auto got = snapshot.file.read(buffer.get(), std::min(block, end - at), at); !got)
      return tell(Severity::error, std::move(got.error()));
  }
  return {};
}

}  // namespace

Result<void> verify(os::Env &env, const std::string &path, const Control &control, const Report &report) {
  return Verifier(env, path, control, report).run();
}

}  // namespace st::store
