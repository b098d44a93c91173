// Whatever a store does, what is read is of one version, or an error that says why.
#include "remote/object.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <numeric>

#include "bound.h"
#include "remote/simulated_store.h"
#include "remote/surroundings_of_tests.h"

namespace st::remote {
namespace {

using ::testing::HasSubstr;

constexpr Fault all_faults[] = {
    Fault::none,        Fault::refused,
    Fault::cut_at_once, Fault::cut_half,
    Fault::short_body,  Fault::silence,
    Fault::error_500,   Fault::slow_down_503,
    Fault::wrong_range, Fault::lying_range,
    Fault::wrong_etag,  Fault::no_etag,
    Fault::replaced,    Fault::replaced_without_412,
    Fault::removed,     Fault::encoded,
    Fault::forbidden,   Fault::whole,
    Fault::too_long,    Fault::flipped,
    Fault::crowded,
};

bool passes(Fault fault) {
  return fault == Fault::none || fault == Fault::refused || fault == Fault::cut_at_once || fault == Fault::cut_half ||
         fault == Fault::short_body || fault == Fault::silence || fault == Fault::error_500 ||
         fault == Fault::slow_down_503;
}

struct PullTest : ::testing::Test {
  static constexpr uint64_t size = 5000;

  std::shared_ptr<const Site> site() {
    const auto from = with({{"AWS_ACCESS_KEY_ID", "AKIA"}, {"AWS_SECRET_ACCESS_KEY", "never-to-be-shown"}});
    return *site_of("s3://bucket/model", from);
  }
  Limits limits() const {
    Limits out;
    out.first = 100;
    out.piece = 400;
    out.connections = 3;
    out.hedges = 2;
    return out;
  }
  Result<std::unique_ptr<Object>> open(SimulatedStore &store, const Stops &stops = {}) {
    return Object::open(std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits()),
                        site(), stops);
  }
  static Result<void> read_range(Object &object, uint64_t offset, uint64_t n) {
    std::vector<std::byte> got(n);
    const Wanted wanted{offset, n, got.data()};
    return object.read({&wanted, 1});
  }
  // Bytes [50, 50 + n), and what lies behind them is not touched. The bytes that came are right, or it is an error.
  Result<void> read_and_check(Object &object, uint64_t n) {
    std::vector<std::byte> got(n + 1);
    const Wanted wanted{50, n, got.data()};
    auto done = object.read({&wanted, 1});
    EXPECT_EQ(got[n], std::byte{0});
    for (uint64_t i = 0; done && i < n; ++i)
      if (got[i] != SimulatedStore::byte_of(50 + i)) {
        ADD_FAILURE() << "a wrong byte at " << 50 + i;
        break;
      }
    return done;
  }
};

TEST_F(PullTest, OpensByOneRequestAndReadsTheBeginWithoutAnother) {
  SimulatedStore store(size);
  const auto object = open(store);
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ((*object)->size(), size);
  EXPECT_EQ((*object)->version().etag, "\"first\"");
  EXPECT_TRUE(read_and_check(**object, 50));
  EXPECT_EQ(store.seen, std::vector<std::string>{"bytes=0-99"});
}

TEST_F(PullTest, SplitsALongReadIntoEqualParts) {
  SimulatedStore store(size);
  const auto object = open(store);
  store.seen.clear();
  EXPECT_TRUE(read_and_check(**object, 850));
  EXPECT_EQ(store.seen, (std::vector<std::string>{"bytes=100-499", "bytes=500-899"}));
}

TEST_F(PullTest, ACutBodyIsResumedWhereItEnded) {
  SimulatedStore store(size);
  store.script = {Fault::none, Fault::cut_half};
  const auto object = open(store);
  EXPECT_TRUE(read_and_check(**object, 450));
  EXPECT_EQ(store.seen.back(), "bytes=300-499");
}

TEST_F(PullTest, TheCallerIsAskedTenTimesASecondAndEndsAWait) {
  SimulatedStore store(size);
  store.takes = 1050;
  uint32_t asked = 0;
  const auto never = [&] { return ++asked == 0; };
  const auto at_the_third = [&] { return ++asked == 3; };
  const auto object = open(store, never);
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(asked, 10u);

  asked = 0;
  EXPECT_EQ(open(store, at_the_third).error().status, Status::cancelled);
  EXPECT_EQ(store.now, 1350u);

  std::vector<std::byte> got(4000);
  const Wanted wanted{200, got.size(), got.data()};
  asked = 0;
  EXPECT_EQ((*object)->read({&wanted, 1}, at_the_third).error().status, Status::cancelled);
  EXPECT_EQ(store.now, 1650u);
  EXPECT_EQ((*object)->store()->pace().busy(), 0u);
  EXPECT_TRUE((*object)->read({&wanted, 1}, never));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], SimulatedStore::byte_of(200 + i));

  // Between two tries nothing is under way.
  SimulatedStore failing(size);
  failing.script.assign(100, Fault::error_500);
  asked = 0;
  EXPECT_EQ(open(failing, at_the_third).error().status, Status::cancelled);
  EXPECT_EQ(failing.now, 300u);
}

