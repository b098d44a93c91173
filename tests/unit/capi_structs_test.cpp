// Structs that may grow: what an older or a newer caller gives and gets.
#include <cstddef>

#include "capi_scene.h"

namespace st {
namespace {

template <class T>
void expect_same(void (*init)(T *, size_t), const T &macro) {
  T filled;
  std::memset(&filled, 0xAB, sizeof filled);
  init(&filled, sizeof filled);
  EXPECT_EQ(std::memcmp(&filled, &macro, sizeof(T)), 0);  // there is no padding
  EXPECT_EQ(filled.struct_size, sizeof(T));
  init(nullptr, sizeof filled);
}

TEST(CapiStructs, InitFunctionsAreEqualToTheirMacros) {
  expect_same<st_open_options>(st_open_options_init, ST_OPEN_OPTIONS_INIT);
  expect_same<st_plan>(st_plan_init, ST_PLAN_INIT);
  expect_same<st_save_options>(st_save_options_init, ST_SAVE_OPTIONS_INIT);
  expect_same<st_txn_options>(st_txn_options_init, ST_TXN_OPTIONS_INIT);
  expect_same<st_save_options>(st_save_options_init, ST_SAVE_OPTIONS_INIT);
  expect_same<st_plan>(st_plan_init, ST_PLAN_INIT);
  expect_same<st_recover_options>(st_recover_options_init, ST_RECOVER_OPTIONS_INIT);
  expect_same<st_verify_options>(st_verify_options_init, ST_VERIFY_OPTIONS_INIT);
  expect_same<st_load_options>(st_load_options_init, ST_LOAD_OPTIONS_INIT);
  expect_same<st_error_info>(st_error_info_init, ST_ERROR_INFO_INIT);
  expect_same<st_io_info>(st_io_info_init, ST_IO_INFO_INIT);
  expect_same<st_stats>(st_stats_init, ST_STATS_INIT);
  expect_same<st_diff_options>(st_diff_options_init, ST_DIFF_OPTIONS_INIT);
  expect_same<st_patch_options>(st_patch_options_init, ST_PATCH_OPTIONS_INIT);
  expect_same<st_delta_info>(st_delta_info_init, ST_DELTA_INFO_INIT);
}

// A program compiled with an older header has less room; one with a newer, more.
TEST(CapiStructs, InitFunctionsKeepToTheCallersSize) {
  alignas(8) unsigned char room[256];
  auto *options = reinterpret_cast<st_open_options *>(room);
  for (size_t size : {size_t{4}, size_t{48}, sizeof(st_open_options), sizeof(st_open_options) + 16}) {
    std::memset(room, 0xAB, sizeof room);
    st_open_options_init(options, size);
    EXPECT_EQ(options->struct_size, size);
    for (size_t i = size; i < sizeof room; ++i) ASSERT_EQ(room[i], 0xAB) << size << " " << i;
    for (size_t i = sizeof(st_open_options); i < size; ++i) ASSERT_EQ(room[i], 0) << size << " " << i;
  }
  std::memset(room, 0xAB, sizeof room);
  st_open_options_init(options, 3);  // no room for the size itself
  EXPECT_EQ(room[0], 0xAB);
}

// The layout is the ABI. A change here is a new soname.
TEST(CapiStructs, LieAsTheyAlwaysLay) {
  EXPECT_EQ(sizeof(st_tensor), 80u);
  EXPECT_EQ(offsetof(st_tensor, dtype), 16u);
  EXPECT_EQ(offsetof(st_tensor, shape), 24u);
  EXPECT_EQ(offsetof(st_tensor, data), 32u);
  EXPECT_EQ(offsetof(st_tensor, file_offset), 48u);
  EXPECT_EQ(sizeof(st_range), 24u);
  EXPECT_GE(sizeof(st_open_options), 48u);
  EXPECT_GE(sizeof(st_txn_options), 32u);
  EXPECT_GE(sizeof(st_error_info), 56u);
  EXPECT_GE(sizeof(st_io_info), 360u);
  EXPECT_GE(sizeof(st_stats), 96u);
  EXPECT_EQ(offsetof(st_stats, commits), 72u);
  EXPECT_EQ(sizeof(st_metadata), 32u);
  EXPECT_GE(sizeof(st_save_options), 48u);
  EXPECT_GE(sizeof(st_plan), 320u);
  EXPECT_EQ(offsetof(st_plan, how), 64u);
  EXPECT_EQ(offsetof(st_open_options, prefetch), 48u);
  EXPECT_EQ(offsetof(st_open_options, memory_limit), 72u);
  EXPECT_GE(sizeof(st_open_options), 80u);
  EXPECT_EQ(offsetof(st_io_info, prefetch), 360u);
  EXPECT_GE(sizeof(st_io_info), 632u);
  EXPECT_EQ(offsetof(st_stats, read_requests), 96u);
  EXPECT_GE(sizeof(st_stats), 120u);
  EXPECT_EQ(sizeof(st_read_request), 56u);
  EXPECT_EQ(offsetof(st_read_request, index), 16u);
  EXPECT_EQ(offsetof(st_read_request, dst), 24u);
  EXPECT_EQ(offsetof(st_read_request, ranges), 40u);
  EXPECT_GE(sizeof(st_load_options), 24u);
  EXPECT_EQ(offsetof(st_io_info, filesystem), 40u);
  EXPECT_EQ(offsetof(st_open_options, deltas), 80u);
  EXPECT_EQ(offsetof(st_verify_options, deltas), 40u);
  EXPECT_EQ(offsetof(st_patch_options, plan), 16u);
  EXPECT_GE(sizeof(st_patch_options), 48u);
  EXPECT_EQ(offsetof(st_delta_info, base), 56u);
  EXPECT_GE(sizeof(st_delta_info), 136u);
}

class CapiOptions : public testing::CapiScene {
 protected:
  // A struct of a later version: the known part, and something behind it.
  template <class T>
  struct Later {
    T known;
    uint64_t unknown[3];
  };
  template <class T>
  static Later<T> later(T known, uint64_t unknown) {
    Later<T> l{known, {0, 0, unknown}};
    l.known.struct_size = sizeof l;
    return l;
  }
};

TEST_F(CapiOptions, OfAnOlderCallerTakeDefaultsForTheRest) {
  st_open_options options;
  std::memset(&options, 0xAB, sizeof options);  // what lies behind is not read
  options.struct_size = offsetof(st_open_options, map);
  options.flags = ST_OPEN_READ_WRITE;
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(path.c_str(), &options, &file));
  const st_tensor t = value(0, new_a);
  EXPECT_ST(ST_OK, st_update(file, "a", &t));
  st_txn_options txn;
  std::memset(&txn, 0xAB, sizeof txn);
  txn.struct_size = sizeof(uint32_t);
  st_txn *transaction = nullptr;
  ASSERT_ST(ST_OK, st_begin(file, &txn, &transaction));
  st_abort(transaction);
  st_close(file);
  st_load_options load;
  std::memset(&load, 0xAB, sizeof load);
  load.struct_size = sizeof(uint32_t);
  ASSERT_ST(ST_OK, st_open(path.c_str(), nullptr, &file));
  EXPECT_ST(ST_OK, st_load(file, nullptr, 0, &load));
  st_close(file);
  st_recover_options recover;
  std::memset(&recover, 0xAB, sizeof recover);
  recover.struct_size = sizeof(uint32_t);
  EXPECT_ST(ST_OK, st_recover_with(path.c_str(), &recover));
  st_verify_options verify;
  std::memset(&verify, 0xAB, sizeof verify);
  verify.struct_size = sizeof(uint32_t);
  EXPECT_ST(ST_OK, st_verify_with(path.c_str(), &verify));
}

TEST_F(CapiOptions, OfANewerCallerMustBeZeroWhereTheyAreNotKnown) {
  st_file *file = nullptr, *untouched = nullptr;
  const auto plain = later<st_open_options>(ST_OPEN_OPTIONS_INIT, 0);
  ASSERT_ST(ST_OK, st_open(path.c_str(), &plain.known, &file));
  st_close(file);
  const auto fancy = later<st_open_options>(ST_OPEN_OPTIONS_INIT, 1);
  EXPECT_ST(ST_E_UNSUPPORTED, st_open(path.c_str(), &fancy.known, &untouched));
  EXPECT_EQ(untouched, nullptr);

  file = open();
  const auto fancy_load = later<st_load_options>(ST_LOAD_OPTIONS_INIT, 1),
             plain_load = later<st_load_options>(ST_LOAD_OPTIONS_INIT, 0);
  EXPECT_ST(ST_E_UNSUPPORTED, st_load(file, nullptr, 0, &fancy_load.known));
  EXPECT_ST(ST_OK, st_load(file, nullptr, 0, &plain_load.known));
  st_txn *transaction = nullptr;
  const auto fancy_txn = later<st_txn_options>(ST_TXN_OPTIONS_INIT, uint64_t{1} << 63);
  EXPECT_ST(ST_E_UNSUPPORTED, st_begin(file, &fancy_txn.known, &transaction));
  EXPECT_EQ(transaction, nullptr);
  const auto plain_txn = later<st_txn_options>(ST_TXN_OPTIONS_INIT, 0);
  EXPECT_ST(ST_OK, st_begin(file, &plain_txn.known, &transaction));
  st_close(file);
  const auto fancy_recover = later<st_recover_options>(ST_RECOVER_OPTIONS_INIT, 1),
             plain_recover = later<st_recover_options>(ST_RECOVER_OPTIONS_INIT, 0);
  EXPECT_ST(ST_E_UNSUPPORTED, st_recover_with(path.c_str(), &fancy_recover.known));
  EXPECT_ST(ST_OK, st_recover_with(path.c_str(), &plain_recover.known));
  const auto fancy_verify = later<st_verify_options>(ST_VERIFY_OPTIONS_INIT, 1);
  EXPECT_ST(ST_E_UNSUPPORTED, st_verify_with(path.c_str(), &fancy_verify.known));
}

TEST_F(CapiOptions, WithoutASizeAreRefused) {
  st_file *file = open(), *other = nullptr;
  st_txn *transaction = nullptr;
  for (uint32_t size = 0; size < 4; ++size) {
    st_open_options options = ST_OPEN_OPTIONS_INIT;
    options.struct_size = size;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(path.c_str(), &options, &other));
    st_txn_options txn = ST_TXN_OPTIONS_INIT;
    txn.struct_size = size;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_begin(file, &txn, &transaction));
    st_load_options load = ST_LOAD_OPTIONS_INIT;
    load.struct_size = size;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_load(file, nullptr, 0, &load));
    st_recover_options recover = ST_RECOVER_OPTIONS_INIT;
    recover.struct_size = size;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_recover_with(path.c_str(), &recover));
    st_verify_options verify = ST_VERIFY_OPTIONS_INIT;
    verify.struct_size = size;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_verify_with(path.c_str(), &verify));
  }
  st_close(file);
}

