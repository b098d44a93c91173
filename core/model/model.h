// What a handle of the C ABI stands for: a file, or several members (the shards
// of a checkpoint, or a base and deltas) that look like one. Every call of the ABI goes through here
// and knows not which it is. Readers may be many threads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "file/any_transaction.h"
#include "model/catalogue.h"

namespace st::store {

// A tensor of a bulk read, or a slice of it, and where its bytes go.
struct PlacedRequest {
  Place place;
  const SlicePlan *slice;  // null: all of it
  std::byte *to;
  bool fresh = false;  // nobody has touched that memory yet
};

class Model {
 public:
  virtual ~Model() = default;

  // Another one, by the same path, which must still lead to the files of `state`. Status file_changed. How: `as`.
  virtual Result<std::unique_ptr<Model>> reopen(const Catalogue &state, Again as) const = 0;
  // The same of what it shows now, whatever its own commits do meanwhile.
  virtual Result<std::unique_ptr<Model>> reopen_shown(Again as) const { return reopen(catalogue(), as); }
  // The handle is closed, but what was pinned of it (model/pinned.h) lives on: what only the handle needs goes now.
  virtual void close() noexcept = 0;
  // As it is now: what others have committed.
  virtual Result<void> refresh() = 0;
  // What was committed to journals alone becomes durable in the files.
  virtual Result<void> sync() { return {}; }
  // Signal-safe.
  void interrupt() { account().interrupts.fetch_add(1, std::memory_order_relaxed); }
  virtual Account &account() const = 0;
  virtual Result<std::unique_ptr<AnyTransaction>> begin(TransactionOptions options) = 0;
  // The same on a state of several members, which it shows or has shown, and which is kept. One file is looked at anew.
  virtual Result<std::unique_ptr<AnyTransaction>> begin_on(const Catalogue &, TransactionOptions options) {
    return begin(std::move(options));
  }
  // Each of its files anew, in the layout that the options say.
  virtual Result<void> compact(TransactionOptions options) {
    options.compact = true;
    ST_TRY(auto transaction, begin(std::move(options)));
    return transaction->commit();
  }

  // What it shows now, held.
  virtual Catalogue catalogue() const = 0;
  // The same, and what it answers may be given out until release().
  virtual Catalogue lend() const = 0;
  virtual void release() noexcept = 0;
  virtual const OpenOptions &options() const = 0;
  // The file, if it is one and no more: for calls that must not take a nanosecond longer.
  virtual const DataFile *file() const { return nullptr; }

  virtual std::string index_path() const { return {}; }  // of the index of shards, if that is what it is
  virtual const os::Location *index_location() const { return nullptr; }  // the same, if it is a file

  // In bulk. No places: all tensors, for prefetch this worker's part of them.
  // `progress` may be empty: then the handle's own.
  virtual Result<void> read_many(const std::vector<PlacedRequest> &requests, const Progress &progress) const = 0;
  virtual Result<void> prefetch(const Catalogue &catalogue, std::optional<std::vector<Place>> places,
                                const Progress &progress) const = 0;
  virtual Result<void> load(const Catalogue &catalogue, std::optional<std::vector<Place>> places, bool reserved_pages,
                            bool direct, const Progress &progress) const = 0;
};

}  // namespace st::store
