#include "journal/identity.h"

#include <algorithm>
#include <memory>

#include "base/hash.h"
#include "format/header.h"

namespace st::write {

Result<Identity> identify(const os::File &file, uint64_t likely_end) {
  ST_TRY(auto s, file.stat());
  Identity id;
  id.inode = s.st_ino;
  id.size = static_cast<uint64_t>(s.st_size);

  constexpr uint64_t block = uint64_t{256} << 10;
  const uint64_t first = std::clamp<uint64_t>(likely_end, length_bytes, block);
  auto buffer = std::make_unique_for_overwrite<char[]>(first);
  ST_TRY(auto got, file.read_up_to(buffer.get(), first, 0));
  auto n = parse_header_length({buffer.get(), got}, id.size);
  if (!n) {
    n.error().message += text(" (", in_quotes(file.path()), ")");
    return Failure(std::move(n.error()));
  }
  id.data_offset = length_bytes + *n;

  Hasher hasher;
  hasher.add(buffer.get(), std::min<uint64_t>(got, id.data_offset));
  if (first < id.data_offset) buffer = std::make_unique_for_overwrite<char[]>(block);
  for (uint64_t done = got; done < id.data_offset;) {
    const uint64_t take = std::min(block, id.data_offset - done);
    ST_TRY(file.read(buffer.get(), take, done));
    hasher.add(buffer.get(), take);
    done += take;
  }
  id.header_hash = hasher.digest();
  return id;
}

}  // namespace st::write
