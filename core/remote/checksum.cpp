#include "remote/checksum.h"

#include <openssl/evp.h>

#include <array>

#include "base/ascii.h"

namespace st::remote {
namespace {

// More runs are of rows here and there, which never become the whole object.
constexpr size_t most_runs = 4096;

// Big-endian, in base64.
std::optional<uint64_t> number_of(std::string_view base64, size_t bytes) {
  std::array<unsigned char, 12> raw = {};
  if (base64.size() != (bytes + 2) / 3 * 4) return std::nullopt;
  const auto *text = reinterpret_cast<const unsigned char *>(base64.data());
  if (EVP_DecodeBlock(raw.data(), text, static_cast<int>(base64.size())) < 0) return std::nullopt;
  uint64_t out = 0;
  for (size_t i = 0; i < bytes; ++i) out = out << 8 | raw[i];
  return out;
}

std::optional<uint64_t> number_of(std::string_view base64, Crc kind) {
  return number_of(base64, kind == Crc::crc32c ? 4 : 8);
}

// "crc32c=yZRlqg==,md5=…", or a field each.
std::string_view google_crc(const Head &head) {
  constexpr std::string_view name = "crc32c=";
  for (const auto &[field, value] : head.fields) {
    if (field != "x-goog-hash") continue;
    for (std::string_view rest = value; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (const auto one = trimmed(rest.substr(0, comma)); one.starts_with(name)) return one.substr(name.size());
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return {};
}

}  // namespace

std::optional<Checksum> checksum_of(const Head &head) {
  // Google unpacks what it has compressed for a client that takes no gzip. The checksum is of what is packed.
  if (!head.field("x-goog-stored-content-encoding").empty() &&
      head.field("x-goog-stored-content-encoding") != "identity")
    return std::nullopt;
  if (const auto crc = number_of(google_crc(head), Crc::crc32c)) return Checksum{Crc::crc32c, *crc};
  // A composite one is of the checksums of the parts.
  if (head.field("x-amz-checksum-type") == "COMPOSITE") return std::nullopt;
  if (const auto crc = number_of(head.field("x-amz-checksum-crc64nvme"), Crc::crc64nvme))
    return Checksum{Crc::crc64nvme, *crc};
  if (const auto crc = number_of(head.field("x-amz-checksum-crc32c"), Crc::crc32c)) return Checksum{Crc::crc32c, *crc};
  return std::nullopt;
}

void WholeCheck::add(uint64_t begin, Run run) {
  auto at = runs_.lower_bound(begin);
  if (at != runs_.begin() && std::prev(at)->second.end > begin) --at;
  if (at != runs_.end() && at->first <= begin && at->second.end >= run.end) return;
  while (at != runs_.end() && at->first < run.end) at = runs_.erase(at);
  if (at != runs_.end() && at->first == run.end) {
    run = {at->second.end, joined(expected_.kind, run.crc, at->second.crc, at->second.end - at->first)};
    at = runs_.erase(at);
  }
  if (at != runs_.begin() && std::prev(at)->second.end == begin)
    std::prev(at)->second = {run.end, joined(expected_.kind, std::prev(at)->second.crc, run.crc, run.end - begin)};
  else if (runs_.size() < most_runs)
    runs_.emplace(begin, run);
}

Result<void> WholeCheck::compare(uint64_t crc) const {
  if (crc == expected_.value) return {};
  return fail(Status::checksum, "what came is not what was stored: the checksum of the whole object differs");
}

Result<void> WholeCheck::check_begin() const {
  return begin_.end == size_ ? compare(begin_.crc) : Result<void>();
}

Result<void> WholeCheck::came(uint64_t offset, std::span<const std::byte> bytes) {
  const Run run = {offset + bytes.size(), crc_of(expected_.kind, bytes)};
  const std::lock_guard lock(mutex_);
  add(offset, run);
  if (runs_.empty() || runs_.begin()->first != begin_.end || runs_.begin()->second.end != size_) return {};
  const uint64_t rest = runs_.begin()->second.crc;
  runs_.clear();  // what is read again is checked again
  return compare(joined(expected_.kind, begin_.crc, rest, size_ - begin_.end));
}

}  // namespace st::remote
