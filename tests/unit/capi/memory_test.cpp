// Memory that runs out: the n-th allocation of a call fails, for every n. The
// call answers a status, the file is old or new, nothing leaks, nothing
// terminates. A program of its own, since it replaces operator new.
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <new>
#include <thread>
#include <tuple>

#include "base/hash.h"
#include "bound.h"
#include "parse.h"
#include "sanitizers.h"
#include "scene.h"
#include "journal/journal_layout.h"

namespace {

// Which of this thread's allocations fails, and all after it; negative: none.
thread_local long allocations_left = -1;
thread_local bool fails_once = false;  // none after it
thread_local bool failed = false;
// What this thread has taken and not given back, and the most of that.
thread_local long in_use = 0, most_in_use = 0;

void *allocate(std::size_t n, std::size_t alignment) {
  if (allocations_left == 0) {
    failed = true;
    if (fails_once) allocations_left = -1;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  void *memory =
      alignment ? std::aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment) : std::malloc(n ? n : 1);
  in_use += static_cast<long>(::malloc_usable_size(memory));
  most_in_use = std::max(most_in_use, in_use);
  return memory;
}

void release(void *memory) noexcept {
  in_use -= static_cast<long>(::malloc_usable_size(memory));
  std::free(memory);
}

void *allocate_or_throw(std::size_t n, std::size_t alignment) {
  if (void *memory = allocate(n, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void *operator new(std::size_t n) {
  return allocate_or_throw(n, 0);
}
void *operator new[](std::size_t n) {
  return allocate_or_throw(n, 0);
}
void *operator new(std::size_t n, std::align_val_t a) {
  return allocate_or_throw(n, static_cast<std::size_t>(a));
}
void *operator new[](std::size_t n, std::align_val_t a) {
  return allocate_or_throw(n, static_cast<std::size_t>(a));
}
void *operator new(std::size_t n, const std::nothrow_t &) noexcept {
  return allocate(n, 0);
}
void *operator new[](std::size_t n, const std::nothrow_t &) noexcept {
  return allocate(n, 0);
}
void operator delete(void *p) noexcept {
  release(p);
}
void operator delete[](void *p) noexcept {
  release(p);
}
void operator delete(void *p, std::size_t) noexcept {
  release(p);
}
void operator delete[](void *p, std::size_t) noexcept {
  release(p);
}
void operator delete(void *p, std::align_val_t) noexcept {
  release(p);
}
void operator delete[](void *p, std::align_val_t) noexcept {
  release(p);
}
void operator delete(void *p, std::size_t, std::align_val_t) noexcept {
  release(p);
}
void operator delete[](void *p, std::size_t, std::align_val_t) noexcept {
  release(p);
}
void operator delete(void *p, const std::nothrow_t &) noexcept {
  release(p);
}
void operator delete[](void *p, const std::nothrow_t &) noexcept {
  release(p);
}

namespace st {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// A header may have 100 MB, and so may what is made of it.
TEST(Memory, TheScannersIndexIsGoneBeforeTheFullParserMakesItsOwn) {
  constexpr size_t n = size_t{8} << 20;
  std::string json = R"({"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  json.insert(json.size() - 1, n - json.size(), ' ');
  const std::string room = padded(json);
  ASSERT_FALSE(is_plain(json));
  const auto peak_of = [](auto call) {
    const long before = most_in_use = in_use;
    call();
    return most_in_use - before;
  };
  const long index = peak_of([] { IndexBuilder builder(1, n); });
  constexpr long document = 6 * long{n};  // simdjson takes four bytes a byte, and five thirds for strings
  const long all = peak_of([&] { EXPECT_TRUE(is_ok(parse_header(room.data(), n, length_bytes + n, 1))); });
  EXPECT_GT(index, static_cast<long>(n));
  EXPECT_LT(all, index + document);
}

// As much as the tensor is long, however long a block may be.
TEST(Memory, StepsOfASmallTensorTakeLittle) {
  const TempDir dir;
  const std::string base = dir / "a", delta = dir / "d", merged = dir / "m";
  std::string bytes = pattern(20000, 1);
  std::vector<std::string> paths;
  std::vector<const char *> deltas;
  put_bytes(base, file_of({{"w", Dtype::U8, {bytes.size()}, bytes}}));
  const auto add = [&](size_t number) {
    const std::string before = file_of({{"w", Dtype::U8, {bytes.size()}, bytes}});
    bytes[number * 1000] ^= 1;
    put_bytes(dir / "b", before);
    put_bytes(dir / "c", file_of({{"w", Dtype::U8, {bytes.size()}, bytes}}));
    paths.push_back(text(delta, number));
    EXPECT_ST(ST_OK, st_delta_create((dir / "b").c_str(), (dir / "c").c_str(), paths.back().c_str(), nullptr));
  };
  for (size_t i = 0; i < 4; ++i) add(i);
  for (const std::string &path : paths) deltas.push_back(path.c_str());
  auto options = sized<st_open_options>();
  options.deltas = deltas.data();
  options.delta_count = deltas.size();
  st_file *file = nullptr;
  const auto peak_of = [](auto call) {
    const long before = most_in_use = in_use;
    EXPECT_ST(ST_OK, call());
    return most_in_use - before;
  };
  EXPECT_LT(peak_of([&] { return st_open(base.c_str(), &options, &file); }), 1 << 20);
  st_close(file);
  const auto merge = [&] {
    return st_delta_merge(base.c_str(), deltas.data(), deltas.size(), merged.c_str(), nullptr);
  };
  EXPECT_LT(peak_of(merge), 5 << 20);  // the blocks in which whole files are hashed
  EXPECT_TRUE(same_bytes(bytes_of(merged).substr(bytes_of(merged).size() - bytes.size()), bytes));
}

class OutOfMemory : public testing::CapiScene {
 protected:
  // One call under a failing allocation. While it runs, nobody else allocates.
  template <class Call>
  static st_status starve(long n, Call call) {
    allocations_left = n;
    failed = false;
    const st_status status = call();
    allocations_left = -1;
    return status;
  }

  // Repeats prepare, call, check with the allocation 0, 1, 2... failing until
  // none does. From n = 0 on, and for good: `call` answers NOMEM or what is allowed.
  void expect_clean(long least, const std::function<st_status()> &call,
                    const std::function<void(long, st_status)> &check) {
    for (long n = 0; n < 5000; ++n) {
      const st_status status = starve(n, call);
      const bool over = !failed;
      if (over) {
        EXPECT_STREQ(st_status_name(status), "ST_OK") << st_last_error();
      } else {
        EXPECT_STRNE(st_status_name(status), "ST_E_INTERNAL") << n << st_last_error();
        if (status != ST_OK) {
          EXPECT_STRNE(st_last_error(), "");
        }
      }
      check(n, status);
      if (over || HasFatalFailure()) {
        EXPECT_GE(n, least) << "the call hardly allocates: is operator new replaced?";
        return;
      }
    }
    FAIL() << "it never succeeds";
  }
};

TEST_F(OutOfMemory, Open) {
  for (uint32_t map : {ST_MAP_AUTO, ST_MAP_NONE})
    for (uint32_t flags : {0u, ST_OPEN_READ_WRITE}) {
      auto options = sized<st_open_options>();
      options.flags = flags;
      options.map = map;
      st_file *file = nullptr;
      expect_clean(
          8, [&] { return st_open(path.c_str(), &options, &file); },
          [&](long, st_status status) {
            if (status == ST_OK)
              st_close(std::exchange(file, nullptr));
            else
              EXPECT_STREQ(st_status_name(status), "ST_E_NOMEM");
            EXPECT_EQ(file, nullptr);
          });
    }
}

TEST_F(OutOfMemory, OpenOfHeadersForTheFullParser) {
  const std::string fancy =
      testing::raw_file(R"({"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[1,{"y":"\n"}]}})", "x");
  st_file *file = nullptr;
  expect_clean(
      5, [&] { return st_open_memory(fancy.data(), fancy.size(), &file); },
      [&](long, st_status status) {
        if (status == ST_OK)
          st_close(std::exchange(file, nullptr));
        else
          EXPECT_STREQ(st_status_name(status), "ST_E_NOMEM");
      });
}

TEST_F(OutOfMemory, OpenOfShardsAndOfADelta) {
  const std::string index = path + ".index.json", changed = dir / "changed", delta = dir / "delta";
  put_bytes(index, R"({"metadata":{"k\u0061":"v\n"},"weight_map":{"a":")" + path.substr(path.rfind('/') + 1) + "\"}}");
  put_bytes(path, testing::raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));
  put_bytes(changed, testing::raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "y"));
  ASSERT_EQ(st_delta_create(path.c_str(), changed.c_str(), delta.c_str(), nullptr), ST_OK) << st_last_error();
  const char *const deltas[] = {delta.c_str()};
  st_open_options with_delta = {};
  with_delta.struct_size = sizeof with_delta;
  with_delta.deltas = deltas;
  with_delta.delta_count = 1;
  const std::pair<const std::string &, const st_open_options *> opens[] = {{index, nullptr}, {path, &with_delta}};
  for (const auto &[what, options] : opens) {
    st_file *file = nullptr;
    expect_clean(
        10, [&, &what = what, &options = options] { return st_open(what.c_str(), options, &file); },
        [&](long, st_status status) {
          if (status == ST_OK)
            st_close(std::exchange(file, nullptr));
          else
            EXPECT_STREQ(st_status_name(status), "ST_E_NOMEM") << st_last_error();
        });
  }
}

