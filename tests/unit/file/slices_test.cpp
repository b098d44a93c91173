// Updates of parts of tensors, against a model that has an array for each tensor: in place and published, over each
// other and over whole tensors, and what they lock, journal and leave alone.
#include <sys/mman.h>

#include <climits>
#include <list>
#include <map>
#include <numeric>
#include <random>

#include "bound.h"
#include "counting_env.h"
#include "sharing_env.h"
#include "store_scene.h"
#include "without_syncs.h"

namespace st::store {
namespace {

using testing::bytes_of;
using testing::fails_with;
using testing::is_ok;
using testing::pattern;
using testing::poke;
using testing::same_bytes;
namespace fs = std::filesystem;

// What is to be written, with room for what NewBytes points to.
struct Values {
  std::vector<uint64_t> shape;
  std::string bytes;
  Dtype dtype = Dtype::U8;
  operator NewBytes() const { return {static_cast<uint32_t>(dtype), shape, bytes.data(), bytes.size()}; }
};

// A part of a tensor, drawn at random: the elements of it, one list a dimension.
struct Part {
  std::vector<Range> ranges;
  std::optional<std::vector<int64_t>> rows;
  std::vector<std::vector<uint64_t>> picked;
  operator TensorPart() const { return {ranges, rows ? std::optional(std::span<const int64_t>(*rows)) : std::nullopt}; }
};

struct Held {
  Dtype dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
};

class Slices : public testing::StoreScene {
 protected:
  Slices() { make_file(); }
  void make_file() {
    std::vector<testing::TestTensor> made;
    for (const auto &[name, held] : fresh) made.push_back({name, held.dtype, held.shape, held.bytes});
    testing::put_bytes(path, testing::file_of(made));
  }

  std::vector<uint64_t> draw_range(uint64_t dim, Range *range) {
    const uint64_t step = 1 + random() % (random() % 3 ? 2 : dim), begin = random() % dim;
    const uint64_t count = 1 + random() % ((dim - 1 - begin) / step + 1), end = begin + (count - 1) * step;
    std::vector<uint64_t> picked;
    for (uint64_t i = 0; i < count; ++i) picked.push_back(begin + i * step);
    *range = {static_cast<int64_t>(begin), static_cast<int64_t>(end + 1), static_cast<int64_t>(step)};
    if (random() % 3) return picked;
    std::reverse(picked.begin(), picked.end());
    *range = {static_cast<int64_t>(end), begin == 0 ? INT64_MIN : static_cast<int64_t>(begin) - 1,
              -static_cast<int64_t>(step)};
    return picked;
  }
  Part draw(const std::vector<uint64_t> &shape) {
    Part part;
    part.picked.resize(shape.size());
    size_t d = 0;
    if (random() % 2) {
      part.rows.emplace();
      for (uint64_t n = random() % 20; n > 0; --n) {
        part.picked[0].push_back(random() % shape[0]);
        const auto row = static_cast<int64_t>(part.picked[0].back());
        part.rows->push_back(random() % 4 ? row : row - static_cast<int64_t>(shape[0]));
      }
      d = 1;
    }
    const size_t ranges = d + random() % (shape.size() - d + 1);
    for (; d < shape.size(); ++d) {
      if (d < ranges) {
        part.picked[d] = draw_range(shape[d], &part.ranges.emplace_back());
      } else {
        for (uint64_t i = 0; i < shape[d]; ++i) part.picked[d].push_back(i);
      }
    }
    return part;
  }
  Values draw_values(const Held &held, const std::vector<uint64_t> &shape) {
    uint64_t n = dtype_bits(held.dtype) / 8;
    for (const uint64_t d : shape) n *= d;
    return {shape, pattern(n, static_cast<unsigned>(random())), held.dtype};
  }
  // As numpy assigns.
  static void assign(Held *held, const Part &part, const Values &values) {
    const uint64_t size = dtype_bits(held->dtype) / 8;
    std::vector<uint64_t> elements = {0};
    for (size_t d = 0; d < held->shape.size(); ++d) {
      std::vector<uint64_t> next;
      for (const uint64_t e : elements)
        for (const uint64_t i : part.picked[d]) next.push_back(e * held->shape[d] + i);
      elements = std::move(next);
    }
    for (size_t k = 0; k < elements.size(); ++k)
      held->bytes.replace(elements[k] * size, size, values.bytes, k * size, size);
  }
  Result<void> stage_part(Transaction &t, std::map<std::string, Held> *model, const std::string &name) {
    Held &held = model->at(name);
    const Part part = draw(held.shape);
    std::vector<uint64_t> shape;
    for (const auto &picked : part.picked) shape.push_back(picked.size());
    const Values values = draw_values(held, shape);  // gone after this: they are taken at once
    assign(&held, part, values);
    return t.update_slice(name, part, values);
  }
  void expect_shown(const DataFile &c, const std::map<std::string, Held> &model) {
    ASSERT_EQ(c.snapshot().header.index.size(), model.size());
    for (const auto &[name, held] : model) ASSERT_TRUE(same_bytes(seen(c, name), held.bytes)) << name;
  }

