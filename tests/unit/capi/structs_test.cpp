// Structs that may grow: what an older or a newer caller gives and gets.
#include <cstddef>
#include <functional>

#include "scene.h"

namespace st {
namespace {

using namespace testing;

// The rule by which structs of options grow. tests/python/test_struct_sizes.py shows it for each call that takes one.
class CapiOptions : public testing::CapiScene {
 protected:
  CapiOptions() {
    std::vector<testing::TestTensor> changed = tensors;
    changed[0].bytes = new_a;
    put_bytes(other, testing::file_of(changed, metadata));
    EXPECT_ST(ST_OK, st_delta_create(path.c_str(), other.c_str(), delta.c_str(), nullptr));
  }

  // `call` is given options that must make no difference, and then some that must not pass.
  template <class T>
  void expect_the_rule(const char *name, const std::function<st_status(const T *)> &call) {
    SCOPED_TRACE(name);
    EXPECT_ST(ST_OK, call(nullptr));
    constexpr size_t behind = 24, step = 4;
    alignas(T) unsigned char memory[sizeof(T) + behind];
    auto *given = reinterpret_cast<T *>(memory);
    // All zero in the caller's size, and anything beyond it.
    const auto zeroed = [&](size_t size) {
      std::memset(memory, 0xAB, sizeof memory);
      std::memset(memory, 0, size);
      given->struct_size = static_cast<uint32_t>(size);
    };
    for (size_t size = 0; size <= sizeof memory; size += step) {
      zeroed(std::max(size, sizeof(uint32_t)));
      given->struct_size = static_cast<uint32_t>(size);
      const char *wanted = size < sizeof(uint32_t) ? "ST_E_INVALID_ARGUMENT" : "ST_OK";
      ASSERT_STREQ(st_status_name(call(given)), wanted) << size << ": " << st_last_error();
    }
    // A later field that is set, whatever its place and however little of it.
    for (size_t at = sizeof(T); at < sizeof memory; at += step) {
      zeroed(sizeof memory);
      memory[at] = at % 2 ? 1 : 0x80;
      ASSERT_ST(ST_E_UNSUPPORTED, call(given)) << at;
      zeroed(at);
      memory[at] = 1;  // beyond what the caller has
      ASSERT_ST(ST_OK, call(given)) << at;
    }
  }