// It parses all that a delta says of itself. The memory is there again for the sentence that would blame the delta.
TEST_F(OutOfMemory, DescribingADelta) {
  const std::string changed = dir / "changed", delta = dir / "delta";
  std::vector<testing::TestTensor> now = tensors;
  now.erase(now.begin());
  now[0].bytes[0] ^= 1;
  put_bytes(changed, testing::file_of(now));
  ASSERT_ST(ST_OK, st_delta_create(path.c_str(), changed.c_str(), delta.c_str(), nullptr));
  auto info = sized<st_delta_info>();
  fails_once = true;
  expect_clean(
      10, [&] { return st_delta_describe(delta.c_str(), &info); },
      [&](long n, st_status status) {
        if (status != ST_OK) {
          EXPECT_STREQ(st_status_name(status), "ST_E_NOMEM") << n << st_last_error();
        }
      });
  fails_once = false;
}

// Where memory runs out amid it, its cause has no words.
TEST_F(OutOfMemory, ChangesThatCannotBeFinishedHaveASentence) {
  fails_once = true;
  bool deferred = false, unfinished = false;
  for (long n = 0; n == 0 || failed; ++n) {
    put_bytes(path, old);
    st_file *file = open();
    auto options = sized<st_txn_options>();
    options.flags = ST_TXN_JOURNAL_ONLY;
    st_txn *txn = nullptr;
    const st_tensor b = value(1, new_b);
    ASSERT_ST(ST_OK, st_txn_begin(file, &options, &txn));
    ASSERT_ST(ST_OK, st_txn_update(txn, "b", 1, &b));
    ASSERT_ST(ST_OK, st_txn_commit(txn));
    st_txn_free(txn);
    for (const auto &entry : fs::recursive_directory_iterator(dir.path()))  // a journal that waits has its first bytes
      deferred |=
          entry.is_regular_file() && entry.path() != path && bytes_of(entry.path()).starts_with("libst journal");
    const st_status status = starve(n, [&] { return st_sync(file); });
    unfinished |= status == ST_E_NEEDS_RECOVERY;
    if (status != ST_OK) {
      EXPECT_EQ(std::string(st_last_error()).find("()"), std::string::npos) << st_last_error();
    }
    st_close(file);
    ASSERT_ST(ST_OK, st_recover(path.c_str(), nullptr));
    EXPECT_TRUE(same_bytes(bytes_of(path), with(b_at, new_b)));
  }
  EXPECT_TRUE(unfinished || !deferred);
  fails_once = false;
}

