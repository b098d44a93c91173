// Sequences of operations on two handles of one checkpoint of three shards,
// against a dictionary. A handle that is up to date does what it is asked for, in all
// shards or in none. It does so whatever the power or a system call does meanwhile.
// A reader that follows the index finds each tensor at every moment.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chosen_cut.h"
#include "engine/recover_all.h"
#include "failing_call.h"
#include "format/shard_index.h"
#include "require.h"
#include "shards_workload.h"
#include "steps.h"

namespace st::fuzz {
namespace {

using testing::Model;
using testing::SimDisk;
using testing::SimEnv;

const std::string names[] = {"a", "b", "c", "d", "e", "new", "", "w\xC3\xA9ights", "\"\\\n", "__metadata__"};
const std::string keys[] = {"origin", "total_size", "k", ""};
const std::string texts[] = {"", "12", "v", std::string("\0", 1), "\xE5\xB1\xA4"};

// As for a file, but that libst keeps the totals itself.
Status apply_to_shards(const Step &step, Model *whole) {
  const bool is_metadata = step.kind == Step::set_metadata || step.kind == Step::remove_metadata;
  if (is_metadata && is_total(step.name)) return Status::invalid_argument;
  return apply(step, whole);
}

struct Transaction {
  std::unique_ptr<store::AnyTransaction> real;
  bool copies = false;
  bool replaces = false;  // files, also where updates in place would do
  uint64_t begun_on;      // version
  Model draft;
  bool has_shards;  // that a new tensor could be put into
  std::vector<Step> steps;
  std::vector<std::unique_ptr<std::string>> borrowed;

  // Did it make a name, and take that back, which is another's by now? As if it had come before the other one, that
  // may stay; as if it had come later, it may go.
  bool took_back_some_of(const Model &now) const {
    return std::ranges::any_of(steps, [&](const Step &s) {
      const std::string &made = s.kind == Step::rename ? s.to : s.name;
      return (s.kind == Step::put || s.kind == Step::rename) && !draft.tensors.contains(made) &&
             now.tensors.contains(made);
    });
  }
};

struct Handle {
  std::unique_ptr<store::Shards> real;
  uint64_t version = 0;  // that it shows
  std::optional<Transaction> transaction;
  void close() {
    transaction.reset();
    real.reset();
  }
};

class Sequence {
 public:
  explicit Sequence(FuzzedDataProvider &in)
      : in_(in), disk_(testing::shards_disk(in.PickValueInArray(testing::disks))), env_(disk_) {
    disk_.allow_reflinks(in.ConsumeBool());
    committed_ = testing::first_whole();
  }
  void run();

 private:
  Handle &handle();
  void reopen(Handle &h);
  void begin(Handle &h);
  void stage(Handle &h);
  void commit(Handle &h);
  void compact(Handle &h);
  void read(Handle &h);
  Step step(const Model &draft);
  // The n-th system call from now fails, once or for good.
  void fail_a_call();
  void check_cut(const SimDisk &disk, const Model &other, std::string_view when);
  void check_contents(std::string_view after);