  // One row of `emb`, of 4 KiB.
  static Values row(unsigned seed, uint64_t rows = 1) { return {{rows, 1024}, pattern(rows * 4096, seed), Dtype::F32}; }
  static Result<void> stage_rows(Transaction &t, std::vector<int64_t> rows, unsigned seed) {
    return t.update_slice("emb", {{}, rows}, row(seed, rows.size()));
  }
  uint64_t emb_at(const DataFile &c, uint64_t row) {
    const Snapshot &s = c.snapshot();
    return s.file_offset(s.header.index.at(s.header.index.find("emb").value())) + row * 4096;
  }
  static TransactionOptions at_once() {
    TransactionOptions options;
    options.lock_timeout_ms = 0;
    return options;
  }

  std::mt19937_64 random{17};
  const std::map<std::string, Held> fresh = {{"emb", {Dtype::F32, {64, 1024}, pattern(64 * 4096, 1)}},
                                             {"m", {Dtype::U16, {40, 13, 7}, pattern(40 * 13 * 14, 2)}},
                                             {"v", {Dtype::U8, {5000}, pattern(5000, 3)}}};
};

enum class Where { plain, shares, undo };

class SlicesEverywhere : public Slices, public ::testing::WithParamInterface<std::tuple<Where, read::MapMode>> {
 protected:
  os::Env &with() {
    const Where where = std::get<0>(GetParam());
    xfs.journal = where == Where::undo ? "undo" : "redo";
    return where == Where::plain ? static_cast<os::Env &>(plain) : xfs;
  }
  testing::WithoutSyncs<testing::FaultEnv> plain{os::Env::posix()};
  testing::WithoutSyncs<testing::SharingEnv> xfs{os::Env::posix()};
};

// Each transaction stages slices, whole tensors and other changes, in any order.
TEST_P(SlicesEverywhere, AreWhatNumpyWouldMakeOfThem) {
  const int trials = testing::small_bound() ? 60 : 250;
  OpenOptions options = writable();
  options.map = std::get<1>(GetParam());
  auto c = open(with(), options);
  auto model = fresh;
  for (int trial = 0; trial < trials && !HasFailure(); ++trial) {
    SCOPED_TRACE(text("transaction ", trial));
    TransactionOptions how;
    how.copy = random() % 4 == 0;
    how.publish = random() % 8 == 0;
    if (random() % 16 == 0) how.layout = write::Layout::canonical;
    auto next = model;
    std::list<Values> borrowed;  // until the commit
    {
      auto t = begin(*c, std::move(how));
      for (uint64_t steps = 1 + random() % 5; steps > 0; --steps) {
        const std::string name = std::next(next.begin(), static_cast<long>(random() % next.size()))->first;
        Held &held = next.at(name);
        switch (random() % 24) {
          case 0:
          case 1:
          case 2:
            borrowed.push_back(draw_values(held, held.shape));
            held.bytes = borrowed.back().bytes;
            ASSERT_TRUE(is_ok(t->update(name, borrowed.back())));
            break;
          case 3:
            held.shape.assign({3 + random() % 30, 1 + random() % 9});
            borrowed.push_back(draw_values(held, held.shape));
            held.bytes = borrowed.back().bytes;
            ASSERT_TRUE(is_ok(t->put(name, borrowed.back())));
            break;
          case 4:
            ASSERT_TRUE(is_ok(t->rename(name, name + "'")));
            next.emplace(name + "'", held);
            next.erase(name);
            break;
          default: ASSERT_TRUE(is_ok(stage_part(*t, &next, name)));
        }
      }
      if (random() % 10 == 0) continue;  // given up
      ASSERT_TRUE(is_ok(t->commit()));
    }
    model = std::move(next);
    expect_shown(*c, model);
    expect_shown(*open(with()), model);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SlicesEverywhere,
                         ::testing::Combine(::testing::Values(Where::plain, Where::shares, Where::undo),
                                            ::testing::Values(read::MapMode::shared, read::MapMode::private_copy,
                                                              read::MapMode::none, read::MapMode::copy_on_write)));

TEST_F(Slices, OfTwoValuesForOneRowTheLastWins) {
  for (const bool publish : {false, true}) {
    auto c = open();
    TransactionOptions options;
    options.publish = publish;
    auto t = begin(*c, std::move(options));
    const Values three = row(7, 3);
    const int64_t rows[] = {5, 9, 5};
    ASSERT_TRUE(is_ok(t->update_slice("emb", {{}, rows}, three)));
    ASSERT_TRUE(is_ok(stage_rows(*t, {9}, 8)));
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_TRUE(same_bytes(seen(*c, "emb").substr(5 * 4096, 4096), three.bytes.substr(2 * 4096)));
    EXPECT_TRUE(same_bytes(seen(*c, "emb").substr(9 * 4096, 4096), row(8).bytes));
  }
}

TEST_F(Slices, RefusalsLeaveTheTransactionAsItWas) {
  for (const bool publish : {false, true}) {
    auto c = open();
    auto t = begin(*c);
    if (publish) {
      ASSERT_TRUE(is_ok(t->set_metadata("by", "hand")));
    }
    const Range first[] = {{0, 1, 1}}, zero[] = {{0, 1, 0}}, four[] = {first[0], first[0], first[0], first[0]};
    const int64_t outside[] = {64};
    const auto refused = [&](const char *name, const TensorPart &part, const NewBytes &value) {
      auto answer = t->update_slice(name, part, value);
      EXPECT_TRUE(!answer && answer.error().has_tensor && answer.error().tensor == name);
      return answer ? Status::ok : answer.error().status;
    };
    EXPECT_EQ(refused("embed", {first}, row(1)), Status::not_found);
    EXPECT_EQ(refused("emb", {zero}, row(1)), Status::invalid_argument);
    EXPECT_EQ(refused("emb", {four}, row(1)), Status::out_of_range);
    EXPECT_EQ(refused("emb", {{}, outside}, row(1)), Status::out_of_range);
    EXPECT_EQ(refused("emb", {first}, row(1, 2)), Status::shape_mismatch);
    Values other = row(1);
    other.dtype = Dtype::I32;
    EXPECT_EQ(refused("emb", {first}, other), Status::dtype_mismatch);
    NewBytes none = row(1);
    none.dtype = 99;
    EXPECT_EQ(refused("emb", {first}, none), Status::dtype_mismatch);
    const Values good = row(4);
    NewBytes brief = good;
    brief.nbytes -= 1;
    EXPECT_EQ(refused("emb", {first}, brief), Status::nbytes_mismatch);
    ASSERT_TRUE(is_ok(t->update_slice("emb", {first}, good)));
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_TRUE(same_bytes(seen(*c, "emb"), good.bytes + fresh.at("emb").bytes.substr(4096)));
    EXPECT_TRUE(fails_with(Status::txn_failed, t->update_slice("emb", {first}, good)));
    make_file();
  }
}

TEST_F(Slices, OfNothingChangeNothing) {
  auto c = open();
  auto t = begin(*c);
  const Range none[] = {{5, 5, 1}};
  ASSERT_TRUE(is_ok(t->update_slice("emb", {none}, Values{{0, 1024}, "", Dtype::F32})));
  ASSERT_TRUE(is_ok(stage_rows(*t, {}, 1)));
  EXPECT_EQ(t->plan()->kind, CommitPlan::nothing);
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_FALSE(fs::exists(folder()));
  expect_shown(*c, fresh);
}

TEST_F(Slices, OfBytesAreTakenAsTheyLie) {
  for (const bool publish : {false, true}) {
    auto c = open();
    auto t = begin(*c);
    if (publish) {
      ASSERT_TRUE(is_ok(t->set_metadata("by", "hand")));
    }
    const std::vector<ByteRange> ranges = {{4000, 1000}, {9, 5}, {0, 1}};
    const std::string bytes = pattern(1006, 9);
    const auto span = std::as_bytes(std::span(bytes));
    EXPECT_TRUE(fails_with(Status::not_found, t->update_ranges("embed", ranges, span)));
    ASSERT_TRUE(is_ok(t->update_ranges("v", {}, {})));
    ASSERT_TRUE(is_ok(t->update_ranges("v", ranges, span)));
    ASSERT_TRUE(is_ok(t->commit()));
    std::string wanted = fresh.at("v").bytes;
    wanted.replace(4000, 1000, bytes, 0, 1000).replace(9, 5, bytes, 1000, 5).replace(0, 1, bytes, 1005, 1);
    EXPECT_TRUE(same_bytes(seen(*c, "v"), wanted));
    EXPECT_TRUE(fails_with(Status::txn_failed, t->update_ranges("v", ranges, span)));
    make_file();
  }
}

TEST_F(Slices, OfBytesThatOverlapInPartAreTakenInTheirOrder) {
  std::string wanted = fresh.at("v").bytes;
  for (const std::vector<ByteRange> &ranges :
       {std::vector<ByteRange>{{4000, 900}, {9, 5}, {3900, 300}, {4100, 50}}, {{4000, 300}, {9, 5}, {4000, 50}}}) {
    auto c = open();
    auto t = begin(*c);
    const std::string bytes = pattern(1255, static_cast<unsigned>(ranges.size()));
    uint64_t taken = 0;
    for (const ByteRange &r : ranges) {
      wanted.replace(r.begin, r.length, bytes, taken, r.length);
      taken += r.length;
    }
    ASSERT_TRUE(is_ok(t->update_ranges("v", ranges, std::as_bytes(std::span(bytes.data(), taken)))));
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_TRUE(same_bytes(seen(*c, "v"), wanted));
  }
}

TEST_F(Slices, OfOneTensorGoOnSideBySide) {
  auto c = open(), other = open();
  auto mine = begin(*c, at_once());
  ASSERT_TRUE(is_ok(stage_rows(*mine, {3, 10, 40}, 5)));
  const Range first[] = {{0, 1, 1}};
  ASSERT_TRUE(is_ok(mine->update_slice("v", {first}, Values{{1}, "x"})));
  auto held_file = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
  ASSERT_TRUE(is_ok(held_file));
  for (const uint64_t theirs : {4, 9, 41}) {  // each neighbour of a row may be locked
    auto held = os::RangeLock::acquire(*held_file, {{emb_at(*c, theirs), 4096, true}}, {});
    ASSERT_TRUE(is_ok(held));
    auto t = begin(*c, at_once());
    ASSERT_TRUE(is_ok(stage_rows(*t, {3, 10, 40}, 6)));
    ASSERT_TRUE(is_ok(t->commit()));
  }
  for (const uint64_t theirs : {3, 10, 40}) {
    auto held = os::RangeLock::acquire(*held_file, {{emb_at(*c, theirs) + 4095, 1, true}}, {});
    ASSERT_TRUE(is_ok(held));
    auto busy = mine->commit();
    ASSERT_TRUE(fails_with(Status::busy, busy));
    EXPECT_EQ(busy.error().tensor, "emb");
  }
  ASSERT_TRUE(is_ok(mine->commit()));
}

// Bytes between short strips are journalled with them. They are those that the file has under the lock.
TEST_F(Slices, WhatLiesBetweenIsAsOthersLeftIt) {
  auto c = open(), other = open();
  auto mine = begin(*c, at_once());
  const Range every[] = {{0, 5000, 50}};
  const Values hundred{{100}, pattern(100, 9)};
  ASSERT_TRUE(is_ok(mine->update_slice("v", {every}, hundred)));
  const std::string theirs = pattern(5000, 10);
  ASSERT_TRUE(is_ok(update(*other, "v", theirs)));
  ASSERT_TRUE(is_ok(mine->commit()));
  std::string wanted = theirs;
  for (size_t i = 0; i < 100; ++i) wanted[i * 50] = hundred.bytes[i];
  EXPECT_TRUE(same_bytes(seen(*c, "v"), wanted));

  auto again = begin(*c, at_once());
  ASSERT_TRUE(is_ok(again->update_slice("v", {every}, hundred)));
  auto held_file = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
  auto held = os::RangeLock::acquire(*held_file, {{emb_at(*c, 0) + 64 * 4096 + 40 * 13 * 14 + 25, 1, true}}, {});
  ASSERT_TRUE(is_ok(held));
  EXPECT_TRUE(fails_with(Status::busy, again->commit()));  // so they are locked
}

TEST_F(Slices, JournalAndWriteTheirBytesAlone) {
  testing::CountingEnv counting{os::Env::posix()};
  auto c = open(counting);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(stage_rows(*t, {1, 60, 7, 33, 12, 20, 50, 41, 25, 3}, 4)));
  const auto plan = t->plan();
  ASSERT_TRUE(is_ok(plan));
  EXPECT_EQ(plan->kind, CommitPlan::patch);
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(c->counters().bytes_written, 40960u);
  EXPECT_LT(c->counters().journal_bytes, 40960u + 3 * 4096);
  EXPECT_LT(counting.written, 2 * 40960u + 4 * 4096);
}

// Rows in any order go to the journal as they lie in the tensor: neighbours are one piece of it, and none is gathered
// once more, or read in pages of which a row takes little.
TEST_F(Slices, OfShortRowsInAnyOrderAreJournalledAndReadOnce) {
  constexpr uint64_t rows = 4096, row_bytes = 520, all = rows * row_bytes;  // some lie across two payloads
  testing::put_bytes(path, testing::file_of({{"t", Dtype::U8, {rows, row_bytes}, pattern(all, 3)}}));
  for (const bool publish : {false, true}) {
    testing::CountingEnv counting{os::Env::posix()};
    auto c = open(counting);
    std::vector<int64_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    order.push_back(order.front());  // its last value counts
    const Values values{{rows + 1, row_bytes}, pattern(all + row_bytes, publish ? 4 : 5)};
    std::string wanted(all, '\0');
    for (size_t i = 0; i < order.size(); ++i)
      wanted.replace(static_cast<size_t>(order[i]) * row_bytes, row_bytes, values.bytes, i * row_bytes, row_bytes);
    std::vector<uint64_t> told;
    TransactionOptions options;
    options.publish = publish;
    options.progress = [&](uint64_t done, uint64_t total) {
      if (total == all && (told.empty() || told.back() != done)) told.push_back(done);
      return true;
    };
    auto t = begin(*c, std::move(options));
    ASSERT_TRUE(is_ok(t->update_slice("t", {{}, order}, values)));
    EXPECT_EQ(told.size(), all / write::write_chunk_bytes + 1);
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_TRUE(same_bytes(seen(*c, "t"), wanted));
    if (!publish) {
      EXPECT_LT(c->counters().journal_bytes, all + all / 16);
    }
    EXPECT_LT(counting.read, 6 * all);
  }
}

TEST_F(Slices, OfRowsInAnyOrderThatCannotBeJournalledAreAnError) {
  constexpr uint64_t rows = 4096, row_bytes = 520, all = rows * row_bytes;
  testing::put_bytes(path, testing::file_of({{"t", Dtype::U8, {rows, row_bytes}, pattern(all, 3)}}));
  std::vector<int64_t> backwards(rows);
  for (size_t i = 0; i < rows; ++i) backwards[i] = static_cast<int64_t>(rows - 1 - i);
  const Values values{{rows, row_bytes}, pattern(all, 4)};
  const auto is_write = [](testing::Call call) { return call == testing::Call::pwrite; };
  for (const size_t n : {0, 1, 2}) {
    testing::FaultEnv faulty(env);
    auto c = open(faulty);
    auto t = begin(*c);
    faulty.before = testing::nth_call_fails(n, -EIO, true, is_write);
    EXPECT_TRUE(fails_with(Status::io, t->update_slice("t", {{}, backwards}, values))) << n;
    t = begin(*c);
    const std::vector<ByteRange> ranges = {{9, 2}, {0, 2}};
    EXPECT_TRUE(n > 0 || fails_with(Status::io, t->update_ranges("t", ranges, std::as_bytes(std::span("abc", 4)))));
    faulty.before = nullptr;
    t.reset();
    EXPECT_TRUE(same_bytes(seen(*c, "t"), pattern(all, 3)));
  }
}

// Long ones are taken as they were given. The short ones fill their payload.
TEST_F(Slices, OfRowsFromTheLastToTheFirst) {
  for (const auto &[rows, row_bytes] : {std::pair<uint64_t, uint64_t>(8, 20000), {256, 4096}}) {
    testing::put_bytes(path, testing::file_of({{"t", Dtype::U8, {rows, row_bytes}, pattern(rows * row_bytes, 3)}}));
    std::vector<int64_t> backwards(rows);
    for (size_t i = 0; i < rows; ++i) backwards[i] = static_cast<int64_t>(rows - 1 - i);
    const Values values{{rows, row_bytes}, pattern(rows * row_bytes, 4)};
    auto c = open();
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->update_slice("t", {{}, backwards}, values)));
    ASSERT_TRUE(is_ok(t->commit()));
    std::string wanted;
    for (uint64_t i = rows; i-- > 0;) wanted += values.bytes.substr(i * row_bytes, row_bytes);
    EXPECT_TRUE(same_bytes(seen(*c, "t"), wanted)) << rows;
    t = begin(*c);
    const std::vector<ByteRange> halves = {{wanted.size() / 2, wanted.size() / 2}, {0, wanted.size() / 2}};
    ASSERT_TRUE(is_ok(t->update_ranges("t", halves, std::as_bytes(std::span(wanted)))));
    ASSERT_TRUE(is_ok(t->commit()));
    std::rotate(wanted.begin(), wanted.begin() + static_cast<ptrdiff_t>(wanted.size() / 2), wanted.end());
    EXPECT_TRUE(same_bytes(seen(*c, "t"), wanted)) << rows;
  }
}

