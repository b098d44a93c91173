// Writes a new safetensors file tensor by tensor, so that it may be larger than
// memory. The target's name leads to the old file, or to none, until finish()
// has made the new one durable and answers ok.
//
// Where all tensors are declared first, each goes at once to its place. Where
// not, they go one after the other behind a gap for the header. They are arranged
// anew at the end only if the header outgrew the gap, or the caller asked for
// another order.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/control.h"
#include "file/replace_file.h"
#include "format/header.h"
#include "format/seeded_hash.h"
#include "newfile/layout.h"
#include "newfile/temporary_file.h"
#include "newfile/transfer.h"
#include "os/made_in.h"
#include "os/range_lock.h"

namespace st::write {

struct NewTensor {
  std::string name;
  Dtype dtype;
  std::vector<uint64_t> shape;
  uint64_t nbytes;
  const void *bytes = nullptr;  // null in a mere declaration; else borrowed
};
// Declares a tensor like that one.
inline NewTensor declaration(const TensorView &t) {
  return {std::string(t.name), t.dtype, {t.shape.begin(), t.shape.end()}, t.nbytes};
}
// One whose bytes lie in another file, from `offset` on.
struct CopiedTensor {
  std::string_view name;
  uint64_t offset;
};
using NewMetadata = std::vector<std::pair<std::string, std::string>>;

struct SaveOptions {
  Layout layout = Layout::keep;
  bool align = false;         // the kept layout, where it is not aligned
  uint64_t alignment = 0;     // of the first data byte; 0: 64, or 8 for the stock layout
  uint64_t reserve = 0;       // spare bytes in the header
  mode_t mode = mode_of_new;  // of a file that replaces none; subject to the umask
  int32_t lock_timeout_ms = default_lock_timeout_ms;
  Progress progress = {};
  Log log = {};
};

class Writer {
 public:
  static Result<std::unique_ptr<Writer>> open(os::Env &env, const std::string &path, std::vector<NewTensor> declared,
                                              NewMetadata metadata, SaveOptions options);
  // `shares`: how many bytes of the declared tensors will share blocks of other files. They need no room.
  using Shares = std::function<Result<uint64_t>(Writer &planned, const os::File &made)>;
  static Result<std::unique_ptr<Writer>> open(Destination to, std::vector<NewTensor> declared, NewMetadata metadata,
                                              SaveOptions options, const Shares &shares = {});
  // One without a file, for a look at where its tensors would lie.
  static Result<std::unique_ptr<Writer>> plan(os::Env &env, std::vector<NewTensor> declared, NewMetadata metadata,
                                              SaveOptions options);
  uint64_t size() const { return data_offset_ + end_; }
  // The bytes of these, declared, from another file to this one. Those that follow each other in both are one range.
  struct Run {
    Range range;
    size_t end;  // of the tensors in it, which begin where those of the run before end
  };
  Result<std::vector<Run>> runs_of(std::span<const CopiedTensor> tensors);

  // The next n bytes of a declared tensor.
  Result<void> add(std::string_view name, const void *bytes, uint64_t n);
  // All bytes of declared tensors, from another file, without passing through memory where that can be had. `tell` is
  // asked now and then, after so many more bytes, whether to go on.
  Result<void> copy(const os::File &from, std::span<const CopiedTensor> tensors,
                    const std::function<Result<void>(uint64_t done)> &tell);
  // A tensor and all its bytes, declared or not.
  Result<void> put(NewTensor tensor);
  // The bytes of all tensors, which were declared with theirs, as one stream: small ones share a write.
  Result<void> put_declared();
  // Status incomplete if bytes of a tensor are missing. That, busy, and too few descriptors leave
  // the writer as it was. After anything else it is over.
  Result<void> finish();
  bool has_ended() const { return failed_; }

 private:
  struct Slot {
    NewTensor tensor;
    uint64_t begin;  // in the file's data, as it is being written
    uint64_t written;
  };

  Writer(os::Env &env, SaveOptions options);
  Result<void> may_go_on() const;
  std::optional<size_t> find(std::string_view name);
  Result<Slot *> declared_slot(std::string_view name);
  Result<void> declare(std::vector<NewTensor> declared);
  Result<uint64_t> header_end_with(const NewTensor &tensor) const;
  Result<Slot *> append(NewTensor tensor);
  Result<void> write(Slot *slot, const void *bytes, uint64_t n);
  Failure failed_to_write(Error e) const;
  Result<std::string> header(const std::vector<const Slot *> &order, uint64_t *data_offset) const;
  Result<void> write_header(std::string spelled);
  Result<void> arrange(const Control &control);

  os::Env &env_;
  const SaveOptions options_;
  const os::MadeIn made_in_{env_};
  os::Location target_;
  NewMetadata metadata_;
  std::deque<Slot> slots_;  // in the order of the file; each stays where it is, as its name is a key below
  SeededMap<std::string_view, size_t> by_name_;  // of as many as there were when a name was last looked for
  uint64_t data_offset_ = 0;                     // of the file as it is being written
  uint64_t end_ = 0;                             // of the data so far
  size_t declared_ = 0;                          // the first so many slots
  std::string header_;                           // of these
  uint64_t header_end_ = 0;                      // of the header of all slots, if they stay in this order
  bool arranged_ = false;
  bool failed_ = false;
  std::unique_ptr<TemporaryFile> made_;
  std::optional<uint64_t> block_;  // that copies may share
};

// All of it in one call.
Result<void> save(os::Env &env, const std::string &path, std::vector<NewTensor> tensors, NewMetadata metadata,
                  SaveOptions options);

}  // namespace st::write
