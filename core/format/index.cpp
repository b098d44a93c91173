#include "format/index.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"

namespace st {

namespace {

// For the lookup: a power of two, at most three quarters of them taken.
size_t slots_for(size_t tensors) {
  return std::bit_ceil(tensors + tensors / 3 + 1);
}

// In the order of the dimensions; nothing if that is 2^64 or more on the way.
std::optional<uint64_t> bits_of(Dtype dtype, std::span<const uint64_t> shape) {
  uint64_t bits = 1;
  bool overflow = false;
  for (uint64_t dim : shape) overflow |= __builtin_mul_overflow(bits, dim, &bits);
  overflow |= __builtin_mul_overflow(bits, uint64_t{dtype_bits(dtype)}, &bits);
  return overflow ? std::nullopt : std::optional(bits);
}

}  // namespace

uint64_t Index::hash(std::string_view name) const {
  return hash64(name.data(), name.size(), seed_);
}

std::optional<size_t> Index::find(std::string_view name) const {
  const uint64_t h = hash(name);
  const uint64_t mask = slots_.size() - 1;
  for (uint64_t i = h & mask; slots_[i] != 0; i = (i + 1) & mask) {
    if (slots_[i] >> 32 != h >> 32) continue;
    const size_t candidate = (slots_[i] & UINT32_MAX) - 1;
    const Entry &e = entries_[candidate];
    if (string_at(e.name, e.name_len) == name) return candidate;
  }
  return std::nullopt;
}

std::optional<std::string_view> Index::names() const {
  if (!names_together_) return std::nullopt;
  const Entry &first = entries_.front(), &last = entries_.back();
  return string_at(first.name, last.name + last.name_len + 1 - first.name);
}

std::pair<std::string_view, std::string_view> Index::metadata_at(size_t i) const {
  const Pair &p = metadata_[i];
  return {string_at(p.key, p.key_len), string_at(p.value, p.value_len)};
}

std::optional<std::string_view> Index::metadata_find(std::string_view key) const {
  auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                [this](uint32_t i, std::string_view k) { return metadata_at(i).first < k; });
  if (found == by_key_.end() || metadata_at(*found).first != key) return std::nullopt;
  return metadata_at(*found).second;
}

size_t Index::memory_bytes() const {
  return strings_.capacity() + dims_.capacity() * sizeof(uint64_t) + entries_.capacity() * sizeof(Entry) +
         slots_.capacity() * sizeof(uint64_t) + metadata_.capacity() * sizeof(Pair) +
         by_key_.capacity() * sizeof(uint32_t);
}

IndexBuilder::IndexBuilder(uint64_t seed, size_t header_bytes) {
  index_.seed_ = seed;
  // The least a stock writer spends on a tensor besides its name is
  // {"dtype":"F32","shape":[],"data_offsets":[0,4]}: so this is no more than
  // twice what is needed, and finish() gives the rest back.
  const size_t tensors = header_bytes / 64, dims = 2 * tensors + 1, strings = header_bytes / 2;
  const size_t bytes =
      tensors * sizeof(Index::Entry) + dims * sizeof(uint64_t) + strings + slots_for(tensors) * sizeof(uint64_t) + 4096;
  // From about half a huge page on, clearing one costs less than the faults of what fills it. Arrays that fill several
  // get their own: there what is reserved too much would take whole pages.
  if (bytes >= huge_page / 2 && bytes < 2 * huge_page) {
    const auto block = std::make_shared<SharedBlock>(std::max(bytes, huge_page));
    index_.strings_ = Index::Array<char>(HugeAllocator<char>(block));
    index_.dims_ = Index::Array<uint64_t>(HugeAllocator<uint64_t>(block));
    index_.entries_ = Index::Array<Index::Entry>(HugeAllocator<Index::Entry>(block));
    index_.slots_ = Index::Array<uint64_t>(HugeAllocator<uint64_t>(block));
  }
  index_.entries_.reserve(tensors);
  index_.dims_.reserve(dims);
  index_.strings_.reserve(strings);
}

void IndexBuilder::add_metadata(std::string_view key, std::string_view value) {
  Index::Pair p;
  p.key = add_string(key);
  p.key_len = static_cast<uint32_t>(key.size());
  p.value = add_string(value);
  p.value_len = static_cast<uint32_t>(value.size());
  index_.metadata_.push_back(p);
}

void IndexBuilder::drop_metadata() {
  if (index_.metadata_.empty()) return;
  index_.strings_.resize(index_.metadata_.front().key);
  index_.metadata_.clear();
}

namespace {

// Room that was never touched costs only address space; a copy costs time.
template <class Vector>
void give_back(Vector &v) {
  if (v.capacity() > 2 * v.size()) v = Vector(v.begin(), v.end());
}

}  // namespace

Result<Index> IndexBuilder::finish() {
  auto &entries = index_.entries_;
  const bool in_order = lies_in_order();
  if (!in_order)
    std::stable_sort(entries.begin(), entries.end(), [](const Index::Entry &a, const Index::Entry &b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });

  // A name that stands twice first: it is why its tensors overlap.
  ST_TRY(build_lookup());
  if (!in_order) ST_TRY(check_layout());
  finish_metadata();

  if (index_.dims_.empty()) index_.dims_.push_back(0);  // a scalar's shape still points somewhere
  give_back(index_.strings_);
  give_back(index_.dims_);
  give_back(entries);
  return std::move(index_);
}