// Every sequence of up to three faults (four, with ST_TEST_BOUND=full), on an open and a read of the rest in three
// parts: what is taken is right.
TEST_F(PullTest, NoSequenceOfFaultsBringsAWrongByte) {
  uint64_t tried = 0, read = 0, spoilt = 0;
  const std::vector<Fault> faults(std::begin(all_faults), std::end(all_faults));
  const std::vector<Fault> last = st::testing::full_bound() ? faults : std::vector<Fault>{Fault::none};
  for (const Fault a : faults)
    for (const Fault b : faults)
      for (const Fault c : faults)
        for (const Fault d : last) {
          SimulatedStore store(1250);
          store.tells_checksum = true;
          store.script = {a, b, c, d};
          ++tried;
          const auto object = open(store);
          if (!object || store.requests == 0) {
            EXPECT_FALSE(object.error().message.empty());
            spoilt += store.spoilt;
            continue;
          }
          // What was opened may be the second object: then there is nothing to compare.
          if ((*object)->version().etag != "\"first\"" || (*object)->size() != 1250) continue;
          const bool passed = read_and_check(**object, 1200).has_value();
          spoilt += store.spoilt;
          read += passed;
          if (std::all_of(store.script.begin(), store.script.end(), passes)) {
            EXPECT_TRUE(passed);
          }
        }
  EXPECT_EQ(tried, faults.size() * faults.size() * faults.size() * last.size());
  EXPECT_GT(read, 300u);
  std::cout << tried << " sequences, " << spoilt << " faults\n";
}

// The same where answers come in any order.
TEST_F(PullTest, NoOrderOfAnswersBringsAWrongByte) {
  uint32_t seed = 1;
  const auto random = [&] { return seed = seed * 1664525 + 1013904223, seed >> 8; };
  uint64_t spoilt = 0;
  for (int round = 0; round < static_cast<int>(st::testing::bounded(500, 2000, 1'000'000)); ++round) {
    SimulatedStore store(3050);
    store.tells_checksum = true;
    const auto make = [&] {
      return std::make_unique<SimulatedTransport>(store, [&](size_t n) { return random() % n; });
    };
    store.script = {Fault::none};
    for (int i = 0; i < 12; ++i)
      store.script.push_back(random() % 3 ? Fault::none : all_faults[random() % std::size(all_faults)]);
    const auto object = Object::open(std::make_shared<Store>(make, limits()), site());
    ASSERT_TRUE(object);
    read_and_check(**object, 3000);
    EXPECT_EQ((*object)->store()->pace().busy(), 0u);
    spoilt += store.spoilt;
  }
  std::cout << spoilt << " faults\n";
}

TEST_F(PullTest, AReplacedObjectIsSaidAtAnyRequest) {
  for (const Fault fault : {Fault::replaced, Fault::replaced_without_412, Fault::removed, Fault::wrong_etag})
    for (size_t at = 1; at < 5; ++at) {
      SimulatedStore store(size);
      store.script.assign(at, Fault::none);
      store.script.push_back(fault);
      const auto object = open(store);
      const auto done = read_and_check(**object, 4000);
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().status, Status::file_changed) << done.error().message;
    }
}

TEST_F(PullTest, WhatLastsEndsInAnError) {
  for (const Fault fault :
       {Fault::refused, Fault::cut_at_once, Fault::silence, Fault::error_500, Fault::slow_down_503}) {
    SimulatedStore store(size);
    store.script = {Fault::none};
    store.script.resize(1000, fault);
    const auto object = open(store);
    const auto done = read_and_check(**object, 450);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().status, Status::io);
    EXPECT_LE(store.requests, 1 + limits().tries);
    EXPECT_LE(store.now, limits().deadline_ms + 40000);
  }
}

// The Hub says when its limit ends, which may be after all patience.
TEST_F(PullTest, ALimitOfRequestsIsWaitedForOrSaid) {
  for (const bool at_open : {true, false}) {
    SimulatedStore store(size);
    store.again_in = 55;
    if (!at_open) store.script.push_back(Fault::none);
    store.script.push_back(Fault::too_many_429);
    const auto object = open(store);
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_TRUE(read_and_check(**object, 400));
    EXPECT_GE(store.now, 55000u);
    EXPECT_LE(store.now, 56000u);

    SimulatedStore busy(size);
    busy.again_in = 250;
    busy.script = store.script;
    const auto other = open(busy);
    const Error error = at_open ? other.error() : read_and_check(**other, 400).error();
    EXPECT_EQ(error.status, Status::io);
    EXPECT_THAT(error.message, HasSubstr("429 TooManyRequests"));
    EXPECT_THAT(error.message, HasSubstr("it wants to be asked again in 250 s"));
    EXPECT_EQ(busy.now, 0u) << "nobody waits for nothing";
  }
}

TEST_F(PullTest, WhatAServerWantsIsSaidAlsoWhereLessIsHeeded) {
  SimulatedStore busy(size);
  busy.again_in = 300;
  busy.script.assign(20, Fault::busy_503);
  const auto object = open(busy);
  ASSERT_FALSE(object);
  EXPECT_THAT(object.error().message, HasSubstr("it wants to be asked again in 300 s"));
  EXPECT_GE(busy.now, 30000u);
}

TEST_F(PullTest, ASlowAnswerMayTakeLongerThanTheDeadline) {
  SimulatedStore store(size);
  const auto object = open(store);
  store.slow = 5;
  EXPECT_TRUE(read_and_check(**object, 450));
  EXPECT_EQ(store.slow, 0u);
  EXPECT_GT(store.now, limits().deadline_ms);
}