  const std::string other = dir / "other.safetensors", delta = dir / "delta.safetensors", to = dir / "to.safetensors",
                    shards = dir / "shards";
};

// And what they write is the same. Nothing is where the answer is no.
TEST_F(CapiOptions, AllZeroWriteWhatNoOptionsWrite) {
  std::string without;  // what the call writes that is given no options
  const auto expect_same = [&](bool none, const std::string &written, st_status status) {
    if (none) without = testing::bytes_of(written);
    if (status == ST_OK) {
      EXPECT_TRUE(testing::same_bytes(testing::bytes_of(written), without));
    }
    return status;
  };
  const auto expect_written = [&](bool none, st_status status) {
    expect_same(none, to, status);
    EXPECT_EQ(std::filesystem::remove(to), status == ST_OK);
    return status;
  };
  const st_tensor t = [&] {
    st_tensor v = value(0, new_a);
    v.name = "x";
    v.name_len = ST_NTS;
    return v;
  }();
  expect_the_rule<st_save_options>("st_save", [&](const st_save_options *o) {
    return expect_written(!o, st_save(to.c_str(), &t, 1, nullptr, 0, o));
  });
  expect_the_rule<st_save_options>("st_writer_open", [&](const st_save_options *o) {
    st_writer *writer = nullptr;
    const st_status status = st_writer_open(to.c_str(), nullptr, 0, nullptr, 0, o, &writer);
    if (writer) {
      EXPECT_ST(ST_OK, st_writer_put(writer, &t));
      EXPECT_ST(ST_OK, st_writer_finish(writer));
    }
    st_writer_free(writer);
    return expect_written(!o, status);
  });
  expect_the_rule<st_save_options>(
      "st_join", [&](const st_save_options *o) { return expect_written(!o, st_join(path.c_str(), to.c_str(), o)); });
  const char *deltas[] = {delta.c_str()};
  expect_the_rule<st_save_options>("st_delta_merge", [&](const st_save_options *o) {
    return expect_written(!o, st_delta_merge(path.c_str(), deltas, 1, to.c_str(), o));
  });
  expect_the_rule<st_save_options>("st_reshard", [&](const st_save_options *o) {
    const st_status status = st_reshard(path.c_str(), shards.c_str(), 5000, o);
    const std::string first = shards + "/model-00001-of-00003.safetensors";
    EXPECT_EQ(std::filesystem::exists(first), status == ST_OK);
    expect_same(!o, first, status);
    return std::filesystem::remove_all(shards), status;
  });
  expect_the_rule<st_delta_create_options>("st_delta_create", [&](const st_delta_create_options *o) {
    return expect_written(!o, st_delta_create(path.c_str(), other.c_str(), to.c_str(), o));
  });
  expect_the_rule<st_delta_apply_options>("st_delta_apply", [&](const st_delta_apply_options *o) {
    const st_status status = expect_same(!o, path, st_delta_apply(path.c_str(), delta.c_str(), o, nullptr));
    EXPECT_EQ(testing::bytes_of(path) == old, status != ST_OK);
    return put_bytes(path, old), status;
  });
  const std::string loose = testing::file_of(tensors, metadata, 1000);  // with room in its header
  put_bytes(path, loose);
  expect_the_rule<st_txn_options>("st_compact", [&](const st_txn_options *o) {
    const st_status status = expect_same(!o, path, st_compact(path.c_str(), o));
    EXPECT_EQ(testing::bytes_of(path) == loose, status != ST_OK);
    return put_bytes(path, loose), status;
  });
}

// What an older caller says counts, and what lies behind it does not.
TEST_F(CapiOptions, OfAnOlderCallerAreReadAsFarAsTheyGo) {
  st_open_options options;
  std::memset(&options, 0xAB, sizeof options);
  options.struct_size = offsetof(st_open_options, map);
  options.flags = ST_OPEN_READ_WRITE;
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(path.c_str(), &options, &file));
  const st_tensor t = value(0, new_a);
  EXPECT_ST(ST_OK, st_update(file, "a", ST_NTS, &t));
  st_txn_options txn;
  std::memset(&txn, 0xAB, sizeof txn);
  txn.struct_size = offsetof(st_txn_options, lock_timeout_ms);
  txn.flags = ST_TXN_NEW_NAMES;
  st_txn *transaction = nullptr;
  EXPECT_ST(ST_E_UNSUPPORTED, st_txn_begin(file, &txn, &transaction));  // on one file
  EXPECT_EQ(transaction, nullptr);
  st_close(file);
}

// Nothing behind a struct that nobody set up is looked at, and nothing written.
TEST_F(CapiOptions, OfASizeThatNoStructHasAreRefused) {
  st_file *const file = open(), *none = nullptr;
  st_txn *transaction = nullptr;
  for (uint32_t size : {4097u, 0x7F000000u, UINT32_MAX}) {
    const auto set_up = [size](auto given) {
      given->struct_size = size;
      return given;
    };
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(path.c_str(), set_up(std::make_unique<st_open_options>()).get(), &none));
    EXPECT_ST(ST_E_INVALID_ARGUMENT,
              st_txn_begin(file, set_up(std::make_unique<st_txn_options>()).get(), &transaction));
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_file_stats(file, set_up(std::make_unique<st_stats>()).get()));
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_last_error_info(set_up(std::make_unique<st_error_info>()).get()));
  }
  st_close(file);
}

