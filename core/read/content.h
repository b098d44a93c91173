// The bytes of one open file as memory: a mapping (map_mode.h), or memory of our own that is filled, tensor by tensor,
// when first looked at.
// Over each of them, pieces may have been loaded into memory of our own.
// Or a copy-on-write mapping, else memory of our own, whose views may be written:
// there what was given out is never read anew, and a change shows to later looks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/control.h"
#include "base/waiters.h"
#include "os/file.h"
#include "os/filesystem.h"
#include "os/made_in.h"
#include "os/mapping.h"
#include "read/arena.h"
#include "read/given_copies.h"
#include "read/map_mode.h"

namespace st::read {

class Content {
 public:
  Content() = default;
  // `size` > 0 bytes of `file`; `slots` is how many pieces will be looked at.
  static Result<Content> open(const os::File &file, uint64_t size, size_t slots, MapMode wanted,
                              const os::Filesystem &filesystem, const Log &log);
  // Bytes that somebody else keeps alive.
  static Content borrowed(const std::byte *bytes, size_t size);
  // The same, and views may be written: see GivenCopies.
  static Content borrowed_to_write(const std::byte *bytes, size_t size, size_t slots);

  // The bytes [offset, offset + n) of the file, which are piece `slot`. Any thread. One that reads a piece keeps nobody
  // from another, unless that piece is changed in each of three reads: the fourth holds the mutex. Amid a long one, but
  // that fourth, the thread's InterruptCheck is asked.
  // `bytes_read` counts what it reads.
  Result<const std::byte *> view(const os::File &file, size_t slot, uint64_t offset, uint64_t n,
                                 std::atomic<uint64_t> *bytes_read = nullptr) const;
  // The same if it takes no reading; else null.
  const std::byte *try_view(size_t slot, uint64_t offset) const noexcept {
    if (const Owned *owned = own_ ? own_->owned.load(std::memory_order_acquire) : nullptr)
      if (const std::byte *piece = owned->pieces[slot].load(std::memory_order_acquire))
        return piece == &outdated ? nullptr : piece;
    return bytes_ ? bytes_ + offset : nullptr;
  }
  // Piece `slot` was changed in the file: n bytes at `offset`, `skip` bytes behind its begin. Let views that can show
  // it, show it. Where views may be written, those that are out keep what they show, and the next look takes the new
  // bytes. So it is, too, where they cannot be read now.
  Result<void> refresh(const os::File &file, size_t slot, uint64_t offset, uint64_t n, uint64_t skip = 0) const;
  // The same of a piece that others may have changed, as far as it is in memory of our own, or on its way there. If the
  // server has forgotten the file, what is in memory stays. Amid a long one the thread's InterruptCheck is asked; after
  // its no the next look reads the piece.
  Result<void> refresh_own(const os::File &file, size_t slot, uint64_t offset, uint64_t n) const;

  // The same where nothing can be read: the next look does. `of_parent`: this process has forked from the one that
  // made it. Then nobody looks at it any more, but inherit(); and its mutex may be held for ever.
  void outdate(size_t slot, bool of_parent) const noexcept;

  // The pieces that a load is about to read. As long as this is, other loads leave them alone; looks do not.
  class Claim {
   public:
    Claim(Claim &&other) noexcept : of_(std::exchange(other.of_, nullptr)), slots_(std::move(other.slots_)) {}
    Claim &operator=(Claim &&) = delete;
    ~Claim();
    const std::vector<size_t> &slots() const { return slots_; }

   private:
    friend class Content;
    Claim(const Content &of, std::vector<size_t> slots) : of_(&of), slots_(std::move(slots)) {}
    const Content *of_;
    std::vector<size_t> slots_;
  };
  // Claims those pieces that are not in memory of our own, and that nobody else claims. Where others claim all that are
  // left it waits for them: a claim of none means that all are there. A thread that waits must have no claim.
  Result<Claim> claim(std::span<const size_t> slots) const;

