// One version of one object, open. Any thread.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <span>

#include "remote/pull.h"

namespace st::remote {

// What the objects of a checkpoint share: connections.
class Store {
 public:
  Store(NewTransport new_transport, Limits limits) : limits_(limits), new_transport_(std::move(new_transport)) {}

  // A transport for one call, which goes back at its end.
  class Lent {
   public:
    explicit Lent(Store &store) : store_(store), transport_(store.take()) {}
    ~Lent() { store_.give_back(std::move(transport_)); }
    Lent(const Lent &) = delete;
    Lent &operator=(const Lent &) = delete;
    Transport &operator*() const { return *transport_; }

   private:
    Store &store_;
    std::unique_ptr<Transport> transport_;
  };

  const Limits &limits() const { return limits_; }
  std::atomic<uint32_t> &busy() { return busy_; }

 private:
  std::unique_ptr<Transport> take();
  void give_back(std::unique_ptr<Transport> transport);

  const Limits limits_;
  const NewTransport new_transport_;
  std::atomic<uint32_t> busy_ = 0;  // requests under way
  std::mutex mutex_;
  std::vector<std::unique_ptr<Transport>> idle_;
};

class Object {
 public:
  static Result<std::unique_ptr<Object>> open(std::shared_ptr<Store> store, std::shared_ptr<const Site> site);

  uint64_t size() const { return version_.size; }
  const Version &version() const { return version_; }
  const std::shared_ptr<Store> &store() const { return store_; }
  const std::string &shown() const { return site_->shown(); }

  // Fills each range, whole, with bytes of the version that was opened. Status file_changed: it is there no more.
  Result<void> read(std::span<const Wanted> ranges);

 private:
  Object(std::shared_ptr<Store> store, std::shared_ptr<const Site> site)
      : store_(std::move(store)), site_(std::move(site)) {}

  const std::shared_ptr<Store> store_;
  std::shared_ptr<const Site> site_;  // where redirects led
  Version version_;
  std::vector<std::byte> begin_;  // of it: the header, or most of it
};

}  // namespace st::remote