TEST_F(CapiOptions, UnknownFlagsAndValuesAreRefused) {
  st_file *file = nullptr;
  auto options = sized<st_open_options>();
  for (uint32_t bit = 1; bit < 32; ++bit) {
    options.flags = 1u << bit;
    EXPECT_ST(ST_E_UNSUPPORTED, st_open(path.c_str(), &options, &file)) << bit;
  }
  options.flags = 0;
  // What a newer header may call by a name. What no header does is INVALID_ARGUMENT, as below.
  const auto expect_unknown = [&](uint32_t st_open_options::*field, uint32_t known) {
    for (const uint32_t value : {known + 1, UINT32_MAX}) {
      auto o = sized<st_open_options>();
      o.*field = value;
      EXPECT_ST(ST_E_UNSUPPORTED, st_open(path.c_str(), &o, &file)) << value;
    }
  };
  expect_unknown(&st_open_options::map, ST_MAP_COPY_ON_WRITE);
  expect_unknown(&st_open_options::prefetch, ST_PREFETCH_PARALLEL);
  expect_unknown(&st_open_options::direct, ST_DIRECT_ON);
  EXPECT_EQ(file, nullptr);
  for (const auto &[index, count] : {std::pair{1u, 0u}, {1u, 1u}, {3u, 3u}, {UINT32_MAX, 7u}}) {
    options = sized<st_open_options>();
    options.worker_index = index;
    options.worker_count = count;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(path.c_str(), &options, &file));
  }

  file = open();
  std::string room(4000, '?');
  const st_read_request request = {"a", 1, 0, room.data(), room.size(), nullptr, 0, 0};
  auto bulk = sized<st_bulk_options>();
  for (uint32_t bit = 0; bit < 32; ++bit) {
    bulk.flags = 1u << bit;
    if (bulk.flags != ST_BULK_FRESH_MEMORY) {
      EXPECT_ST(ST_E_UNSUPPORTED, st_read_many(file, &request, 1, &bulk)) << bit;
      EXPECT_ST(ST_E_UNSUPPORTED, st_read_many(file, nullptr, 0, &bulk)) << bit;
    }
    EXPECT_ST(ST_E_UNSUPPORTED, st_prefetch(file, nullptr, 0, &bulk)) << bit;
    const bool is_of_load = bulk.flags == ST_BULK_HUGE_PAGES || bulk.flags == ST_BULK_DIRECT;
    EXPECT_STREQ(st_status_name(st_load(file, nullptr, 0, &bulk)), is_of_load ? "ST_OK" : "ST_E_UNSUPPORTED") << bit;
  }
  EXPECT_EQ(room, std::string(4000, '?'));
  st_file *again = nullptr;
  for (uint32_t bit = 1; bit < 32; ++bit)
    EXPECT_ST(ST_E_UNSUPPORTED, st_reopen(file, ST_REOPEN_COPY_ON_WRITE | 1u << bit, &again)) << bit;
  EXPECT_EQ(again, nullptr);
  st_txn *transaction = nullptr;
  auto txn = sized<st_txn_options>();
  for (uint32_t bit = 5; bit < 32; ++bit) {
    txn.flags = ST_TXN_COPY | 1u << bit;
    EXPECT_ST(ST_E_UNSUPPORTED, st_txn_begin(file, &txn, &transaction)) << bit;
    EXPECT_ST(ST_E_UNSUPPORTED, st_compact(path.c_str(), &txn)) << bit;
  }
  txn.flags = 0;
  txn.layout = ST_LAYOUT_STOCK;  // which is known, but not here
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_txn_begin(file, &txn, &transaction));
  txn.layout = ST_LAYOUT_STOCK + 1;
  EXPECT_ST(ST_E_UNSUPPORTED, st_txn_begin(file, &txn, &transaction));
  EXPECT_ST(ST_OK, st_compact(path.c_str(), &txn));  // which does not read it
  auto save = sized<st_save_options>();
  for (uint32_t bit = 0; bit < 32; ++bit) {
    save.flags = 1u << bit;
    EXPECT_ST(ST_E_UNSUPPORTED, st_save((dir / "new").c_str(), nullptr, 0, nullptr, 0, &save)) << bit;
  }
  save.flags = 0;
  save.reserved0 = 1;
  EXPECT_ST(ST_E_UNSUPPORTED, st_save((dir / "new").c_str(), nullptr, 0, nullptr, 0, &save));
  save.reserved0 = 0;
  save.layout = ST_LAYOUT_STOCK + 1;
  EXPECT_ST(ST_E_UNSUPPORTED, st_save((dir / "new").c_str(), nullptr, 0, nullptr, 0, &save));
  auto verify = sized<st_verify_options>();
  verify.reserved0 = 1;
  EXPECT_ST(ST_E_UNSUPPORTED, st_verify(path.c_str(), &verify));
  st_close(file);
}

