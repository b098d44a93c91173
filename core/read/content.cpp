#include "read/content.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <optional>

#include "base/check.h"
#include "base/interrupt.h"

namespace st::read {
namespace {

constexpr uint64_t unasked = uint64_t{16} << 20;  // bytes between looks whether to go on

// The caller may take its time, so nobody waits for the mutex meanwhile. It may fork: in the child nobody may be left
// to give the mutex back.
Result<void> go_on(std::unique_lock<std::mutex> &lock, const os::MadeIn &made_in) {
  const bool held = lock.owns_lock();
  if (held) lock.unlock();
  const bool stops = InterruptCheck::stops();
  if (held && made_in.this_process()) lock.lock();
  if (stops) return Failure(*InterruptCheck::stopped());
  return {};
}

// A source asks by itself, and is the faster the more is wanted of it at once.
Result<void> read_in_blocks(const os::File &file, std::byte *to, uint64_t n, uint64_t offset,
                            std::unique_lock<std::mutex> &lock, const os::MadeIn &made_in) {
  const uint64_t at_once = file.env().long_read() > 0 ? n : unasked;
  for (uint64_t done = 0; done < n; done += std::min(at_once, n - done)) {
    if (done > 0) ST_TRY(go_on(lock, made_in));
    ST_TRY(file.read(to + done, std::min(at_once, n - done), offset + done));
  }
  return {};
}

}  // namespace

// A thread reads a piece, outside of the mutex. At its end it has that once more, and others may look.
class Content::Reading {
 public:
  Reading(Own &own, Locked &lock, size_t slot) : own_(own), lock_(lock), slot_(slot) { own.being_read.push_back(slot); }
  ~Reading() {
    if (!own_.made_in.this_process()) return;
    if (!lock_.owns_lock()) lock_.lock();
    std::erase(own_.being_read, slot_);
    own_.was_read.notify_all();
  }
  Reading(const Reading &) = delete;
  Reading &operator=(const Reading &) = delete;

