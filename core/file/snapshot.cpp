#include "file/snapshot.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/hash.h"
#include "base/huge_memory.h"
#include "base/interrupt.h"
#include "format/scan_header.h"
#include "journal/identity.h"
#include "os/random.h"
#include "read/bulk.h"

namespace st::store {
namespace {

struct ReadHeader {
  Header header;
  uint64_t hash;  // of the length and the JSON
};

constexpr uint64_t window = uint64_t{112} << 10;   // from the heap, and in the cache
constexpr uint64_t at_first = uint64_t{16} << 10;  // read of a file before its header's length is known

// A plain header, window by window; nothing if it is not of the plain form. `begun` bytes of it are in the buffer, of a
// window, already; what it had before is lost.
Result<std::optional<ReadHeader>> scan(const os::File &file, const HugeBuffer &buffer, uint64_t begun,
                                       const char *length, uint64_t n, uint64_t file_size, uint64_t seed) {
  IndexBuilder builder(seed, n);
  HeaderScanner scanner(builder);
  Hasher hasher;
  hasher.add(length, length_bytes);
  uint64_t kept = 0;  // bytes of an entry that the last window cut
  for (uint64_t done = 0; done < n || kept > 0;) {
    const uint64_t take = std::min(window - kept, n - done);
    const uint64_t here = done == 0 ? std::min(begun, take) : 0;
    if (here < take) ST_TRY(file.read(buffer.get() + kept + here, take - here, length_bytes + done + here));
    hasher.add(buffer.get() + kept, take);
    done += take;
    const uint64_t have = kept + take;
    std::memset(buffer.get() + have, 0, header_padding);  // which the scanner may look at
    const auto taken = scanner.take({buffer.get(), static_cast<size_t>(have)}, done == n);
    if (!taken) return std::nullopt;
    kept = have - *taken;
    std::memmove(buffer.get(), buffer.get() + *taken, kept);
  }
  if (!scanner.finished()) return std::nullopt;
  ST_TRY(auto &&index, builder.finish());
  ST_TRY(auto &&header, finish_header(n, std::move(index), file_size));
  return ReadHeader{std::move(header), hasher.digest()};
}

// What is not mapped is read next. The kernel's read-ahead for the header ends before a small file does: its tensors
// would wait for the disk once more. Where the end is in memory, so is likely the whole. The advice would take longer
// than this question.
void announce(const os::File &file, uint64_t file_size, read::MapMode map) {
  constexpr uint64_t small_file = uint64_t{128} << 10;
  if (map != read::MapMode::none || file.reads_past_cache()) return;
  if (file_size <= at_first || file_size > small_file) return;
  char last;
  if (file.env().pread_cached(file.fd(), &last, 1, file_size - 1) == 1) return;
  file.env().fadvise(file.fd(), 0, file_size, POSIX_FADV_WILLNEED);
}

Result<ReadHeader> read_header(const os::File &file, uint64_t file_size) {
  HugeBuffer buffer(at_first + header_padding);
  ST_TRY(auto got, file.read_up_to(buffer.get(), std::min(file_size, at_first), 0));
  if (got < std::min(file_size, length_bytes)) return file.ends_at(got);
  char first[length_bytes] = {};
  std::memcpy(first, buffer.get(), std::min<uint64_t>(got, sizeof first));
  ST_TRY(auto n, parse_header_length({buffer.get(), got}, file_size));
  const uint64_t begun = std::min(n, got - length_bytes);
  const char *json = buffer.get() + length_bytes;
  if (n > begun) {
    HugeBuffer larger(window + header_padding);
    std::memcpy(larger.get(), json, begun);
    buffer = std::move(larger);
  } else {
    std::memmove(buffer.get(), json, begun);
  }
  // A header that short has too few names for colliding ones to cost anything.
  const uint64_t seed = n <= begun ? 0 : os::hash_seed(file.env());
  ST_TRY(auto &&scanned, scan(file, buffer, begun, first, n, file_size, seed));
  if (scanned) return std::move(*scanned);

  const auto parse = [&](const char *json) -> Result<ReadHeader> {
    ST_TRY(auto &&header, parse_header(json, n, file_size, seed));
    Hasher hasher;
    hasher.add(first, length_bytes);
    hasher.add(json, n);
    return ReadHeader{std::move(header), hasher.digest()};
  };
  if (n <= begun) return parse(buffer.get());  // one window had all of it, and has it still, with its padding
  const HugeBuffer whole(n + header_padding);
  ST_TRY(file.read(whole.get(), n, length_bytes));
  std::memset(whole.get() + n, 0, header_padding);
  return parse(whole.get());
}

}  // namespace

Result<std::unique_ptr<Snapshot>> Snapshot::take(os::File file, const Wanted &wanted) {
  ST_TRY(auto identity, file.stat());
  return take(std::move(file), identity, wanted);
}

Result<std::unique_ptr<Snapshot>> Snapshot::take(os::File file, const struct stat &identity, const Wanted &wanted) {
  auto snapshot = std::make_unique<Snapshot>();
  const auto size = static_cast<uint64_t>(identity.st_size);

  snapshot->filesystem = wanted.filesystem ? *wanted.filesystem : os::probe_filesystem(file);
  if (!wanted.follows && !os::keeps_stale_pages(snapshot->filesystem.type)) file.read_through_cache();
  announce(file, size, wanted.map);
  ST_TRY(auto &&read, read_header(file, size));
  snapshot->identity = identity;
  snapshot->header = std::move(read.header);
  snapshot->header_hash = read.hash;
  ST_TRY(snapshot->content,
         read::Content::open(file, size, snapshot->header.index.size(), wanted.map, snapshot->filesystem, wanted.log));
  snapshot->env = &file.env();
  snapshot->generation = file.env().fork_generation();
  snapshot->file = std::move(file);
  return snapshot;
}

Snapshot::~Snapshot() {
  if (descriptors_) descriptors_->forget(this);
  for (Reopened *r = reopened_.load(); r;) delete std::exchange(r, r->before);
}

bool Snapshot::lends(const void *bytes, uint64_t n) const {
  const auto by = [&](const read::Content &c) {
    if (c.maps(bytes, n)) return true;
    if (!c.owns_some()) return false;
    for (size_t i = 0; i < header.index.size(); ++i)
      if (c.owns(i, header.index.at(i).nbytes, bytes, n)) return true;
    return false;
  };
  bool found = false;
  each_content([&](const read::Content &c, uint64_t) { found = found || by(c); });
  return found;
}

uint64_t Snapshot::reopens() const {
  uint64_t n = 0;
  for (const Reopened *r = reopened_.load(std::memory_order_acquire); r; r = r->before) ++n;
  return n;
}

void Snapshot::share_descriptor(std::shared_ptr<os::Descriptors> among, const os::Location &at) {
  if (at && at.folder()->is_hidden()) at_ = at;
  descriptors_ = std::move(among);
  os::File shared = std::exchange(file, file.closed_like());
  descriptors_->put(this, std::move(shared));
}

// Patches change its times, and leave its birth and the header. One that does not parse is another file's.
Result<os::Descriptors::Held> Snapshot::hold_open() const {
  const auto is_still = [this](const os::File &opened) -> Result<bool> {
    if (!may_be_born(opened.env().birth_time(opened.fd(), ""))) return false;
    const auto now = write::identify(opened, header.data_offset());
    if (!now && now.error().status == Status::io) return Failure(now.error());
    return now && now->header_hash == header_hash;
  };
  return descriptors_->get(this, file, identity, is_still, at_ ? &*at_ : nullptr);
}

Result<const Snapshot::Reopened *> Snapshot::reopened(uint64_t now) const {
  Reopened *last = reopened_.load(std::memory_order_acquire);
  while (!last || last->generation != now) {
    os::File own;
    os::Descriptors::Held held;
    if (descriptors_) {
      ST_TRY(held, hold_open());
    } else {
      auto opened = read::reopen_file(file, O_RDONLY);
      // A child that gave up the right to open the file may still read what it inherited: by the descriptor alone, as
      // a thread of the parent may have held the mutex of its content.
      if (!opened && opened.error().status != Status::permission) return Failure(std::move(opened.error()));
      if (opened) own = std::move(*opened);
    }
    const os::File &by = held ? *held : own ? own : file;
    ST_TRY(auto mapped, read::Content::open(by, file_size(), header.index.size(), content.wanted(), filesystem, {}));
    mapped.inherit(last ? last->content : content);
    auto mine = std::make_unique<Reopened>(Reopened{now, std::move(own), std::move(mapped), last});
    // No mutex: a thread that the fork left behind may hold it.
    if (reopened_.compare_exchange_strong(last, mine.get(), std::memory_order_acq_rel)) last = mine.release();
  }
  return last;
}

Result<const read::Content *> Snapshot::content_here() const {
  const uint64_t now = env ? env->fork_generation() : generation;
  if (now == generation) return &content;
  ST_TRY(auto own, reopened(now));
  return &own->content;
}

Result<Access> Snapshot::here() const {
  const uint64_t now = env ? env->fork_generation() : generation;
  const os::File *reached = &file;
  const read::Content *bytes = &content;
  if (now != generation) {
    ST_TRY(auto own, reopened(now));
    if (own->file) reached = &own->file;
    bytes = &own->content;
  }
  if (!descriptors_) return Access{*reached, *bytes};
  ST_TRY(auto held, hold_open());
  return Access{*held, *bytes, held};
}

Result<void> Snapshot::map_anew() {
  ST_TRY(content, read::Content::open(file, file_size(), header.index.size(), content.wanted(), filesystem, {}));
  return {};
}

Result<void> Snapshot::refresh(size_t slot, uint64_t offset, uint64_t n) const {
  auto reach = here();
  if (!reach) {
    outdate(slot, offset, n);
    return Failure(std::move(reach.error()));
  }
  // Views from before a fork lie in the mappings of then. (Memory of our own is
  // inherited, and thus refreshed below.)
  each_content([&](const read::Content &of, uint64_t) {
    if (&of != &reach->content && of.map() == read::MapMode::private_copy) of.mapping()->drop(offset, n);
  });
  return reach->content.refresh(reach->file, slot, offset, n, offset - file_offset(header.index.at(slot)));
}

void Snapshot::outdate(size_t slot, uint64_t offset, uint64_t n) const noexcept {
  const uint64_t now = env ? env->fork_generation() : generation;
  each_content([&](const read::Content &of, uint64_t made_by) {
    if (of.map() == read::MapMode::private_copy) of.mapping()->drop(offset, n);
    of.outdate(slot, made_by != now);
  });
}

bool Snapshot::has_own_memory() const {
  auto here = content_here();
  return !here || (*here)->owns_some();
}

Result<void> Snapshot::refresh_own_memory() const {
  ST_TRY(auto reach, here());
  const Index &index = header.index;
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    if (reach.content.in_own_memory(i) && InterruptCheck::stops())
      return Failure(Error(*InterruptCheck::stopped()).about_tensor(t.name));
    auto read = reach.content.refresh_own(reach.file, i, file_offset(t), t.nbytes);
    if (!read) return Failure(std::move(read.error()).about_tensor(t.name));
  }
  return {};
}

Result<std::unique_ptr<Snapshot>> Snapshot::of_memory(os::Env &env, const std::byte *bytes, size_t size,
                                                      read::MapMode map) {
  const auto *chars = reinterpret_cast<const char *>(bytes);
  ST_TRY(auto n, parse_header_length({chars, size}, size));
  // A copy of the header, since the parser wants padding after it.
  const HugeBuffer json(n + header_padding);
  std::memcpy(json.get(), chars + length_bytes, n);
  std::memset(json.get() + n, 0, header_padding);
  ST_TRY(auto &&header, parse_header(json.get(), n, size, os::hash_seed(env)));
  auto snapshot = std::make_unique<Snapshot>();
  snapshot->header = std::move(header);
  snapshot->filesystem = {os::Storage::memory, "memory"};
  snapshot->content = map == read::MapMode::copy_on_write
                          ? read::Content::borrowed_to_write(bytes, size, snapshot->header.index.size())
                          : read::Content::borrowed(bytes, size);
  return snapshot;
}

}  // namespace st::store