TEST_F(Slices, OfRowsWhoseMemoryIsGoneAreAnError) {
  const size_t n = 64 * 4096;
  const std::string emptied = dir / "emptied";
  testing::put_bytes(emptied, std::string(n, 'x'));
  auto file = os::File::open(env, AT_FDCWD, emptied, O_RDWR, 0, emptied);
  ASSERT_TRUE(is_ok(file));
  void *mapped = mmap(nullptr, n, PROT_READ, MAP_SHARED, file->fd(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  fs::resize_file(emptied, 0);
  std::vector<int64_t> backwards(64);
  for (int64_t i = 0; i < 64; ++i) backwards[static_cast<size_t>(i)] = 63 - i;
  auto c = open();
  auto t = begin(*c);
  const uint64_t shape[] = {64, 1024};
  EXPECT_TRUE(fails_with(
      Status::io, t->update_slice("emb", {{}, backwards}, {static_cast<uint32_t>(Dtype::F32), shape, mapped, n})));
  munmap(mapped, n);
  expect_shown(*open(), fresh);
}

// As many as there are rows: the last locks reach over what lies between.
TEST_F(Slices, OfVeryManyRowsTakeNoLockForEach) {
  testing::FaultEnv locks{os::Env::posix()};
  constexpr uint64_t rows = 5000, row_bytes = 5000;
  const std::string bytes = pattern(rows * row_bytes, 3);
  testing::put_bytes(path, testing::file_of({{"t", Dtype::U8, {rows, row_bytes}, bytes}}));
  auto c = open(locks);
  auto t = begin(*c);
  const Range column[] = {{0, INT64_MAX, 1}, {100, 104, 1}};
  const Values values{{rows, 4}, pattern(rows * 4, 4)};
  ASSERT_TRUE(is_ok(t->update_slice("t", {column}, values)));
  ASSERT_TRUE(is_ok(t->commit()));
  std::string wanted = bytes;
  for (uint64_t i = 0; i < rows; ++i) wanted.replace(i * row_bytes + 100, 4, values.bytes, i * 4, 4);
  EXPECT_TRUE(same_bytes(seen(*c, "t"), wanted));
  EXPECT_LT(std::ranges::count(locks.calls, testing::Call::lock), 1200);

  // And it is asked now and then whether to go on.
  TransactionOptions stopped;
  for (const bool publish : {false, true}) {
    // A publish is stopped when the file is made, and its slices are under way.
    stopped.progress = [=, words = 0](uint64_t done, uint64_t total) mutable {
      return publish ? done < total || ++words < 3 : done == 0 || total != rows * 4;
    };
    stopped.publish = publish;
    t = begin(*c, stopped);
    ASSERT_TRUE(is_ok(t->update_slice("t", {column}, values)));
    EXPECT_TRUE(fails_with(Status::cancelled, t->commit()));
  }
  EXPECT_LT(c->counters().journal_bytes, rows * 128);
}

TEST_F(Slices, AreStagedAnewIfTheirJournalIsGone) {
  testing::FaultEnv faults{os::Env::posix()};
  auto c = open(faults);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(stage_rows(*t, {2, 30}, 5)));
  fs::remove_all(folder());
  faults.before = [](testing::Call call) { return call == testing::Call::pwrite ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, t->commit()));
  faults.before = nullptr;
  expect_shown(*c, fresh);
  t = begin(*c);
  ASSERT_TRUE(is_ok(stage_rows(*t, {2, 30}, 5)));
  fs::remove_all(folder());
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "emb").substr(2 * 4096, 4096), row(5, 2).bytes.substr(0, 4096)));
  EXPECT_TRUE(same_bytes(seen(*c, "emb").substr(30 * 4096, 4096), row(5, 2).bytes.substr(4096)));
}

