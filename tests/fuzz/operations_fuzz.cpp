// Sequences of operations on two handles of one file, against a dictionary. Every
// answer is the one that the dictionary gives, and every state on the disk is the
// dictionary's. A power cut, between two operations or inside a commit, leaves what
// was acknowledged.
#include <fuzzer/FuzzedDataProvider.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chosen_cut.h"
#include "engine/verify.h"
#include "layout_workload.h"
#include "require.h"
#include "steps.h"

namespace st::fuzz {
namespace {

using testing::Model;
using testing::ModelTensor;
using testing::SimDisk;
using testing::SimEnv;

const std::string names[] = {"a",
                             "b",
                             "c",
                             "d",
                             "e",
                             "",
                             "w\xC3\xA9ights",
                             std::string("n\0l", 3),
                             "\"\\\n",
                             "__metadata__",
                             "x/y.z",
                             std::string(300, 'n')};
const std::string texts[] = {"", "v", "k", std::string("\0", 1), "\xE5\xB1\xA4", std::string(600, 't')};

// An inode of the file: what a patch changes, all handles on it see; a publish makes a new one.
using File = std::shared_ptr<Model>;

struct Transaction {
  std::unique_ptr<store::Transaction> real;
  store::TransactionOptions options;
  File begun_on;
  Model draft;
  std::vector<Step> steps;
  std::vector<std::unique_ptr<std::string>> borrowed;
  bool published = false;  // by a step, or by what it was begun with
};

struct Handle {
  std::unique_ptr<store::DataFile> real;
  File file;
  std::optional<Transaction> transaction;
};

class Sequence {
 public:
  explicit Sequence(FuzzedDataProvider &in) : in_(in), env_(testing::layout_disk(disk_of(in))) {
    env_.allow_reflinks(in.ConsumeBool());
    committed_ = std::make_shared<Model>(testing::first_model());
  }
  void run();

 private:
  static testing::Disk disk_of(FuzzedDataProvider &in) { return in.PickValueInArray(testing::disks); }

  Handle &handle();
  void reopen(Handle &h);
  void begin(Handle &h);
  void stage(Handle &h);
  void stage_step(Handle &h, Step step);
  void commit(Handle &h);
  void compact(Handle &h);
  void refresh(Handle &h);
  void read(Handle &h);
  void cut();

  Step step();
  ModelTensor value();
  void check_disk(const SimDisk &disk, const Model &one, const Model *other, std::string_view when);
  void check_contents(std::string_view after);

