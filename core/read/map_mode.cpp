#include "read/map_mode.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>

#include "os/setting.h"

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
  const std::string storage = text(filesystem.type, " is ", storage_name(filesystem.storage), " storage");
  if (!filesystem.mappable) return {MapMode::none, text(storage, ", which the kernel cannot map")};
  if (wanted == MapMode::copy_on_write && maps_slowly(filesystem.storage))
    return {MapMode::none, text(storage, ", where page after page of a mapping is slow")};
  if (wanted == MapMode::automatic) {
    const std::string_view name = os::setting(file.env(), "ST_MAP").value_or("");
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

Result<void> check_map_setting(os::Env &env, MapMode wanted) {
  constexpr std::string_view names[] = {"auto", "shared", "private", "none"};
  const auto name = os::setting(env, "ST_MAP");
  if (wanted != MapMode::automatic || !name) return {};
  if (std::find(std::begin(names), std::end(names), *name) == std::end(names))
    return os::no_such_setting("ST_MAP", *name, "auto, shared, private or none");
  return {};
}

Result<Mapped> map_or_fall_back(const os::File &file, uint64_t size, MapMode wanted, const os::Filesystem &filesystem,
                                const Log &log) {
  auto [mode, reason] = choose(file, wanted, filesystem);
  if (size > PTRDIFF_MAX) {
    mode = MapMode::none;
    reason = text("its ", size, " bytes are more than a mapping may have on this machine");
  }
  for (uint32_t fallbacks = 0;; ++fallbacks) {
    if (mode == MapMode::none) return Mapped{{}, mode, std::move(reason), fallbacks};
    auto mapping = os::Mapping::of_file(file, size, kind_of(mode));
    if (mapping) return Mapped{std::move(*mapping), mode, std::move(reason), fallbacks};
    if (!mapping_refused(mapping.error().os_errno)) return Failure(std::move(mapping.error()));
    reason = mapping.error().message;
    mode = mode == MapMode::shared ? MapMode::private_copy : MapMode::none;
    if (log)
      log(LogLevel::warning,
          text(reason, "; falling back to ", mode == MapMode::none ? "owned memory" : "a private mapping"));
  }
}

}  // namespace st::read
