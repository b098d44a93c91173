#include "read/content.h"

#include "base/check.h"

namespace st::read {

Result<Content> Content::open(const os::File &file, uint64_t size, size_t slots, MapMode wanted,
                              const os::Filesystem &filesystem, const Log &log) {
  ST_ASSERT(size > 0);
  Content c;
  c.size_ = size;
  ST_TRY(auto mapped, map_or_fall_back(file, size, wanted, filesystem, log));
  c.own_ = std::make_unique<Own>();
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

Content::Owned &Content::own(const std::lock_guard<std::mutex> &) const {
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

Result<const std::byte *> Content::view(const os::File &file, size_t slot, uint64_t offset, uint64_t n) const {
  ST_ASSERT(offset <= size_ && n <= size_ - offset);
  if (const std::byte *piece = try_view(slot, offset)) return piece;
  std::lock_guard lock(own_->mutex);
  Owned &owned = own(lock);
  if (in_own_memory(slot)) return owned.pieces[slot].load(std::memory_order_relaxed);
  Arena arena = Arena::of(file.env(), n, false);
  ST_TRY(file.read(arena.data(), n, offset));
  std::byte *bytes = arena.data();
  owned.arenas.push_back(std::move(arena));
  owned.bytes.fetch_add(n, std::memory_order_relaxed);
  owned.pieces[slot].store(bytes, std::memory_order_release);
  return bytes;
}

void Content::expect(std::span<Loaded> pieces) const {
  std::lock_guard lock(own_->mutex);
  const Owned &owned = own(lock);
  for (Loaded &piece : pieces) piece.changes = owned.changes[piece.slot];
}

Result<void> Content::adopt(const os::File &file, Arena arena, std::span<const Loaded> pieces) const {
  std::lock_guard lock(own_->mutex);
  Owned &owned = own(lock);
  for (const Loaded &piece : pieces)
    if (owned.changes[piece.slot] != piece.changes) ST_TRY(file.read(piece.bytes, piece.nbytes, piece.offset));
  owned.arenas.push_back(std::move(arena));
  for (const Loaded &piece : pieces) {
    if (in_own_memory(piece.slot)) continue;
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
  std::lock_guard lock(own_->mutex);
  Owned &owned = own(lock);
  for (size_t slot = 0; slot < slots_; ++slot)
    owned.pieces[slot].store(theirs->pieces[slot].load(std::memory_order_acquire), std::memory_order_release);
  owned.bytes = theirs->bytes.load();
}

Result<void> Content::refresh(const os::File &file, size_t slot, uint64_t offset, uint64_t n, uint64_t skip) const {
  if (map_ == MapMode::private_copy) mapping_->drop(offset, n);
  if (!writable_ && !own_->owned.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(own_->mutex);
  Owned &owned = own(lock);
  ++owned.changes[slot];
  if (writable_) {
    owned.pieces[slot].store(&outdated, std::memory_order_release);
    return {};
  }
  std::byte *piece = owned.pieces[slot].load(std::memory_order_relaxed);
  return piece ? file.read(piece + skip, n, offset) : Result<void>();
}

}  // namespace st::read