TEST_F(OutOfMemory, OpenOfAFileThatIsRefused) {
  for (const std::string &bad : {testing::raw_file("{]", ""), old + "x", std::string("123")}) {
    put_bytes(path, bad);
    st_file *file = nullptr;
    for (long n = 0; n < 200; ++n) {
      const st_status status = starve(n, [&] { return st_open(path.c_str(), nullptr, &file); });
      ASSERT_NE(status, ST_OK);
      ASSERT_NE(status, ST_E_INTERNAL);
      ASSERT_EQ(file, nullptr);
      if (!failed) break;
      EXPECT_STREQ(st_status_name(status), "ST_E_NOMEM");
    }
    EXPECT_FALSE(failed);
  }
}

TEST_F(OutOfMemory, Reading) {
  st_file *file = open(0, ST_MAP_NONE);
  st_tensor t;
  expect_clean(
      0, [&] { return st_get(file, "b", ST_NTS, &t); }, [](long, st_status) {});
  EXPECT_EQ(std::memcmp(t.data, tensors[1].bytes.data(), 10007), 0);
  std::string room(10007, '?');
  expect_clean(
      0, [&] { return st_read(file, "b", ST_NTS, room.data(), room.size(), nullptr); }, [](long, st_status) {});
  EXPECT_TRUE(same_bytes(room, tensors[1].bytes));
  const st_range odd = {1, INT64_MAX, 3};
  expect_clean(
      3, [&] { return st_read_slice(file, "b", ST_NTS, &odd, 1, room.data(), room.size(), nullptr); },
      [](long, st_status) {});
  for (long n = 0; n < 50; ++n) {
    const st_status status = starve(n, [&] { return st_get(file, "no tensor has this rather long name", ST_NTS, &t); });
    EXPECT_EQ(status, failed ? ST_E_NOMEM : ST_E_NOT_FOUND);
  }
  st_file *second = nullptr;
  expect_clean(
      8, [&] { return st_reopen(file, 0, &second); },
      [&](long, st_status) { st_close(std::exchange(second, nullptr)); });
  st_close(file);
}