// Frozen structs have no size. What a later library may put into them is refused by this one.
TEST_F(CapiOptions, ReservedFieldsOfFrozenStructsAreZero) {
  st_file *file = open();
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, nullptr, &txn));
  st_writer *writer = nullptr;
  ASSERT_ST(ST_OK, st_writer_open(to.c_str(), nullptr, 0, nullptr, 0, nullptr, &writer));
  const std::string unsaved = dir / "unsaved";
  for (const auto &set : {+[](st_tensor &t) { t.reserved0 = 1; }, +[](st_tensor &t) { t.reserved[0] = 1; },
                          +[](st_tensor &t) { t.reserved[1] = uint64_t{1} << 63; }}) {
    st_tensor t = value(0, new_a);
    t.name = "a";
    t.name_len = 1;
    set(t);
    const st_range all = ST_RANGE_ALL;
    st_writer *none = nullptr;
    EXPECT_ST(ST_E_UNSUPPORTED, st_update(file, "a", 1, &t));
    EXPECT_ST(ST_E_UNSUPPORTED, st_txn_update(txn, "a", 1, &t));
    EXPECT_ST(ST_E_UNSUPPORTED, st_txn_update_slice(txn, "a", 1, &all, 1, nullptr, 0, &t));
    EXPECT_ST(ST_E_UNSUPPORTED, st_txn_put(txn, "a", 1, &t));
    EXPECT_ST(ST_E_UNSUPPORTED, st_writer_put(writer, &t));
    EXPECT_ST(ST_E_UNSUPPORTED, st_writer_open(unsaved.c_str(), &t, 1, nullptr, 0, nullptr, &none));
    EXPECT_ST(ST_E_UNSUPPORTED, st_save(unsaved.c_str(), &t, 1, nullptr, 0, nullptr));
    EXPECT_EQ(none, nullptr);
  }
  const st_tensor t = value(0, new_a);
  EXPECT_ST(ST_OK, st_txn_update(txn, "a", 1, &t));  // a refusal has left it as it was
  st_txn_free(txn);
  st_writer_free(writer);
  std::string room(4000, '?');
  const st_read_request request = {"a", 1, 0, room.data(), room.size(), nullptr, 0, 1};
  EXPECT_ST(ST_E_UNSUPPORTED, st_read_many(file, &request, 1, nullptr));
  EXPECT_EQ(room, std::string(4000, '?'));
  st_close(file);
  EXPECT_EQ(testing::bytes_of(path), old);
  EXPECT_FALSE(std::filesystem::exists(unsaved));
}

// A program that was built when structs were shorter. (None is released yet: these are the sizes of some day.)
TEST_F(CapiOptions, OfTheFirstReleaseStillWork) {
  struct First {
    uint32_t struct_size, flags, map;
    int32_t lock_timeout_ms;
    const void *callbacks[4];
    unsigned char behind[64];
  } first = {offsetof(First, behind), 0, ST_MAP_PRIVATE, ST_TIMEOUT_NONE, {}, {}};
  std::memset(first.behind, 0xAB, sizeof first.behind);
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(path.c_str(), reinterpret_cast<const st_open_options *>(&first), &file));
  alignas(8) unsigned char info[512], stats[256];
  std::memset(info, 0xAB, sizeof info);
  std::memset(stats, 0xAB, sizeof stats);
  const uint32_t info_size = offsetof(st_io_info, prefetch), stats_size = offsetof(st_stats, read_requests);
  std::memcpy(info, &info_size, sizeof info_size);
  std::memcpy(stats, &stats_size, sizeof stats_size);
  ASSERT_ST(ST_OK, st_file_io_info(file, reinterpret_cast<st_io_info *>(info)));
  ASSERT_ST(ST_OK, st_file_stats(file, reinterpret_cast<st_stats *>(stats)));
  for (size_t i = info_size; i < sizeof info; ++i) ASSERT_EQ(info[i], 0xAB) << i;
  for (size_t i = stats_size; i < sizeof stats; ++i) ASSERT_EQ(stats[i], 0xAB) << i;
  EXPECT_EQ(reinterpret_cast<const st_io_info *>(info)->map, ST_MAP_PRIVATE);
  st_close(file);
}

// Into a caller's struct of any size, and not a byte beyond it.
TEST_F(CapiOptions, ResultsFillNoMoreThanTheCallersSize) {
  const auto describe = [&](st_delta_info *out) { return st_delta_describe(delta.c_str(), out); };
  auto whole = sized<st_delta_info>();
  ASSERT_ST(ST_OK, describe(&whole));
  for (uint32_t size = 0; size <= sizeof whole + 24; ++size) {
    alignas(st_delta_info) unsigned char memory[sizeof whole + 64];
    std::memset(memory, 0xAB, sizeof memory);
    auto *out = reinterpret_cast<st_delta_info *>(memory);
    out->struct_size = size;
    const st_status status = describe(out);
    if (size < 4) {
      EXPECT_STREQ(st_status_name(status), "ST_E_INVALID_ARGUMENT");
      for (size_t i = 4; i < sizeof memory; ++i) ASSERT_EQ(memory[i], 0xAB) << size;
      continue;
    }
    ASSERT_STREQ(st_status_name(status), "ST_OK");
    EXPECT_EQ(out->struct_size, size);
    const size_t known = std::min<size_t>(size, sizeof whole);
    EXPECT_EQ(std::memcmp(memory + 4, reinterpret_cast<unsigned char *>(&whole) + 4, known - 4), 0) << size;
    for (size_t i = known; i < size; ++i) ASSERT_EQ(memory[i], 0) << size;
    for (size_t i = std::max<size_t>(size, 4); i < sizeof memory; ++i) ASSERT_EQ(memory[i], 0xAB) << size;
  }
}

}  // namespace
}  // namespace st
