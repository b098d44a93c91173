// One version of one object, open. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <list>
#include <mutex>
#include <span>

#include "remote/pull.h"
#include "remote/this_process.h"

namespace st::remote {

class Store;

// Transports that wait for the next call, of all handles: a program may have a thousand open, and needs descriptors for
// more than these. The one that was used last is at the end.
struct Idle {
  struct One {
    const Store *of;
    std::unique_ptr<Transport> transport;
  };
  std::mutex mutex;
  std::list<One> all;

  static Idle &of_process();  // a child of a fork has its own
  // They give back their descriptors.
  static void end_all();
};

// What the objects of a checkpoint share: connections.
class Store {
 public:
  Store(NewTransport new_transport, Limits limits)
      : limits_(limits), pace_(limits), new_transport_(std::move(new_transport)) {}
  ~Store();
  Store(const Store &) = delete;
  Store &operator=(const Store &) = delete;

  // A transport for one call, with a place for a request, which go back at its end. A call has one at a time: if it
  // waited for a second one, all might.
  class Lent {
   public:
    Lent(Store &store, const Stops &stops) : store_(store), transport_(store.take(stops)) {}
    ~Lent() {
      if (transport_) store_.give_back(std::move(transport_));
    }
    // It ends, and gives back its descriptors, too.
    void end() { store_.end(std::move(transport_)); }
    Lent(const Lent &) = delete;
    Lent &operator=(const Lent &) = delete;
    explicit operator bool() const { return transport_ != nullptr; }  // false: `stops` said so
    Transport &operator*() const { return *transport_; }

   private:
    Store &store_;
    std::unique_ptr<Transport> transport_;
  };

  const Limits &limits() const { return limits_; }
  Pace &pace() { return pace_; }
  // Was that object put there after the first one of the checkpoint was opened, which is its index? By the server's
  // clock; false: perhaps.
  bool is_younger_than_first(const Version &version);
  // Another process made it, whose child this one is, and sends and reads by its connections.
  bool is_of_parent() const { return this_process() != process_; }

 private:
  std::unique_ptr<Transport> take(const Stops &stops);  // null: it said so
  void give_back(std::unique_ptr<Transport> transport);
  void end(std::unique_ptr<Transport> transport);
  auto is_own() const {
    return [this](const Idle::One &one) { return one.of == this; };
  }

  const Limits limits_;
  Pace pace_;
  const NewTransport new_transport_;
  const int64_t process_ = this_process();
  Idle &idle_ = Idle::of_process();
  OwnMutex mutex_;  // of all below
  bool has_first_ = false, is_first_just_put_ = false;
  std::optional<int64_t> first_said_at_;
};

class Object {
 public:
  static Result<std::unique_ptr<Object>> open(std::shared_ptr<Store> store, std::shared_ptr<const Site> site,
                                              const Stops &stops = {});

  uint64_t size() const { return version_.size; }
  const Version &version() const { return version_; }
  const std::shared_ptr<Store> &store() const { return store_; }
  const std::string &shown() const { return site_->shown(); }
  // The one that the Hub named; empty: it named none.
  std::string commit() const { return version_.commit.empty() ? site_->commit() : version_.commit; }

  BucketRegion region() const { return site_->region(); }

  // Fills each range, whole, with bytes of the version that was opened. Status file_changed: it is there no more.
  // Status cancelled: `stops` said so.
  Result<void> read(std::span<const Wanted> ranges, const Stops &stops = {});

 private:
  Object(std::shared_ptr<Store> store, std::shared_ptr<const Site> site)
      : store_(std::move(store)), site_(std::move(site)) {}
  // `ask` asks by a transport, and answers nothing, or why this process has no descriptor for a connection: then it is
  // called anew.
  template <class Ask>
  Result<void> with_connection(const Stops &stops, Ask ask) const;
  // Is that so much that the whole object is likely to be read?
  bool is_much(std::span<const Wanted> ranges) const;
  bool makes_it_whole(std::span<const Wanted> ranges) const;
  // Reads them, and asks for the checksum of the whole object beside that, if `asks`. `ranges` may be none.
  Result<std::vector<Summed>> pull_from_store(const std::vector<Wanted> &ranges, bool asks, const Stops &stops);
  Result<void> about(Result<void> done) const;  // its sentence names the object

  const std::shared_ptr<Store> store_;
  std::shared_ptr<const Site> site_;  // where redirects led
  Version version_;
  std::vector<std::byte> begin_;         // of it: the header, or most of it
  std::optional<WholeCheck> check_;      // where the store says a checksum
  std::atomic<bool> is_silent_ = false;  // it has not answered when it was asked for that alone
};

}  // namespace st::remote
