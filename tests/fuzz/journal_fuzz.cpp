// Recovery of whatever lies in the journal folder. For every input: nothing is
// written but inside the ranges that a trusted journal declares. The header never
// changes, and the file opens afterwards. A second recovery does nothing. An honest
// journal is applied, and a power cut on the way makes no difference.
#include <algorithm>
#include <memory>

#include "chosen_cut.h"
#include "engine/verify.h"
#include "file/data_file.h"
#include "forged_journal.h"
#include "format/header.h"
#include "journal/identity.h"
#include "journal/recover.h"
#include "located.h"
#include "require.h"
#include "serialise_header.h"
#include "sim_env.h"

namespace st::fuzz {
namespace {

using testing::SimDisk;
using testing::SimEnv;
using testing::SimInode;

const std::string path = "/models/m.safetensors", folder_path = path + ".st-journal";

struct Span {
  uint64_t begin, end;
};

// Sees every change of the data file, by whichever call.
class WatchedEnv : public SimEnv {
 public:
  WatchedEnv(SimDisk disk, std::vector<Span> allowed, uint64_t data_offset)
      : SimEnv(std::move(disk)), allowed_(std::move(allowed)), data_offset_(data_offset) {
    struct stat s;
    REQUIRE(SimEnv::fstatat(AT_FDCWD, path.c_str(), &s, 0) == 0);
    inode_ = s.st_ino;
    size_ = static_cast<uint64_t>(s.st_size);
  }
  uint64_t data_writes() const { return data_writes_; }

  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    check(fd, offset, n);
    return SimEnv::pwrite(fd, buffer, n, offset);
  }
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    check(to_fd, to, n);
    return SimEnv::clone_range(to_fd, from_fd, from, n, to);
  }
  int ftruncate(int fd, uint64_t size) override {
    REQUIRE(!is_data(fd), "the data file is cut to ", size);
    return SimEnv::ftruncate(fd, size);
  }
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override {
    REQUIRE(!is_data(fd), "the data file is grown");
    return SimEnv::fallocate(fd, mode, offset, n);
  }

 private:
  bool is_data(int fd) {
    struct stat s;
    return SimEnv::fstat(fd, &s) == 0 && s.st_ino == inode_;
  }
  void check(int fd, uint64_t offset, uint64_t n) {
    if (!is_data(fd)) return;
    ++data_writes_;
    REQUIRE(offset >= data_offset_ && offset <= size_ && n <= size_ - offset, "write of ", n, " at ", offset);
    const bool declared = std::any_of(allowed_.begin(), allowed_.end(),
                                      [&](const Span &s) { return s.begin <= offset && offset + n <= s.end; });
    REQUIRE(declared, "write of ", n, " at ", offset, ", which no trusted journal declares");
  }

  std::vector<Span> allowed_;
  uint64_t data_offset_, inode_ = 0, size_ = 0, data_writes_ = 0;
};

// A file beside its journal folder.
struct Scene {
  DataFile file;
  SimDisk disk;
  std::vector<Span> declared;  // by trusted journals
  std::string wanted;          // what must come out of it, if that is certain
  int journals = 0;
  bool folder_is_trusted = true;
};

std::string model() {
  const uint64_t sizes[] = {200, 700, 2500, 9000};
  const std::string names[] = {"a", "b", "c", "d"};
  std::vector<HeaderTensor> tensors;
  uint64_t at = 0;
  for (size_t i = 0; i < 4; ++i) {
    tensors.push_back({names[i], Dtype::U8, {&sizes[i], 1}, at, sizes[i]});
    at += sizes[i];
  }
  std::string bytes = *testing::serialise_header(tensors, {}, 8);
  for (uint64_t i = 0; i < at; ++i) bytes += static_cast<char>(i * 7 + i / 512);
  return bytes;
}

void change(SimDisk *disk, uint64_t inode, const std::function<void(SimInode &)> &how) {
  auto copy = std::make_shared<SimInode>(*disk->inodes.at(inode));
  how(*copy);
  disk->inodes[inode] = std::move(copy);
}
uint64_t inode_of(const SimDisk &disk, uint64_t folder, const std::string &name) {
  return disk.inodes.at(folder)->entries.at(name);
}