TEST_F(CapiOptions, UnknownFlagsAndValuesAreRefused) {
  st_file *file = nullptr;
  st_open_options options = ST_OPEN_OPTIONS_INIT;
  for (uint32_t bit = 1; bit < 32; ++bit) {
    options.flags = 1u << bit;
    EXPECT_ST(ST_E_UNSUPPORTED, st_open(path.c_str(), &options, &file)) << bit;
  }
  options.flags = 0;
  options.map = ST_MAP_COPY_ON_WRITE + 1;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(path.c_str(), &options, &file));
  EXPECT_EQ(file, nullptr);

  auto refused = [&](st_open_options o) { EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(path.c_str(), &o, &file)); };
  options = ST_OPEN_OPTIONS_INIT;
  options.prefetch = ST_PREFETCH_PARALLEL + 1;
  refused(options);
  options = ST_OPEN_OPTIONS_INIT;
  options.direct = ST_DIRECT_ON + 1;
  refused(options);
  for (const auto &[index, count] : {std::pair{1u, 0u}, {1u, 1u}, {3u, 3u}, {UINT32_MAX, 7u}}) {
    options = ST_OPEN_OPTIONS_INIT;
    options.worker_index = index;
    options.worker_count = count;
    refused(options);
  }

  file = open();
  st_load_options load = ST_LOAD_OPTIONS_INIT;
  for (uint32_t bit = 2; bit < 32; ++bit) {
    load.flags = 1u << bit;
    EXPECT_ST(ST_E_UNSUPPORTED, st_load(file, nullptr, 0, &load));
  }
  st_txn *transaction = nullptr;
  st_txn_options txn = ST_TXN_OPTIONS_INIT;
  txn.flags = ST_TXN_COPY | 16u;
  EXPECT_ST(ST_E_UNSUPPORTED, st_begin(file, &txn, &transaction));
  txn.flags = 0;
  txn.layout = ST_LAYOUT_STOCK;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_begin(file, &txn, &transaction));
  st_save_options save = ST_SAVE_OPTIONS_INIT;
  save.flags = 1;
  EXPECT_ST(ST_E_UNSUPPORTED, st_save((dir / "new").c_str(), nullptr, 0, nullptr, 0, &save));
  save.flags = 0;
  save.layout = 3;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_save((dir / "new").c_str(), nullptr, 0, nullptr, 0, &save));
  st_verify_options verify = ST_VERIFY_OPTIONS_INIT;
  verify.reserved0 = 1;
  EXPECT_ST(ST_E_UNSUPPORTED, st_verify_with(path.c_str(), &verify));
  st_close(file);
}