// Megabytes, so that threads are used: no memory for one is no failure, and
// nothing that runs out in the middle ends the process.
TEST_F(OutOfMemory, BulkReads) {
  const std::vector<testing::TestTensor> large = {testing::u8_tensor("x", 5 << 20, 1),
                                                  testing::u8_tensor("y", 4001, 2)};
  const std::string where = dir / "large.safetensors";
  put_bytes(where, testing::file_of(large));
  std::string x(5 << 20, '?'), part(2000, '?'), columns(2000, '?');
  const st_range some[] = {{100, 2100, 1}}, odd[] = {{0, 4000, 2}};
  const st_read_request requests[] = {{"x", 1, 0, x.data(), x.size(), nullptr, 0, 0},
                                      {nullptr, 0, 1, part.data(), part.size(), some, 1, 0},
                                      {nullptr, 0, 1, columns.data(), columns.size(), odd, 1, 0}};
  const size_t both[] = {0, 1};
  for (uint32_t direct : {ST_DIRECT_OFF, ST_DIRECT_ON})
    for (uint32_t map : {ST_MAP_AUTO, ST_MAP_NONE}) {
      auto options = sized<st_open_options>();
      options.map = map;
      options.direct = direct;
      options.prefetch = ST_PREFETCH_PARALLEL;
      options.io_threads = 3;
      options.block_size = 1 << 20;
      st_file *file = nullptr;
      auto reopen = [&] {
        st_close(file);
        ASSERT_ST(ST_OK, st_open(where.c_str(), &options, &file));
      };
      auto expect_status = [](st_status status) {
        if (status != ST_OK) {
          EXPECT_STREQ(st_status_name(status), "ST_E_NOMEM");
        }
      };
      auto fresh_handle = [&](long, st_status status) {
        expect_status(status);
        reopen();
      };
      reopen();
      expect_clean(
          5, [&] { return st_read_many(file, requests, 3, nullptr); },
          [&](long, st_status status) {
            expect_status(status);
            if (status == ST_OK) {
              EXPECT_TRUE(same_bytes(x, large[0].bytes));
              EXPECT_TRUE(same_bytes(part, large[1].bytes.substr(100, 2000)));
            }
          });
      expect_clean(
          5, [&] { return st_prefetch(file, both, 2, nullptr); }, fresh_handle);
      expect_clean(
          3, [&] { return st_prefetch(file, nullptr, 0, nullptr); }, fresh_handle);
      expect_clean(
          5, [&] { return st_load(file, nullptr, 0, nullptr); },
          [&](long n, st_status status) {
            st_tensor t;
            ASSERT_ST(ST_OK, st_get(file, "x", ST_NTS, &t));
            EXPECT_EQ(std::memcmp(t.data, large[0].bytes.data(), t.nbytes), 0);
            fresh_handle(n, status);
          });
      st_close(file);
    }
}

TEST_F(OutOfMemory, Update) {
  st_file *file = open();
  const st_tensor a = value(0, new_a);
  expect_clean(
      20, [&] { return st_update(file, "a", ST_NTS, &a); },
      [&](long n, st_status status) {
        if (status == ST_E_NOMEM) {
          ASSERT_TRUE(same_bytes(bytes_of(path), old)) << n;
        } else {
          ASSERT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a))) << n << st_status_name(status) << st_last_error();
          put_bytes(path, old);
        }
      });
  st_close(file);
  EXPECT_FALSE(fs::exists(path + ".st-journal"));
}

// The first update of a handle makes its folder and journal: from a fresh handle each time.
TEST_F(OutOfMemory, FirstUpdateAndClose) {
  const st_tensor a = value(0, new_a);
  for (bool starve_close : {false, true}) {
    st_file *file = nullptr;
    st_txn *left = nullptr;
    auto prepare = [&] {
      put_bytes(path, old);
      file = open();
      if (!starve_close) return;
      EXPECT_ST(ST_OK, st_txn_begin(file, nullptr, &left));
      EXPECT_ST(ST_OK, st_txn_update(left, "a", ST_NTS, &a));
      EXPECT_ST(ST_OK, st_update(file, "a", ST_NTS, &a));
    };
    prepare();
    expect_clean(
        starve_close ? 0 : 20,
        [&]() -> st_status {
          if (!starve_close) return st_update(file, "a", ST_NTS, &a);
          st_close(std::exchange(file, nullptr));
          st_txn_free(std::exchange(left, nullptr));
          return ST_OK;
        },
        [&](long n, st_status) {
          st_close(file);
          EXPECT_FALSE(fs::exists(path + ".st-journal")) << n;
          fs::remove_all(path + ".st-journal");
          EXPECT_TRUE(bytes_of(path) == old || bytes_of(path) == with(a_at, new_a));
          prepare();
        });
    st_close(file);
    st_txn_free(left);
  }
}

