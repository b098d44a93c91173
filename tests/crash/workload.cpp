#include "workload.h"

#include <cstring>
#include <map>
#include <set>

#include "fault_env.h"
#include "serialise_header.h"

namespace st::testing {
namespace {

struct Shape {
  std::string_view name;
  uint64_t bytes;
};
// Smaller than a sector, across two, across several, and three pages.
constexpr Shape shapes[] = {{"a", 200}, {"b", 700}, {"c", 2500}, {"d", 9400}};

// The last tensor has rows. Its part that is changed by slices: rows, of which two touch, and a few columns.
// There are pieces more than a page apart, and one of strips that are gathered.
constexpr uint64_t rows_of_d[] = {94, 100};
constexpr int64_t some_rows[] = {46, 3, -1, 4};
constexpr Range some_columns[] = {{51, 47, -1}, {10, 20, 1}};
constexpr size_t d = 3, part_of_d = 4;

const std::pair<TensorPart, std::vector<uint64_t>> parts_of_d[] = {{{{}, some_rows}, {4, 100}},
                                                                   {{some_columns}, {4, 10}}};

// Where the bytes of such a part lie in the tensor, one after the other.
std::vector<uint64_t> places_of(const TensorPart &part) {
  std::vector<uint64_t> places(Selection::make(Dtype::U8, rows_of_d, part)->nbytes());
  Selection::make(Dtype::U8, rows_of_d, part)->each_run([&](uint64_t from, uint64_t to, uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) places[to + i] = from + i;
  });
  return places;
}

std::string value(size_t tensor, uint32_t version) {
  std::string bytes(shapes[tensor].bytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(version * 37 + tensor * 11 + i / 64 * 5);
  return bytes;
}

store::NewBytes new_bytes(size_t tensor, const std::string &bytes) {
  std::span<const uint64_t> shape{&shapes[tensor].bytes, 1};
  if (tensor == d) shape = rows_of_d;
  return {static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), bytes.size()};
}

Result<void> stage_slices(store::Transaction &transaction, uint32_t version) {
  const std::string all = value(d, version);
  for (const auto &[part, shape] : parts_of_d) {
    std::string bytes;
    for (const uint64_t place : places_of(part)) bytes += all[place];
    const store::NewBytes values{static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), bytes.size()};
    if (auto staged = transaction.update_slice(shapes[d].name, part, values); !staged) return staged;
  }
  return {};
}

}  // namespace

class Workload::ViewEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    const int fd = FaultEnv::openat(dir, path, flags, mode);
    if (fd >= 0 && path == model_path) model_.insert(fd);
    return fd;
  }
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    const ssize_t done = FaultEnv::pwrite(fd, buffer, n, offset);
    if (done > 0 && !shown.empty() && offset == a_at && model_.count(fd)) {
      const bool is_old = std::memcmp(buffer, old_a.data(), static_cast<size_t>(done)) == 0;
      for (size_t i = 0; i < shown.size(); ++i) shown[i] = is_old ? wanted[i] : '?';  // at its place
    }
    return done;
  }

  uint64_t a_at = 0;
  std::string old_a, wanted, shown;

 private:
  std::set<int> model_;
};

Workload::Workload(os::Env &env, State state, uint32_t next)
    : env_(std::make_unique<ViewEnv>(env)), state_(std::move(state)), target_(state_), next_version_(next) {}

Workload::~Workload() = default;

std::string describe(const std::vector<Operation> &operations) {
  constexpr std::string_view names[] = {"update_a",     "update_b",      "both",      "all",     "staged_twice",
                                        "from_journal", "from_view",     "abandoned", "reopen",  "slices",
                                        "slices_over",  "slices_beside", "later",     "later_b", "synced"};
  std::string out;
  for (const Operation &o : operations) out += text(out.empty() ? "" : ", ", names[o.kind], "@", o.handle);
  return out;
}

State Workload::state_of(uint32_t version) {
  return State(std::size(shapes) + 1, version);
}

namespace {

std::string spell(const State &state) {
  std::vector<HeaderTensor> tensors;
  uint64_t at = 0;
  for (const Shape &s : shapes) {
    std::span<const uint64_t> shape{&s.bytes, 1};
    if (&s == &shapes[d]) shape = rows_of_d;
    tensors.push_back({s.name, Dtype::U8, shape, at, s.bytes});
    at += s.bytes;
  }
  std::string bytes = *serialise_header(tensors, {}, 8);
  for (size_t i = 0; i < std::size(shapes); ++i) bytes += value(i, state[i]);
  const std::string part = value(d, state[part_of_d]);
  for (const auto &[of, shape] : parts_of_d)
    for (const uint64_t place : places_of(of)) bytes[bytes.size() - part.size() + place] = part[place];
  return bytes;
}

}  // namespace

// Very many disks are held against few states.
std::string Workload::file_bytes(const State &state) {
  constexpr size_t most = 100;
  static std::map<State, std::string> spelt;
  if (spelt.size() == most) spelt.clear();
  std::string &bytes = spelt[state];
  if (bytes.empty()) bytes = spell(state);
  return bytes;
}

