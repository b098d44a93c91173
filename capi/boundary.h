// The border between C and core: every call runs inside boundary(), which turns
// a failure into a status and a last error and lets no exception out; structs
// that may grow are read and written by their struct_size.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "callback.h"
#include "file/data_file.h"
#include "file/writer.h"
#include "model/pinned.h"
#include "os/made_in.h"
#include "os/waited.h"
#include "st/st.h"

struct st_file {
  explicit st_file(std::shared_ptr<st::store::Model> c) : model(std::move(c)), single(model->file()) {}
  explicit st_file(const std::shared_ptr<st::store::Pinned> &p)
      : model(p), single(p->file()), pin(p.get()), pinned(p->lend().snapshot()) {}
  const std::shared_ptr<st::store::Model> model;  // shared with what was pinned of it
  // For calls that must not take a nanosecond longer: the file, if it is one, and of a snapshot its state.
  const st::store::DataFile *const single;
  const st::store::Pinned *const pin = nullptr;  // if st_snapshot answered this
  const st::store::Snapshot *const pinned = nullptr;
  std::vector<st_txn *> transactions;  // that live: see lock_transactions
};

struct st_mapping {
  const std::shared_ptr<const st::os::Mapping> mapping;
};

struct st_txn {
  st_file *file;                                           // nullptr once it was closed
  std::unique_ptr<st::store::AnyTransaction> transaction;  // nullptr once it has ended
  const st::os::MadeIn made_in;
  // In a child a thread that is not in it may have been amid a change of its parent's: that one is left as it is.
  void end() noexcept;
};

namespace st::capi {

st_status set_last_error(Error &&e) noexcept;
st_status set_last_error(Status status, const char *static_message) noexcept;

template <class Body>
st_status boundary(Body body) noexcept {
  const os::WaitedByCall call(os::WaitedByCall::anew);
  try {
    Result<void> r = body();
    if (r) return ST_OK;
    if (r.error().message.empty())
      return set_last_error(r.error().status,
                            "memory ran out after the point of no return; close the handle and open the file anew, "
                            "which finishes the change");
    if (r.error().status == Status::cancelled && Callback::has_forked())
      return set_last_error(Status::forked,
                            "a callback of this call forked; the call goes on in the parent process alone, so call "
                            "it anew here");
    return set_last_error(std::move(r.error()));
  } catch (const std::bad_alloc &) {
    return set_last_error(Status::nomem, "no memory for this call; free some and try again");
  } catch (const std::exception &e) {
    return set_last_error(Status::internal, "an unexpected exception inside libst; please report it");
  } catch (...) {
    return set_last_error(Status::internal, "an unexpected exception inside libst; please report it");
  }
}

// More of them than this machine has addresses for cannot lie where the caller says.
template <class T>
Result<void> check_count(const char *call, const char *what, size_t n) {
  if (n > SIZE_MAX / 2 / sizeof(T))
    return fail(Status::invalid_argument, call, " was given ", n, " ", what, ", more than memory can hold");
  return {};
}

// Arguments that may not be NULL.
template <class... Pointers>
Result<void> require(const char *call, Pointers... pointers) {
  if ((... || !pointers))
    return fail(Status::invalid_argument, call, " was given NULL where that is not allowed; see st.h");
  return {};
}

template <class T>
concept Sized = std::is_trivially_copyable_v<T> && requires(T t) {
  t.struct_size;
};

// No version of any struct is larger. A struct that was not set up has any size, and would be read or zeroed far behind
// its end.
constexpr uint32_t largest_struct = 4096;

constexpr bool is_struct_size(uint32_t size) {
  return size >= sizeof(uint32_t) && size <= largest_struct;
}

// The caller's options; zero is the default of each. A caller from an older header
// gives fewer, one from a newer header may give more if they are zero.
template <Sized T>
Result<T> read_options(const T *given) {
  T options{};
  if (!given) return options;
  const uint32_t size = given->struct_size;
  if (!is_struct_size(size))
    return fail(Status::invalid_argument, "an option struct's struct_size is ", size,
                "; set it to the size of the struct");
  const auto *bytes = reinterpret_cast<const unsigned char *>(given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; }))
    return fail(Status::unsupported, "an option was set that libst ", st_version(),
                " does not know; use a newer library");
  std::memcpy(&options, given, std::min<size_t>(size, sizeof(T)));
  return options;
}