// No allocation that fails leaves a journal, a temporary or a folder of these, also if the file is only read
// afterwards.
TEST_F(OutOfMemory, NothingIsLeftBeside) {
  const std::string other = dir / "other.safetensors", delta = dir / "delta", out = dir / "out.safetensors",
                    back = dir / "back", folder = dir / "folder";
  const st_tensor a = value(0, new_a), b = value(1, new_b);
  put_bytes(other, with(a_at, new_a));
  ASSERT_EQ(st_delta_create(path.c_str(), other.c_str(), delta.c_str(), nullptr), ST_OK) << st_last_error();
  const auto transaction = [&](uint32_t flags) -> st_status {
    auto opening = sized<st_open_options>();
    opening.flags = ST_OPEN_READ_WRITE;
    auto options = sized<st_txn_options>();
    options.flags = flags;
    st_file *file = nullptr;
    st_txn *txn = nullptr;
    st_status status = st_open(path.c_str(), &opening, &file);
    if (status == ST_OK) status = st_txn_begin(file, &options, &txn);
    if (status == ST_OK) status = st_txn_update(txn, "a", ST_NTS, &a);
    if (status == ST_OK) status = st_txn_update(txn, "b", ST_NTS, &b);
    if (status == ST_OK) status = st_txn_commit(txn);
    st_txn_free(txn);
    st_close(file);
    return status;
  };
  auto applying = sized<st_delta_apply_options>();
  applying.reverse = back.c_str();
  const std::pair<const char *, std::function<st_status()>> calls[] = {
      {"patch", [&] { return transaction(0); }},
      {"patch, copied", [&] { return transaction(ST_TXN_COPY); }},
      {"publish", [&] { return transaction(ST_TXN_PUBLISH); }},
      {"publish, copied", [&] { return transaction(ST_TXN_PUBLISH | ST_TXN_COPY); }},
      {"compact", [&] { return st_compact(path.c_str(), nullptr); }},
      {"join", [&] { return st_join(path.c_str(), out.c_str(), nullptr); }},
      {"reshard", [&] { return st_reshard(path.c_str(), folder.c_str(), 5000, nullptr); }},
      {"diff", [&] { return st_delta_create(path.c_str(), other.c_str(), out.c_str(), nullptr); }},
      {"apply", [&] { return st_delta_apply(path.c_str(), delta.c_str(), &applying, nullptr); }},
  };
  testing::EveryNth every(20, 1);
  for (const auto &[what, call] : calls)
    for (size_t n = every.first();; n += every.step) {
      SCOPED_TRACE(std::string(what) + ", allocation " + std::to_string(n));
      put_bytes(path, old);
      for (const std::string &made : {out, back, folder}) fs::remove_all(made);
      const st_status status = starve(static_cast<long>(n), call);
      if (!failed) break;
      ASSERT_TRUE(status == ST_OK || status == ST_E_NOMEM) << st_last_error();
      for (const auto &entry : fs::recursive_directory_iterator(dir.path()))
        ASSERT_EQ(entry.path().filename().string().find(".st-"), std::string::npos) << entry.path();
    }
}

// Several tensors whose values lie in the journal alone: whatever fails, all of
// them change or none.
TEST_F(OutOfMemory, CommitOfCopies) {
  const st_tensor a = value(0, new_a), b = value(1, new_b);
  const std::string both = with(a_at, new_a + new_b);
  auto options = sized<st_txn_options>();
  options.flags = ST_TXN_COPY;
  for (int step = 0; step < 4; ++step) {  // which call is starved
    st_file *file = open();
    st_txn *txn = nullptr;
    bool committed = false;
    auto run = [&](long n, int starved) {
      auto call = [&, n](int which, auto body) { return which == starved ? starve(n, body) : body(); };
      committed = false;
      st_status status = call(0, [&] { return st_txn_begin(file, &options, &txn); });
      if (status != ST_OK) return status;
      status = call(1, [&] { return st_txn_update(txn, "a", ST_NTS, &a); });
      if (status == ST_OK) status = call(2, [&] { return st_txn_update(txn, "b", ST_NTS, &b); });
      committed = status == ST_OK;
      if (committed) status = call(3, [&] { return st_txn_commit(txn); });
      st_txn_free(txn);
      return status;
    };
    long n = 0;
    for (;; ++n) {
      ASSERT_LT(n, 5000);
      put_bytes(path, old);
      failed = false;
      const st_status status = run(n, step);
      const bool over = !failed;
      ASSERT_NE(status, ST_E_INTERNAL);
      if (status == ST_OK) {
        ASSERT_TRUE(same_bytes(bytes_of(path), both)) << n;
      } else if (status == ST_E_NEEDS_RECOVERY) {
        st_close(file);
        file = open();
        ASSERT_TRUE(same_bytes(bytes_of(path), both)) << n;
      } else {
        ASSERT_STREQ(st_status_name(status), "ST_E_NOMEM") << n;
        ASSERT_TRUE(same_bytes(bytes_of(path), old)) << n << (committed ? " in commit" : "");
      }
      if (over) break;
    }
    EXPECT_GE(n, step == 3 ? 10 : 1);
    st_close(file);
    EXPECT_FALSE(fs::exists(path + ".st-journal"));
  }
}