  FuzzedDataProvider &in_;
  SimEnv env_;
  File committed_;
  Handle handles_[2];
  unsigned seed_ = 0;
};

Handle &Sequence::handle() {
  Handle &h = handles_[in_.ConsumeBool() ? 1 : 0];
  if (!h.real) reopen(h);
  return h;
}

void Sequence::reopen(Handle &h) {
  h.transaction.reset();
  h.real.reset();
  store::OpenOptions options;
  options.writable = true;
  options.lock_timeout_ms = 50;
  auto opened = store::DataFile::open(env_, testing::layout_path, options);
  REQUIRE(opened, said(opened));
  h.real = std::move(*opened);
  h.file = committed_;
}

void Sequence::begin(Handle &h) {
  h.transaction.reset();
  h.transaction.emplace();
  Transaction &t = *h.transaction;
  store::TransactionOptions &o = t.options;
  o.lock_timeout_ms = 50;
  o.copy = in_.ConsumeBool();
  const int layout = in_.ConsumeIntegralInRange(0, 15);
  if (layout == 1) o.layout = write::Layout::canonical;
  if (layout == 2) o.alignment = in_.PickValueInArray<uint64_t>({8, 64, 4096});
  if (layout == 3) o.reserve = in_.ConsumeIntegralInRange<uint64_t>(1, 10000);
  o.publish = layout == 4;
  t.published = layout >= 1 && layout <= 3;
  auto begun = store::Transaction::begin(*h.real, o);
  REQUIRE(begun, said(begun));
  t.real = std::move(*begun);
  t.begun_on = h.file;
  t.draft = *h.file;
}

ModelTensor Sequence::value() {
  ModelTensor t;
  t.dtype = in_.PickValueInArray({Dtype::U8, Dtype::BF16, Dtype::F64, Dtype::F4, Dtype::F6_E2M3});
  uint64_t count = 1;
  for (int rank = in_.ConsumeIntegralInRange(0, 2); rank > 0; --rank) {
    t.shape.push_back(in_.ConsumeBool() ? in_.ConsumeIntegralInRange<uint64_t>(0, 9)
                                        : in_.ConsumeIntegralInRange<uint64_t>(0, 70));
    count *= t.shape.back();
  }
  if (dtype_bits(t.dtype) < 8) {  // whole bytes
    t.shape.push_back(4);
    count *= 4;
  }
  t.bytes.resize(count * dtype_bits(t.dtype) / 8);
  return t;
}

Step Sequence::step() {
  Step s{in_.PickValueInArray({Step::update, Step::update, Step::put, Step::put, Step::remove, Step::rename,
                               Step::set_metadata, Step::remove_metadata}),
         in_.PickValueInArray(names),
         {},
         {}};
  if (s.kind == Step::rename) s.to = in_.PickValueInArray(names);
  if (s.kind == Step::set_metadata) s.to = in_.PickValueInArray(texts);
  if (s.kind == Step::put) s.value = value();
  return s;
}

void Sequence::stage(Handle &h) {
  if (!h.transaction) begin(h);
  Step s = step();
  if (s.kind == Step::update) {
    const auto found = h.transaction->draft.tensors.find(s.name);
    const bool fits = found != h.transaction->draft.tensors.end() && in_.ConsumeIntegralInRange(0, 7) != 0;
    s.value = fits ? found->second : value();
  }
  ++seed_;
  for (size_t i = 0; i < s.value.bytes.size(); ++i) s.value.bytes[i] = static_cast<char>(seed_ * 61 + i + i / 128 * 3);
  stage_step(h, std::move(s));
}

void Sequence::stage_step(Handle &h, Step s) {
  Transaction &t = *h.transaction;
  // In the allocator's own block, so that a read beyond it, or after its time, is found out.
  t.borrowed.push_back(std::make_unique<std::string>(s.value.bytes));
  const std::string &bytes = *t.borrowed.back();
  const auto answer = apply(s, bytes, *t.real);
  const Status wanted = apply(s, &t.draft);
  const Status got = answer ? Status::ok : answer.error().status;
  REQUIRE(got == wanted, "step ", static_cast<int>(s.kind), " on ", in_quotes(s.name), " should answer ",
          static_cast<int>(wanted), ", ", said(answer));
  if (t.options.copy) t.borrowed.back().reset();
  if (got != Status::ok) return;
  // An update of nothing publishes nothing.
  t.published |= s.kind != Step::update || (t.options.publish && !s.value.bytes.empty());
  t.steps.push_back(std::move(s));
}

void Sequence::commit(Handle &h) {
  if (!h.transaction) return;
  Transaction t = std::move(*h.transaction);
  h.transaction.reset();

  // Updates of empty tensors are nothing; all else is done again on the file as it is by now.
  Model target = *committed_;
  Status wanted = Status::ok;
  const bool followed = t.begun_on != committed_;
  for (const Step &s : t.steps) {
    if (s.kind == Step::update && s.value.bytes.empty()) continue;
    if (apply(s, &target) != Status::ok) wanted = Status::file_changed;
  }
  if (wanted != Status::ok) REQUIRE(followed, "steps that were accepted are refused by the same file");
  bool nothing = !t.published;
  for (const Step &s : t.steps) nothing &= s.value.bytes.empty();  // updates of empty tensors

  const auto plan = t.real->plan();
  REQUIRE(plan, said(plan));
  const auto kind = t.published ? store::CommitPlan::publish
                    : nothing   ? store::CommitPlan::nothing
                                : store::CommitPlan::patch;
  REQUIRE(plan->kind == kind, "planned ", static_cast<int>(plan->kind), ", not ", static_cast<int>(kind));

  SimDisk inside;
  int when = in_.ConsumeIntegralInRange(0, 40);
  const bool cuts = in_.ConsumeBool();
  if (cuts)
    env_.before_change = [&] {
      if (when-- == 0) inside = env_.disk();
    };
  const auto done = t.real->commit();
  env_.before_change = nullptr;
  REQUIRE((done ? Status::ok : done.error().status) == wanted, "should answer ", static_cast<int>(wanted), ", ",
          said(done));
  if (!inside.inodes.empty()) check_disk(inside, *committed_, wanted == Status::ok ? &target : nullptr, "in a commit");
  if (wanted != Status::ok || nothing) return;
  if (t.published) {
    committed_ = std::make_shared<Model>(std::move(target));
    h.file = committed_;
  } else {
    *committed_ = std::move(target);
    if (followed) h.file = committed_;
  }
  if (plan->kind == store::CommitPlan::publish && !followed)
    REQUIRE(env_.contents(testing::layout_path).size() == plan->file_size, "planned ", plan->file_size);
}

void Sequence::compact(Handle &h) {
  store::TransactionOptions options;
  options.lock_timeout_ms = 50;
  options.compact = true;
  options.layout = write::Layout::canonical;
  auto begun = store::Transaction::begin(*h.real, options);
  REQUIRE(begun, said(begun));
  const auto done = (*begun)->commit();
  REQUIRE(done, said(done));
  committed_ = std::make_shared<Model>(*committed_);
  h.file = committed_;
}

void Sequence::refresh(Handle &h) {
  const auto done = h.real->refresh();
  REQUIRE(done, said(done));
  h.file = committed_;
}

void Sequence::read(Handle &h) {
  const store::Snapshot &s = h.real->snapshot();
  const Index &index = s.header.index;
  const Model &model = *h.file;
  for (const auto &[name, t] : model.tensors) {
    const auto i = index.find(name);
    REQUIRE(i, in_quotes(name), " is not in the handle");
    const TensorView view = index.at(*i);
    REQUIRE(view.dtype == t.dtype && std::ranges::equal(view.shape, t.shape), in_quotes(name), " has another form");
    std::string bytes(view.nbytes, '\0');
    const auto got = h.real->read(s, *i, bytes.data());
    REQUIRE(got && bytes == t.bytes, in_quotes(name), " has other bytes, ", said(got));
  }
  REQUIRE(index.metadata_size() == model.metadata.size(), "metadata of another size");
  for (const auto &[key, value] : model.metadata) REQUIRE(index.metadata_find(key) == value, in_quotes(key));
}

void Sequence::cut() {
  check_disk(env_.disk(), *committed_, nullptr, "between two operations");
}

void Sequence::check_disk(const SimDisk &disk, const Model &one, const Model *other, std::string_view when) {
  SimEnv env(after_chosen_cut(disk, in_));
  REQUIRE(testing::model_of(env.contents(testing::layout_path)), "a stock reader cannot open it after a cut ", when);
  {
    store::OpenOptions options;
    options.writable = true;
    const auto opened = store::DataFile::open(env, testing::layout_path, options);
    REQUIRE(opened, said(opened), " after a cut ", when);
  }
  const auto found = testing::model_of(env.contents(testing::layout_path));
  REQUIRE(found && (*found == one || (other && *found == *other)), "after a cut ", when, " the file is of no state");
}

void Sequence::check_contents(std::string_view after) {
  const auto found = testing::model_of(env_.contents(testing::layout_path));
  REQUIRE(found, "no reader would take the file after ", after);
  REQUIRE(*found == *committed_, "the file holds something else after ", after);
}

void Sequence::run() {
  for (int n = 0; n < 40 && in_.remaining_bytes() > 0; ++n) {
    Handle &h = handle();
    const int what = in_.ConsumeIntegralInRange(0, 15);
    switch (what) {
      case 0: reopen(h); break;
      case 1: begin(h); break;
      case 2: h.transaction.reset(); break;
      case 3: refresh(h); break;
      case 4: read(h); break;
      case 5: compact(h); break;
      case 6: cut(); break;
      case 7:
      case 8:
      case 9: commit(h); break;
      default: stage(h); break;
    }
    check_contents(text("operation ", n));
  }
  for (Handle &h : handles_) {
    h.transaction.reset();
    h.real.reset();
  }
  const auto sound = store::verify(env_, testing::layout_path, Control(), {});
  REQUIRE(sound, said(sound));
  check_contents("closing");
  REQUIRE(env_.names("/models").size() == 1, "something is left beside the file");
  REQUIRE(env_.open_files() == 0, env_.open_files(), " descriptors are left open");
}

}  // namespace
}  // namespace st::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FuzzedDataProvider in(data, size);
  st::fuzz::Sequence(in).run();
  return 0;
}
