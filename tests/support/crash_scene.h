// A file as a crashed writer leaves it: with a journal beside it, uncommitted,
// committed, or half applied. Made with the parts that real writers use.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "journal/identity.h"
#include "journal/journal_folder.h"
#include "journal/old_bytes.h"
#include "journal/recover.h"
#include "located.h"
#include "os/range_lock.h"
#include "test_files.h"

namespace st::testing {

struct Change {
  uint64_t offset;
  std::string bytes;
};

class CrashScene : public ::testing::Test {
 protected:
  CrashScene() { put_bytes(path, old); }

  std::string folder() const { return path + ".st-journal"; }
  // The file once `changes` are in it.
  std::string with(const std::vector<Change> &changes) const {
    std::string out = old;
    for (const Change &c : changes) out.replace(c.offset, c.bytes.size(), c.bytes);
    return out;
  }

  // A journal for `changes`, locked as long as it is held. Null after a failure.
  std::unique_ptr<write::Journal> make_journal(const std::vector<Change> &changes, bool commit,
                                               const std::string &of = {}) {
    const std::string data_path = of.empty() ? path : of;
    auto data = os::File::open(env, AT_FDCWD, data_path, O_RDWR, 0, data_path);
    if (!expect(data)) return nullptr;
    auto journal_folder = write::Folder::create(located(env, data_path), *data->stat());
    if (!expect(journal_folder)) return nullptr;
    auto journal = write::Journal::create(journal_folder->dir(), *data->stat());
    if (!expect(journal)) return nullptr;
    (*journal)->begin();
    std::vector<write::Payload> payloads;
    for (const Change &c : changes) payloads.push_back((*journal)->append(c.bytes.data(), c.bytes.size(), {}).value());
    std::vector<write::RangeRecord> ranges;
    write::OldBytes old_bytes(*data);
    for (size_t i = 0; i < changes.size(); ++i)
      ranges.push_back((*journal)->record_old(old_bytes, changes[i].offset, payloads[i]).value());
    auto identity = write::identify(*data);
    if (!expect(identity) || !expect((*journal)->seal(*identity, ranges, flags)) ||
        !expect((*journal)->sync_payload(journal_folder->dir())))
      return nullptr;
    if (commit && !expect((*journal)->commit())) return nullptr;
    return std::move(*journal);
  }
  // The same, and its writer dies. Answers the journal's path.
  std::string leave(const std::vector<Change> &changes, bool commit) {
    auto journal = make_journal(changes, commit);
    return journal ? folder() + "/" + journal->name() : std::string();
  }

  Result<write::Recovered> recover() { return recover(env); }
  Result<write::Recovered> recover(os::Env &with) {
    found.clear();
    auto at = os::Location::find(with, path);
    if (!at) return Failure(std::move(at.error()));
    return write::recover(*at, {0, nullptr, nullptr}, [this](const write::Finding &f) {
      found.push_back(f);
      return true;
    });
  }
  // Recovery that must refuse: the journal aside, the file as it was.
  void expect_aside(const std::string &journal, std::string_view why) {
    const std::string before = bytes_of(path);
    auto r = recover();
    ASSERT_TRUE(is_ok(r));
    EXPECT_EQ(r->aside, 1u);
    EXPECT_EQ(r->applied, 0u);
    EXPECT_NE(r->why_aside.find(why), std::string::npos) << r->why_aside;
    EXPECT_TRUE(same_bytes(bytes_of(path), before));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(journal)));
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::symlink_status(journal + ".bad")));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].status, Status::journal);
    EXPECT_EQ(found[0].level, LogLevel::warning);
    auto again = recover();  // it is never looked at again
    ASSERT_TRUE(is_ok(again));
    EXPECT_EQ(again->aside + again->applied + again->dropped, 0u);
  }

  template <class R>
  static bool expect(const R &r) {
    EXPECT_TRUE(is_ok(r));
    return r.has_value();
  }

  os::Env &env = os::Env::posix();
  TempDir dir;
  const std::string path = dir / "model.safetensors";
  const std::vector<TestTensor> tensors = {u8_tensor("a", 4000, 1), u8_tensor("b", 10007, 2), u8_tensor("c", 3000, 3)};
  const std::string old = file_of(tensors);
  const uint64_t data_offset = 8 + load_u64le(old.data());
  const uint64_t a_at = data_offset, b_at = a_at + 4000, c_at = b_at + 10007;
  std::vector<write::Finding> found;
  uint64_t flags = 0;  // of the records
};

// Acts as an ordinary user while it lives. Root only.
class AsUser {
 public:
  explicit AsUser(uid_t user) : ok_(::geteuid() == 0 && ::seteuid(user) == 0) {}
  ~AsUser() {
    if (ok_ && ::seteuid(0) != 0) std::abort();
  }
  explicit operator bool() const { return ok_; }

 private:
  const bool ok_;
};
inline constexpr uid_t somebody = 4242;  // need not exist

}  // namespace st::testing
