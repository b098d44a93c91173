// What the unit tests share: folders that vanish, small safetensors files, and
// assertions that print the sentence of a failure.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/header.h"
#include "os/env.h"
#include "serialise_header.h"

namespace st::testing {

template <class T>
::testing::AssertionResult is_ok(const Result<T> &r) {
  if (r) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "status " << static_cast<int>(r.error().status) << ": " << r.error().message;
}

template <class T>
::testing::AssertionResult fails_with(Status wanted, const Result<T> &r) {
  if (r) return ::testing::AssertionFailure() << "it succeeded; wanted status " << static_cast<int>(wanted);
  if (r.error().status == wanted && !r.error().message.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "status " << static_cast<int>(r.error().status) << " (" << r.error().message
                                       << "), wanted " << static_cast<int>(wanted);
}

// Equality of what is no text: tells where they part, not all of both.
inline ::testing::AssertionResult same_bytes(std::string_view got, std::string_view wanted) {
  if (got == wanted) return ::testing::AssertionSuccess();
  if (got.size() != wanted.size())
    return ::testing::AssertionFailure() << got.size() << " bytes, not " << wanted.size();
  const auto at = std::mismatch(got.begin(), got.end(), wanted.begin()).first - got.begin();
  return ::testing::AssertionFailure() << "of " << got.size() << " bytes the one at " << at
                                       << " is the first to differ";
}

// A folder of its own for each test, gone with it. By then libst must have renamed or
// removed its temporaries. None may be left, unless the test says that it leaves some on purpose.
class TempDir {
 public:
  TempDir() {
    namespace fs = std::filesystem;
    static std::atomic<unsigned> made = 0;
    const std::string start = "libst-unit-" + std::to_string(::getpid()) + "-";
    fs::path folder;
    do {
      folder = fs::canonical(fs::temp_directory_path()) / (start + std::to_string(made++));
    } while (!fs::create_directory(folder));
    fs::permissions(folder, fs::perms::owner_all);
    path_ = folder.generic_string();
  }
  ~TempDir() {
    std::error_code ignored;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(path_, ignored))
      EXPECT_TRUE(may_hold_temporaries_ || entry.path().filename().string().find(".st-tmp-") == std::string::npos)
          << entry.path() << " is left";
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir &) = delete;
  TempDir &operator=(const TempDir &) = delete;
  const std::string &path() const { return path_; }
  void may_hold_temporaries() { may_hold_temporaries_ = true; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
  bool may_hold_temporaries_ = false;
};

inline std::string bytes_of(const std::string &path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();  // by blocks: iterators take seconds where nothing is optimised
  return std::move(out).str();
}

inline void put_bytes(const std::string &path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Writes into an existing file, in place.
inline void poke(const std::string &path, uint64_t offset, std::string_view bytes) {
  std::fstream io(path, std::ios::binary | std::ios::in | std::ios::out);
  io.seekp(static_cast<std::streamoff>(offset));
  io.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// As a stock writer does it: a new file, renamed over the old one, also where somebody has that open.
inline void replace_by(const std::string &path, std::string_view bytes) {
  const std::filesystem::path at = path;
  static std::atomic<unsigned> made = 1000000;  // the name ends as that of a temporary
  const std::string name = at.filename().string(), fresh = "." + name + ".st-tmp-000000000" + std::to_string(made++);
  os::Env &env = os::Env::posix();
  put_bytes((at.parent_path() / fresh).string(), bytes);
  const int folder = env.openat(AT_FDCWD, at.parent_path().string().c_str(), O_RDONLY | O_DIRECTORY, 0);
  EXPECT_EQ(env.renameat(folder, fresh.c_str(), folder, name.c_str()), 0);
  env.close(folder);
}

inline std::vector<std::string> names_in(const std::string &folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto &entry : std::filesystem::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// n bytes that differ by seed and by place.
inline std::string pattern(size_t n, unsigned seed) {
  std::string out(n, '\0');
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  // By a pointer: most of the tests are not optimised, and an iterator is three calls for each byte there.
  char *to = out.data();
  for (char *const end = to + n; to != end; ++to) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    *to = static_cast<char>(x >> 24);
  }
  return out;
}

// The length, the JSON and the data: a file as its bytes.
inline std::string raw_file(std::string_view json, std::string_view data) {
  std::string out(8, '\0');
  store_u64le(out.data(), json.size());
  return out.append(json).append(data);
}

struct TestTensor {
  std::string name;
  Dtype dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
};

inline TestTensor u8_tensor(std::string name, size_t n, unsigned seed) {
  return {std::move(name), Dtype::U8, {n}, pattern(n, seed)};
}

// The tensors one after the other, under a header as we write it.
inline std::string file_of(const std::vector<TestTensor> &tensors, MetadataPairs metadata = {}, uint64_t reserve = 0) {
  std::vector<HeaderTensor> entries;
  std::string data;
  for (const TestTensor &t : tensors) {
    entries.push_back({t.name, t.dtype, t.shape, data.size(), t.bytes.size()});
    data += t.bytes;
  }
  auto header = serialise_header(entries, metadata, write::default_alignment, reserve);
  if (!header) {
    ADD_FAILURE() << header.error().message;
    return {};
  }
  return *header + data;
}

}  // namespace st::testing
