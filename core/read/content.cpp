#include "read/content.h"

#include <cerrno>

#include "base/check.h"

namespace st::read {
namespace {

using os::Storage;

bool prefers_private(Storage s) {
  return s != Storage::local && s != Storage::memory;
}

bool maps_slowly(Storage s) {
  return s == Storage::network || s == Storage::parallel || s == Storage::fuse || s == Storage::object_store;
}

os::MapKind kind_of(MapMode mode) {
  switch (mode) {
    case MapMode::shared: return os::MapKind::shared;
    case MapMode::copy_on_write: return os::MapKind::copy_on_write;
    default: return os::MapKind::private_copy;
  }
}

// What to try first, and why.
std::pair<MapMode, std::string> choose(const os::File &file, MapMode wanted, const os::Filesystem &filesystem) {
  os::Env &env = file.env();
  const std::string storage = text(filesystem.type, " is ", storage_name(filesystem.storage), " storage");
  if (wanted == MapMode::copy_on_write && maps_slowly(filesystem.storage))
    return {MapMode::none, text(storage, ", where page after page of a mapping is slow")};
  if (wanted == MapMode::automatic) {
    const char *set = env.getenv("ST_MAP");
    const std::string_view name = set ? set : "";
    const std::string why = text("the environment asks for it: ST_MAP=", name);
    if (name == "shared") return {MapMode::shared, why};
    if (name == "private") return {MapMode::private_copy, why};
    if (name == "none") return {MapMode::none, why};
  } else {
    return {wanted, "the caller asked for it"};
  }
  if (file.reads_past_cache())
    return {MapMode::none, text(storage, ", where a mapping may show pages that another host has changed")};
  if (prefers_private(filesystem.storage))
    return {MapMode::private_copy, text(storage, ", where shared mappings may be refused")};
  return {MapMode::shared, text(storage, ", where all readers can share the page cache")};
}

bool mapping_refused(int err) {
  return err == ENODEV || err == EACCES || err == EPERM || err == EINVAL || err == EOPNOTSUPP || err == ENOSYS ||
         err == ENOMEM || err == EAGAIN;
}

}  // namespace

Result<Content> Content::open(const os::File &file, size_t size, size_t slots, MapMode wanted,
                              const os::Filesystem &filesystem, const Log &log) {
  ST_ASSERT(size > 0);
  Content c;
  c.size_ = size;
  auto [mode, reason] = choose(file, wanted, filesystem);
  for (; mode != MapMode::none; ++c.fallbacks_) {
    auto mapping = os::Mapping::of_file(file, size, kind_of(mode));
    if (mapping) {
      c.mapping_ = std::move(*mapping);
      break;
    }
    if (!mapping_refused(mapping.error().os_errno)) return Failure(std::move(mapping.error()));
    reason = mapping.error().message;
    mode = mode == MapMode::shared ? MapMode::private_copy : MapMode::none;
    if (log)
      log(LogLevel::warning,
          text(reason, "; falling back to ", mode == MapMode::none ? "owned memory" : "a private mapping"));
  }
  c.own_ = std::make_unique<Own>();
  c.slots_ = slots;
  c.map_ = mode;
  c.writable_ = wanted == MapMode::copy_on_write;
  c.reason_ = std::move(reason);
  c.bytes_ = c.mapping_.data();
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

Result<void> Content::refresh(const os::File &file, size_t slot, uint64_t offset, uint64_t n) const {
  if (map_ == MapMode::private_copy) mapping_.drop(offset, n);
  if (!writable_ && !own_->owned.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(own_->mutex);
  Owned &owned = own(lock);
  ++owned.changes[slot];
  if (writable_) {
    owned.pieces[slot].store(&outdated, std::memory_order_release);
    return {};
  }
  std::byte *piece = owned.pieces[slot].load(std::memory_order_relaxed);
  return piece ? file.read(piece, n, offset) : Result<void>();
}

}  // namespace st::read