TEST_F(PullTest, AByteNowAndThenIsNoProgress) {
  SimulatedStore store(size);
  const auto object = open(store);
  store.slow = 1000;
  store.part = 1;
  const uint64_t begun = store.now;
  const auto done = read_and_check(**object, 450);
  EXPECT_EQ(done.error().status, Status::io);
  EXPECT_THAT(done.error().message, HasSubstr("bytes came in 120 seconds"));
  EXPECT_LE(store.now - begun, limits().deadline_ms + 1);
}

TEST_F(PullTest, EachRefusalHasItsStatusAndItsRequest) {
  const std::pair<Fault, Status> cases[] = {
      {Fault::forbidden, Status::permission}, {Fault::removed, Status::no_file}, {Fault::encoded, Status::unsupported},
      {Fault::whole, Status::unsupported},    {Fault::lying_range, Status::io},  {Fault::too_long, Status::io},
      {Fault::no_etag, Status::unsupported},  {Fault::wrong_range, Status::io},
  };
  for (const auto &[fault, status] : cases) {
    SimulatedStore store(size);
    // The lie about the size is seen by the second answer.
    store.script = {fault};
    auto object = open(store);
    auto error = object ? read_and_check(**object, 450).error() : object.error();
    EXPECT_EQ(error.status, status) << error.message;
    EXPECT_THAT(error.message, HasSubstr("s3://bucket/model"));
    EXPECT_THAT(error.message, ::testing::Not(HasSubstr("never-to-be-shown")));
    if (fault == Fault::forbidden) {
      EXPECT_THAT(error.message, HasSubstr("403 AccessDenied: said so (request id R17)"));
      EXPECT_THAT(error.message, HasSubstr("the keys of the environment"));
    }
  }
}

// 1000 pieces, of which each 200th is ten seconds late.
TEST_F(PullTest, ABodyInPartsIsNotTakenForTheRange) {
  SimulatedStore store(size);
  const auto object = open(store);
  store.also = {{"content-type", "multipart/byteranges; boundary=a"}};
  EXPECT_THAT(read_and_check(**object, 1000).error().message, HasSubstr("bytes 100 to 415 of 5000 were asked for"));
  EXPECT_THAT(open(store).error().message, HasSubstr("the first 100 bytes were asked for"));
}

TEST_F(PullTest, WhatIsLateIsAskedForOnceMore) {
  SimulatedStore store(400 * 1000);
  store.tells_checksum = true;
  store.takes = 20;
  store.late_every = 200;
  const auto object = open(store);
  EXPECT_TRUE(read_and_check(**object, store.size() - 50));
  EXPECT_GE(store.dropped, 4u);
  EXPECT_LT(store.now, 10000u);
  EXPECT_EQ((*object)->store()->pace().busy(), 0u);
}

// What the first request brought, and what the second one did, are held against the store's checksum together.
TEST_F(PullTest, ABitThatFlipsInWhatIsLateIsSeen) {
  for (const bool flips : {false, true}) {
    SimulatedStore store(400 * 1000);
    store.tells_checksum = true;
    store.takes = 20;
    const auto object = open(store);
    EXPECT_TRUE(read_and_check(**object, store.size() - 50));
    EXPECT_EQ(store.dropped, 0u);
    store.sent = 1;
    store.late_every = 2;  // the next one, of which the second half is asked for once more
    store.script.resize(store.requests, Fault::none);
    if (flips) store.script.push_back(Fault::flipped);
    const auto done = read_range(**object, 50, 400);
    EXPECT_EQ(store.dropped, 1u);
    EXPECT_TRUE(done) << "a part is not checked";
    store.late_every = 0;
    store.script.clear();
    const auto rest = read_range(**object, 450, store.size() - 450);
    EXPECT_EQ(rest.has_value(), !flips);
    if (!rest) {
      EXPECT_EQ(rest.error().status, Status::checksum);
    }
  }
}

TEST_F(PullTest, NothingIsLateBeforeManyAnswersCame) {
  SimulatedStore store(400 * 90);
  store.takes = 20;
  store.late_every = 80;
  const auto object = open(store);
  EXPECT_TRUE(read_and_check(**object, store.size() - 50));
  EXPECT_EQ(store.dropped, 0u);
  EXPECT_GE(store.now, 10000u);
}

TEST_F(PullTest, FewAreAskedForOnceMoreAtATime) {
  SimulatedStore store(400 * 1000);
  store.takes = 20;
  const auto object = open(store);
  EXPECT_TRUE(read_and_check(**object, store.size() - 50));
  store.late_every = 1;
  store.most_flying = 0;
  EXPECT_TRUE(read_and_check(**object, 400 * 40));
  EXPECT_EQ(store.most_flying, limits().connections + limits().hedges);
}

TEST_F(PullTest, AHandleDoesNotAskAgainForEver) {
  SimulatedStore store(400 * 1000);
  const auto object = open(store);
  while ((*object)->store()->pace().may_repeat(store.now)) continue;
  store.script.resize(1000, Fault::slow_down_503);
  const auto done = read_and_check(**object, 400 * 200);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("nothing came for 120 seconds; last, the server answered 503"));
  // The first try of each piece is free; then there is one a second.
  EXPECT_LE(store.requests, 1 + 200 + limits().deadline_ms / 1000 + 1);
}