TEST_F(Slices, ShowInNoWritableViewOfThisProcess) {
  OpenOptions options = writable();
  options.map = read::MapMode::copy_on_write;
  auto c = open(options), other = open();
  const Snapshot &s = c->snapshot();
  auto view = c->view(s, s.header.index.find("emb").value());
  ASSERT_TRUE(is_ok(view));
  auto t = begin(*other);
  ASSERT_TRUE(is_ok(stage_rows(*t, {3, 4, 40}, 5)));
  const Range two[] = {{50, 52, 1}, {0, 1024, 512}};  // pages that have a few of their bytes changed
  ASSERT_TRUE(is_ok(t->update_slice("emb", {two}, Values{{2, 2}, pattern(16, 9), Dtype::F32})));
  ASSERT_TRUE(is_ok(t->commit()));
  const std::string &was = fresh.at("emb").bytes;
  EXPECT_TRUE(same_bytes({reinterpret_cast<const char *>(*view), was.size()}, was));
  EXPECT_FALSE(same_bytes(seen(*open(), "emb"), was));
}

TEST_F(Slices, FollowAFileThatWasReplacedIfTheTensorIsAsItWas) {
  auto c = open();
  auto fits = begin(*c), does_not = begin(*c), drafted = begin(*c);
  ASSERT_TRUE(is_ok(stage_rows(*fits, {2}, 5)));
  const Range first[] = {{0, 1, 1}};
  ASSERT_TRUE(is_ok(does_not->update_slice("v", {first}, Values{{1}, "x"})));
  ASSERT_TRUE(is_ok(drafted->set_metadata("by", "hand")));
  ASSERT_TRUE(is_ok(drafted->update_slice("v", {first}, Values{{1}, "x"})));
  auto other = open();
  const Values shorter{{77}, pattern(77, 4)}, before{{500}, pattern(500, 5)};
  auto t = begin(*other);
  ASSERT_TRUE(is_ok(t->put("v", shorter)));
  ASSERT_TRUE(is_ok(t->put("m", before)));
  ASSERT_TRUE(is_ok(t->commit()));
  auto refused = does_not->commit();
  ASSERT_TRUE(fails_with(Status::file_changed, refused));
  EXPECT_EQ(refused.error().tensor, "v");
  EXPECT_TRUE(fails_with(Status::file_changed, drafted->commit()));
  ASSERT_TRUE(is_ok(fits->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "emb").substr(2 * 4096, 4096), row(5).bytes));
  EXPECT_TRUE(same_bytes(seen(*c, "v"), shorter.bytes));
}

