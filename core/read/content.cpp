#include "read/content.h"

#include <cerrno>
#include <new>

#include "check.h"

namespace st::read {
namespace {

using os::Storage;

constexpr std::align_val_t piece_alignment{4096};

bool prefers_private(Storage s) {
  return s != Storage::local && s != Storage::memory;
}

// What to try first, and why.
std::pair<MapMode, std::string> choose(os::Env &env, MapMode wanted, const os::Filesystem &filesystem) {
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
  const std::string storage = text(filesystem.type, " is ", storage_name(filesystem.storage), " storage");
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
  auto [mode, reason] = choose(file.env(), wanted, filesystem);
  for (; mode != MapMode::none; ++c.fallbacks_) {
    auto mapping =
        os::Mapping::of_file(file, size, mode == MapMode::shared ? os::MapKind::shared : os::MapKind::private_copy);
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
  if (mode == MapMode::none) c.owned_ = std::make_unique<Owned>(slots);
  c.map_ = mode;
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

Content::Owned::~Owned() {
  for (auto &piece : pieces) ::operator delete(piece.load(), piece_alignment);
}

Result<const std::byte *> Content::view(const os::File &file, size_t slot, uint64_t offset, uint64_t n) const {
  ST_ASSERT(offset <= size_ && n <= size_ - offset);
  if (!owned_) return bytes_ + offset;
  std::atomic<std::byte *> &piece = owned_->pieces[slot];
  if (const std::byte *filled = piece.load(std::memory_order_acquire)) return filled;
  std::lock_guard lock(owned_->mutex);
  if (const std::byte *filled = piece.load(std::memory_order_relaxed)) return filled;
  struct Free {
    void operator()(std::byte *p) const { ::operator delete(p, piece_alignment); }
  };
  std::unique_ptr<std::byte, Free> memory(static_cast<std::byte *>(::operator new(n, piece_alignment)));
  if (auto read = file.read(memory.get(), n, offset); !read) return Failure(std::move(read.error()));
  owned_->filled_bytes.fetch_add(n, std::memory_order_relaxed);
  piece.store(memory.get(), std::memory_order_release);
  return memory.release();
}

Result<void> Content::refresh(const os::File &file, size_t slot, uint64_t offset, uint64_t n) const {
  if (map_ == MapMode::private_copy) mapping_.drop(offset, n);
  if (!owned_) return {};
  std::lock_guard lock(owned_->mutex);
  std::byte *filled = owned_->pieces[slot].load(std::memory_order_relaxed);
  return filled ? file.read(filled, n, offset) : Result<void>();
}

}  // namespace st::read
