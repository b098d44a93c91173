// Keys that end, and the memory in which they lie.
#include "remote/credentials/credentials.h"

#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "remote/credentials/times.h"
#include "remote/object.h"
#include "remote/simulated_store.h"
#include "remote/stopping.h"
#include "remote/surroundings_of_tests.h"

namespace st::remote {
namespace {

using ::testing::HasSubstr;

struct RenewalTest : ::testing::Test {
  int given = 0;
  bool there = true;
  Credentials credentials{{"name", [this](int64_t time) -> Result<Granted> {
                             if (!there) return fail(Status::io, "it is away");
                             return Granted{Keys{text("K", ++given), "canary", ""}, "a test", time + 3600};
                           }}};
  void SetUp() override { ASSERT_TRUE(credentials.have(now)); }
  std::string id_at(int64_t time) { return credentials.now(time).granted->keys->id; }
};

TEST_F(RenewalTest, KeysAreRenewedShortlyBeforeTheirEnd) {
  EXPECT_EQ(id_at(now + 3299), "K1");
  EXPECT_EQ(id_at(now + 3300), "K2");
  there = false;
  EXPECT_EQ(id_at(now + 9000), "K2") << "the old ones are better than none";
  EXPECT_THAT(credentials.asked_as(""), HasSubstr("no new ones: it is away"));
  there = true;
  EXPECT_EQ(id_at(now + 9001), "K2") << "a service that is away is not asked all the time";
  EXPECT_EQ(id_at(now + 9030), "K3");
}

TEST_F(RenewalTest, ARefusalRenewsOnceForAllWhoWereRefused) {
  const Answer expired = says(403, "<Error><Code>ExpiredToken</Code></Error>"), denied = says(403, "<Error/>");
  EXPECT_FALSE(credentials.renew(1, denied, now));
  EXPECT_TRUE(credentials.renew(1, expired, now));
  EXPECT_TRUE(credentials.renew(1, expired, now));
  EXPECT_EQ(given, 2);
  EXPECT_TRUE(credentials.renew(2, says(401, ""), now));
  EXPECT_EQ(given, 3);
}

TEST_F(RenewalTest, AnotherClockIsTakenOnce) {
  const Answer late =
      says(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>", {{"date", "Fri, 24 May 2013 05:00:00 GMT"}});
  EXPECT_TRUE(credentials.renew(1, late, now));
  EXPECT_EQ(credentials.now(now).unix_time, now + 5 * 3600);
  EXPECT_FALSE(
      credentials.renew(credentials.number(), says(403, "", {{"date", "Fri, 24 May 2013 09:00:00 GMT"}}), now));
  EXPECT_FALSE(other_clock(says(200, "", {{"date", "Fri, 24 May 2013 05:00:00 GMT"}}), now));
  EXPECT_FALSE(other_clock(says(403, "", {{"date", "Fri, 24 May 2013 00:04:00 GMT"}}), now));
}

// A callback may open another URL, for which the same keys are wanted.
TEST_F(RenewalTest, WhatIsDoneWhileAServiceIsAskedMayAskForKeysToo) {
  int asked = 0;
  const Stops stops = [&] {
    if (asked++ > 0) return false;
    EXPECT_EQ(id_at(now + 3300), "K2");
    return false;
  };
  const Stopping here(stops);
  EXPECT_EQ(id_at(now + 3300), "K3");
}

TEST_F(RenewalTest, OthersWaitForTheThreadThatAsks) {
  std::promise<void> is_asked, goes_on;
  const Stops stops = [&, told = false]() mutable {
    if (!std::exchange(told, true)) {
      is_asked.set_value();
      goes_on.get_future().wait();
    }
    return false;
  };
  std::thread asks([&] {
    const Stopping here(stops);
    EXPECT_EQ(id_at(now + 3300), "K2");
  });
  is_asked.get_future().wait();
  {
    const Stops wants_no_more = [] { return true; };
    const Stopping here(wants_no_more);
    EXPECT_EQ(id_at(now + 3300), "K1") << "it does not wait, and takes the old ones";
  }
  std::thread waits([&] { EXPECT_EQ(id_at(now + 3300), "K2"); });
  goes_on.set_value();
  asks.join();
  waits.join();
  EXPECT_EQ(given, 2);
}

TEST(RenewalOfFilesTest, TheSameKeysAreNotAskedWithAgain) {
  Credentials same({{}, [](int64_t) { return Granted{Keys{"a", "b", ""}, "", {}}; }});
  ASSERT_TRUE(same.have(now));
  EXPECT_FALSE(same.renew(1, says(401, ""), now));
}

// A read goes on where its keys end amid it.
TEST(RenewalInAReadTest, AReadOutlivesItsKeys) {
  auto from = with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}}, {{"/c", "[profile p]\ncredential_process=k\n"}});
  int given = 0;
  from.run = [&](const auto &) -> Result<std::string> { return keys_of(text("K", ++given)); };
  SimulatedStore store(5000);
  store.script = {Fault::none, Fault::none, Fault::expired};
  Limits limits;
  limits.first = 100;
  limits.piece = 400;
  const auto object =
      Object::open(std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits),
                   *site_of("s3://bucket/a", from));
  ASSERT_TRUE(object);
  std::vector<std::byte> got(2000);
  const Wanted wanted{100, got.size(), got.data()};
  const auto done = (*object)->read({&wanted, 1});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(given, 2);
  EXPECT_EQ(store.requests, 7u) << "the first, five parts, and one of them again";
  store.script.assign(1000, Fault::expired);
  EXPECT_EQ((*object)->read({&wanted, 1}).error().status, Status::permission);
}

TEST(TimesTest, AreReadAsServicesWriteThem) {
  EXPECT_EQ(parse_iso_time("2013-05-24T00:00:00Z"), now);
  EXPECT_EQ(parse_iso_time("2013-05-24T00:00:00UTC"), now);
  EXPECT_EQ(parse_iso_time("2013-05-24T02:00:00.123+02:00"), now);
  EXPECT_EQ(parse_iso_time("2013-05-23T19:30:00-04:30"), now);
  for (const char *wrong : {"", "2013-05-24", "2013-05-24T00:00:00", "2013-05-24T00:00:00 or so"})
    EXPECT_FALSE(parse_iso_time(wrong)) << wrong;
}

TEST(SecretTest, IsWipedWhereverItLay) {
  for (const char *secret : {"short", "a secret that is longer than a string has room for"}) {
    std::string given = secret;
    const char *begin = given.data();
    const size_t n = given.size();
    wipe(given);
    ASSERT_EQ(given.data(), begin);
    EXPECT_TRUE(std::all_of(begin, begin + n, [](char c) { return c == 0; }));
  }
  // A short one lies inside its object.
  alignas(Secret) unsigned char place[sizeof(Secret)];
  std::destroy_at(new (place) Secret("canary"));
  EXPECT_EQ(std::string_view(reinterpret_cast<char *>(place), sizeof place).find("canary"), std::string_view::npos);
}

}  // namespace
}  // namespace st::remote