  FuzzedDataProvider &in_;
  SimEnv disk_;
  testing::FaultEnv env_;
  std::optional<testing::FailingCall> failing_;
  Model committed_;
  uint64_t version_ = 0;  // of the files; updates in place make none
  Handle handles_[2];
  unsigned seed_ = 0;
};

Handle &Sequence::handle() {
  Handle &h = handles_[in_.ConsumeBool() ? 1 : 0];
  if (!h.real) reopen(h);
  return h;
}

void Sequence::reopen(Handle &h) {
  h.close();
  store::OpenOptions options;
  options.writable = true;
  options.lock_timeout_ms = 50;
  auto opened = store::Shards::open(env_, testing::index_path, options);
  REQUIRE(opened, said(opened));
  h.real = std::move(*opened);
  h.version = version_;
}

void Sequence::begin(Handle &h) {
  h.transaction.reset();
  store::TransactionOptions o;
  o.lock_timeout_ms = 50;
  o.copy = in_.ConsumeBool();
  const int layout = in_.ConsumeIntegralInRange(0, 7);
  o.publish = layout == 1;
  if (layout == 2) o.layout = write::Layout::canonical;
  auto begun = h.real->begin(o);
  REQUIRE(begun, said(begun));
  h.transaction.emplace();
  h.transaction->real = std::move(*begun);
  h.transaction->copies = o.copy;
  h.transaction->replaces = o.publish || layout == 2;
  h.transaction->begun_on = h.version;
  h.transaction->draft = committed_;
  h.transaction->has_shards = h.real->catalogue().members() > 0;
}

Step Sequence::step(const Model &draft) {
  Step s{in_.PickValueInArray({Step::update, Step::update, Step::update, Step::put, Step::put, Step::remove,
                               Step::rename, Step::set_metadata, Step::remove_metadata}),
         in_.PickValueInArray(names),
         {},
         {}};
  if (s.kind >= Step::set_metadata) s.name = in_.PickValueInArray(keys);
  if (s.kind == Step::rename) s.to = in_.PickValueInArray(names);
  if (s.kind == Step::set_metadata) s.to = in_.PickValueInArray(texts);
  const auto found = draft.tensors.find(s.name);
  uint64_t n = in_.ConsumeIntegralInRange<uint64_t>(0, 600);
  if (s.kind == Step::update && found != draft.tensors.end() && n % 8 != 0) n = found->second.bytes.size();
  if (s.kind > Step::put) return s;
  s.value = {Dtype::U8, {n}, std::string(n, '\0')};
  ++seed_;
  for (size_t i = 0; i < n; ++i) s.value.bytes[i] = static_cast<char>(seed_ * 61 + i + i / 128 * 3);
  return s;
}

void Sequence::stage(Handle &h) {
  if (!h.transaction) begin(h);
  Transaction &t = *h.transaction;
  Step s = step(t.draft);
  // In the allocator's own block, so that a read beyond it, or after its time, is found out.
  t.borrowed.push_back(std::make_unique<std::string>(s.value.bytes));
  const std::string &bytes = *t.borrowed.back();
  const auto answer = apply(s, bytes, *t.real);
  const Status got = answer ? Status::ok : answer.error().status;
  if (t.copies) t.borrowed.back().reset();
  if (h.version != version_ || t.begun_on != version_) {  // the other handle has changed what this one shows
    if (got == Status::ok) {
      apply_to_shards(s, &t.draft);
      t.steps.push_back(std::move(s));
    } else {
      h.close();
    }
    return;
  }
  const Status wanted = s.kind == Step::put && !t.has_shards ? Status::unsupported : apply_to_shards(s, &t.draft);
  REQUIRE(got == wanted, "step ", static_cast<int>(s.kind), " on ", in_quotes(s.name), " to ", in_quotes(s.to),
          " should answer ", static_cast<int>(wanted), ", ", said(answer));
  if (got == Status::ok) t.steps.push_back(std::move(s));
}

void Sequence::fail_a_call() {
  const size_t when = in_.ConsumeIntegralInRange<size_t>(0, 150);
  const int error = in_.PickValueInArray({-EIO, -ENOSPC, testing::FaultEnv::short_io});
  const bool sticky = in_.ConsumeBool();
  failing_.emplace(env_, disk_, when, testing::Fault{error, sticky});
}

void Sequence::commit(Handle &h) {
  if (!h.transaction) return;
  Transaction t = std::move(*h.transaction);
  h.transaction.reset();
  Model target = committed_;
  bool fits = true;
  for (const Step &s : t.steps) fits = apply_to_shards(s, &target) == Status::ok && fits;
  const bool up_to_date = t.begun_on == version_;
  if (!up_to_date && t.took_back_some_of(committed_)) return;
  if (up_to_date) REQUIRE(fits, "steps that were accepted are refused by the same checkpoint");

  SimDisk inside;
  int when = in_.ConsumeIntegralInRange(0, 120);
  if (in_.ConsumeBool())
    disk_.before_change = [&] {
      if (when-- == 0) inside = disk_.disk();
    };
  const bool fails = in_.ConsumeIntegralInRange(0, 3) == 1;
  if (fails) fail_a_call();
  const auto done = t.real->commit();
  failing_.reset();
  disk_.before_change = nullptr;
  t.real.reset();
  const Status got = done ? Status::ok : done.error().status;
  if (!fails && up_to_date) REQUIRE(done, said(done));
  if (!fails && !up_to_date) REQUIRE(done || got == Status::file_changed, said(done));
  if (done) REQUIRE(fits, "what cannot be done was done");
  REQUIRE(got != Status::internal, said(done));
  if (!inside.inodes.empty()) check_cut(inside, fits ? target : committed_, "in a commit");

  if (got == Status::needs_recovery) {
    REQUIRE(fails, said(done));
    for (Handle &each : handles_) each.close();
    const auto recovered = store::recover_all(env_, testing::index_path, {0, nullptr, nullptr}, {});
    REQUIRE(recovered && recovered->aside == 0, said(recovered), ", ", recovered ? recovered->why_aside : "");
    const Model now = testing::follow_index(disk_).whole;
    REQUIRE(now == committed_ || (fits && now == target), "after recovery it is of no state");
    committed_ = now;
    ++version_;
    return;
  }
  if (!done) {
    h.close();
    return;
  }
  const bool in_place =
      !t.replaces && std::all_of(t.steps.begin(), t.steps.end(), [](const Step &s) { return s.kind == Step::update; });
  committed_ = std::move(target);
  if (in_place && up_to_date && !fails) return;
  ++version_;
  if (up_to_date && !fails) h.version = version_;
}

// Shard by shard: as much room as the largest of them. A handle that is not up to date may have to say so.
void Sequence::compact(Handle &h) {
  store::TransactionOptions o;
  o.lock_timeout_ms = 50;
  o.layout = write::Layout::canonical;
  h.transaction.reset();
  const auto done = h.real->compact(o);
  if (h.version == version_) REQUIRE(done, said(done));
  const bool shows = done && h.version == version_;
  ++version_;
  if (shows) h.version = version_;
}

void Sequence::read(Handle &h) {
  if (h.version != version_) {
    const auto done = h.real->refresh();
    REQUIRE(done, said(done));
    h.transaction.reset();
    h.version = version_;
  }
  const store::Catalogue catalogue = h.real->catalogue();
  REQUIRE(catalogue.size() == committed_.tensors.size(), catalogue.size(), " tensors");
  for (const auto &[name, t] : committed_.tensors) {
    const auto place = catalogue.find(name);
    REQUIRE(place, in_quotes(name), ": ", said(place));
    const TensorView view = place->tensor();
    REQUIRE(view.dtype == t.dtype && std::ranges::equal(view.shape, t.shape), in_quotes(name), " has another form");
    std::string bytes(view.nbytes, '\0');
    const auto got = place->member->read(*place->snapshot, place->index, bytes.data());
    REQUIRE(got && bytes == t.bytes, in_quotes(name), " has other bytes, ", said(got));
  }
  for (const auto &[key, value] : committed_.metadata) REQUIRE(catalogue.metadata_find(key) == value, in_quotes(key));
}

void Sequence::check_cut(const SimDisk &disk, const Model &other, std::string_view when) {
  SimEnv env(after_chosen_cut(disk, in_));
  const auto crashed = testing::follow_index(env);
  REQUIRE(crashed.wrong.empty(), "a cut ", when, ": ", crashed.wrong);
  if (in_.ConsumeBool()) {
    const std::string shard = testing::shards_folder + "/" + testing::shard_names[in_.ConsumeIntegralInRange(0, 2)];
    const auto opened = store::DataFile::open(env, shard, {});
    REQUIRE(opened, "after a cut ", when, " ", shard, ": ", said(opened));
  }
  const auto recovered = store::recover_all(env, testing::index_path, {0, nullptr, nullptr}, {});
  REQUIRE(recovered && recovered->aside == 0, "a cut ", when, ": ", said(recovered), ", ",
          recovered ? recovered->why_aside : "");
  const std::string wrong = testing::check_strictly(env);
  REQUIRE(wrong.empty(), "a cut ", when, ": ", wrong);
  const auto found = testing::follow_index(env);
  REQUIRE(found.whole == committed_ || found.whole == other, "after a cut ", when, " it is of no state");
}

void Sequence::check_contents(std::string_view after) {
  const auto found = testing::follow_index(disk_);
  REQUIRE(found.wrong.empty(), found.wrong, " after ", after);
  REQUIRE(found.whole == committed_, "the checkpoint holds something else after ", after);
}

void Sequence::run() {
  for (int n = 0; n < 24 && in_.remaining_bytes() > 0; ++n) {
    Handle &h = handle();
    switch (in_.ConsumeIntegralInRange(0, 15)) {
      case 0: reopen(h); break;
      case 1: begin(h); break;
      case 2: h.transaction.reset(); break;
      case 3:
      case 4: read(h); break;
      case 5: compact(h); break;
      case 6: check_cut(disk_.disk(), committed_, "between two operations"); break;
      case 7:
      case 8: commit(h); break;
      default: stage(h); break;
    }
    check_contents(text("operation ", n));
  }
  for (Handle &h : handles_) h.close();
  const auto recovered = store::recover_all(env_, testing::index_path, {0, nullptr, nullptr}, {});
  REQUIRE(recovered && recovered->aside == 0, said(recovered));
  const std::string wrong = testing::check_strictly(disk_);
  REQUIRE(wrong.empty(), wrong);
  check_contents("closing");
  for (const std::string &name : disk_.names(testing::shards_folder))
    REQUIRE(name.starts_with("m") && !name.ends_with(".st-journal"), in_quotes(name), " is left beside the shards");
  REQUIRE(disk_.open_files() == 0, disk_.open_files(), " descriptors are left open");
}

}  // namespace
}  // namespace st::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FuzzedDataProvider in(data, size);
  st::fuzz::Sequence(in).run();
  return 0;
}