TEST_F(Slices, ThatAreDamagedInTheJournalAreNotCommitted) {
  for (const bool publish : {false, true}) {
    for (const bool whole : {false, true}) {  // a tensor that lies under slices, or a slice
      make_file();
      auto c = open();
      const Values all = row(6, 64);
      TransactionOptions options;
      options.publish = publish;
      options.copy = true;
      auto t = begin(*c, std::move(options));
      const Range backwards[] = {{63, INT64_MIN, -1}};
      ASSERT_TRUE(is_ok(whole ? t->update("emb", all) : t->update_slice("emb", {backwards}, all)));
      ASSERT_TRUE(is_ok(stage_rows(*t, {1, 9}, 5)));
      const std::string journal = folder() + "/" + testing::names_in(folder()).at(0);
      const size_t at = bytes_of(journal).find(all.bytes.substr(50 * 4096, 64));
      ASSERT_NE(at, std::string::npos);
      poke(journal, at, "damage");
      auto done = t->commit();
      EXPECT_TRUE(fails_with(Status::journal, done));
      t.reset();
      expect_shown(*c, fresh);
      EXPECT_TRUE(is_ok(Transaction::begin(*c, {})));
      c.reset();
      fs::remove_all(folder());
    }
  }
}

TEST_F(Slices, OverBorrowedBytesTakeTheseAtOnce) {
  testing::SharingEnv xfs{os::Env::posix()};
  xfs.journal = "undo";
  auto c = open(xfs);
  Values all = row(6, 64);
  const std::string was = all.bytes;
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("emb", all)));
  ASSERT_TRUE(is_ok(stage_rows(*t, {9}, 5)));
  all.bytes.assign(all.bytes.size(), '!');  // which is too late
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "emb"), std::string(was).replace(9 * 4096, 4096, row(5).bytes)));

  all.bytes = was;
  t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("emb", all)));
  all.bytes[77] ^= 1;
  EXPECT_TRUE(fails_with(Status::invalid_argument, stage_rows(*t, {9}, 5)));
  EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
}

