// Keys that end, and the memory in which they lie.
#include "remote/credentials/credentials.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "remote/credentials/oauth.h"
#include "remote/credentials/times.h"
#include "remote/object.h"
#include "remote/simulated_store.h"
#include "remote/stopping.h"
#include "remote/surroundings_of_tests.h"

namespace st::remote {
namespace {

using ::testing::HasSubstr;

struct RenewalTest : ::testing::Test {
  int given = 0, asked = 0;
  uint32_t tries = 0;
  bool there = true, nobody = false;
  uint64_t clock_ms = 0, takes_ms = 0;  // a question does
  Credentials credentials{{"name",
                           [this](int64_t time) -> Result<Granted> {
                             ++asked;
                             clock_ms += takes_ms;
                             tries = MostTries::now();
                             if (nobody) return Granted{.ends = time + nobody_there};
                             if (!there) return fail(Status::io, "it is away");
                             return Granted{Keys{text("K", ++given), "canary", ""}, "a test", time + 3600};
                           }},
                          [this] { return clock_ms; }};
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

// As a metadata service may give them while it cannot renew them.
TEST(RenewalOfEndedKeysTest, AServiceIsNotAskedForThemAtEachRequest) {
  int asked = 0;
  Credentials ended({"name", [&](int64_t) {
                       ++asked;
                       return Granted{Keys{"K", "canary", ""}, "a test", now - 1};
                     }});
  ASSERT_TRUE(ended.have(now));
  for (int i = 0; i < 30; ++i) EXPECT_EQ(ended.now(now + i).granted->keys->id, "K");
  EXPECT_EQ(asked, 1);
  ended.now(now + 30);
  EXPECT_EQ(asked, 2);
}

TEST_F(RenewalTest, ARefusalRenewsOnceForAllWhoWereRefused) {
  const Answer expired = says(403, "<Error><Code>ExpiredToken</Code></Error>"), denied = says(403, "<Error/>");
  EXPECT_EQ(credentials.renew(1, denied, now), Renewal::none);
  EXPECT_EQ(credentials.renew(1, expired, now), Renewal::done);
  EXPECT_EQ(credentials.renew(1, expired, now), Renewal::done);
  EXPECT_EQ(given, 2);
  EXPECT_EQ(credentials.renew(2, says(401, ""), now), Renewal::done);
  EXPECT_EQ(given, 3);
}

TEST_F(RenewalTest, ARefusalIsAskedAboutLaterWhereTheServiceIsAway) {
  const Answer expired = says(403, "<Error><Code>ExpiredToken</Code></Error>");
  there = false;
  EXPECT_EQ(credentials.renew(1, expired, now), Renewal::later);
  EXPECT_EQ(credentials.renew(1, expired, now), Renewal::later);
  EXPECT_EQ(asked, 2) << "one question for all that were sent before it";
  EXPECT_EQ(credentials.renew(credentials.number(), expired, now), Renewal::later);
  EXPECT_EQ(asked, 3);
  there = true;
  EXPECT_EQ(credentials.renew(credentials.number(), expired, now), Renewal::done);
  EXPECT_EQ(id_at(now), "K2");
}

TEST_F(RenewalTest, AClockThatIsSetLaterIsFollowed) {
  const auto told = [](const char *date) {
    return says(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>", {{"date", date}});
  };
  EXPECT_EQ(credentials.renew(1, told("Fri, 24 May 2013 05:00:00 GMT"), now), Renewal::done);
  EXPECT_EQ(credentials.now(now).unix_time, now + 5 * 3600);
  const int64_t set = now + 5 * 3600 + 60;
  EXPECT_EQ(credentials.renew(credentials.number(), told("Fri, 24 May 2013 05:01:00 GMT"), set), Renewal::done);
  EXPECT_EQ(credentials.now(set).unix_time, set);
  EXPECT_FALSE(other_clock(says(200, "", {{"date", "Fri, 24 May 2013 05:00:00 GMT"}}), now));
  EXPECT_FALSE(other_clock(says(403, "", {{"date", "Fri, 24 May 2013 00:04:00 GMT"}}), now));
}

TEST(RenewalOfTokensTest, ARefusedTokenIsRenewedWhateverTheClock) {
  int given = 0;
  Credentials tokens({{}, [&](int64_t) { return Granted{Keys{"pays", "", text("T", ++given)}, "", {}}; }});
  ASSERT_TRUE(tokens.have(now));
  const Answer refusal = says(401, "", {{"date", "Fri, 24 May 2013 05:00:00 GMT"}});
  EXPECT_EQ(tokens.renew(1, refusal, now), Renewal::done);
  EXPECT_EQ(tokens.now(now).granted->keys->token, Secret("T2"));
  EXPECT_EQ(tokens.now(now).unix_time, now);
}

TEST_F(RenewalTest, NobodyWhereKeysCameFromTakesNoneAway) {
  nobody = true;
  EXPECT_EQ(id_at(now + 3300), "K1");
  EXPECT_THAT(credentials.asked_as("anonymously"), HasSubstr("no new ones: nobody answers"));
  EXPECT_EQ(credentials.renew(1, says(401, ""), now + 3301), Renewal::later);
  EXPECT_EQ(id_at(now + 3302), "K1");
  EXPECT_EQ(id_at(now + 3600), "K1") << "they have ended, and nobody's are no better";
  const Answer expired = says(400, "<Error><Code>ExpiredToken</Code></Error>");
  EXPECT_EQ(credentials.renew(credentials.number(), expired, now + 3601), Renewal::later);
  nobody = false;
  EXPECT_EQ(credentials.renew(credentials.number(), expired, now + 3602), Renewal::done);
  EXPECT_EQ(id_at(now + 3602), "K2");
}

TEST_F(RenewalTest, TheTimeToTheNextTryIsFromTheEndOfTheLast) {
  there = false;
  takes_ms = 40'000;
  id_at(now + 3300);
  EXPECT_EQ(asked, 2);
  id_at(now + 3340 + 29);
  EXPECT_EQ(asked, 2) << "the question was longer than the time to the next";
  id_at(now + 3340 + 30);
  EXPECT_EQ(asked, 3);
}

TEST_F(RenewalTest, WhoWasNotThereIsLookedForAgain) {
  nobody = true;
  Credentials none({"name", [&](int64_t time) -> Result<Granted> {
                      if (!there) return fail(Status::io, "it is away");
                      if (nobody) return Granted{.ends = time + nobody_there};
                      return Granted{Keys{"K", "canary", ""}, "a test", time + 3600};
                    }});
  ASSERT_TRUE(none.have(now));
  nobody = false;
  EXPECT_EQ(none.renew(1, says(403, ""), now + 29), Renewal::none);
  EXPECT_EQ(none.renew(1, says(404, ""), now + 30), Renewal::none);
  const auto private_409 = says(409, "<Error><Code>PublicAccessNotPermitted</Code></Error>");
  EXPECT_EQ(none.renew(1, private_409, now + 29), Renewal::none);
  EXPECT_EQ(none.renew(1, says(409, "<Error><Code>Other</Code></Error>"), now + 30), Renewal::none);
  there = false;
  EXPECT_EQ(none.renew(1, private_409, now + 30), Renewal::later);
  EXPECT_EQ(none.renew(none.number(), says(403, ""), now + 31), Renewal::later) << "it is there, and is not waited for";
  there = true;
  EXPECT_EQ(none.renew(none.number(), says(404, ""), now + 32), Renewal::none);
  EXPECT_EQ(none.renew(none.number(), says(403, ""), now + 32), Renewal::done);
  EXPECT_EQ(none.now(now + 32).granted->keys->id, "K");
}

TEST_F(RenewalTest, ALookThatWasStoppedIsNone) {
  nobody = true;
  Credentials none({"name", [&](int64_t time) -> Result<Granted> {
                      if (nobody) return Granted{.ends = time + nobody_there};
                      return Granted{Keys{"K", "canary", ""}, "a test", time + 3600};
                    }});
  ASSERT_TRUE(none.have(now));
  nobody = false;
  {
    const Stops wants_no_more = [] { return true; };
    const Stopping here(wants_no_more);
    EXPECT_EQ(none.renew(1, says(403, ""), now + 30), Renewal::none);
  }
  EXPECT_EQ(none.renew(1, says(403, ""), now + 31), Renewal::done);
}

TEST_F(RenewalTest, WhileKeysLastAServiceIsAskedByOneTry) {
  there = false;
  id_at(now + 3300);
  EXPECT_EQ(tries, 1u);
  id_at(now + 3600);
  EXPECT_EQ(tries, UINT32_MAX) << "they have ended";
  EXPECT_EQ(MostTries::now(), UINT32_MAX);
}

TEST(AskTest, AServiceThatCannotAnswerNowIsAskedAgain) {
  struct Busy final : Transport {
    Busy(int *n, Answer answer) : asked(n), busy(std::move(answer)) {}
    void get(uint64_t, Request) override { said = *asked < 2 ? busy : says(200, ""), ++*asked; }
    uint64_t received(uint64_t) const override { return 0; }
    void drop(uint64_t) override {}
    void drop_all() override {}
    std::optional<Answer> next(uint64_t wait_ms) override {
      if (!said) time += wait_ms;
      return std::exchange(said, std::nullopt);
    }
    uint64_t came() const override { return 0; }
    uint64_t now_ms() override { return time; }
    int64_t unix_time() override { return 0; }
    uint32_t random() override { return 0; }
    int *const asked;
    const Answer busy;
    std::optional<Answer> said;
    uint64_t time = 0;
  };
  int asked = 0;
  Answer busy = says(503, "");
  const Ask ask = asks_by([&] { return std::make_unique<Busy>(&asked, busy); });
  Question question = get("https://service", {});
  question.tries = 1;
  EXPECT_EQ(ask(question).head.code, 200);
  EXPECT_EQ(asked, 3);
  for (const char *name : {"Throttling", "ThrottlingException", "RequestLimitExceeded", "IDPCommunicationError"}) {
    asked = 0;
    busy = says(400, text("<ErrorResponse><Error><Code>", name, "</Code></Error></ErrorResponse>"));
    EXPECT_EQ(ask(question).head.code, 200) << name;
    EXPECT_EQ(refused_by("it", busy).value().status, Status::io) << name;
  }
  for (const Answer &refusal : {says(400, "<Error><Code>InvalidIdentityToken</Code></Error>"), says(410, "")}) {
    asked = 0;
    busy = refusal;
    EXPECT_EQ(ask(question).head.code, refusal.head.code);
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(refused_by("it", busy).value().status, Status::permission);
  }
  asked = 0;
  question.absent_is_busy = true;
  EXPECT_EQ(ask(question).head.code, 200);
  busy = says(503, "");
  asked = 0;
  const MostTries most(1);
  EXPECT_EQ(ask(question).head.code, 503);
  EXPECT_EQ(asked, 1);
}

TEST(AskTest, WhoWantsManyTriesWaitsNoLongerBetweenThem) {
  struct Nobody final : Transport {
    explicit Nobody(uint64_t *t) : time(t) {}
    void get(uint64_t, Request) override { said = Answer{.cut = Cut::unreachable}; }
    uint64_t received(uint64_t) const override { return 0; }
    void drop(uint64_t) override {}
    void drop_all() override {}
    std::optional<Answer> next(uint64_t wait_ms) override {
      if (!said) *time += wait_ms;
      return std::exchange(said, std::nullopt);
    }
    uint64_t came() const override { return 0; }
    uint64_t now_ms() override { return *time; }
    int64_t unix_time() override { return 0; }
    uint32_t random() override { return 0; }
    uint64_t *const time;
    std::optional<Answer> said;
  };
  uint64_t time = 0;
  const Ask ask = asks_by([&] { return std::make_unique<Nobody>(&time); });
  Question question = get("https://service", {});
  question.tries = 40;
  EXPECT_EQ(ask(question).cut, Cut::unreachable);
  EXPECT_LT(time, 40u * 2000);
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
    EXPECT_EQ(id_at(now + 3600), "K1") << "it does not wait, and takes the old ones";
  }
  EXPECT_EQ(id_at(now + 3300), "K1") << "the old ones last";
  std::thread waits([&] { EXPECT_EQ(id_at(now + 3600), "K2"); });
  goes_on.set_value();
  asks.join();
  waits.join();
  EXPECT_EQ(given, 2);
}

TEST(RenewalOfFilesTest, TheSameKeysAreNotAskedWithAgain) {
  Credentials same({{}, [](int64_t) { return Granted{Keys{"a", "b", ""}, "", {}}; }});
  ASSERT_TRUE(same.have(now));
  EXPECT_EQ(same.renew(1, says(401, ""), now), Renewal::none);
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

TEST(KeptCredentialsTest, ThoseThatFailedAreNotKept) {
  KeptCredentials kept;
  const auto first = kept.of({"a", [](int64_t) -> Result<Granted> { return fail(Status::io, "no such authority"); }});
  EXPECT_EQ(kept.of({"a", {}}), first) << "nobody has asked yet";
  EXPECT_FALSE(first->have(now));
  const auto second = kept.of({"a", [](int64_t) { return Granted{Keys{"K", "", ""}, "", {}}; }});
  ASSERT_TRUE(second->have(now));
  EXPECT_EQ(kept.of({"a", {}}), second);
}

TEST(KeptCredentialsTest, AreOfTheirAuthorities) {
  std::map<std::string, std::string> variables = {{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}};
  auto from = with(variables, {{"/c", "[profile p]\ncredential_process=k\n"}});
  int given = 0;
  from.run = [&](const auto &) -> Result<std::string> { return keys_of(text("K", ++given)); };
  from.variable = [&](const std::string &name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  for (const char *authorities : {"/one", "/one", "/another"}) {
    variables["AWS_CA_BUNDLE"] = authorities;
    ASSERT_TRUE(site_of("s3://bucket/a", from));
  }
  EXPECT_EQ(given, 2);
}

// A thread that the child does not have is amid a change of all that is kept.
TEST(KeptCredentialsTest, AChildOfAForkWaitsForNobody) {
  KeptCredentials kept;
  std::promise<void> is_amid, goes_on;
  const auto keep = [&](int n, std::shared_ptr<void> more) {
    kept.of({text(n), [held = std::move(more)](int64_t) { return Granted{}; }});
  };
  keep(0, std::shared_ptr<void>(nullptr, [&](void *) {
         is_amid.set_value();
         goes_on.get_future().wait();
       }));
  for (int n = 1; n < 64; ++n) keep(n, nullptr);
  std::thread drops_all([&] { keep(64, nullptr); });
  is_amid.get_future().wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    keep(65, nullptr);
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  goes_on.set_value();
  drops_all.join();
}

// A thread that the child does not have holds the lock of the keys.
TEST(CredentialsTest, InAChildOfAForkWaitForNobody) {
  std::promise<void> is_amid, goes_on;
  int looks = 0;
  const auto clock = [&]() -> uint64_t {  // is asked under the lock
    if (++looks == 3) {
      is_amid.set_value();
      goes_on.get_future().wait();
    }
    return 0;
  };
  Credentials keys({"a", [&](int64_t) { return Granted{Keys{"K", "", "T"}, "a file", {}}; }}, clock);
  ASSERT_TRUE(keys.have(now));
  const Answer refusal = says(401, "");
  std::thread renews([&] { EXPECT_EQ(keys.renew(1, refusal, now), Renewal::none); });
  is_amid.get_future().wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool refused =
        keys.renew(1, refusal, now) == Renewal::none && !keys.have(now) && !keys.now(now).granted->keys;
    _exit(refused && keys.number() == 1 && !keys.has_failed() && keys.asked_as("; by nobody") == "; by nobody" ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  goes_on.set_value();
  renews.join();
}

TEST(TimesTest, AreReadAsServicesWriteThem) {
  EXPECT_EQ(parse_iso_time("2013-05-24T00:00:00Z"), now);
  EXPECT_EQ(parse_iso_time("2013-05-24T00:00:00UTC"), now);
  EXPECT_EQ(parse_iso_time("2013-05-24T02:00:00.123+02:00"), now);
  EXPECT_EQ(parse_iso_time("2013-05-23T19:30:00-04:30"), now);
  for (const char *wrong : {"", "2013-05-24", "2013-05-24T00:00:00", "2013-05-24T00:00:00 or so"})
    EXPECT_FALSE(parse_iso_time(wrong)) << wrong;
}

TEST(TimesTest, WhatLastsForEverEndsLater) {
  const auto ends = [](const char *lasts) {
    const std::string said = text(R"({"access_token":"canary","expires_in":)", lasts, "}");
    return token_in(says(200, said), now, "it", "a test").value().ends.value();
  };
  EXPECT_EQ(ends("60"), now + 60);
  EXPECT_EQ(ends("null"), now + 3600);
  EXPECT_GT(ends("9223372036854775807"), now);
  EXPECT_EQ(ends("-9223372036854775808"), now);
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
