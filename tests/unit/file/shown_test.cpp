// Which state a handle shows while it is refreshed beside commits: never an older one than before, and what it commits
// itself at once. What happens beside a call happens inside it, before one of its system calls, and before each in
// turn.
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;
using read::MapMode;

constexpr MapMode modes[] = {MapMode::automatic, MapMode::shared, MapMode::private_copy, MapMode::none,
                             MapMode::copy_on_write};

// Does something once, before the n-th system call.
class Between : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  // Whether there were as many.
  bool during(size_t n, std::function<void()> then, const std::function<void()> &call) {
    size_t left = n;
    bool came = false;
    before = [&](Call) {
      if (!came && left-- == 0) {
        came = true;
        then();
      }
      return 0;
    };
    call();
    before = nullptr;
    return came;
  }
};

class Shown : public StoreScene {
 protected:
  static OpenOptions mapped(MapMode map) {
    OpenOptions options = writable();
    options.map = map;
    options.lock_timeout_ms = 0;
    return options;
  }
  static TransactionOptions options_of(bool publish) {
    TransactionOptions options;
    options.publish = publish;
    options.lock_timeout_ms = 0;
    return options;
  }
  static std::string bytes_read(const DataFile &c, std::string_view name) {
    const HeldSnapshot s = c.hold();
    const size_t i = s->header.index.find(name).value();
    std::string bytes(s->header.index.at(i).nbytes, '?');
    EXPECT_TRUE(is_ok(c.read(*s, i, bytes.data())));
    return bytes;
  }
  // The handle shows what a handle that is opened now shows.
  void shows_the_file(const DataFile &c) {
    const auto fresh = open();
    EXPECT_TRUE(os::same_inode(c.hold()->identity, fresh->hold()->identity));
    for (const std::string name : {"a", "b", "c"}) {
      EXPECT_TRUE(same_bytes(seen(c, name), seen(*fresh, name))) << name;
      EXPECT_TRUE(same_bytes(bytes_read(c, name), seen(*fresh, name))) << name;
    }
  }

  Between between{env};
};

TEST_F(Shown, APatchShowsInAStateThatARefreshHasPutThere) {
  for (const MapMode map : modes)
    for (const bool looked : {true, false}) {
      put_bytes(path, old);
      auto c = open(mapped(map));
      if (looked) seen(*c, "b");
      auto t = begin(*c);
      ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
      ASSERT_TRUE(is_ok(c->refresh()));
      if (looked) seen(*c, "b");
      ASSERT_TRUE(is_ok(t->commit()));
      EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b)) << static_cast<int>(map) << looked;
      shows_the_file(*c);
    }
}

TEST_F(Shown, APatchShowsInAStateThatATransactionHasFollowed) {
  for (const MapMode map : modes)
    for (const bool held : {true, false}) {
      put_bytes(path, old);
      auto c = open(mapped(map)), other = open(mapped(MapMode::automatic));
      auto first = begin(*c);
      ASSERT_TRUE(is_ok(first->update("a", value(*c, "a", new_a))));
      ASSERT_TRUE(is_ok(update(*other, "c", new_c, options_of(true))));
      ASSERT_TRUE(is_ok(c->refresh()));
      auto last = begin(*c);
      ASSERT_TRUE(is_ok(last->update("b", value(*c, "b", new_b))));
      const HeldSnapshot kept = held ? c->hold() : HeldSnapshot();
      ASSERT_TRUE(is_ok(first->commit()));
      shows_the_file(*c);
      ASSERT_TRUE(is_ok(last->commit()));
      shows_the_file(*c);
      if (!held) continue;
      auto view = c->view(*kept, kept->header.index.find("a").value());
      ASSERT_TRUE(is_ok(view));
      EXPECT_TRUE(same_bytes({reinterpret_cast<const char *>(*view), new_a.size()}, new_a));
    }
}

TEST_F(Shown, ARefreshBesideItsOwnHandlesCommitShowsTheCommit) {
  for (const MapMode map : modes)
    for (const bool publish : {true, false}) {
      bool more = true;
      for (size_t n = 0; more; ++n) {
        put_bytes(path, old);
        auto c = open(between, mapped(map));
        if (map != MapMode::none) seen(*c, "b");  // memory that is read anew keeps a commit out until it is
        const auto commit = [&] { ASSERT_TRUE(is_ok(update(*c, "b", new_b, options_of(publish)))); };
        more = between.during(n, commit, [&] { ASSERT_TRUE(is_ok(c->refresh())); });
        SCOPED_TRACE(text("map ", static_cast<int>(map), " publish ", publish, " call ", n));
        if (more) {
          EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
        }
        shows_the_file(*c);
        if (HasFailure()) return;
      }
    }
}

TEST_F(Shown, OfTwoRefreshesThatWhichSawTheOlderFileChangesNothing) {
  for (const MapMode map : modes) {
    bool more = true;
    for (size_t n = 0; more; ++n) {
      put_bytes(path, old);
      auto c = open(between, mapped(map)), other = open();
      const auto publish = [&] {
        ASSERT_TRUE(is_ok(update(*other, "b", new_b, options_of(true))));
        ASSERT_TRUE(is_ok(c->refresh()));
      };
      more = between.during(n, publish, [&] { ASSERT_TRUE(is_ok(c->refresh())); });
      SCOPED_TRACE(text("map ", static_cast<int>(map), " call ", n));
      if (more) {
        EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
      }
      shows_the_file(*c);
      if (HasFailure()) return;
    }
  }
}