// A view of the file is staged at once, and memory would only be borrowed: what is staged stays the payload's place.
TEST_F(Slices, MemoryAfterAViewTakesThePlaceOfWhatIsStaged) {
  testing::SharingEnv xfs{os::Env::posix()};
  xfs.journal = "undo";
  auto c = open(xfs);
  const Snapshot &state = c->snapshot();
  const Values fresh = row(6, 64);
  NewBytes old = fresh;
  old.bytes = c->view(state, state.header.index.find("emb").value()).value();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("emb", old)));
  ASSERT_TRUE(is_ok(t->update("emb", fresh)));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "emb"), fresh.bytes));
}

TEST_F(Slices, CanBeStopped) {
  for (const bool publish : {false, true}) {
    for (int after = 0;; ++after) {
      auto c = open();
      TransactionOptions options;
      options.publish = publish;
      int calls = 0;
      options.progress = [&](uint64_t, uint64_t) { return calls++ < after; };
      auto t = begin(*c, std::move(options));
      auto done = stage_rows(*t, {1, 5, 9}, 2);
      const bool staged = done.has_value();
      if (staged) done = t->commit();
      if (done) {
        EXPECT_GT(after, 2);
        break;
      }
      ASSERT_TRUE(fails_with(Status::cancelled, done));
      EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
      expect_shown(*open(), fresh);
    }
    make_file();
  }
}