// Programs that were built before bulk reads came.
TEST_F(CapiOptions, OfTheFirstReleaseStillWork) {
  struct {
    uint32_t struct_size, flags, map;
    int32_t lock_timeout_ms;
    const void *callbacks[4];
    unsigned char behind[64];
  } first = {48, 0, ST_MAP_PRIVATE, 0, {}, {}};
  std::memset(first.behind, 0xAB, sizeof first.behind);
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(path.c_str(), reinterpret_cast<const st_open_options *>(&first), &file));
  alignas(8) unsigned char info[512], stats[256];
  std::memset(info, 0xAB, sizeof info);
  std::memset(stats, 0xAB, sizeof stats);
  const uint32_t info_size = 360, stats_size = 96;
  std::memcpy(info, &info_size, sizeof info_size);
  std::memcpy(stats, &stats_size, sizeof stats_size);
  ASSERT_ST(ST_OK, st_get_io_info(file, reinterpret_cast<st_io_info *>(info)));
  ASSERT_ST(ST_OK, st_get_stats(file, reinterpret_cast<st_stats *>(stats)));
  for (size_t i = info_size; i < sizeof info; ++i) ASSERT_EQ(info[i], 0xAB) << i;
  for (size_t i = stats_size; i < sizeof stats; ++i) ASSERT_EQ(stats[i], 0xAB) << i;
  EXPECT_EQ(reinterpret_cast<const st_io_info *>(info)->map, ST_MAP_PRIVATE);
  st_close(file);
}

