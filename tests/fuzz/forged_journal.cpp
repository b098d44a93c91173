#include "forged_journal.h"

#include <algorithm>
#include <span>

#include "base/hash.h"
#include "format/header.h"
#include "journal/changes.h"

namespace st::fuzz {
namespace {

using write::CommitRecord;
using write::RangeRecord;

std::span<const std::byte> as_bytes(const std::string &s, uint64_t offset, uint64_t n) {
  return {reinterpret_cast<const std::byte *>(s.data()) + offset, n};
}

bool is_inside(const std::string &s, uint64_t offset, uint64_t n) {
  return offset <= s.size() && n <= s.size() - offset;
}

std::string table_of(const std::string &file, uint64_t offset, uint64_t length) {
  std::vector<uint32_t> hashes;
  write::hash_sectors(offset, as_bytes(file, offset, length), &hashes);
  return {reinterpret_cast<const char *>(hashes.data()), hashes.size() * sizeof(uint32_t)};
}

// Pieces of the data in ascending order; now and then one from anywhere in the file, the header included, which no
// writer would declare, with hashes as good as the others'.
void declare_ranges(FuzzedDataProvider &in, const DataFile &file, ForgedJournal *journal) {
  uint64_t at = file.identity.data_offset;
  for (int n = in.ConsumeIntegralInRange(0, 3); n >= 0; --n) {
    const bool anywhere = in.ConsumeIntegralInRange(0, 7) == 1;
    const uint64_t from = anywhere ? 0 : at;
    if (from == file.identity.size) break;
    RangeRecord r;
    r.offset = in.ConsumeIntegralInRange<uint64_t>(from, file.identity.size - 1);
    r.length = in.ConsumeIntegralInRange<uint64_t>(1, file.identity.size - r.offset);
    at = r.offset + r.length;
    journal->honest &= !anywhere;
    journal->ranges.push_back(r);
  }
}

// What is there now gets the right hash, if it is there.
void make_good(RangeRecord *r, const std::string &journal) {
  if (is_inside(journal, r->payload, r->payload_bytes()))
    r->payload_hash = hash64(journal.data() + r->payload, r->payload_bytes());
  const uint64_t table = r->length > UINT32_MAX ? UINT64_MAX : write::sectors_of(r->offset, r->length) * 4;
  if (is_inside(journal, r->sectors, table)) r->sectors_hash = hash64(journal.data() + r->sectors, table);
  if (r->is_sparse() && is_inside(journal, r->sectors, 2 * table))
    r->fresh_hash = hash64(journal.data() + r->sectors + table, table);
}

// What the journal holds of a range, if that is what changes.
std::string changes_of(const std::string &old, const std::string &fresh) {
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < fresh.size(); ++i)
    if (old[i] != fresh[i]) places.push_back(i);
  std::string packed(write::longest_changes(fresh.size()), '\0');
  size_t next = 0;
  packed.resize(write::pack_changes({as_bytes(fresh, 0, fresh.size()), places, 1}, 0, fresh.size(), &next,
                                    reinterpret_cast<std::byte *>(packed.data())));
  return packed;
}

void damage_ranges(FuzzedDataProvider &in, const DataFile &file, ForgedJournal *journal) {
  for (int n = in.ConsumeIntegralInRange(0, 2); n > 0 && !journal->ranges.empty(); --n) {
    auto &r = journal->ranges[in.ConsumeIntegralInRange<size_t>(0, journal->ranges.size() - 1)];
    uint64_t *fields[] = {&r.offset,       &r.length,       &r.payload, &r.sectors,
                          &r.payload_hash, &r.sectors_hash, &r.packed,  &r.fresh_hash};
    *in.PickValueInArray(fields) = number(in, file, journal->bytes.size());
    journal->honest = false;
    if (in.ConsumeBool()) make_good(&r, journal->bytes);
  }
  if (in.ConsumeIntegralInRange(0, 15) == 0 && journal->ranges.size() > 1) {
    std::swap(journal->ranges.front(), journal->ranges.back());
    journal->honest = false;
  }
}

void damage_record(FuzzedDataProvider &in, const DataFile &file, uint64_t journal_bytes, CommitRecord *record) {
  uint64_t *fields[] = {&record->identity.inode,       &record->identity.size, &record->identity.data_offset,
                        &record->identity.header_hash, &record->manifest,      &record->ranges,
                        &record->manifest_hash,        &record->flags};
  *in.PickValueInArray(fields) = number(in, file, journal_bytes);
}

void damage_bytes(FuzzedDataProvider &in, ForgedJournal *journal) {
  std::string &bytes = journal->bytes;
  for (int n = in.ConsumeIntegralInRange(0, 3); n > 0 && !bytes.empty(); --n) {
    bytes[in.ConsumeIntegralInRange<size_t>(0, bytes.size() - 1)] ^= in.ConsumeIntegralInRange<char>(1, 127);
    journal->honest = false;
  }
  if (in.ConsumeIntegralInRange(0, 15) == 0) {
    bytes.resize(in.ConsumeIntegralInRange<size_t>(0, bytes.size() + 5000));
    journal->honest = false;
  }
}

}  // namespace