// Whatever system call fails, the file has the old bytes or the new ones, and ST_OK means the new ones.
TEST_F(Slices, AtAnyFailingCallLeaveOldOrNew) {
  using Call = testing::Call;
  const std::string old_bytes = bytes_of(path);
  for (const bool publish : {false, true}) {
    std::string wanted;  // of the first round, in which nothing fails
    for (int n = INT_MAX;; n = n == INT_MAX ? 0 : n + 1) {
      testing::put_bytes(path, old_bytes);
      testing::FaultEnv faults{os::Env::posix()};
      bool over = false, ok = false;
      {
        auto c = open(faults);
        int left = n;
        bool failed = false;
        faults.before = [&](Call call) {
          const bool may =
              call == Call::pwrite || call == Call::pread || call == Call::fdatasync || call == Call::openat;
          if (!may || failed || left-- > 0) return 0;
          failed = true;
          return -EIO;
        };
        TransactionOptions options;
        options.publish = publish;
        auto t = begin(*c, std::move(options));
        const Values all{{5000}, pattern(5000, 8)};
        const Range every[] = {{0, 5000, 100}};
        const Values fifty{{50}, pattern(50, 9)};
        ok =
            t->update("v", all) && t->update_slice("v", {every}, fifty) && stage_rows(*t, {4, 5, 30}, 3) && t->commit();
        over = !failed;
        faults.before = nullptr;
      }
      auto c = open();
      const std::string now = bytes_of(path);
      if (n == INT_MAX) {
        ASSERT_TRUE(ok);
        wanted = now;
        std::string v = pattern(5000, 8);
        for (size_t i = 0; i < 50; ++i) v[i * 100] = pattern(50, 9)[i];
        const std::string rows = row(3, 3).bytes;
        EXPECT_TRUE(same_bytes(seen(*c, "v"), v));
        EXPECT_TRUE(same_bytes(seen(*c, "emb").substr(4 * 4096, 2 * 4096), rows.substr(0, 2 * 4096)));
        EXPECT_TRUE(same_bytes(seen(*c, "emb").substr(30 * 4096, 4096), rows.substr(2 * 4096)));
      }
      ASSERT_TRUE(now == wanted || (!ok && now == old_bytes)) << n;
      if (over && n != INT_MAX) {
        EXPECT_GT(n, 20);
        break;
      }
      c.reset();
      fs::remove_all(folder());
    }
    testing::put_bytes(path, old_bytes);
  }
}

}  // namespace
}  // namespace st::store