SimEnv Workload::fresh_disk(Patches patches) {
  SimEnv env;
  env.set_patches(patches);
  env.make_folder("/models", 0755);
  const int root = env.openat(AT_FDCWD, "/", O_RDONLY, 0);
  env.fsync(root);
  env.close(root);
  env.add_file(model_path, file_bytes(state_of(0)));
  return env;
}

Result<store::DataFile *> Workload::handle(int i) {
  if (!handles_[i]) {
    store::OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 50;
    auto opened = store::DataFile::open(*env_, model_path, options);
    if (!opened) return Failure(std::move(opened.error()));
    handles_[i] = std::move(*opened);
  }
  return handles_[i].get();
}

void Workload::close() {
  for (auto &h : handles_) h.reset();
}

Result<void> Workload::run(const Operation &operation) {
  target_ = state_;
  const uint32_t version = next_version_++;
  std::vector<size_t> changed;
  switch (operation.kind) {
    case Operation::update_a: changed = {0}; break;
    case Operation::later_b:
    case Operation::update_b: changed = {1}; break;
    case Operation::both: changed = {2, 0}; break;
    case Operation::from_view: changed = {0, 1}; break;
    case Operation::later:
    case Operation::all:
    case Operation::from_journal: changed = {0, 1, 2, 3}; break;
    case Operation::staged_twice: changed = {1, 3}; break;
    case Operation::synced:
    case Operation::abandoned: break;
    case Operation::reopen: handles_[operation.handle].reset(); break;
    case Operation::slices: break;
    case Operation::slices_over: changed = {0, 3}; break;
    case Operation::slices_beside: changed = {0, 1, 2}; break;
  }
  for (size_t t : changed) target_[t] = version;
  const bool sliced = operation.kind >= Operation::slices && operation.kind <= Operation::slices_beside;
  if (target_[d] != state_[d] || sliced) target_[part_of_d] = sliced ? version + 2000 : version;

  auto data_file = handle(operation.handle);
  if (!data_file) return Failure(std::move(data_file.error()));
  if (operation.kind == Operation::reopen) return {};
  if (operation.kind == Operation::synced) return (*data_file)->sync();
  store::TransactionOptions options;
  options.copy = operation.kind == Operation::from_journal;
  options.lock_timeout_ms = 50;
  options.journal_only = operation.kind == Operation::later || operation.kind == Operation::later_b;
  auto transaction = store::Transaction::begin(**data_file, options);
  if (!transaction) return Failure(std::move(transaction.error()));

  std::vector<std::string> values;  // borrowed until commit
  values.reserve(16);
  auto stage = [&](size_t tensor, uint32_t v) -> Result<void> {
    values.push_back(value(tensor, v));
    const bool is_view = operation.kind == Operation::from_view && tensor == 1;
    if (is_view) {
      env_->a_at = (*data_file)->snapshot().header.data_offset();
      env_->old_a = value(0, state_[0]);
      env_->wanted = env_->shown = values.back();
    }
    auto staged = (*transaction)->update(shapes[tensor].name, new_bytes(tensor, is_view ? env_->shown : values.back()));
    if (options.copy) values.back().assign(values.back().size(), '!');
    return staged;
  };
  if (operation.kind == Operation::abandoned) return stage(3, version);
  if (operation.kind == Operation::staged_twice)
    if (auto ok = stage(1, version + 1000); !ok) return ok;
  if (operation.kind == Operation::slices)
    if (auto ok = stage_slices(**transaction, version + 1000); !ok) return ok;
  for (size_t t : changed)
    if (auto ok = stage(t, version); !ok) return ok;
  if (sliced)
    if (auto ok = stage_slices(**transaction, version + 2000); !ok) return ok;
  if (auto ok = (*transaction)->commit(); !ok) return ok;
  state_ = target_;
  return {};
}

std::string check_disk(const SimDisk &disk, const State &old_state, const State &new_state,
                       const std::function<void(const SimDisk &)> &before_change) {
  SimEnv env(disk);
  const std::string old_bytes = Workload::file_bytes(old_state), new_bytes = Workload::file_bytes(new_state);
  auto is_valid = [&](std::string_view bytes) {  // what a stock reader needs
    auto n = parse_header_length(bytes.substr(0, std::min<size_t>(bytes.size(), 8)), bytes.size());
    if (!n) return false;
    std::string json(bytes.substr(8, *n));
    json.resize(json.size() + header_padding);
    return parse_header(json.data(), *n, bytes.size(), 1).has_value();
  };
  if (!is_valid(env.contents(model_path))) return "before recovery the file is not valid";

  if (before_change) env.before_change = [&] { before_change(env.disk()); };
  {
    store::OpenOptions options;
    options.writable = true;
    auto opened = store::DataFile::open(env, model_path, options);
    if (!opened) return "it does not open: " + opened.error().message;
  }
  const std::string found = env.contents(model_path);
  if (found != old_bytes && found != new_bytes) {
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i] != old_bytes[i] && found[i] != new_bytes[i]) return text("byte ", i, " is of neither state");
    return "it mixes the old state and the new one";
  }
  if (auto names = env.names("/models"); names.size() != 1) return "journals are left over";
  if (env.open_files() != 0) return "descriptors are left open";
  return {};
}

}  // namespace st::testing
