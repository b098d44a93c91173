#include "journal/journal_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/little_endian.h"
#include "journal/changes.h"

namespace st::write {
namespace {

constexpr char magic[16] = "libst journal 2";
constexpr size_t record_bytes = 16 + 9 * 8;  // magic and nine numbers; its hash follows

constexpr size_t super_at = record_bytes + 8;  // its length, then the name, then a hash of all before
constexpr size_t longest_super = 255;

static_assert(super_at + 8 + longest_super + 8 <= sector_bytes);

bool inside(uint64_t offset, uint64_t n, uint64_t begin, uint64_t end) {
  return offset >= begin && offset <= end && n <= end - offset;
}

}  // namespace

std::array<std::byte, header_bytes> encode(const CommitRecord &r) {
  std::array<std::byte, header_bytes> block = {};
  std::memcpy(block.data(), magic, sizeof magic);
  std::byte *at = block.data() + sizeof magic;
  for (uint64_t number : {r.transaction, r.identity.inode, r.identity.size, r.identity.data_offset,
                          r.identity.header_hash, r.manifest, r.ranges, r.manifest_hash, r.flags}) {
    store_u64le(at, number);
    at += 8;
  }
  store_u64le(at, hash64(block.data(), record_bytes));
  if (r.is_part()) {
    ST_ASSERT(r.super_of.size() <= longest_super);
    store_u64le(block.data() + super_at, r.super_of.size());
    std::memcpy(block.data() + super_at + 8, r.super_of.data(), r.super_of.size());
    const size_t end = super_at + 8 + r.super_of.size();
    store_u64le(block.data() + end, hash64(block.data(), end));
  }
  std::memcpy(block.data() + sector_bytes, block.data(), sector_bytes);
  return block;
}

JournalState decode(std::span<const std::byte> header_block, CommitRecord *out) {
  const auto sector = header_block.first(std::min<size_t>(header_block.size(), sector_bytes));
  if (std::all_of(sector.begin(), sector.end(), [](std::byte b) { return b == std::byte{0}; }))
    return JournalState::empty;
  if (sector.size() < sector_bytes || std::memcmp(sector.data(), magic, sizeof magic) != 0)
    return JournalState::damaged;
  if (load_u64le(sector.data() + record_bytes) != hash64(sector.data(), record_bytes)) return JournalState::damaged;
  const std::byte *at = sector.data() + sizeof magic;
  for (uint64_t *number :
       {&out->transaction, &out->identity.inode, &out->identity.size, &out->identity.data_offset,
        &out->identity.header_hash, &out->manifest, &out->ranges, &out->manifest_hash, &out->flags}) {
    *number = load_u64le(at);
    at += 8;
  }
  const uint64_t but_sparse = out->flags & ~sparse_record;
  if (but_sparse == part_record || but_sparse == (part_record | done_record)) {
    const uint64_t n = load_u64le(sector.data() + super_at);
    if (n > longest_super) return JournalState::damaged;
    const size_t end = super_at + 8 + n;
    if (load_u64le(sector.data() + end) != hash64(sector.data(), end)) return JournalState::damaged;
    out->super_of.assign(reinterpret_cast<const char *>(sector.data() + super_at + 8), n);
    if (!is_plain_name(out->super_of)) return JournalState::damaged;
    return JournalState::committed;
  }
  const bool known = out->flags == undo_record || out->flags == super_record || (but_sparse & ~one_flush_record) == 0;
  return known ? JournalState::committed : JournalState::damaged;
}

bool decode_last(std::span<const std::byte> header_block, CommitRecord *out) {
  return header_block.size() >= 2 * sector_bytes &&
         decode(header_block.subspan(sector_bytes), out) == JournalState::committed;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_super && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

uint64_t RangeRecord::tables_bytes() const {
  return sectors_of(offset, length) * sizeof(uint32_t) * (is_sparse() ? 2 : 1);
}

std::vector<std::byte> encode(std::span<const RangeRecord> ranges, bool sparse) {
  std::vector<std::byte> manifest(ranges.size() * (sparse ? sparse_range_record_bytes : range_record_bytes));
  std::byte *at = manifest.data();
  const auto put = [&](std::initializer_list<uint64_t> numbers) {
    for (const uint64_t number : numbers) {
      store_u64le(at, number);
      at += 8;
    }
  };
  for (const RangeRecord &r : ranges) {
    put({r.offset, r.length, r.payload, r.payload_hash, r.sectors, r.sectors_hash});
    if (sparse) put({r.packed, r.fresh_hash});
  }
  return manifest;
}

std::vector<RangeRecord> decode_ranges(std::span<const std::byte> manifest, bool sparse) {
  std::vector<RangeRecord> ranges(manifest.size() / (sparse ? sparse_range_record_bytes : range_record_bytes));
  const std::byte *at = manifest.data();
  const auto get = [&](std::initializer_list<uint64_t *> numbers) {
    for (uint64_t *const number : numbers) {
      *number = load_u64le(at);
      at += 8;
    }
  };
  for (RangeRecord &r : ranges) {
    get({&r.offset, &r.length, &r.payload, &r.payload_hash, &r.sectors, &r.sectors_hash});
    if (sparse) get({&r.packed, &r.fresh_hash});
  }
  return ranges;
}

uint64_t up_to_sector(uint64_t offset, uint64_t most, uint64_t left) {
  return std::min(most - offset % sector_bytes, left);
}

uint64_t sectors_of(uint64_t offset, uint64_t n) {
  return n == 0 ? 0 : (offset + n - 1) / sector_bytes - offset / sector_bytes + 1;
}

uint32_t hash_sector(std::span<const std::byte> bytes) {
  std::byte hash[8];
  store_u64le(hash, hash64(bytes.data(), bytes.size()));
  uint32_t lower;
  std::memcpy(&lower, hash, sizeof lower);
  return lower;
}

void hash_sectors(uint64_t offset, std::span<const std::byte> bytes, std::vector<uint32_t> *out) {
  while (!bytes.empty()) {
    const size_t n = std::min<size_t>(bytes.size(), sector_bytes - offset % sector_bytes);
    out->push_back(hash_sector(bytes.first(n)));
    bytes = bytes.subspan(n);
    offset += n;
  }
}

Verdict RangeRules::judge(const RangeRecord &r) {
  if (r.length == 0 || !inside(r.offset, r.length, end_of_last_, end_of_data_))
    return Verdict::bad("a range lies outside the file's data, or overlaps another");
  // So a judge of it needs little memory.
  if (r.is_sparse() && (r.length > longest_sparse || r.packed > longest_changes(r.length)))
    return Verdict::bad("what changes of a range is longer than it can be");
  if (!inside(r.payload, r.payload_bytes(), header_bytes, journal_bytes_))
    return Verdict::bad("a payload lies outside the journal");
  if (!inside(r.sectors, r.tables_bytes(), header_bytes, journal_bytes_))
    return Verdict::bad("a table of hashes lies outside the journal");
  end_of_last_ = r.offset + r.length;
  return Verdict::good();
}

}  // namespace st::write