// Each sector as it was, as a journal makes it, or as neither.
bool age(FuzzedDataProvider &in, DataFile *file) {
  file->now = file->old_bytes;
  bool foreign = false;
  const std::string states = in.ConsumeRandomLengthString(40);
  uint64_t at = file->identity.data_offset;
  for (char state : states) {
    const uint64_t n = std::min<uint64_t>(write::sector_bytes - at % write::sector_bytes, file->now.size() - at);
    if (state % 8 >= 3) file->now.replace(at, n, new_bytes(*file, at, n));
    if (state == '\x7f' && n > 0) {
      file->now[at + n / 2] ^= 0x33;
      foreign = true;
    }
    at += n;
  }
  return foreign;
}

// A journal as it lies on the disk: may anything of it be written, and where?
std::vector<Span> declared_by(const std::string &bytes) {
  const std::string padded =
      bytes.size() < write::header_bytes ? bytes + std::string(write::header_bytes, '\0') : bytes;
  write::CommitRecord record;
  if (write::decode({reinterpret_cast<const std::byte *>(padded.data()), write::header_bytes}, &record) !=
      write::JournalState::committed)
    return {};
  if (record.manifest > bytes.size() || record.ranges > (bytes.size() - record.manifest) / record.range_bytes())
    return {};
  std::vector<Span> spans;
  for (const write::RangeRecord &r : write::decode_ranges(
           {reinterpret_cast<const std::byte *>(bytes.data()) + record.manifest, record.ranges * record.range_bytes()},
           record.is_sparse()))
    if (r.length <= UINT64_MAX - r.offset) spans.push_back({r.offset, r.offset + r.length});
  return spans;
}

void add_journal(FuzzedDataProvider &in, SimEnv *env, Scene *scene, SimDisk *disk, bool foreign) {
  const ForgedJournal journal = forge(in, scene->file);
  const int oddity = in.ConsumeIntegralInRange(0, 31);
  const std::string name = text("00000000000000a", scene->journals, oddity == 1 ? ".bad" : "");
  env->add_file(folder_path + "/" + name, journal.bytes, oddity == 2 ? 0602 : 0600);
  *disk = env->disk();
  const uint64_t folder = env->disk().inodes.at(inode_of(*disk, 1, "models"))->entries.at("m.safetensors.st-journal");
  const uint64_t inode = inode_of(*disk, folder, name);
  if (oddity == 3) change(disk, inode, [](SimInode &i) { i.uid = 4242; });
  if (oddity == 4) change(disk, inode, [](SimInode &i) { i.is_dir = true, i.mode = S_IFDIR | 0700; });
  if (oddity == 5)
    change(disk, inode_of(*disk, 1, "models"), [&](SimInode &i) { i.entries[name] = i.durable_entries[name] = inode; });
  *env = SimEnv(*disk);
  ++scene->journals;
  const bool trusted = oddity == 0 || oddity > 5;
  if (trusted)
    for (const Span &s : declared_by(journal.bytes)) scene->declared.push_back(s);
  if (scene->journals > 1 || !trusted || !journal.honest || foreign) {
    scene->wanted.clear();
    return;
  }
  scene->wanted = scene->file.now;
  for (const write::RangeRecord &r : journal.ranges)
    scene->wanted.replace(r.offset, r.length,
                          journal.is_undo ? scene->file.old_bytes.substr(r.offset, r.length)
                                          : new_bytes(scene->file, r.offset, r.length));
}

Scene make_scene(FuzzedDataProvider &in) {
  static const std::string old_bytes = model();
  Scene scene;
  DataFile &file = scene.file;
  file.old_bytes = old_bytes;
  SimEnv env;
  env.allow_reflinks(in.ConsumeBool());
  env.make_folder("/models", 0755);
  env.make_folder(folder_path, 0700);
  env.add_file(path, old_bytes);
  for (const char *folder : {"/", "/models"}) {
    const int fd = env.openat(AT_FDCWD, folder, O_RDONLY, 0);
    env.fsync(fd);
    env.close(fd);
  }
  {
    auto data = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    file.identity = *write::identify(*data);
  }
  const bool foreign = age(in, &file);
  env.add_file(path, file.now);
  SimDisk disk = env.disk();
  for (int n = in.ConsumeIntegralInRange(0, 2); n >= 0; --n) add_journal(in, &env, &scene, &disk, foreign);
  if (in.ConsumeIntegralInRange(0, 63) == 0) {
    scene.folder_is_trusted = false;
    scene.declared.clear();
    scene.wanted.clear();
    change(&disk, inode_of(disk, inode_of(disk, 1, "models"), "m.safetensors.st-journal"),
           [](SimInode &i) { i.mode |= S_IWOTH; });
  }
  scene.disk = std::move(disk);
  return scene;
}

