// The bytes of a journal (redo or undo record) of one transaction. Pure: no I/O.
//
//   0       commit record in the first 512-byte sector, zero but when committed; in
//           a part of several, the name of the index follows it there;
//           then a copy of that sector, which stays when it is emptied, and promises
//           nothing; the rest of the 4096-byte block is zero
//   4096    payloads: the new bytes of each range; in an undo record, the old ones
//           for each range, a 32-bit hash of every 512-byte sector of the old bytes;
//           in an undo record, of the new ones
//           manifest: one range record of 48 bytes each; in a sparse_record of 64
//
// All integers are little-endian. The commit record fits one sector, which
// disks write whole or not at all. It holds a hash of itself and of the
// manifest, which holds hashes of all the rest. So a journal is in one of three
// states: empty (zero sector: nothing was promised), committed, or damaged. A part
// in a commit of several is not emptied but marked as done: see done_record.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "journal/verdict.h"

namespace st::write {

inline constexpr uint64_t sector_bytes = 512;
inline constexpr uint64_t header_bytes = 4096;
inline constexpr uint64_t range_record_bytes = 48;
inline constexpr uint64_t sparse_range_record_bytes = 64;      // in a sparse_record
inline constexpr uint64_t longest_sparse = uint64_t{1} << 20;  // such a range

// The file that a journal is for. A device number is no part of it, as it may
// change over a reboot.
struct Identity {
  uint64_t inode = 0;
  uint64_t size = 0;
  uint64_t data_offset = 0;
  uint64_t header_hash = 0;  // of the file's first data_offset bytes
  bool operator==(const Identity &) const = default;
};

inline constexpr uint64_t undo_record = 1;  // the payloads are to be put back, not to be written
inline constexpr uint64_t part_record =
    2;  // of a transaction on several files: means something only if its super-journal does
inline constexpr uint64_t super_record = 4;  // the manifest is a list of parts: see super_journal.h
// With part_record: the part is carried out, durably. As long as the super-journal is
// committed, this says that the part need not be looked for; afterwards it says as
// little as an empty journal.
inline constexpr uint64_t done_record = 8;
// A redo record that shares its flush with all that it needs, and whose emptiness is flushed with what comes next
// (patch.h). So a power cut may leave the record without the rest, and may bring it back.
inline constexpr uint64_t one_flush_record = 16;
// A redo record, or a part, with ranges of which the journal holds only the elements that change: see changes.h.
inline constexpr uint64_t sparse_record = 32;

struct CommitRecord {
  uint64_t transaction = 0;
  Identity identity;
  uint64_t manifest = 0;  // offset of the manifest in the journal
  uint64_t ranges = 0;
  uint64_t manifest_hash = 0;
  // One of these, or part and done, or sparse with one flush or a part, or zero; a version to come that sets others is
  // refused.
  uint64_t flags = 0;
  // For a part: the name of the index beside which the super-journal lies. The super-journal has the same transaction.
  std::string super_of = {};

  bool is_undo() const;
  bool is_part() const { return (flags & part_record) != 0; }
  bool is_done() const { return (flags & done_record) != 0; }
  bool is_super() const { return (flags & super_record) != 0; }
  bool has_one_flush() const { return (flags & one_flush_record) != 0; }
  bool is_sparse() const { return (flags & sparse_record) != 0; }
  uint64_t range_bytes() const { return is_sparse() ? sparse_range_record_bytes : range_record_bytes; }
};

// One piece of the data file, and where the bytes to write lie, and the hashes of
// those that they replace.
struct RangeRecord {
  uint64_t offset = 0, length = 0;  // in the data file
  uint64_t payload = 0, payload_hash = 0;
  uint64_t sectors = 0, sectors_hash = 0;
  // The payload holds what changes, in so many bytes, and hashes of the new sectors follow those of the old ones. 0: it
  // holds the range.
  uint64_t packed = 0, fresh_hash = 0;

  bool is_sparse() const { return packed != 0; }
  uint64_t payload_bytes() const { return is_sparse() ? packed : length; }
  uint64_t tables_bytes() const;
};

inline bool CommitRecord::is_undo() const {
  return (flags & undo_record) != 0;
}

enum class JournalState { empty, committed, damaged };

// A name in a folder, and no path: what a journal may name.
bool is_plain_name(std::string_view name);

std::array<std::byte, header_bytes> encode(const CommitRecord &);
JournalState decode(std::span<const std::byte> header_block, CommitRecord *out);
// What an empty one said last, if that is known.
bool decode_last(std::span<const std::byte> header_block, CommitRecord *out);
// `sparse`: of a sparse_record.
std::vector<std::byte> encode(std::span<const RangeRecord>, bool sparse = false);
std::vector<RangeRecord> decode_ranges(std::span<const std::byte> manifest, bool sparse = false);

// How many of the `left` bytes at `offset` to take at once: at most `most`, and
// so that a stop between two takes cuts no sector.
uint64_t up_to_sector(uint64_t offset, uint64_t most, uint64_t left);
// How many sectors the file's bytes [offset, offset + n) touch.
uint64_t sectors_of(uint64_t offset, uint64_t n);
// The hash of each of them, of the part inside the piece: as a table has it, so its bytes in memory are little-endian
// on any host.
void hash_sectors(uint64_t offset, std::span<const std::byte> bytes, std::vector<uint32_t> *out);
uint32_t hash_sector(std::span<const std::byte> bytes);

// What a manifest must keep to, given its ranges in their order: each lies in the
// file's data behind the one before, and every reference inside the journal.
class RangeRules {
 public:
  RangeRules(const Identity &identity, uint64_t journal_bytes)
      : end_of_data_(identity.size), journal_bytes_(journal_bytes), end_of_last_(identity.data_offset) {}
  // Is the next one sound?
  Verdict judge(const RangeRecord &range);

 private:
  const uint64_t end_of_data_, journal_bytes_;
  uint64_t end_of_last_;
};

}  // namespace st::write
