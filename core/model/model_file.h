// A file of a model, or a source, opened when it is first needed. Any thread: should two
// open it at once, one of them does so in vain.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "file/data_file.h"

namespace st::store {

class Member {
 public:
  // The entry `name` of `folder`.
  Member(std::shared_ptr<const os::Directory> folder, std::string name)
      : path_(folder->path_of(name)), folder_(std::move(folder)), name_(std::move(name)) {}
  // What `sources` opens; `path` is for messages.
  Member(os::OpenByName sources, std::string name, std::string path)
      : path_(std::move(path)), sources_(std::move(sources)), name_(std::move(name)) {}
  ~Member() { delete opened_.load(); }
  Member(const Member &) = delete;
  Member &operator=(const Member &) = delete;

  Result<DataFile *> open(const OpenOptions &options) {
    if (DataFile *c = opened()) return c;
    constexpr auto half = os::Descriptors::GiveUp::half;
    ST_TRY(auto fresh, os::Descriptors::with_room(options.descriptors, half, [&] { return open_anew(options); }));
    DataFile *none = nullptr;
    if (opened_.compare_exchange_strong(none, fresh.get(), std::memory_order_acq_rel)) return fresh.release();
    return none;
  }
  // Once it is open, and in a folder: see DataFile::is_untouched_since.
  bool is_untouched_since(uint64_t second, const Snapshot &state) const;
  // Then: see DataFile::was_replaced_by_others. A link that leads elsewhere by now was replaced.
  Result<bool> was_replaced_by_others(const Snapshot &state) const;
  DataFile *opened() const { return opened_.load(std::memory_order_acquire); }
  // What is in it was found to go with what is shown of the others: a new catalogue may have it as it is.
  bool is_shown() const { return shown_.load(std::memory_order_acquire); }
  void note_shown() noexcept { shown_.store(true, std::memory_order_release); }
  const std::string &path() const { return path_; }
  const std::string &name() const { return name_; }

 private:
  Result<std::unique_ptr<DataFile>> open_anew(const OpenOptions &options) const {
    if (sources_) {
      ST_TRY(const auto source, sources_(name_));
      return DataFile::open_source(source, options);
    }
    ST_TRY(auto at, os::Location::find_in(folder_, name_));
    return DataFile::open(std::move(at), options);
  }

  const os::Location &at() const { return opened()->location(); }
  bool is_link() const { return at().folder() != folder_ || at().name() != name_; }

  const std::string path_;
  const std::shared_ptr<const os::Directory> folder_;
  const os::OpenByName sources_;  // of what is in no folder
  const std::string name_;
  std::atomic<DataFile *> opened_ = nullptr;
  std::atomic<bool> shown_ = false;
};

}  // namespace st::store