// Refuses a struct that has no size of one, before the work whose result it is for.
template <Sized T>
Result<void> check_result(const T *out) {
  if (!is_struct_size(out->struct_size))
    return fail(Status::invalid_argument, "a result struct's struct_size is ", out->struct_size,
                "; set it to the size of the struct");
  return {};
}

// A caller from an older header gives less room, one from a newer header more.
template <Sized T>
Result<void> write_result(T *out, T value) {
  ST_TRY(check_result(out));
  const uint32_t size = out->struct_size;
  value.struct_size = size;
  std::memcpy(out, &value, std::min<size_t>(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<unsigned char *>(out) + sizeof(T), 0, size - sizeof(T));
  return {};
}

// Into a field of a result, cut where it is longer.
template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const size_t n = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

// As the caller gives it: with its length, or ST_NTS.
inline std::string_view name_of(const char *name, size_t length) {
  return length == ST_NTS ? std::string_view(name) : std::string_view(name, length);
}

// For a change of `transactions`, of any handle. A fork takes it, too. So a child finds the lists whole and unlocked,
// and knows the transactions that its parent has begun.
std::unique_lock<std::mutex> lock_transactions();

// As core has it: milliseconds, 0 not to wait, -1 for ever.
Result<int32_t> timeout_of(int32_t lock_timeout_ms, int32_t by_default = default_lock_timeout_ms);

// A handle of what was opened.
Result<void> hand_out(Result<std::unique_ptr<store::Model>> opened, st_file **out);

// What st_open was given, checked.
Result<store::OpenOptions> open_options_of(const st_open_options *given);

inline Progress progress_of(st_progress_fn fn, void *user) {
  if (!fn) return {};
  return [fn, user](uint64_t done, uint64_t total) { return Callback::goes_on([&] { return fn(user, done, total); }); };
}

inline Result<std::vector<std::string>> paths_of(const char *what, const char *const *paths, size_t n) {
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i) {
    if (!paths || !paths[i]) return fail(Status::invalid_argument, what, " holds NULL where a path is needed");
    out.emplace_back(paths[i]);
  }
  return out;
}

// What a handle of a single file shows now: lent.
inline const store::Snapshot &shown(const st_file &file) {
  return file.pinned ? *file.pinned : file.single->snapshot();
}

inline void describe(const store::Snapshot &snapshot, const TensorView &t, const std::byte *data, st_tensor *out) {
  *out = st_tensor{};
  out->name = t.name.data();
  out->name_len = t.name.size();
  out->dtype = static_cast<st_dtype>(t.dtype);
  out->rank = static_cast<uint32_t>(t.shape.size());
  out->shape = t.shape.data();
  out->data = data;
  out->nbytes = t.nbytes;
  out->file_offset = snapshot.file_offset(t);
}
inline void describe(const store::Place &place, const std::byte *data, st_tensor *out) {
  describe(*place.snapshot, place.tensor(), data, out);
  out->shard = place.number;
}
// Its bytes too.
Result<void> describe_with_view(const store::Place &place, st_tensor *out);
// Whether so many bytes can be in the memory of this machine.
inline bool has_addresses(uint64_t nbytes) {
  return static_cast<size_t>(nbytes) == nbytes;
}
// Its reserved fields are zero.
Result<void> check_reserved(const st_tensor &value);
Result<store::NewBytes> translate(std::string_view name, const st_tensor *value);
Result<write::SaveOptions> translate(const st_save_options *given);
Result<store::TransactionOptions> translate(const char *call, const st_txn_options &options,
                                            int32_t default_timeout_ms = default_lock_timeout_ms);
st_plan translate(const store::CommitPlan &planned);
Result<store::AnyTransaction *> going_on(const char *call, st_txn *txn);

// The ranges of a slice, as core has them.
inline std::span<const Range> ranges_of(const st_range *ranges, size_t n) {
  static_assert(sizeof(Range) == sizeof(st_range) && offsetof(Range, stop) == offsetof(st_range, stop) &&
                offsetof(Range, step) == offsetof(st_range, step));
  return {reinterpret_cast<const Range *>(ranges), n};
}
// What a read is to fill, and with what.
Result<SlicePlan> plan(const store::Place &place, const st_range *ranges, size_t n);
Result<void> check_room(std::string_view call, std::string_view tensor, uint64_t need, const void *dst,
                        size_t dst_size);

}  // namespace st::capi