// All connections break at once, and again as long as the gap lasts.
TEST_F(PullTest, ALoadBySixtyFourConnectionsOutlivesAGap) {
  for (const uint32_t connections : {1u, 14u, 64u}) {
    struct Gap final : SimulatedTransport {
      std::optional<Answer> next(uint64_t wait_ms) override {
        if (store.now >= 1 && store.now < 5000)
          store.script.assign(store.requests + 1, Fault::refused);
        else
          store.script.clear();
        return SimulatedTransport::next(wait_ms);
      }
      explicit Gap(SimulatedStore &of) : SimulatedTransport(of), store(of) {}
      SimulatedStore &store;
    };
    SimulatedStore store(400 * 500);
    store.takes = 1;
    Limits wide = limits();
    wide.connections = wide.first_connections = connections;
    const auto made = std::make_shared<Store>([&] { return std::make_unique<Gap>(store); }, wide);
    const auto object = Object::open(made, site());
    ASSERT_TRUE(object) << object.error().message;
    const auto done = read_and_check(**object, store.size() - 50);
    EXPECT_TRUE(done) << done.error().message;
    EXPECT_GE(store.now, 5000u);
    EXPECT_LT(store.now, 60000u);
  }
}

TEST_F(PullTest, AFlippedBitIsSaidWhereAllWasRead) {
  SimulatedStore store(size);
  store.tells_checksum = true;
  store.script = {Fault::none, Fault::none, Fault::flipped};
  const auto object = open(store);
  const auto done = read_and_check(**object, size - 50);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().status, Status::checksum) << done.error().message;
  // The next read of all is checked too.
  EXPECT_TRUE(read_and_check(**object, size - 50));
  store.script.resize(store.requests, Fault::none);
  store.script.push_back(Fault::flipped);
  EXPECT_EQ(read_and_check(**object, size - 50).error().status, Status::checksum);
}

// S3 says a checksum with no range. Its head is asked for where much is read, or all has come.
TEST_F(PullTest, AChecksumThatIsSaidWithTheHeadAloneIsAskedForOnce) {
  SimulatedStore store(size);
  store.head_code = 200;
  const auto object = open(store);
  EXPECT_TRUE(read_and_check(**object, 200));
  EXPECT_EQ(store.heads, 0u) << "a slice is no request more";
  EXPECT_TRUE(read_and_check(**object, size - 50));
  EXPECT_EQ(store.heads, 1u);
  store.script.resize(store.requests, Fault::none);
  store.script.push_back(Fault::flipped);
  EXPECT_EQ(read_and_check(**object, size - 50).error().status, Status::checksum);
  EXPECT_EQ(store.heads, 1u);

  // By little and little.
  for (const bool flips : {false, true}) {
    SimulatedStore slow(size);
    slow.head_code = 200;
    if (flips) slow.script = {Fault::none, Fault::flipped};
    const auto other = open(slow);
    std::vector<std::byte> got(size);
    for (uint64_t at = 100; at < size; at += 100) {
      EXPECT_EQ(slow.heads, 0u);
      const Wanted part{at, 100, got.data() + at};
      const auto done = (*other)->read({&part, 1});
      EXPECT_EQ(done.has_value(), !flips || at + 100 < size) << at;
      if (!done) {
        EXPECT_EQ(done.error().status, Status::checksum);
      }
    }
    EXPECT_EQ(slow.heads, 1u);
  }
}

TEST_F(PullTest, AStoreThatAnswersNoHeadIsReadAllTheSame) {
  for (const int code : {403, 405, 501, 404, 503, 0}) {
    SimulatedStore store(size);
    store.head_code = code;
    store.script = {Fault::none, Fault::none, Fault::none, Fault::flipped};
    const auto object = open(store);
    std::vector<std::byte> got(size);
    const Wanted all{0, size, got.data()};
    const auto done = (*object)->read({&all, 1});
    EXPECT_TRUE(done) << code << ": " << done.error().message;
    const auto before = store.heads;
    EXPECT_LE(before, 2u);
    EXPECT_TRUE((*object)->read({&all, 1}));
    EXPECT_EQ(store.heads, before) << "it is not asked for ever";
  }
}

TEST_F(PullTest, AHeadThatNeverComesHoldsNoReadForLong) {
  SimulatedStore store(size);
  store.head_code = 200;
  store.head_takes = 1000000;
  const auto object = open(store);
  EXPECT_TRUE(read_and_check(**object, size - 50));
  EXPECT_LE(store.now, 30000u);
}

// Each long read but the last goes on without an answer.
TEST_F(PullTest, AStoreThatAnswersNoHeadIsWaitedForOnce) {
  for (const int code : {200, 503}) {
    SimulatedStore store(size);
    store.head_code = code;
    store.head_takes = code == 200 ? 1000000 : 0;
    const auto object = open(store);
    EXPECT_TRUE(read_range(**object, 100, 1600));
    EXPECT_TRUE(read_range(**object, 1700, 1600));
    EXPECT_LE(store.now, 100u);
    EXPECT_EQ(store.heads_sent, 1u);
    EXPECT_TRUE(read_range(**object, 3300, 1700));
    EXPECT_LE(store.now, 2100u);
    EXPECT_EQ(store.heads_sent, 2u);
    EXPECT_TRUE(read_range(**object, 100, 1600));
    EXPECT_LE(store.now, 2200u);
    EXPECT_EQ(store.heads_sent, 2u);
  }
}