std::unique_ptr<WatchedEnv> watched(const Scene &scene, const SimDisk &disk) {
  return std::make_unique<WatchedEnv>(disk, scene.declared, scene.file.identity.data_offset);
}

Result<write::Recovered> recover(os::Env &env) {
  return write::recover(testing::located(env, path), {0, nullptr, nullptr}, {});
}

void check_file(SimEnv &env, const Scene &scene) {
  const std::string found = env.contents(path);
  REQUIRE(found.size() == scene.file.now.size(), found.size());
  REQUIRE(
      found.compare(0, scene.file.identity.data_offset, scene.file.old_bytes, 0, scene.file.identity.data_offset) == 0,
      "the header changed");
  for (uint64_t at = 0; at < found.size(); ++at) {
    if (found[at] == scene.file.now[at]) continue;
    REQUIRE(std::any_of(scene.declared.begin(), scene.declared.end(),
                        [&](const Span &s) { return s.begin <= at && at < s.end; }),
            "byte ", at, " changed");
  }
  if (!scene.wanted.empty()) REQUIRE(found == scene.wanted, "an honest journal was not applied");
}

// Opening recovers. Only an open that finds a journal which must not be applied is told, once.
void check_open(const SimDisk &disk, const Scene &scene, bool writable, bool may_tell) {
  auto env = watched(scene, disk);
  store::OpenOptions options;
  options.writable = writable;
  options.lock_timeout_ms = 0;
  {
    auto opened = store::DataFile::open(*env, path, options);
    const bool told = !opened && opened.error().status == Status::journal;
    REQUIRE(scene.folder_is_trusted ? opened || (told && may_tell) : told, said(opened));
  }
  REQUIRE(env->open_files() == 0, env->open_files(), " descriptors are left open");
  check_file(*env, scene);
}

// The power goes before one of the changes that recovery makes; what is left is recovered to the same end.
void check_cut(const Scene &scene, const std::string &end, uint64_t changes, FuzzedDataProvider &in) {
  const uint64_t when = in.ConsumeIntegralInRange<uint64_t>(0, changes - 1);
  SimDisk at_cut;
  uint64_t seen = 0;
  auto env = watched(scene, scene.disk);
  env->before_change = [&] {
    if (seen++ == when) at_cut = env->disk();
  };
  static_cast<void>(recover(*env));
  auto after = watched(scene, after_chosen_cut(at_cut, in));
  const auto again = recover(*after);
  REQUIRE(again, said(again));
  REQUIRE(after->contents(path) == end, "a power cut before change ", when, " of ", changes, " leads elsewhere");
}

void run(const uint8_t *data, size_t size) {
  FuzzedDataProvider in(data, size);
  const Scene scene = make_scene(in);
  {
    auto env = watched(scene, scene.disk);
    static_cast<void>(store::verify(*env, path, Control(), {}));
    REQUIRE(env->data_writes() == 0, "verify writes");
  }
  auto env = watched(scene, scene.disk);
  uint64_t changes = 0;
  env->before_change = [&] { ++changes; };
  const auto first = recover(*env);
  REQUIRE(env->open_files() == 0, env->open_files(), " descriptors are left open");
  check_file(*env, scene);
  if (!scene.folder_is_trusted) {
    REQUIRE(!first && first.error().status == Status::journal && changes == 0, said(first));
  } else {
    REQUIRE(first, said(first));
    changes = 0;
    const std::string end = env->contents(path);
    const auto second = recover(*env);
    REQUIRE(second && changes == 0, changes, " changes by a second recovery, ", said(second));
    REQUIRE(second->applied + second->undone + second->dropped + second->aside == 0, "it found something");
    REQUIRE(env->contents(path) == end, "a second recovery changed the file");
  }
  check_open(scene.disk, scene, in.ConsumeBool(), true);
  check_open(env->disk(), scene, false, false);
  if (scene.journals == 1 && first) {
    auto counting = watched(scene, scene.disk);
    uint64_t all = 0;
    counting->before_change = [&] { ++all; };
    static_cast<void>(recover(*counting));
    if (all > 0) check_cut(scene, env->contents(path), all, in);
  }
}

}  // namespace
}  // namespace st::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  st::fuzz::run(data, size);
  return 0;
}