uint64_t number(FuzzedDataProvider &in, const DataFile &file, uint64_t journal_bytes) {
  const uint64_t limits[] = {0,
                             1,
                             write::sector_bytes,
                             write::header_bytes,
                             write::range_record_bytes,
                             file.identity.data_offset,
                             file.identity.size,
                             file.identity.size - file.identity.data_offset,
                             journal_bytes,
                             uint64_t{1} << 32,
                             uint64_t{1} << 63,
                             UINT64_MAX / write::range_record_bytes,
                             UINT64_MAX};
  if (in.ConsumeIntegralInRange(0, 7) == 0) return in.ConsumeIntegral<uint64_t>();
  const uint64_t near = in.PickValueInArray(limits);
  return near + static_cast<uint64_t>(static_cast<int64_t>(in.ConsumeIntegral<int8_t>()));
}

std::string new_bytes(const DataFile &file, uint64_t offset, uint64_t length) {
  std::string bytes = file.old_bytes.substr(offset, length);
  for (size_t i = 0; i < bytes.size(); ++i)
    if ((offset + i) / 256 % 5 != 0) bytes[i] = static_cast<char>(bytes[i] ^ 0x55);  // some sectors stay as they were
  return bytes;
}

ForgedJournal forge(FuzzedDataProvider &in, const DataFile &file) {
  ForgedJournal journal;
  if (in.ConsumeIntegralInRange(0, 7) == 0) {
    journal.bytes = in.ConsumeRandomLengthString(8192);
    return journal;
  }
  journal.honest = true;
  journal.is_undo = in.ConsumeBool();
  const bool is_sparse = !journal.is_undo && in.ConsumeBool();
  declare_ranges(in, file, &journal);
  std::string &bytes = journal.bytes;
  bytes.assign(write::header_bytes, '\0');
  for (RangeRecord &r : journal.ranges) {
    const std::string fresh = new_bytes(file, r.offset, r.length), old = file.old_bytes.substr(r.offset, r.length);
    if (in.ConsumeBool()) bytes.resize((bytes.size() + 4095) / 4096 * 4096 + r.offset % 4096);  // as shared blocks lie
    r.payload = bytes.size();
    const std::string changes = is_sparse && r.length <= write::longest_sparse ? changes_of(old, fresh) : std::string();
    r.packed = changes.size();
    bytes += journal.is_undo ? old : r.is_sparse() ? changes : fresh;
    bytes.resize((bytes.size() + 7) / 8 * 8);
    r.sectors = bytes.size();
    std::string changed = file.old_bytes;
    if (journal.is_undo) changed.replace(r.offset, r.length, fresh);
    bytes += table_of(changed, r.offset, r.length);
    if (r.is_sparse()) {
      changed.replace(r.offset, r.length, fresh);
      bytes += table_of(changed, r.offset, r.length);
    }
    make_good(&r, bytes);
  }
  bytes.resize((bytes.size() + 7) / 8 * 8);
  damage_ranges(in, file, &journal);

  CommitRecord record{7,
                      file.identity,
                      bytes.size(),
                      journal.ranges.size(),
                      0,
                      journal.is_undo ? write::undo_record
                      : is_sparse     ? write::sparse_record
                                      : 0};
  const auto manifest = write::encode(journal.ranges, is_sparse);
  bytes.append(reinterpret_cast<const char *>(manifest.data()), manifest.size());
  record.manifest_hash = hash64(manifest.data(), manifest.size());
  if (in.ConsumeIntegralInRange(0, 3) == 0) {
    damage_record(in, file, bytes.size(), &record);
    journal.honest = false;
    const uint64_t n = record.ranges * record.range_bytes();
    if (in.ConsumeBool() && record.ranges < 1000 && is_inside(bytes, record.manifest, n))
      record.manifest_hash = hash64(bytes.data() + record.manifest, n);
  }
  const auto block = write::encode(record);
  bytes.replace(0, block.size(), reinterpret_cast<const char *>(block.data()), block.size());
  if (in.ConsumeIntegralInRange(0, 3) == 0) damage_bytes(in, &journal);
  return journal;
}

}  // namespace st::fuzz