TEST_F(PullTest, AHeadThatIsLaterThanWhatWasReadIsNotMissed) {
  SimulatedStore store(size);
  store.head_code = 200;
  store.head_takes = 50;
  store.takes = 10;
  store.script = {Fault::none, Fault::flipped};
  const auto object = open(store);
  EXPECT_TRUE(read_range(**object, 100, 1200));
  EXPECT_TRUE(read_range(**object, 1300, 1200));
  EXPECT_EQ(read_range(**object, 2500, 2500).error().status, Status::checksum);
  EXPECT_EQ(store.heads, 1u);
  EXPECT_EQ(store.heads_sent, 2u);

  SimulatedStore at_once(size);
  at_once.head_code = 200;
  at_once.head_takes = 5000;
  at_once.script = {Fault::none, Fault::flipped};
  const auto other = open(at_once);
  EXPECT_EQ(read_range(**other, 100, size - 100).error().status, Status::checksum);
  EXPECT_EQ(at_once.heads_sent, 1u) << "one that brings the whole waits";
}

// A bulk read passes by what is not wanted, and has one place for all of it.
TEST_F(PullTest, GapsThatAreReadToOnePlaceSpoilNoChecksum) {
  SimulatedStore store(size);
  store.tells_checksum = true;
  const auto object = open(store);
  std::vector<std::byte> got(size), passed_by(500);
  const Wanted ranges[] = {{100, 1000, got.data()},
                           {1100, 300, passed_by.data()},
                           {1400, 1600, got.data() + 1000},
                           {3000, 500, passed_by.data()},
                           {3500, 1500, got.data() + 2600}};
  for (const Wanted &range : ranges) {
    const auto done = (*object)->read({&range, 1});
    ASSERT_TRUE(done) << done.error().message;
  }
  SimulatedStore again(size);
  again.tells_checksum = true;
  again.in_any_place = true;
  const auto other = open(again);
  const auto done = (*other)->read(ranges);
  ASSERT_TRUE(done) << done.error().message;
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(got[i], SimulatedStore::byte_of(100 + i));
  EXPECT_TRUE(read_and_check(**other, size - 50)) << "and a read of all is right";

  SimulatedStore flips(size);
  flips.tells_checksum = true;
  flips.in_any_place = true;
  flips.script = {Fault::none, Fault::none, Fault::none, Fault::none, Fault::flipped};
  EXPECT_EQ((*open(flips))->read(ranges).error().status, Status::checksum) << "what is passed by is checked, too";
}

// A site of a link that ends.
struct Led final : Site {
  Led() : Site("https://host/a") {}
  Result<std::shared_ptr<const Site>> after(const Answer &) const override { return nullptr; }
  std::string asked_as() const override { return {}; }
  Renewal renew(uint64_t, const Answer &, int64_t) const override { return ++asked < 4 ? Renewal::later : last; }
  void address(Request *request, std::map<std::string, std::string> fields, const Version &, int64_t) const override {
    put(request, fields);
  }
  mutable int asked = 0;
  Renewal last = Renewal::done;
};

// On a slow line a piece outlives several of them.
TEST_F(PullTest, ALinkMayEndAgainOnceItBroughtSomething) {
  const auto led = std::make_shared<Led>();
  led->asked = 4;
  SimulatedStore store(size);
  const auto made = std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits());
  const auto object = Object::open(made, led);
  ASSERT_TRUE(object) << object.error().message;
  store.script = {Fault::none, Fault::forbidden, Fault::cut_half, Fault::forbidden, Fault::none};
  const auto done = read_and_check(**object, 450);
  EXPECT_TRUE(done) << done.error().message;
  store.script.resize(store.requests + 2, Fault::forbidden);
  EXPECT_FALSE(read_and_check(**object, 450)) << "a new one that is refused at once is the last";
}

// By the clock of the server, of which a cache says how long ago it was read. Where nothing is told, or what cannot be,
// it is taken.
TEST_F(PullTest, ALaterObjectOfACheckpointIsAsOldAsItsIndex) {
  struct Case {
    std::string date, age, modified, now;
    bool is_taken;
  };
  const auto at = [](const char *time) { return text("Fri, 24 May 2013 ", time, " GMT"); };
  for (const Case &c : {
           Case{at("12:00:00"), "", at("12:00:02"), at("13:00:00"), true},
           Case{at("12:00:00"), "", at("12:00:03"), at("13:00:00"), false},
           Case{at("12:00:00"), "60", at("12:01:02"), at("13:00:00"), true},
           Case{at("12:00:00"), "60", at("12:01:03"), at("13:00:00"), false},
           Case{at("12:00:00"), "soon", at("12:00:03"), at("13:00:00"), false},
           Case{at("12:00:00"), "", at("13:00:01"), at("13:00:00"), true},
           Case{"", "", at("12:00:03"), at("13:00:00"), true},
           Case{at("12:00:00"), "", "yesterday", at("13:00:00"), true},
           Case{at("12:00:00"), "", at("12:00:03"), "", true},
       }) {
    SCOPED_TRACE(text(c.date, " + ", c.age, ", ", c.modified, ", ", c.now));
    SimulatedStore store(size);
    const auto shared = std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits());
    store.also = {{"last-modified", at("11:59:00")}, {"date", c.date}, {"age", c.age}};
    ASSERT_TRUE(Object::open(shared, site()));
    store.also = {{"last-modified", c.modified}, {"date", c.now}};
    const auto later = Object::open(shared, site());
    EXPECT_EQ(later.has_value(), c.is_taken);
    if (later) continue;
    EXPECT_EQ(later.error().status, Status::file_changed);
    EXPECT_THAT(later.error().message, HasSubstr("model': it was replaced after the checkpoint was opened"));
    store.also.emplace_back("x-repo-commit", "0123456789abcdef0123456789abcdef01234567");
    EXPECT_TRUE(Object::open(shared, site())) << "a commit never changes";
  }
}