  // A load, around its reads. Pieces lie in `arena` from adopt() on. Those that
  // are in memory of our own already stay where they are, as views of them may
  // be out; those that were changed since expect() are read once more.
  struct Loaded {
    size_t slot;
    uint64_t offset, nbytes;  // in the file
    std::byte *bytes;
    uint32_t changes = 0;  // filled by expect()
  };
  void expect(std::span<Loaded> pieces) const;
  Result<void> adopt(const os::File &file, Arena arena, std::span<const Loaded> pieces) const;
  bool in_own_memory(size_t slot) const;
  // Take over from the process that forked us: its memory of its own is here too,
  // and the reason for the mapping is the same.
  void inherit(const Content &before);

  // Do some of these n bytes lie in the mapping; is there memory of our own at all; do they lie in that of piece
  // `slot`, which has `size` bytes? Without a mutex, as a forked child may ask.
  bool maps(const void *bytes, uint64_t n) const {
    return mapping_ && overlap(mapping_->data(), mapping_->size(), bytes, n);
  }
  bool owns_some() const { return own_ && own_->owned.load(std::memory_order_acquire); }
  bool owns(size_t slot, uint64_t size, const void *bytes, uint64_t n) const {
    const std::byte *piece = own_->owned.load(std::memory_order_acquire)->pieces[slot].load(std::memory_order_acquire);
    return piece != &outdated && overlap(piece, size, bytes, n);
  }

  const std::byte *bytes() const { return copies_ ? copies_->bytes() : bytes_; }  // of borrowed content
  MapMode map() const { return map_; }
  MapMode wanted() const { return writable_ ? MapMode::copy_on_write : map_; }  // to map it once more
  uint32_t fallbacks() const { return fallbacks_; }
  const std::string &reason() const { return reason_; }
  uint64_t bytes_mapped() const { return map_ == MapMode::none ? 0 : size_; }
  uint64_t bytes_resident() const { return map_ == MapMode::none ? 0 : mapping_->resident(); }
  uint64_t bytes_private_dirty() const { return map_ == MapMode::none ? 0 : mapping_->private_dirty(); }
  uint64_t bytes_owned() const;
  // Null where nothing is mapped. A copy of the pointer keeps the views that lie in it.
  const std::shared_ptr<const os::Mapping> &mapping() const { return mapping_; }

 private:
  static bool overlap(const void *a, uint64_t a_size, const void *b, uint64_t b_size) {
    const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
    return a && x < y + b_size && y < x + a_size;
  }

  // Memory of our own: where each piece lies, and what keeps it.
  struct Owned {
    explicit Owned(size_t slots) : pieces(slots), changes(slots), claimed(slots) {}
    std::vector<std::atomic<std::byte *>> pieces;  // null: not there; &outdated: neither there nor in the mapping
    std::vector<uint32_t> changes;                 // refreshes of each, so that a load under way notices
    std::vector<bool> claimed;                     // by a load
    std::vector<Arena> arenas;
    std::atomic<uint64_t> bytes = 0;
  };
  struct Own {
    explicit Own(os::Env &env) : made_in(env) {}
    ~Own() { delete owned.load(); }
    const os::MadeIn made_in;              // a child takes no mutex of its parent's
    std::mutex mutex;                      // of what Owned has but `pieces`, and of what is here but `owned`
    std::atomic<Owned *> owned = nullptr;  // made when first needed, so that mapped files need no table
    std::vector<size_t> being_read;        // slots, each by one thread that looks
    Waiters was_read;                      // by that, or by a load
  };
  using Locked = std::unique_lock<std::mutex>;
  class Reading;
  Owned &own(const Locked &) const;
  template <class Done>
  Result<void> await(Locked &lock, Done done) const;
  Result<void> read_again(const os::File &file, size_t slot, uint64_t offset, uint64_t n, uint64_t skip,
                          bool is_known) const;

  static inline std::byte outdated{};

  MapMode map_ = MapMode::none;
  bool writable_ = false;  // its views may be written
  uint32_t fallbacks_ = 0;
  std::string reason_;
  uint64_t size_ = 0;
  const std::byte *bytes_ = nullptr;
  std::unique_ptr<GivenCopies> copies_;  // then bytes_ is null
  size_t slots_ = 0;
  std::shared_ptr<const os::Mapping> mapping_;
  std::unique_ptr<Own> own_;
};

}  // namespace st::read