// What ends in the middle of staging ends the transaction, or has staged nothing.
TEST_F(OutOfMemory, StagingAndCommitAfterwards) {
  const st_tensor a = value(0, new_a), b = value(1, new_b), small = value(0, new_a);
  const st_range first_row = {0, 10, 1};
  const uint64_t ten = 10;
  st_tensor ten_bytes = value(0, new_a);
  ten_bytes.shape = &ten;
  ten_bytes.nbytes = 10;
  const std::pair<const char *, std::function<st_status(st_txn *)>> calls[] = {
      {"update", [&](st_txn *t) { return st_txn_update(t, "b", ST_NTS, &b); }},
      {"update_slice",
       [&](st_txn *t) { return st_txn_update_slice(t, "b", ST_NTS, &first_row, 1, nullptr, 0, &ten_bytes); }},
      {"update_slice over a whole",
       [&](st_txn *t) { return st_txn_update_slice(t, "a", ST_NTS, &first_row, 1, nullptr, 0, &ten_bytes); }},
      {"put", [&](st_txn *t) { return st_txn_put(t, "new", ST_NTS, &small); }},
      {"put again", [&](st_txn *t) { return st_txn_put(t, "b", ST_NTS, &small); }},
      {"delete", [&](st_txn *t) { return st_txn_delete(t, "b", ST_NTS); }},
      {"rename", [&](st_txn *t) { return st_txn_rename(t, "b", ST_NTS, "a longer name than that", ST_NTS); }},
      {"metadata", [&](st_txn *t) { return st_txn_set_metadata(t, "a new key of it", ST_NTS, "v", ST_NTS); }},
  };
  for (const uint32_t flags : {0u, ST_TXN_PUBLISH | ST_TXN_COPY})
    for (const auto &[name, call] : calls) {
      auto options = sized<st_txn_options>();
      options.flags = flags;
      // What the file is after a transaction of the first update, and so many calls.
      const auto run = [&, &call = call](long starved, int more, st_status *answer) {
        put_bytes(path, old);
        st_file *file = open();
        st_txn *txn = nullptr;
        EXPECT_ST(ST_OK, st_txn_begin(file, &options, &txn));
        EXPECT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &a));
        if (starved >= 0) *answer = starve(starved, [&] { return call(txn); });
        for (int i = 0; i < more; ++i) call(txn);
        const st_status committed = st_txn_commit(txn);
        st_txn_free(txn);
        st_close(file);
        if (committed != ST_OK) {
          EXPECT_STREQ(st_status_name(committed), "ST_E_TXN_FAILED") << st_last_error();
          EXPECT_TRUE(same_bytes(bytes_of(path), old));
        }
        return bytes_of(path);
      };
      const std::string without = run(-1, 0, nullptr), whole = run(-1, 1, nullptr);
      for (const int again : {0, 1})
        for (long n = 0; n < 5000; ++n) {
          st_status answer = ST_OK;
          const std::string found = run(n, again, &answer);
          if (!failed) break;
          if (answer == ST_OK) continue;
          EXPECT_STREQ(st_status_name(answer), "ST_E_NOMEM");
          if (found == old) continue;
          EXPECT_TRUE(same_bytes(found, again ? whole : without)) << name << flags << ", allocation " << n << again;
        }
    }
}