// As the time of a file that is made for each answer. Then it tells of no change.
TEST_F(PullTest, AServerMayGiveTheTimeOfTheAnswerToWhatIsThere) {
  const auto put_and_said = [](const char *put, const char *said, const char *age = "") {
    const auto at = [](const char *time) { return text("Fri, 24 May 2013 ", time, " GMT"); };
    return std::vector<std::pair<std::string, std::string>>{
        {"last-modified", at(put)}, {"date", at(said)}, {"age", age}};
  };
  SimulatedStore store(size);
  const auto shared = std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits());
  store.also = put_and_said("11:59:59", "12:00:00");
  ASSERT_TRUE(Object::open(shared, site()));
  store.also = put_and_said("12:00:59", "12:01:00");
  EXPECT_TRUE(Object::open(shared, site()));
  store.also = put_and_said("12:00:59", "12:01:00", "3600");
  EXPECT_TRUE(Object::open(shared, site())) << "of then, from a cache";
  store.also = put_and_said("11:00:00", "12:05:00");
  EXPECT_TRUE(Object::open(shared, site()));
  store.also = put_and_said("12:00:59", "12:05:00");
  const auto replaced = Object::open(shared, site());
  ASSERT_FALSE(replaced) << "the server gives the times of what it has";
  EXPECT_EQ(replaced.error().status, Status::file_changed);
}

TEST_F(PullTest, AnAgeBeyondAllTimesTellsNothing) {
  const std::string date = "Fri, 24 May 2013 12:00:00 GMT", later = "Fri, 24 May 2013 13:00:00 GMT";
  for (const char *age : {"18446744073709551615", "9223372036854775807"}) {
    SimulatedStore store(size);
    const auto shared = std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits());
    store.also = {{"date", date}, {"age", age}};
    ASSERT_TRUE(Object::open(shared, site()));
    store.also = {{"last-modified", "Fri, 24 May 2013 12:00:02 GMT"}, {"date", later}};
    EXPECT_TRUE(Object::open(shared, site()));
  }
}

// What leads to another place cannot answer for a while.
TEST_F(PullTest, ARefusalIsAskedAgainWhileNobodyKnowsTheNextPlace) {
  const auto led = std::make_shared<Led>();
  SimulatedStore store(size);
  const auto made = std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits());
  const auto object = Object::open(made, led);
  ASSERT_TRUE(object) << object.error().message;
  store.script = {Fault::none, Fault::forbidden, Fault::forbidden, Fault::forbidden, Fault::forbidden};
  const auto done = read_and_check(**object, 400);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(led->asked, 4);
  led->asked = -100;
  store.script.resize(1000, Fault::forbidden);
  const auto refused = read_and_check(**object, 400);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, Status::permission);
  EXPECT_THAT(refused.error().message, HasSubstr("it was tried 8 times"));
  led->asked = 4;
  led->last = Renewal::none;
  const size_t before = store.requests;
  EXPECT_FALSE(read_and_check(**object, 400));
  EXPECT_EQ(store.requests, before + 1);
  // The same at the first request.
  SimulatedStore refuses(size);
  refuses.script = {Fault::forbidden, Fault::forbidden};
  led->asked = 2;
  led->last = Renewal::done;
  EXPECT_TRUE(Object::open(
      std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(refuses); }, limits()), led));
  EXPECT_EQ(refuses.requests, 3u);
}

TEST_F(PullTest, AServerWithoutRangesIsReadWhereAllComesAtOnce) {
  SimulatedStore store(80);
  store.script = {Fault::whole};
  const auto object = open(store);
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ((*object)->size(), 80u);
  EXPECT_TRUE(read_and_check(**object, 30));
  EXPECT_EQ(store.requests, 1u);
}

TEST_F(PullTest, WithoutADescriptorForOneMoreConnectionFewerDo) {
  SimulatedStore store(size);
  const auto object = open(store);
  Pace &pace = (*object)->store()->pace();
  EXPECT_EQ(pace.connections(), 3u);
  // The second of three side by side has none. It comes when another one is done.
  store.requests = 0;
  store.script = {Fault::none, Fault::crowded};
  EXPECT_TRUE(read_and_check(**object, 2000));
  EXPECT_EQ(store.requests, 5 + 1u);
  // Nor has the last one, and then there is nobody to wait for.
  store.requests = 0;
  store.script = {Fault::none, Fault::none, Fault::none, Fault::none, Fault::crowded};
  EXPECT_TRUE(read_and_check(**object, 2000));
  EXPECT_EQ(store.requests, 5 + 1u);
  // Nor has the only one. So the call gives back its transport, and begins anew.
  store.requests = 0;
  store.script = {Fault::crowded};
  EXPECT_TRUE(read_and_check(**object, 400));
  EXPECT_EQ(store.requests, 1 + 1u);
  // Where there is not even one, it is said at once.
  const uint64_t before = store.now;
  store.script.assign(store.requests, Fault::none);
  store.script.insert(store.script.end(), 100, Fault::crowded);
  EXPECT_EQ(read_and_check(**object, 2000).error().message, "cannot read 's3://bucket/model': it was cut");
  EXPECT_EQ(store.now, before);
  EXPECT_EQ(pace.busy(), 0u);
}