// Do the tensors follow each other as they are, and fill what they span? For most files this is all the work.
bool IndexBuilder::lies_in_order() {
  uint64_t at = 0;
  bool together = !index_.entries_.empty();
  uint32_t name = together ? index_.entries_.front().name : 0;
  for (const Index::Entry &e : index_.entries_) {
    const auto bits = bits_of(e.dtype(), {index_.dims_.data() + e.shape, e.rank()});
    if (e.begin != at || e.end < at || !bits || *bits % 8 != 0 || *bits / 8 != e.end - at) return false;
    at = e.end;
    together &= e.name == name;  // else metadata lies between
    name = e.name + e.name_len + 1;
  }
  index_.data_bytes_ = at;
  index_.names_together_ = together;
  return true;
}

Result<void> IndexBuilder::check_layout() {
  uint64_t at = 0;
  for (size_t i = 0; i < index_.size(); ++i) {
    const TensorView t = index_.at(i);
    const Index::Entry &e = index_.entries_[i];
    auto refuse = [&](Status status, const auto &...parts) {
      return Failure(
          error(status, "tensor ", in_quotes(t.name), " ", parts...).about_tensor(t.name).at_offset(e.begin));
    };
    if (e.end < e.begin)
      return refuse(Status::offsets, "has data_offsets [", e.begin, ", ", e.end, "], which end before they begin");
    if (e.begin < at)
      return refuse(Status::overlap, "begins at data offset ", e.begin, " but the tensor before it ends at ", at);
    if (e.begin > at)
      return refuse(Status::hole, "begins at data offset ", e.begin, " but the tensor before it ends at ", at,
                    "; bytes may not be skipped");
    auto nbytes = tensor_nbytes(t.dtype, t.shape);
    if (!nbytes) return refuse(nbytes.error().status, nbytes.error().message);
    if (*nbytes != e.end - e.begin)
      return refuse(Status::size_mismatch, "spans ", e.end - e.begin, " bytes, but its shape and dtype ",
                    dtype_name(t.dtype), " need ", *nbytes);
    at = e.end;
  }
  index_.data_bytes_ = at;
  return {};
}

Result<void> IndexBuilder::build_lookup() {
  const size_t n = index_.size();
  index_.slots_.assign(slots_for(n), 0);
  const uint64_t mask = index_.slots_.size() - 1;
  // Hashes are made some entries ahead, so that the slots come into the cache meanwhile.
  constexpr size_t ahead = 16;
  uint64_t hashes[ahead];
  auto name_of = [this](size_t i) {
    const Index::Entry &e = index_.entries_[i];
    return index_.string_at(e.name, e.name_len);
  };
  auto prepare = [&](size_t i) {
    hashes[i % ahead] = index_.hash(name_of(i));
    __builtin_prefetch(&index_.slots_[hashes[i % ahead] & mask], 1);
  };
  for (size_t i = 0; i < std::min(n, ahead); ++i) prepare(i);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t h = hashes[i % ahead];
    if (i + ahead < n) prepare(i + ahead);
    uint64_t slot = h & mask;
    for (; index_.slots_[slot] != 0; slot = (slot + 1) & mask) {
      if (index_.slots_[slot] >> 32 != h >> 32) continue;
      const std::string_view name = name_of(i);
      if (name_of((index_.slots_[slot] & UINT32_MAX) - 1) == name)
        return Failure(error(Status::duplicate_name, "the name ", in_quotes(name),
                             " stands twice in the header, so one tensor would hide the other; write the file anew "
                             "with distinct names")
                           .about_tensor(name));
    }
    index_.slots_[slot] = (h >> 32) << 32 | (i + 1);
  }
  return {};
}

// A key given twice keeps its last value, as in the reference.
void IndexBuilder::finish_metadata() {
  auto key = [this](uint32_t i) { return index_.metadata_at(i).first; };
  std::vector<uint32_t> order(index_.metadata_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });

  std::vector<bool> hidden(order.size());
  for (size_t i = 1; i < order.size(); ++i) hidden[order[i - 1]] = key(order[i - 1]) == key(order[i]);

  std::vector<uint32_t> moved(order.size());
  std::vector<Index::Pair> kept;
  for (uint32_t i = 0; i < order.size(); ++i) {
    moved[i] = static_cast<uint32_t>(kept.size());
    if (!hidden[i]) kept.push_back(index_.metadata_[i]);
  }
  index_.by_key_.clear();
  for (uint32_t i : order)
    if (!hidden[i]) index_.by_key_.push_back(moved[i]);
  index_.metadata_ = std::move(kept);
}

Result<uint64_t> tensor_nbytes(Dtype dtype, std::span<const uint64_t> shape) {
  const auto bits = bits_of(dtype, shape);
  if (!bits) return fail(Status::shape_overflow, "has a shape whose size in bits exceeds 2^64");
  if (*bits % 8 != 0)
    return fail(Status::subbyte, "holds ", *bits, " bits of ", dtype_name(dtype), ", which do not fill whole bytes");
  return *bits / 8;
}

}  // namespace st
