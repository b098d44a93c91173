// A file of a model, opened when it is first needed. Any thread: should two
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
  ~Member() { delete opened_.load(); }
  Member(const Member &) = delete;
  Member &operator=(const Member &) = delete;

  Result<DataFile *> open(const OpenOptions &options) {
    if (DataFile *c = opened()) return c;
    ST_TRY(auto at, os::Location::find_in(folder_, name_));
    ST_TRY(auto fresh, DataFile::open(std::move(at), options));
    DataFile *none = nullptr;
    if (opened_.compare_exchange_strong(none, fresh.get(), std::memory_order_acq_rel)) return fresh.release();
    return none;
  }
  DataFile *opened() const { return opened_.load(std::memory_order_acquire); }
  const std::string &path() const { return path_; }
  const std::string &name() const { return name_; }

 private:
  const std::string path_;
  const std::shared_ptr<const os::Directory> folder_;
  const std::string name_;
  std::atomic<DataFile *> opened_ = nullptr;
};

}  // namespace st::store