TEST_F(PullTest, AFirstRequestWithoutADescriptorIsSentOnceMore) {
  SimulatedStore store(size);
  store.script = {Fault::crowded};
  EXPECT_TRUE(open(store));
  store.requests = 0;
  store.script.assign(100, Fault::crowded);
  EXPECT_EQ(open(store).error().status, Status::io);
  EXPECT_EQ(store.requests, 2u);
  EXPECT_EQ(store.now, 0u);
}

TEST_F(PullTest, AnOpenWaitsForTheDescriptorOfAnotherCall) {
  SimulatedStore store(size);
  store.descriptors = 1;
  const auto shared = std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits());
  std::optional<Store::Lent> other;
  other.emplace(*shared, Stops());
  Request request = site()->request(0, 1, {}, 0);
  std::byte into[1];
  request.into = into;
  request.fits = [](const Head &) { return true; };
  (**other).get(1, std::move(request));
  const auto opened = Object::open(shared, site(), [&] {
    other.reset();
    return false;
  });
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE(read_and_check(**opened, 2000));
  EXPECT_EQ(shared->pace().busy(), 0u);
}

// One descriptor is enough for the bytes, and then for the checksum.
TEST_F(PullTest, TheBytesComeBeforeTheChecksumWhereThereIsOneDescriptor) {
  SimulatedStore store(size);
  store.head_code = 200;
  store.head_takes = 50;
  store.descriptors = 1;
  const auto object = open(store);
  const auto done = read_range(**object, 100, size - 100);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(store.heads, 1u);

  SimulatedStore flips(size);
  flips.head_code = 200;
  flips.head_takes = 50;
  flips.descriptors = 1;
  flips.script = {Fault::none, Fault::flipped};
  EXPECT_EQ(read_range(**open(flips), 100, size - 100).error().status, Status::checksum);
}

TEST_F(PullTest, AHedgeWithoutADescriptorIsNoFailure) {
  SimulatedStore store(400 * 1000);
  const auto object = open(store);
  store.late_every = 150;
  store.script.assign(151, Fault::none);
  store.script.push_back(Fault::crowded);
  EXPECT_TRUE(read_and_check(**object, 400 * 900));
}

// Each has a connection and two descriptors more, and handles of models stay open.
TEST_F(PullTest, AStoreKeepsFewConnectionsBetweenCalls) {
  SimulatedStore simulated(size);
  int alive = 0;
  struct Counted final : SimulatedTransport {
    Counted(SimulatedStore &of, int &n) : SimulatedTransport(of), count(n) { ++count; }
    ~Counted() override { --count; }
    int &count;
  };
  Store store([&] { return std::make_unique<Counted>(simulated, alive); }, Limits());
  {
    std::vector<std::unique_ptr<Store::Lent>> lent;
    for (int i = 0; i < 16; ++i) lent.push_back(std::make_unique<Store::Lent>(store, Stops()));
    EXPECT_EQ(alive, 16);
  }
  EXPECT_EQ(alive, 8);
  const Store::Lent again(store, Stops());
  EXPECT_EQ(alive, 8);
}

TEST_F(PullTest, AProcessKeepsThoseThatWereUsedLast) {
  SimulatedStore simulated(size);
  struct Counted final : SimulatedTransport {
    Counted(SimulatedStore &of, int &n) : SimulatedTransport(of), count(n) { ++count; }
    ~Counted() override { --count; }
    int &count;
  };
  std::vector<int> alive(100);
  std::vector<std::unique_ptr<Store>> stores;
  const auto use = [](Store &store) { const Store::Lent used(store, Stops()); };
  for (int &n : alive) {
    stores.push_back(std::make_unique<Store>([&] { return std::make_unique<Counted>(simulated, n); }, Limits()));
    use(*stores.back());
    use(*stores[0]);
  }
  EXPECT_EQ(std::accumulate(alive.begin(), alive.end(), 0), 32);
  EXPECT_EQ(alive[0], 1);
  EXPECT_EQ(alive[1], 0);
  EXPECT_EQ(alive[99], 1);
  stores.clear();
  EXPECT_EQ(std::accumulate(alive.begin(), alive.end(), 0), 0);
}

TEST_F(PullTest, WaitsAtLeastAsTheServerSaysAndAtMostDoubleEachTime) {
  const Limits limits;
  EXPECT_EQ(wait_before(3, 0, limits, 0), 200u);
  EXPECT_EQ(wait_before(3, 0, limits, 200), 400u);
  uint64_t least = 0;
  for (uint32_t tries = 1; tries < limits.tries; ++tries) least += wait_before(tries, 0, limits, 0);
  EXPECT_GE(least, 6000u) << "a gap that short ends no request";
  for (uint32_t random = 0; random < 5000; ++random) {
    EXPECT_LE(wait_before(1, 0, limits, random), 100u);
    EXPECT_LE(wait_before(2, 0, limits, random), 200u);
    EXPECT_LE(wait_before(60, 0, limits, random), limits.longest_wait_ms);
    EXPECT_GE(wait_before(1, 3000, limits, random), 3000u);
  }
}

