#include "remote/checksum.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <utility>

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
  return number_of(base64, kind == Crc::crc64nvme ? 8 : 4);
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
  constexpr std::pair<const char *, Crc> fields[] = {{"x-amz-checksum-crc64nvme", Crc::crc64nvme},
                                                     {"x-amz-checksum-crc32c", Crc::crc32c},
                                                     {"x-amz-checksum-crc32", Crc::crc32}};
  for (const auto &[name, kind] : fields)
    if (const auto crc = number_of(head.field(name), kind)) return Checksum{kind, *crc};
  return std::nullopt;
}

WholeCheck::WholeCheck(std::optional<Checksum> expected, uint64_t size, std::span<const std::byte> begin)
    : size_(size), known_(expected ? Known::yes : Known::no), expected_(expected) {
  Summed sum{0};
  add_to(&sum, begin);
  begin_ = {sum.end, sum.crcs};
}

// Outside of the lock, as it takes most of the time.
void WholeCheck::add_to(Summed *sum, std::span<const std::byte> bytes) const {
  std::array<bool, std::size(all_crcs)> looked_at = {};
  {
    const auto lock = mutex_.lock();
    for (const Crc kind : all_crcs) looked_at[static_cast<size_t>(kind)] = looks_at(kind);
  }
  for (const Crc kind : all_crcs)
    if (const auto k = static_cast<size_t>(kind); looked_at[k]) sum->crcs[k] = crc_of(kind, bytes, sum->crcs[k]);
  sum->end += bytes.size();
}

Crcs WholeCheck::join(const Crcs &first, const Crcs &second, uint64_t second_bytes) const {
  Crcs out = {};
  for (const Crc kind : all_crcs)
    if (const auto k = static_cast<size_t>(kind); looks_at(kind))
      out[k] = joined(kind, first[k], second[k], second_bytes);
  return out;
}

void WholeCheck::add(uint64_t begin, Run run) {
  auto at = runs_.lower_bound(begin);
  if (at != runs_.begin() && std::prev(at)->second.end > begin) --at;
  if (at != runs_.end() && at->first <= begin && at->second.end >= run.end) return;
  while (at != runs_.end() && at->first < run.end) at = runs_.erase(at);
  if (at != runs_.end() && at->first == run.end) {
    run = {at->second.end, join(run.crcs, at->second.crcs, at->second.end - at->first)};
    at = runs_.erase(at);
  }
  if (at != runs_.begin() && std::prev(at)->second.end == begin)
    std::prev(at)->second = {run.end, join(std::prev(at)->second.crcs, run.crcs, run.end - begin)};
  else if (runs_.size() < most_runs)
    runs_.emplace(begin, run);
}

Result<void> WholeCheck::compare(const Crcs &crcs) const {
  if (!expected_ || crcs[static_cast<size_t>(expected_->kind)] == expected_->value) return {};
  return fail(Status::checksum, "what came is not what was stored: the checksum of the whole object differs");
}

Result<void> WholeCheck::check_begin() const {
  const auto lock = mutex_.lock();
  return begin_.end == size_ ? compare(begin_.crcs) : Result<void>();
}

Result<void> WholeCheck::came(const Summed &sum) {
  const auto lock = mutex_.lock();
  add(sum.begin, {sum.end, sum.crcs});
  if (runs_.empty() || runs_.begin()->first != begin_.end || runs_.begin()->second.end != size_) return {};
  const Crcs whole = join(begin_.crcs, runs_.begin()->second.crcs, size_ - begin_.end);
  runs_.clear();  // what is read again is checked again
  if (known_ == Known::yes) return compare(whole);
  whole_ = whole;
  return {};
}

bool WholeCheck::is_all_with(std::vector<Stretch> stretches) const {
  const auto lock = mutex_.lock();
  for (const auto &[begin, run] : runs_) stretches.emplace_back(begin, run.end);
  std::sort(stretches.begin(), stretches.end());
  uint64_t end = begin_.end;
  for (const auto &[first, second] : stretches) {
    if (first > end) return false;
    end = std::max(end, second);
  }
  return end >= size_;
}

bool WholeCheck::begins_to_ask() {
  const auto lock = mutex_.lock();
  if (known_ != Known::no) return false;
  known_ = Known::is_asked;
  return true;
}

bool WholeCheck::begins_to_ask_at_the_end() {
  const auto lock = mutex_.lock();
  if (!whole_ || known_ == Known::is_asked_at_the_end || known_ == Known::yes) return false;
  known_ = Known::is_asked_at_the_end;
  return true;
}

Result<void> WholeCheck::said(std::optional<Checksum> expected) {
  const auto lock = mutex_.lock();
  if (known_ != Known::yes) {
    known_ = Known::yes;
    expected_ = expected;
  }
  return whole_ ? compare(*whole_) : Result<void>();
}

void WholeCheck::not_said() {
  const auto lock = mutex_.lock();
  if (known_ != Known::yes) known_ = Known::later;
}

}  // namespace st::remote