TEST_F(Shown, ATransactionThatFollowsTakesTheHandleToNoOlderFile) {
  for (const MapMode map : {MapMode::automatic, MapMode::copy_on_write}) {
    bool more = true;
    int kept_out = 0;  // looks in a row, as the transaction has its locks for good
    for (size_t n = 0; more && kept_out < 10; ++n) {
      put_bytes(path, old);
      auto c = open(between, mapped(map)), other = open(mapped(MapMode::automatic));
      auto t = begin(*c, options_of(false));
      ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
      ASSERT_TRUE(is_ok(update(*other, "b", new_b, options_of(true))));
      bool published = false;
      const auto publish = [&] {
        published = update(*other, "c", new_c, options_of(true)).has_value();  // not while the transaction has locks
        ASSERT_TRUE(is_ok(c->refresh()));
      };
      more = between.during(n, publish, [&] { ASSERT_TRUE(is_ok(t->commit())); });
      SCOPED_TRACE(text("map ", static_cast<int>(map), " call ", n));
      kept_out = published ? 0 : kept_out + 1;
      EXPECT_TRUE(same_bytes(seen(*c, "a"), new_a));
      if (published) {
        EXPECT_TRUE(same_bytes(seen(*c, "c"), new_c));
      }
      shows_the_file(*c);
      if (HasFailure()) return;
    }
  }
}

// It ends although a patch is committed beside each of its looks.
TEST_F(Shown, ARefreshBesidePatchAfterPatchComesToAnEnd) {
  auto c = open(between, mapped(MapMode::copy_on_write));
  seen(*c, "b");
  unsigned patches = 0;
  std::string last;
  bool inside = false;
  between.before = [&](Call call) {
    if (call == Call::pread && !inside && patches < 100) {
      inside = true;
      last = pattern(10007, 100 + ++patches);
      EXPECT_TRUE(is_ok(update(*c, "b", last, options_of(false))));
      inside = false;
    }
    return 0;
  };
  ASSERT_TRUE(is_ok(c->refresh()));
  between.before = nullptr;
  EXPECT_GE(patches, 1u);
  EXPECT_LT(patches, 10u);
  EXPECT_TRUE(same_bytes(seen(*c, "b"), last));
  shows_the_file(*c);
}

// Descriptors may be given up between reads, but not that of a file whose name this handle's publish took away.
TEST_F(Shown, AStateThatAPublishEndsIsReadableWithoutItsName) {
  put_bytes(path, old);
  OpenOptions options = mapped(MapMode::none);
  options.descriptors = std::make_shared<os::Descriptors>(between);
  auto c = open(between, options);
  std::vector<std::pair<HeldSnapshot, std::string>> states{{c->hold(), tensors[1].bytes}};
  for (const std::string &bytes : {new_b, std::string(new_b.size(), 'L')}) {
    options.descriptors->give_up(os::Descriptors::GiveUp::all);
    ASSERT_TRUE(is_ok(update(*c, "b", bytes, options_of(true))));
    states.emplace_back(c->hold(), bytes);
  }
  options.descriptors->give_up(os::Descriptors::GiveUp::all);
  for (const auto &[state, bytes] : states) {
    std::string read(bytes.size(), 0);
    EXPECT_TRUE(is_ok(c->read(*state, state->header.index.find("b").value(), read.data())));
    EXPECT_TRUE(same_bytes(read, bytes));
  }
}

// A refresh may put another state of the old file there, when the publish has kept what it found.
TEST_F(Shown, AStateThatARefreshFindsBesideAPublishIsReadableWithoutItsName) {
  for (size_t n = 0, more = 1; more; ++n) {
    SCOPED_TRACE(text("call ", n));
    put_bytes(path, old);
    OpenOptions options = mapped(MapMode::copy_on_write);
    options.descriptors = std::make_shared<os::Descriptors>(between);
    auto c = open(between, options);
    auto t = begin(*c, options_of(true));
    ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
    HeldSnapshot found;
    const auto refresh = [&] {
      EXPECT_TRUE(is_ok(c->refresh()));
      found = c->hold();
    };
    more = between.during(n, refresh, [&] { ASSERT_TRUE(is_ok(t->commit())); });
    if (!more) break;
    options.descriptors->give_up(os::Descriptors::GiveUp::all);
    EXPECT_TRUE(is_ok(found->here()));
  }
}

// The bytes are in the file, but the handle cannot read them, or not even open the file. It shows the old ones no more.
TEST_F(Shown, APatchThatTheHandleCannotReadIsReadByTheNextLook) {
  constexpr std::pair<Call, int> failures[] = {{Call::pread, -EIO}, {Call::openat, -EMFILE}};
  for (const auto &failure : failures) {
    const Call failing = failure.first;
    size_t committed = 0, met = 0;  // calls of that kind
    for (size_t n = 0; n <= met; ++n) {
      std::filesystem::remove_all(folder());  // with what a change has left that failed
      put_bytes(path, old);
      OpenOptions options = mapped(MapMode::none);
      options.descriptors = std::make_shared<os::Descriptors>(between);
      auto c = open(between, options);
      ASSERT_TRUE(same_bytes(seen(*c, "b"), tensors[1].bytes));
      options.descriptors->give_up(os::Descriptors::GiveUp::all);
      met = 0;
      const auto fails = nth_call_fails(n, failure.second, true, [=](Call now) { return now == failing; });
      between.before = [&](Call now) {
        met += now == failing;
        return fails(now);
      };
      const bool done = update(*c, "b", new_b, options_of(false)).has_value();
      committed += done && met > n;
      auto view = c->view(*c->hold(), c->hold()->header.index.find("b").value());
      if (done && view) {
        EXPECT_TRUE(same_bytes({reinterpret_cast<const char *>(*view), new_b.size()}, new_b)) << n;
      }
      between.before = nullptr;
      if (done) shows_the_file(*c);
    }
    EXPECT_GT(committed, 0u) << call_name(failing);
  }
}

}  // namespace
}  // namespace st::store
