// st_file and st_txn as objects: open or thrown, always freed.
#pragma once

#include <st/st.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "failure.h"
#include "session.h"
#include "sized.h"
#include "text.h"

namespace stctl {

struct FileOptions {
  bool write = false;
  bool warns_later = false;  // in Session::warnings, as one that is opened to write does
  uint32_t map = ST_MAP_AUTO;
  int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT;
  std::vector<std::string> deltas = {};  // that lie on the file
};

struct Matches {
  std::vector<size_t> tensors;
  bool by_pattern = false;  // see note_pattern
};

class File {
 public:
  File(Session &session, const std::string &path, const FileOptions &options = {});
  ~File();
  File(const File &) = delete;
  File &operator=(const File &) = delete;

  st_file *get() const { return file_; }
  const std::string &path() const { return path_; }  // to be told
  size_t count() const { return st_count(file_); }

  // What the handle stands for: one file, or shards; and the deltas on them. st_tensor.shard numbers them.
  uint32_t file_count() const { return st_shard_count(file_); }
  bool is_one_file() const { return file_count() == 1; }
  std::string file_path(uint32_t shard) const;
  std::string file_name(uint32_t shard) const;  // the last part of its path
  uint64_t size_of_files() const;

  st_tensor at(size_t i) const;  // a description
  // Descriptions of all. One call, which opens shards behind a URL side by side.
  std::vector<st_tensor> all() const;
  st_tensor view(size_t i) const;  // with its bytes
  // A copy of its bytes. Throws Failure if the file is cut meanwhile; a look at a view would then be a signal.
  std::string bytes_of(const st_tensor &tensor) const;
  st_io_info io_info() const;
  st_io_info io_info(uint32_t shard) const;
  st_stats stats() const;
  // To what others have made of it. What was described before is no longer good.
  void refresh() const;
  bool is_url() const { return !scheme_of(path_).empty(); }

  // The tensor of that name: as `ls` prints it, with escapes, or else literally.
  size_t find(const std::string &name) const;
  std::optional<size_t> find_if_there(const std::string &name) const;
  // The tensor of that name, or else those that match the pattern, in the order of the file; none if none do. Says
  // nothing: a look may begin anew.
  Matches find_all(const std::string &word) const;
  size_t find_exactly(std::string_view name) const;
  // What find() answers for each name, or all tensors if there is none.
  std::vector<size_t> find_each(const std::vector<std::string> &names) const;
  // What find_all() answers for each word.
  std::vector<Matches> find_all_of_each(const std::vector<std::string> &words) const;
  // Views of these, with their bytes. Those of a URL are read meanwhile, with a progress bar unless `quiet`.
  std::vector<st_tensor> views(const std::vector<size_t> &tensors, bool quiet) const;

 private:
  // find() would open the shards behind a URL one by one. This opens those of the tensors that words name side by side,
  // from the first of them on; a word that names none ends it.
  class ShardsOf {
   public:
    ShardsOf(const File &file, const std::vector<std::string> &words);
    void open(size_t first) const;

   private:
    const File &file_;
    std::vector<std::string> names_;
    std::vector<st_read_request> requests_;
  };

  std::string path_;
  st_file *file_;
};

// What `look` answers. It may open shards, which are opened one by one; the index may be replaced meanwhile. Then the
// file is refreshed, and `look` is called again, up to 19 times in the ten seconds for which a call waits for locks.
template <class Look>
auto look_at(const File &file, const Look &look) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int left = 19;; --left) {
    try {
      return look();
    } catch (const Failure &failure) {
      const bool goes_on = left > 0 && std::chrono::steady_clock::now() < until;
      if (!goes_on || failure.status() != ST_E_FILE_CHANGED || file.is_url()) throw;
    }
    file.refresh();
  }
}

class Transaction {
 public:
  Transaction(const File &file, const st_txn_options &options) { check(st_txn_begin(file.get(), &options, &txn_)); }
  ~Transaction() { st_txn_free(txn_); }
  Transaction(const Transaction &) = delete;
  Transaction &operator=(const Transaction &) = delete;

  void update(const st_tensor &value) { check_change(st_txn_update(txn_, value.name, value.name_len, &value)); }
  void update_slice(const std::vector<st_range> &ranges, const st_tensor &value) {
    check_change(
        st_txn_update_slice(txn_, value.name, value.name_len, ranges.data(), ranges.size(), nullptr, 0, &value));
  }

  st_txn *get() const { return txn_; }
  st_plan plan() const {
    auto plan = sized<st_plan>();
    check(st_txn_plan(txn_, &plan));
    return plan;
  }

  void commit() { check_change(st_txn_commit(txn_)); }

 private:
  st_txn *txn_ = nullptr;
};

inline std::string_view name_of(const st_tensor &tensor) {
  return {tensor.name, tensor.name_len};
}

// Says that a word with brackets, which may well be meant as a name, is taken as a pattern.
void note_pattern(const Session &session, const std::string &word);

// "BF16" as the dtype; 0 for "". UsageFailure.
st_dtype parse_dtype(const std::string &name);

// The number of elements in so many bytes: nbytes * 8 / bits, which here does not overflow.
inline uint64_t elements_of(st_dtype dtype, uint64_t nbytes) {
  const uint32_t bits = st_dtype_bits(dtype);
  return nbytes / bits * 8 + nbytes % bits * 8 / bits;
}
inline uint64_t elements_of(const st_tensor &tensor) {
  return elements_of(tensor.dtype, tensor.nbytes);
}

// The fields "name", "dtype", "shape", "nbytes", "shard" (the file it lies in), "offset" of an object.
class Json;
void write_description(Json &json, const File &file, const st_tensor &tensor);

const char *map_name(uint32_t map);            // "shared", "private", "none"
const char *prefetch_name(uint32_t prefetch);  // "none", "sequential", "parallel"
const char *storage_name(uint32_t storage);    // "local", "fuse", …

}  // namespace stctl