// Results: into a caller's struct of any size, and not a byte beyond it.
template <class T, class Call>
void fill_at_every_size(Call call) {
  T whole = {};
  whole.struct_size = sizeof whole;
  ASSERT_ST(ST_OK, call(&whole));
  for (uint32_t size = 0; size <= sizeof(T) + 24; ++size) {
    alignas(T) unsigned char memory[sizeof(T) + 64];
    std::memset(memory, 0xAB, sizeof memory);
    auto *out = reinterpret_cast<T *>(memory);
    out->struct_size = size;
    const st_status status = call(out);
    if (size < 4) {
      EXPECT_STREQ(st_status_name(status), "ST_E_INVALID_ARGUMENT");
      for (size_t i = 4; i < sizeof memory; ++i) ASSERT_EQ(memory[i], 0xAB) << size;
      continue;
    }
    ASSERT_STREQ(st_status_name(status), "ST_OK");
    EXPECT_EQ(out->struct_size, size);
    const size_t known = std::min<size_t>(size, sizeof(T));
    EXPECT_EQ(std::memcmp(memory + 4, reinterpret_cast<unsigned char *>(&whole) + 4, known - 4), 0) << size;
    for (size_t i = known; i < size; ++i) ASSERT_EQ(memory[i], 0) << size;
    for (size_t i = std::max<size_t>(size, 4); i < sizeof memory; ++i) ASSERT_EQ(memory[i], 0xAB) << size;
  }
}

TEST_F(CapiOptions, ResultsFillNoMoreThanTheCallersSize) {
  st_file *file = open(0, ST_MAP_NONE);  // so that nothing resident changes meanwhile
  seen(file, "a");
  fill_at_every_size<st_io_info>([&](st_io_info *out) { return st_get_io_info(file, out); });
  fill_at_every_size<st_stats>([&](st_stats *out) { return st_get_stats(file, out); });
  st_close(file);
  file = open();
  st_txn *transaction = nullptr;
  ASSERT_ST(ST_OK, st_begin(file, nullptr, &transaction));
  fill_at_every_size<st_plan>([&](st_plan *out) {
    const st_status status = st_txn_plan(transaction, out);
    constexpr size_t at = offsetof(st_plan, space_free), end = offsetof(st_plan, how);  // changes meanwhile
    if (status == ST_OK && out->struct_size > at)
      std::memset(reinterpret_cast<char *>(out) + at, 0, std::min<size_t>(out->struct_size, end) - at);
    return status;
  });
  st_close(file);
  st_open((dir / "missing").c_str(), nullptr, &file);
  fill_at_every_size<st_error_info>([](st_error_info *out) { return st_last_error_info(out); });
}

}  // namespace
}  // namespace st
