// What a super-journal says: which files a transaction changes together, and how
// each is to be brought to its new state. It lies in the journal folder of the
// index, and its commit record decides for all: a part's own journal means
// nothing without it. Pure: no I/O.
//
// The manifest: the index's entry, then one a part, then nothing. An entry is four
// strings (u16 length, bytes) and six u64: see SuperParticipant. Little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace st::write {

// What a file is known by: its size, and the hash of its header, or of all of an index.
struct Form {
  uint64_t size = 0, hash = 0;
  bool operator==(const Form &) const = default;
};

struct SuperParticipant {
  std::string file;     // all names are of files in the index's own folder
  std::string journal;  // of the part, in the file's journal folder; of the index: empty
  // New files that are to take the file's name, before the index takes its new
  // state and after it; empty: none. With neither, the part's journal has a patch.
  std::string first, second;
  Form old, first_form, second_form;
};

struct SuperManifest {
  SuperParticipant index;  // its `first` is the new index, if there is one
  std::vector<SuperParticipant> parts;
};

// Recovery takes all of it into memory. It has room for 5,000 parts whose names have 255 bytes each.
inline constexpr uint64_t longest_super_list = uint64_t{4} << 20;
std::vector<std::byte> encode(const SuperManifest &list);
// Nothing if it is not one, or names a file twice, or what is no temporary of its file.
std::optional<SuperManifest> decode_super(std::span<const std::byte> manifest);

// The name of a super-journal is its transaction in hexadecimal. One that was claimed (claim.h) has a dot and another
// number after that.
std::string super_name(uint64_t transaction);
std::string name_of_claimed(std::string_view name, const std::string &random);
std::optional<uint64_t> transaction_of(std::string_view super_name);

}  // namespace st::write