// The index says what the shards hold, whatever was staged.
TEST_F(OutOfMemory, StagingInShardsAndCommitAfterwards) {
  const std::string index = dir / "m.safetensors.index.json",
                    shards[] = {dir / "m-1.safetensors", dir / "m-2.safetensors"};
  const st_tensor a = value(0, new_a);
  const std::function<st_status(st_txn *)> calls[] = {
      [&](st_txn *t) { return st_txn_put(t, "a tensor that was not there", ST_NTS, &a); },
      [&](st_txn *t) { return st_txn_delete(t, "b", ST_NTS); },
      [&](st_txn *t) { return st_txn_rename(t, "b", ST_NTS, "a longer name than that", ST_NTS); },
  };
  for (const auto &call : calls)
    for (long n = 0; n < 5000; ++n) {
      put_bytes(shards[0], file_of(std::vector{tensors[0], tensors[1]}));
      put_bytes(shards[1], file_of(std::vector{u8_tensor("c", 100, 4)}));
      put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
      st_file *file = open_at(index);
      st_txn *txn = nullptr;
      ASSERT_EQ(st_txn_begin(file, nullptr, &txn), ST_OK);
      const st_status answer = starve(n, [&] { return call(txn); });
      const st_status committed = st_txn_commit(txn);
      EXPECT_TRUE(committed == ST_OK || committed == ST_E_TXN_FAILED) << n << st_last_error();
      st_txn_free(txn);
      st_close(file);
      ASSERT_EQ(st_verify(index.c_str(), nullptr), ST_OK) << n << st_last_error();
      if (!failed) break;
      EXPECT_TRUE(answer == ST_OK || answer == ST_E_NOMEM) << n << st_last_error();
    }
}

TEST_F(OutOfMemory, MetadataOfShardsAreStagedOrNot) {
  const std::string index = dir / "m.safetensors.index.json";
  put_bytes(dir / "m-1.safetensors", file_of(tensors));
  const char *const key = "a new key, which lies in memory of its own", *const text = "and so does its value, by far";
  int staged = 0, not_staged = 0;
  for (long n = 0; staged == 0 && n < 5000; ++n) {
    put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors"}})");
    st_file *file = open_at(index);
    st_txn *txn = nullptr;
    ASSERT_EQ(st_txn_begin(file, nullptr, &txn), ST_OK);
    const st_status answer = starve(n, [&] { return st_txn_set_metadata(txn, key, ST_NTS, text, ST_NTS); });
    ++(answer == ST_OK ? staged : not_staged);
    EXPECT_TRUE(answer == ST_OK || answer == ST_E_NOMEM) << n << st_last_error();
    EXPECT_EQ(st_txn_set_metadata(txn, key, ST_NTS, nullptr, ST_NTS), answer == ST_OK ? ST_OK : ST_E_NOT_FOUND) << n;
    EXPECT_ST(ST_OK, st_txn_commit(txn)) << n;
    st_txn_free(txn);
    st_close(file);
  }
  EXPECT_GT(not_staged, 1);
}

// Shards that are committed together: what is answered is what is there, and a handle whose commit came to nothing can
// make it the next time.
TEST_F(OutOfMemory, CommitOfSeveralShards) {
  const std::string index = dir / "m.safetensors.index.json";
  const st_tensor a = value(0, new_a), b = value(1, new_b);
  const auto make = [&] {
    for (const auto &entry : fs::directory_iterator(dir.path())) fs::remove_all(entry.path());
    put_bytes(dir / "m-1.safetensors", file_of(std::vector{tensors[0]}));
    put_bytes(dir / "m-2.safetensors", file_of(std::vector{tensors[1]}));
    put_bytes(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  };
  const auto shown = [](st_file *file) { return seen(file, "a") + seen(file, "b"); };
  const auto stored = [&](uint32_t flags) {
    st_file *file = open_at(index, flags);
    std::string bytes = shown(file);
    st_close(file);
    return bytes;
  };
  const std::string before = tensors[0].bytes + tensors[1].bytes, after = new_a + new_b;
  const std::tuple<const char *, uint32_t, uint32_t> commits[] = {
      {"patch", 0, ST_MAP_AUTO},
      {"patch of what is shown from memory", 0, ST_MAP_NONE},
      {"publish", ST_TXN_PUBLISH, ST_MAP_AUTO},
      {"new names", ST_TXN_PUBLISH | ST_TXN_NEW_NAMES, ST_MAP_AUTO},
  };
  testing::EveryNth every(40, 8);
  for (const auto &[what, flags, map] : commits) {
    std::map<st_status, int> answers;
    for (size_t n = every.first();; n += every.step) {
      SCOPED_TRACE(std::string(what) + ", allocation " + std::to_string(n));
      make();
      st_file *file = open_at(index, ST_OPEN_READ_WRITE, map);
      const auto commit = [&, flags = flags](long starved) {
        auto options = sized<st_txn_options>();
        options.flags = flags;
        options.shard_grace_s = ST_GRACE_NONE;
        st_txn *txn = nullptr;
        EXPECT_ST(ST_OK, st_txn_begin(file, &options, &txn));
        EXPECT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &a));
        EXPECT_ST(ST_OK, st_txn_update(txn, "b", ST_NTS, &b));
        const st_status answer = starve(starved, [&] { return st_txn_commit(txn); });
        st_txn_free(txn);
        return answer;
      };
      ASSERT_EQ(shown(file), before);
      const st_status answer = commit(static_cast<long>(n));
      const bool over = !failed;
      ++answers[answer];
      if (answer == ST_OK) {
        EXPECT_TRUE(stored(0) == after);
        // Where the handle could not show it the log says so.
        if (!over && shown(file) != after) {
          EXPECT_ST(ST_OK, st_refresh(file));
        }
        EXPECT_TRUE(shown(file) == after);
      } else if (answer == ST_E_NOMEM) {
        EXPECT_TRUE(stored(0) == before && shown(file) == before);
        EXPECT_ST(ST_OK, commit(-1));
        EXPECT_TRUE(stored(0) == after && shown(file) == after);
      } else {
        EXPECT_STREQ(st_status_name(answer), "ST_E_NEEDS_RECOVERY") << st_last_error();
      }
      st_close(file);
      const std::string left = stored(ST_OPEN_READ_WRITE);
      EXPECT_TRUE(left == after || (answer == ST_E_NEEDS_RECOVERY && left == before));
      for (const auto &entry : fs::directory_iterator(dir.path())) {
        const std::string name = entry.path().filename();
        const bool temporary = name.find(".st-") != std::string::npos && !name.ends_with(".st-old");
        EXPECT_FALSE(temporary) << name << " is left";
      }
      ASSERT_FALSE(HasFailure());
      if (over) break;
    }
    EXPECT_GT(answers[ST_E_NOMEM], 0) << what;
    EXPECT_GT(answers[ST_OK], 0) << what;
  }
}