 private:
  Own &own_;
  Locked &lock_;
  const size_t slot_;
};

Result<Content> Content::open(const os::File &file, uint64_t size, size_t slots, MapMode wanted,
                              const os::Filesystem &filesystem, const Log &log) {
  ST_ASSERT(size > 0);
  Content c;
  c.size_ = size;
  ST_TRY(auto mapped, map_or_fall_back(file, size, wanted, filesystem, log));
  c.own_ = std::make_unique<Own>(file.env());
  c.slots_ = slots;
  if (mapped.mode != MapMode::none) c.mapping_ = std::make_shared<const os::Mapping>(std::move(mapped.mapping));
  c.map_ = mapped.mode;
  c.fallbacks_ = mapped.fallbacks;
  c.writable_ = wanted == MapMode::copy_on_write;
  c.reason_ = std::move(mapped.reason);
  c.bytes_ = c.mapping_ ? c.mapping_->data() : nullptr;
  return c;
}

Content Content::borrowed(const std::byte *bytes, size_t size) {
  Content c;
  c.size_ = size;
  c.bytes_ = bytes;
  c.reason_ = "the file was given as memory";
  return c;
}

Content Content::borrowed_to_write(const std::byte *bytes, size_t size, size_t slots) {
  Content c = borrowed(nullptr, size);
  c.copies_ = std::make_unique<GivenCopies>(bytes, slots);
  return c;
}

Content::Owned &Content::own(const Locked &) const {
  if (!own_->owned.load(std::memory_order_relaxed))
    own_->owned.store(std::make_unique<Owned>(slots_).release(), std::memory_order_release);
  return *own_->owned.load(std::memory_order_relaxed);
}

bool Content::in_own_memory(size_t slot) const {
  const Owned *owned = own_ ? own_->owned.load(std::memory_order_acquire) : nullptr;
  const std::byte *piece = owned ? owned->pieces[slot].load(std::memory_order_acquire) : nullptr;
  return piece && piece != &outdated;
}

uint64_t Content::bytes_owned() const {
  const Owned *owned = own_ ? own_->owned.load(std::memory_order_acquire) : nullptr;
  return owned ? owned->bytes.load(std::memory_order_relaxed) : 0;
}

// Or until the caller wants no more of it.
template <class Done>
Result<void> Content::await(Locked &lock, Done done) const {
  constexpr std::chrono::milliseconds until_asked(100);
  while (!own_->was_read.wait_for(lock, until_asked, done)) ST_TRY(go_on(lock, own_->made_in));
  return {};
}

Result<const std::byte *> Content::view(const os::File &file, size_t slot, uint64_t offset, uint64_t n,
                                        std::atomic<uint64_t> *bytes_read) const {
  ST_ASSERT(offset <= size_ && n <= size_ - offset);
  if (const std::byte *piece = try_view(slot, offset)) return piece;
  if (copies_) return copies_->view(slot, offset, n);
  Locked lock(own_->mutex);
  Owned &owned = own(lock);
  const std::vector<size_t> &read = own_->being_read;
  ST_TRY(await(lock, [&] { return std::find(read.begin(), read.end(), slot) == read.end(); }));
  if (in_own_memory(slot)) return owned.pieces[slot].load(std::memory_order_relaxed);
  const Reading reading(*own_, lock, slot);
  Arena arena;
  constexpr int most_unlocked = 3;  // then changes wait
  for (int reads = 1;; ++reads) {
    const uint32_t changes = owned.changes[slot];
    lock.unlock();
    if (reads == 1) arena = Arena::of_view(file.env(), n);
    ST_TRY(read_in_blocks(file, arena.data(), n, offset, lock, own_->made_in));
    if (bytes_read) *bytes_read += n;
    lock.lock();
    if (in_own_memory(slot)) return owned.pieces[slot].load(std::memory_order_relaxed);  // of a load
    if (owned.changes[slot] == changes) break;
    if (reads < most_unlocked) continue;
    ST_TRY(file.read(arena.data(), n, offset));
    if (bytes_read) *bytes_read += n;
    break;
  }
  std::byte *bytes = arena.data();
  owned.arenas.push_back(std::move(arena));
  owned.bytes.fetch_add(n, std::memory_order_relaxed);
  owned.pieces[slot].store(bytes, std::memory_order_release);
  return bytes;
}

Result<Content::Claim> Content::claim(std::span<const size_t> slots) const {
  Locked lock(own_->mutex);
  Owned &owned = own(lock);
  std::vector<size_t> mine;
  for (;;) {
    std::optional<size_t> anothers;
    for (const size_t slot : slots) {
      if (in_own_memory(slot)) continue;
      if (owned.claimed[slot])
        anothers = slot;
      else
        mine.push_back(slot);
    }
    if (!mine.empty() || !anothers) break;
    ST_TRY(await(lock, [&] { return !owned.claimed[*anothers]; }));
  }
  for (const size_t slot : mine) owned.claimed[slot] = true;
  return Claim(*this, std::move(mine));
}

Content::Claim::~Claim() {
  if (!of_ || slots_.empty() || !of_->own_->made_in.this_process()) return;
  const Locked lock(of_->own_->mutex);
  Owned &owned = of_->own(lock);
  for (const size_t slot : slots_) owned.claimed[slot] = false;
  of_->own_->was_read.notify_all();
}

void Content::expect(std::span<Loaded> pieces) const {
  const Locked lock(own_->mutex);
  const Owned &owned = own(lock);
  for (Loaded &piece : pieces) piece.changes = owned.changes[piece.slot];
}

Result<void> Content::adopt(const os::File &file, Arena arena, std::span<const Loaded> pieces) const {
  const Locked lock(own_->mutex);
  Owned &owned = own(lock);
  for (const Loaded &piece : pieces)
    if (owned.changes[piece.slot] != piece.changes) ST_TRY(file.read(piece.bytes, piece.nbytes, piece.offset));
  const auto is_there = [this](const Loaded &piece) { return in_own_memory(piece.slot); };
  if (std::all_of(pieces.begin(), pieces.end(), is_there)) return {};
  owned.arenas.push_back(std::move(arena));
  for (const Loaded &piece : pieces) {
    if (is_there(piece)) continue;
    owned.pieces[piece.slot].store(piece.bytes, std::memory_order_release);
    owned.bytes.fetch_add(piece.nbytes, std::memory_order_relaxed);
  }
  return {};
}

void Content::inherit(const Content &before) {
  if (map_ == before.map_) {
    reason_ = before.reason_;
    fallbacks_ = before.fallbacks_;
  }
  const Owned *theirs = before.own_->owned.load(std::memory_order_acquire);
  if (!theirs) return;
  const Locked lock(own_->mutex);
  Owned &owned = own(lock);
  for (size_t slot = 0; slot < slots_; ++slot)
    owned.pieces[slot].store(theirs->pieces[slot].load(std::memory_order_acquire), std::memory_order_release);
  owned.bytes = theirs->bytes.load();
}

Result<void> Content::refresh(const os::File &file, size_t slot, uint64_t offset, uint64_t n, uint64_t skip) const {
  if (map_ == MapMode::private_copy) mapping_->drop(offset, n);
  if (!writable_ && !owns_some()) return {};
  return read_again(file, slot, offset, n, skip, true);
}

Result<void> Content::refresh_own(const os::File &file, size_t slot, uint64_t offset, uint64_t n) const {
  if (!owns_some()) return {};
  if (map_ == MapMode::private_copy && in_own_memory(slot)) mapping_->drop(offset, n);
  return read_again(file, slot, offset, n, 0, false);
}

// `is_known`: to have changed. Then the change is a fact, and nobody may stop what shows it.
Result<void> Content::read_again(const os::File &file, size_t slot, uint64_t offset, uint64_t n, uint64_t skip,
                                 bool is_known) const {
  Locked lock(own_->mutex);
  Owned &owned = own(lock);
  ++owned.changes[slot];
  if (!in_own_memory(slot) && !(writable_ && is_known)) return {};
  struct Outdating {
    ~Outdating() {
      if (!stays) piece.store(&outdated, std::memory_order_release);
    }
    std::atomic<std::byte *> &piece;
    bool stays = false;
  } outdating{owned.pieces[slot]};
  if (writable_) return {};
  std::byte *const to = outdating.piece.load(std::memory_order_relaxed) + skip;
  auto read = is_known ? file.read(to, n, offset) : read_in_blocks(file, to, n, offset, lock, own_->made_in);
  outdating.stays = read || (!is_known && read.error().os_errno == ESTALE);
  return read;
}

void Content::outdate(size_t slot, bool of_parent) const noexcept try {
  if (!own_) return;
  const Locked lock = of_parent ? Locked() : Locked(own_->mutex);
  Owned *owned = writable_ && !of_parent ? &own(lock) : own_->owned.load(std::memory_order_acquire);
  if (!owned) return;
  if (!of_parent) ++owned->changes[slot];
  std::atomic<std::byte *> &piece = owned->pieces[slot];
  if (writable_ || piece.load(std::memory_order_relaxed)) piece.store(&outdated, std::memory_order_release);
} catch (const std::bad_alloc &) {  // a mapping that may be written: it shows what it did
}

}  // namespace st::read