TEST(JudgeTest, ARefusalByTlsEndsTheFirstRequestAlone) {
  const auto site = *site_of("https://host/a", with({}));
  const Answer answer{.cut = Cut::refused, .why = "no certificate"};
  Version version;
  const Verdict first = judge_first(answer, 10, *site, &version);
  EXPECT_EQ(first.next, Next::give_up);
  EXPECT_EQ(first.error.message, "no certificate");
  const Version known{"\"e\"", "", 10};
  EXPECT_EQ(judge(answer, {0, 10, known}, *site).next, Next::again);
}

TEST(JudgeTest, AServerSaysWhenToAskAgainBySecondsOrByAMoment) {
  const auto site = *site_of("https://host/a", with({}));
  const Version version{"\"e\"", "", 10};
  const auto judged = [&](std::string after, std::string date) {
    return judge(says(503, "", {{"retry-after", std::move(after)}, {"date", std::move(date)}}), {0, 10, version},
                 *site);
  };
  const auto wait = [&](std::string after, std::string date = "Sun, 06 Nov 1994 08:49:37 GMT") {
    return judged(std::move(after), std::move(date)).wait_ms;
  };
  EXPECT_EQ(wait("7"), 7000u);
  EXPECT_EQ(wait("700"), 30000u);
  EXPECT_EQ(judged("700", "").said_s, 700u);
  // The three kinds of RFC 9110.
  EXPECT_EQ(wait("Sun, 06 Nov 1994 08:49:40 GMT"), 3000u);
  EXPECT_EQ(wait("Sunday, 06-Nov-94 08:49:41 GMT"), 4000u);
  EXPECT_EQ(wait("Sun Nov  6 08:49:42 1994"), 5000u);
  EXPECT_EQ(wait("Sun, 06 Nov 1994 09:49:37 GMT"), 30000u);
  EXPECT_EQ(wait("Sun, 06 Nov 1994 08:49:36 GMT"), 0u);
  EXPECT_EQ(wait("Sun, 06 Nov 1994 08:49:40 GMT", ""), 0u);
  EXPECT_EQ(wait("soon"), 0u);
  EXPECT_EQ(wait("-1"), 0u);
}

TEST(JudgeTest, ALimitOfRequestsSaysItsEnd) {
  const auto site = *site_of("https://host/a", with({}));
  const Version version{"\"e\"", "", 10};
  const auto wait = [&](const char *limit, int code = 429) {
    return judge(says(code, "", {{"ratelimit", limit}}), {0, 10, version}, *site).wait_ms;
  };
  EXPECT_EQ(wait("\"resolvers\";r=0;t=55"), 55000u);
  EXPECT_EQ(wait("\"a\" ; t=7 ; r=0,\"b\";r=0;t=5"), 7000u);
  EXPECT_EQ(wait("\"resolvers\";r=0;t=55", 503), 0u);
  EXPECT_EQ(wait("a;r=0;t=99999999999999"), 86400000u);
  for (const char *none : {"", "a", "a;", ";", ",", "a;r=1;t=55", "a;r=0", "a;t=5", "a;r=0;t=x", "a;r=0;t=-1"})
    EXPECT_EQ(wait(none), 0u) << none;
}

TEST(JudgeTest, ARangeBehindTheEndSaysThatTheObjectIsAnother) {
  const auto site = site_of("https://host/a", with({}));
  Version version;
  version.etag = "W/\"first\"";
  version.size = 500;
  const auto status_of = [&](const char *range) {
    return judge(says(416, "", {{"content-range", range}}), {100, 50, version}, **site).error.status;
  };
  EXPECT_EQ(status_of("bytes */100"), Status::file_changed);
  EXPECT_EQ(status_of("bytes */500"), Status::io);
  EXPECT_EQ(status_of("bytes */*"), Status::io);
}

TEST(JudgeTest, AContentRangeIsTakenAsItIsSpelled) {
  const auto whole = parse_content_range("bytes 0-9/10");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->first, 0u);
  EXPECT_EQ(whole->last, 9u);
  EXPECT_EQ(whole->total, 10u);
  EXPECT_FALSE(parse_content_range("bytes 5-9/*")->total);
  EXPECT_TRUE(parse_content_range("bytes */0")->empty());
  for (const char *wrong :
       {"", "bytes", "bytes ", "bytes 9-0/10", "bytes 0-10/10", "bytes 0-9", "bytes 0-9/", "bytes 0-9/10 ",
        "bytes -9/10", "items 0-9/10", "bytes 0-99999999999999999999/10", "bytes 0-9/x"})
    EXPECT_FALSE(parse_content_range(wrong)) << wrong;
}

// A farewell by its connections would end them for the parent.
TEST(StoreTest, AChildOfAForkEndsNoTransportOfItsParent) {
  static bool ended;
  struct Noted final : Transport {
    ~Noted() override { ended = true; }
    void get(uint64_t, Request) override {}
    std::optional<Answer> next(uint64_t) override { return {}; }
    uint64_t received(uint64_t) const override { return 0; }
    uint64_t came() const override { return 0; }
    void drop(uint64_t) override {}
    void drop_all() override {}
    uint64_t now_ms() override { return 0; }
    int64_t unix_time() override { return 0; }
    uint32_t random() override { return 0; }
  };
  ended = false;
  auto store = std::make_unique<Store>([] { return std::make_unique<Noted>(); }, Limits{});
  { const Store::Lent idle(*store, {}); }
  auto lent = std::make_unique<Store::Lent>(*store, Stops{});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    lent.reset();
    store.reset();
    _exit(ended);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace st::remote