#if !defined(ST_UNDER_ASAN) && !defined(ST_UNDER_TSAN)  // they want memory without a limit
// Not by operator new alone: the C library too must need none, to note what is to be done at the thread's end.
TEST_F(OutOfMemory, TheFirstErrorOfAThreadIsAnswered) {
  const auto without_memory = [this] {
    const rlimit little{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_AS, &little);
    static void *volatile eaten;
    for (size_t size = 64 << 20; size >= 16;) {
      eaten = std::malloc(size);
      if (!eaten) size /= 2;
    }
    st_file *file = nullptr;
    ::_exit(st_open(path.c_str(), nullptr, &file) == ST_E_NOMEM && *st_last_error() ? 0 : 1);
  };
  EXPECT_EXIT(std::thread(without_memory).join(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST_F(OutOfMemory, Verify) {
  expect_clean(
      10, [&] { return st_verify(path.c_str(), nullptr); }, [](long, st_status) {});
}

// A committed journal, written here by hand, for each attempt anew.
TEST_F(OutOfMemory, Recover) {
  const std::string folder = path + ".st-journal";
  auto leave_journal = [&] {
    put_bytes(path, old);
    fs::create_directory(folder);
    struct stat s;
    ASSERT_EQ(::stat(path.c_str(), &s), 0);
    std::vector<uint32_t> hashes;
    write::hash_sectors(a_at, {reinterpret_cast<const std::byte *>(old.data()) + a_at, 4000}, &hashes);
    const uint64_t sectors = 4096 + 4000, manifest = sectors + 4 * hashes.size() + (8 - 4 * hashes.size() % 8) % 8;
    const write::RangeRecord range{
        a_at, 4000, 4096, hash64(new_a.data(), 4000), sectors, hash64(hashes.data(), 4 * hashes.size())};
    const auto ranges = write::encode(std::span(&range, 1));
    const write::Identity identity{s.st_ino, old.size(), a_at, hash64(old.data(), a_at)};
    const auto block =
        write::encode(write::CommitRecord{1, identity, manifest, 1, hash64(ranges.data(), ranges.size()), 0});
    std::string journal(reinterpret_cast<const char *>(block.data()), block.size());
    journal.append(new_a).append(reinterpret_cast<const char *>(hashes.data()), 4 * hashes.size());
    journal.resize(manifest);
    journal.append(reinterpret_cast<const char *>(ranges.data()), ranges.size());
    put_bytes(folder + "/0123456789abcdef", journal);
  };
  leave_journal();
  st_file *file = nullptr;
  expect_clean(
      20, [&] { return st_recover(path.c_str(), nullptr); },
      [&](long n, st_status) {
        ASSERT_ST(ST_OK, st_recover(path.c_str(), nullptr)) << n;
        ASSERT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a))) << n;
        leave_journal();
      });
  expect_clean(
      20, [&] { return st_open(path.c_str(), nullptr, &file); },
      [&](long n, st_status) {
        st_close(std::exchange(file, nullptr));
        ASSERT_ST(ST_OK, st_recover(path.c_str(), nullptr)) << n;
        ASSERT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a))) << n;
        leave_journal();
      });
}

}  // namespace
}  // namespace st
