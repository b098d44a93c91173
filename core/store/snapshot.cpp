#include "store/snapshot.h"

#include <algorithm>
#include <cstring>

#include "hash.h"
#include "huge_memory.h"

namespace st::store {
namespace {

uint64_t random_seed(os::Env &env) {
  uint64_t seed = 0;
  env.random(&seed, sizeof seed);  // a failure leaves an ordinary, seeded table
  return seed;
}

struct RawHeader {
  HugeBuffer bytes;  // length, JSON, padding of zeros
  uint64_t json_bytes;
};

Result<RawHeader> read_header(const os::File &file, uint64_t file_size) {
  char first[length_bytes] = {};
  auto got = file.read_up_to(first, sizeof first, 0);
  if (!got) return Failure(std::move(got.error()));
  auto n = parse_header_length({first, *got}, file_size);
  if (!n) return Failure(std::move(n.error()));
  RawHeader raw{HugeBuffer(length_bytes + *n + header_padding), *n};
  char *bytes = raw.bytes.get();
  std::memcpy(bytes, first, sizeof first);
  if (auto read = file.read(bytes + length_bytes, *n, length_bytes); !read) return Failure(std::move(read.error()));
  std::memset(bytes + length_bytes + *n, 0, header_padding);
  return raw;
}

}  // namespace

Result<os::File> open_regular(os::Env &env, const std::string &path, int flags) {
  auto file = os::File::open(env, AT_FDCWD, path, flags | O_NONBLOCK | O_NOCTTY, 0, path);
  if (!file) return file;
  auto s = file->stat();
  if (!s) return Failure(std::move(s.error()));
  if (!S_ISREG(s->st_mode))
    return fail(Status::not_regular, quoted(path), " is no plain file; give the path of a .safetensors file");
  return file;
}

Result<std::unique_ptr<Snapshot>> Snapshot::take(os::File file, read::MapMode map, bool hash_header, const Log &log) {
  auto snapshot = std::make_unique<Snapshot>();
  auto identity = file.stat();
  if (!identity) return Failure(std::move(identity.error()));
  const auto size = static_cast<uint64_t>(identity->st_size);

  auto raw = read_header(file, size);
  if (!raw) return Failure(std::move(raw.error()));
  auto header = parse_header(raw->bytes.get() + length_bytes, raw->json_bytes, size, random_seed(file.env()));
  if (!header) return Failure(std::move(header.error()));

  snapshot->identity = *identity;
  snapshot->header = std::move(*header);
  if (hash_header) snapshot->header_hash = hash64(raw->bytes.get(), snapshot->header.data_offset());
  snapshot->filesystem = os::probe_filesystem(file);
  auto content = read::Content::open(file, size, snapshot->header.index.size(), map, snapshot->filesystem, log);
  if (!content) return Failure(std::move(content.error()));
  snapshot->content = std::move(*content);
  snapshot->file = std::move(file);
  return snapshot;
}

Result<std::unique_ptr<Snapshot>> Snapshot::of_memory(os::Env &env, const std::byte *bytes, size_t size) {
  const auto *chars = reinterpret_cast<const char *>(bytes);
  auto n = parse_header_length({chars, std::min<size_t>(size, length_bytes)}, size);
  if (!n) return Failure(std::move(n.error()));
  // A copy of the header, since the parser wants padding after it.
  const HugeBuffer json(*n + header_padding);
  std::memcpy(json.get(), chars + length_bytes, *n);
  std::memset(json.get() + *n, 0, header_padding);
  auto header = parse_header(json.get(), *n, size, random_seed(env));
  if (!header) return Failure(std::move(header.error()));
  auto snapshot = std::make_unique<Snapshot>();
  snapshot->header = std::move(*header);
  snapshot->filesystem = {os::Storage::memory, "memory"};
  snapshot->content = read::Content::borrowed(bytes, size);
  return snapshot;
}

}  // namespace st::store
