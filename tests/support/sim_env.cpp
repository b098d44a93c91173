#include "sim_env.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/round.h"

namespace st::testing {

void SimBytes::write(uint64_t offset, const char *from, size_t n) {
  if (bytes.size() < offset + n) bytes.resize(offset + n);
  std::memcpy(bytes.data() + offset, from, n);
  size = std::max<uint64_t>(size, offset + n);
}

size_t SimBytes::read(uint64_t offset, char *to, size_t n) const {
  if (offset >= size) return 0;
  n = static_cast<size_t>(std::min<uint64_t>(n, size - offset));
  const size_t there = offset < bytes.size() ? std::min<size_t>(n, bytes.size() - offset) : 0;
  if (there > 0) std::memcpy(to, bytes.data() + offset, there);
  std::memset(to + there, 0, n - there);
  return n;
}

void SimBytes::resize(uint64_t new_size) {
  size = new_size;
  if (bytes.size() > size) bytes.resize(size);
}

std::string SimBytes::all() const {
  std::string out = bytes;
  out.resize(size);
  return out;
}

namespace {

void make_durable(SimInode &inode, const SimWrite &w) {
  if (w.bytes.empty())
    inode.durable.resize(w.new_size);
  else
    inode.durable.write(w.offset, w.bytes.data(), w.bytes.size());
}

void make_durable(SimInode &inode, const SimEntryChange &e) {
  if (e.inode == 0)
    inode.durable_entries.erase(e.name);
  else
    inode.durable_entries[e.name] = e.inode;
  if (!e.before.empty() && e.before != e.name) inode.durable_entries.erase(e.before);
}

// Has the disk these bytes, whatever a cut keeps? Then to write them again changes nothing.
bool is_durable(const SimInode &inode, uint64_t offset, const std::string &bytes) {
  const uint64_t end = offset + bytes.size();
  if (end > inode.durable.size) return false;
  for (const SimWrite &w : inode.pending)
    if (w.bytes.empty() || (w.offset < end && offset < w.offset + w.bytes.size())) return false;
  std::string there(bytes.size(), '\0');
  inode.durable.read(offset, there.data(), there.size());
  return there == bytes;
}

// A cut changes nothing of it.
bool is_settled(const SimInode &inode) {
  return inode.pending.empty() && inode.pending_entries.empty() && inode.now == inode.durable &&
         inode.entries == inode.durable_entries;
}

}  // namespace

std::vector<SimChange> pending_changes(const SimDisk &disk) {
  std::vector<SimChange> changes;
  for (const auto &[id, inode] : disk.inodes) {
    for (size_t i = 0; i < inode->pending.size(); ++i) {
      const SimWrite &w = inode->pending[i];
      const uint64_t sectors =
          w.bytes.empty() ? 1 : (w.offset + w.bytes.size() - 1) / sim_sector - w.offset / sim_sector + 1;
      changes.push_back({id, i, false, sectors});
    }
    for (size_t i = 0; i < inode->pending_entries.size(); ++i) changes.push_back({id, i, true, 1});
  }
  return changes;
}

SimDisk after_cut(const SimDisk &disk, const std::vector<SimChange> &changes, const std::vector<uint32_t> &keep) {
  SimDisk cut;
  cut.next_inode = disk.next_inode;
  cut.reflinks = disk.reflinks;
  cut.realtime = disk.realtime;
  std::map<uint64_t, std::shared_ptr<SimInode>> made;
  for (const auto &[id, inode] : disk.inodes) {
    if (is_settled(*inode)) continue;
    auto fresh = std::make_shared<SimInode>();
    fresh->is_dir = inode->is_dir;
    fresh->mode = inode->mode;
    fresh->uid = inode->uid;
    fresh->durable = inode->durable;
    fresh->durable_entries = inode->durable_entries;
    made[id] = std::move(fresh);
  }
  for (size_t c = 0; c < changes.size(); ++c) {
    if (keep[c] == 0) continue;
    const SimInode &from = *disk.inodes.at(changes[c].inode);
    SimInode &to = *made.at(changes[c].inode);
    if (changes[c].is_entry) {
      make_durable(to, from.pending_entries[changes[c].index]);
      continue;
    }
    const SimWrite &w = from.pending[changes[c].index];
    if (keep[c] == 1) {
      make_durable(to, w);
      continue;
    }
    std::minstd_rand pick(keep[c]);
    for (uint64_t at = w.offset, end = w.offset + w.bytes.size(); at < end;) {
      const uint64_t stop = std::min(end, (at / sim_sector + 1) * sim_sector);
      if (pick() % 2) to.durable.write(at, w.bytes.data() + (at - w.offset), stop - at);
      at = stop;
    }
  }
  // Only what the root still reaches.
  std::vector<uint64_t> reach{1};
  for (size_t i = 0; i < reach.size(); ++i) {
    const uint64_t id = reach[i];
    auto &left = cut.inodes[id];
    if (const auto torn = made.find(id); torn != made.end()) {
      SimInode &inode = *torn->second;
      inode.now = inode.durable;
      inode.entries = inode.durable_entries;
      left = torn->second;
    } else {
      left = disk.inodes.at(id);
    }
    for (const auto &[name, child] : left->entries) reach.push_back(child);
  }
  return cut;
}

SimDisk after_cut(const SimDisk &disk, bool keep_all) {
  const auto changes = pending_changes(disk);
  return after_cut(disk, changes, std::vector<uint32_t>(changes.size(), keep_all));
}

uint64_t fingerprint(const SimDisk &disk) {
  uint64_t sum = 0;
  for (const auto &[id, inode] : disk.inodes) {
    uint64_t h = hash64(inode->durable.bytes.data(), inode->durable.bytes.size(), id * 1000003 + inode->durable.size);
    for (const auto &[name, child] : inode->durable_entries) h = hash64(name.data(), name.size(), h ^ child);
    sum = hash64(&h, sizeof h, sum);
  }
  return sum;
}

SimEnv::SimEnv() {
  auto root = std::make_shared<SimInode>();
  root->is_dir = true;
  root->mode = S_IFDIR | 0755;
  disk_.inodes[1] = root;
  look_through();
}

SimEnv::SimEnv(SimDisk disk, uint64_t seed) : disk_(std::move(disk)), random_(seed + chosen_seed()) {
  look_through();
}

// So that no call has to: of files that are gone there may be thousands.
void SimEnv::look_through() {
  links_.clear(), folders_.clear(), in_device_.clear();
  for (const auto &[id, inode] : disk_.inodes) {
    if (inode->is_dir) folders_.insert(id);
    if (std::any_of(inode->pending.begin(), inode->pending.end(), [](const SimWrite &w) { return w.in_device; }))
      in_device_.insert(id);
  }
}

SimInode &SimEnv::change(uint64_t inode) {
  std::shared_ptr<const SimInode> &mine = disk_.inodes.at(inode);
  if (mine.use_count() > 1) mine = std::make_shared<SimInode>(*mine);
  if (mine->is_dir) links_.clear();
  return const_cast<SimInode &>(*mine);  // as it was made
}

uint64_t SimEnv::resolve(const std::string &path) const {
  uint64_t at = 1;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    const auto &inode = disk_.inodes.at(at);
    const auto found = inode->entries.find(part);
    if (found == inode->entries.end()) return 0;
    at = found->second;
  }
  return at;
}

uint64_t SimEnv::resolve_at(int dir, const std::string &path, uint64_t *parent, std::string *name) const {
  const size_t slash = path.rfind('/');
  *name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (slash == std::string::npos && dir != AT_FDCWD) {
    const auto open = files_.find(dir);
    *parent = open == files_.end() ? 0 : open->second;
  } else {
    *parent = resolve(slash == std::string::npos ? "" : path.substr(0, slash));
  }
  if (*parent == 0) return 0;
  if (name->empty() || *name == ".") return *parent;
  const auto &entries = disk_.inodes.at(*parent)->entries;
  const auto found = entries.find(*name);
  return found == entries.end() ? 0 : found->second;
}

void SimEnv::add_file(const std::string &path, std::string bytes, mode_t mode) {
  uint64_t parent;
  std::string name;
  uint64_t inode = resolve_at(AT_FDCWD, path, &parent, &name);
  if (inode == 0) inode = disk_.next_inode++;
  auto file = std::make_shared<SimInode>();
  file->mode = S_IFREG | mode;
  file->now.size = bytes.size();
  file->now.bytes = std::move(bytes);
  file->durable = file->now;
  disk_.inodes[inode] = file;
  SimInode &folder = change(parent);
  folder.entries[name] = folder.durable_entries[name] = inode;
}

std::string SimEnv::contents(const std::string &path) const {
  const uint64_t inode = resolve(path);
  return inode == 0 ? std::string() : disk_.inodes.at(inode)->now.all();
}

bool SimEnv::is_name_durable(const std::string &path) const {
  uint64_t parent;
  std::string name;
  resolve_at(AT_FDCWD, path, &parent, &name);
  const auto &pending = disk_.inodes.at(parent)->pending_entries;
  return std::none_of(pending.begin(), pending.end(),
                      [&](const SimEntryChange &change) { return change.name == name; });
}

std::vector<std::string> SimEnv::names(const std::string &folder) const {
  std::vector<std::string> out;
  if (const uint64_t inode = resolve(folder))
    for (const auto &[name, child] : disk_.inodes.at(inode)->entries) out.push_back(name);
  return out;
}

int SimEnv::openat(int dir, const char *path, int flags, mode_t mode) {
  constexpr std::string_view itself = "/proc/self/fd/";
  if (std::string_view(path).starts_with(itself)) {
    const auto open = files_.find(std::atoi(path + itself.size()));
    if (open == files_.end()) return -ENOENT;
    files_[next_fd_] = open->second;
    return next_fd_++;
  }
  if ((flags & O_CREAT) && !is_entry(dir, path)) return -EINVAL;
  uint64_t parent;
  std::string name;
  uint64_t inode = resolve_at(dir, path, &parent, &name);
  if (inode == 0) {
    // A folder that was removed takes no new names.
    if (!(flags & O_CREAT) || parent == 0 || (parent != 1 && links(parent) == 0)) return -ENOENT;
    changing();
    inode = disk_.next_inode++;
    auto file = std::make_shared<SimInode>();
    file->mode = S_IFREG | mode;
    disk_.inodes[inode] = file;
    SimInode &folder = change(parent);
    folder.entries[name] = inode;
    folder.pending_entries.push_back({name, inode});
  } else if ((flags & O_CREAT) && (flags & O_EXCL)) {
    return -EEXIST;
  }
  if ((flags & O_DIRECTORY) && !disk_.inodes.at(inode)->is_dir) return -ENOTDIR;
  files_[next_fd_] = inode;
  return next_fd_++;
}

int SimEnv::close(int fd) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  std::erase_if(locks_[open->second], [fd](const Lock &l) { return l.fd == fd; });
  files_.erase(open);
  return 0;
}

ssize_t SimEnv::pread(int fd, void *buffer, size_t n, uint64_t offset) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  return static_cast<ssize_t>(disk_.inodes.at(open->second)->now.read(offset, static_cast<char *>(buffer), n));
}

ssize_t SimEnv::pwrite(int fd, const void *buffer, size_t n, uint64_t offset) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  changing();
  SimInode &inode = change(open->second);
  const uint64_t grows = offset + n > inode.now.size ? offset + n - inode.now.size : 0;
  if (grows > free_bytes) return -ENOSPC;
  free_bytes -= grows;
  inode.now.write(offset, static_cast<const char *>(buffer), n);
  // Whole sectors go to the disk, with what else is remembered of them.
  const uint64_t from = round_down(offset, sim_sector),
                 until = std::min(round_up(offset + n, sim_sector), inode.now.size);
  std::string sectors(n == 0 ? 0 : until - from, '\0');
  inode.now.read(from, sectors.data(), sectors.size());
  if (n > 0 && !is_durable(inode, from, sectors)) inode.pending.push_back({from, std::move(sectors), 0});
  return static_cast<ssize_t>(n);
}

int SimEnv::ftruncate(int fd, uint64_t size) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  changing();
  SimInode &inode = change(open->second);
  inode.now.resize(size);
  inode.pending.push_back({0, {}, size});
  return 0;
}

int SimEnv::clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) {
  constexpr uint64_t block = 4096;
  if (!reflink && !disk_.reflinks) return -EOPNOTSUPP;
  const auto source = files_.find(from_fd), target = files_.find(to_fd);
  if (source == files_.end()) return no_file(from_fd);
  if (target == files_.end()) return no_file(to_fd);
  const SimBytes &bytes = disk_.inodes.at(source->second)->now;
  if (from >= bytes.size) return -EINVAL;
  if (n == 0) n = bytes.size - from;
  const bool whole_blocks = n % block == 0 || from + n == bytes.size;
  if (from + n > bytes.size || from % block != 0 || to % block != 0 || !whole_blocks) return -EINVAL;
  std::string piece(n, '\0');
  bytes.read(from, piece.data(), n);
  changing();
  ++clones_;
  SimInode &inode = change(target->second);
  inode.now.write(to, piece.data(), n);
  inode.pending.push_back({to, std::move(piece), 0});
  return 0;
}

ssize_t SimEnv::copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) {
  if (!copies_ranges) return -EXDEV;
  std::string piece(n, '\0');
  const ssize_t got = pread(from_fd, piece.data(), n, from);
  return got <= 0 ? got : pwrite(to_fd, piece.data(), static_cast<size_t>(got), to);
}

int SimEnv::fallocate(int fd, int, uint64_t offset, uint64_t n) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  changing();
  SimInode &inode = change(open->second);
  if (offset + n <= inode.now.size) return 0;
  const uint64_t grows = offset + n - inode.now.size;
  if (grows > free_bytes) return -ENOSPC;
  free_bytes -= grows;
  inode.now.resize(offset + n);
  inode.pending.push_back({0, {}, offset + n});
  return 0;
}

const char *SimEnv::getenv(const char *name) {
  return disk_.reflinks && std::string_view(name) == "ST_JOURNAL" ? "undo" : nullptr;
}

// The pages of this range go to the device's cache, as they are now. What a failure has not written is forgotten.
int SimEnv::wait_range(int fd, uint64_t offset, uint64_t n) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  changing();
  const int fault = sync_fault ? sync_fault() : 0;
  const uint64_t from = round_down(offset, sim_block), until = round_up(offset + n, sim_block);
  SimInode &inode = change(open->second);
  std::vector<SimWrite> pending;
  for (const SimWrite &w : inode.pending) {
    const uint64_t end = w.offset + w.bytes.size();
    const uint64_t begins = std::clamp(from, w.offset, end), ends = std::clamp(until, begins, end);
    if (begins == ends) {
      pending.push_back(w);
      continue;
    }
    const auto part = [&](uint64_t a, uint64_t b, bool in_device) {
      if (a < b) pending.push_back({a, w.bytes.substr(a - w.offset, b - a), 0, in_device});
    };
    part(w.offset, begins, w.in_device);
    if (fault == 0 || random_() % 2) part(begins, ends, true);
    part(ends, end, w.in_device);
  }
  inode.pending = std::move(pending);
  in_device_.insert(open->second);
  return fault;
}

void SimEnv::flush_device() {
  for (const uint64_t id : std::exchange(in_device_, {})) {
    SimInode &inode = change(id);
    std::erase_if(inode.pending, [&](const SimWrite &w) {
      if (w.in_device) make_durable(inode, w);
      return w.in_device;
    });
  }
}

int SimEnv::fsync(int fd) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  changing();
  const int fault = lost_writes_.erase(fd) ? -EIO : sync_fault ? sync_fault() : 0;
  if (fault == 0) flush_device();
  // A failed sync may have written some of it. What it has not written of a file is forgotten, and no later sync will
  // make it good; names are still to be written.
  SimInode &inode = change(open->second);
  for (const SimWrite &w : inode.pending)
    if (fault == 0 || random_() % 2) make_durable(inode, w);
  inode.pending.clear();
  std::erase_if(inode.pending_entries, [&](const SimEntryChange &e) {
    const bool written = fault == 0 || random_() % 2;
    if (written) make_durable(inode, e);
    return written;
  });
  return fault;
}

void SimEnv::restart(bool loses_writes) {
  locks_.clear();
  if (!loses_writes) return;
  const auto changes = pending_changes(disk_);
  std::vector<uint32_t> keep;
  for (const SimChange &c : changes) keep.push_back(c.is_entry);
  for (const auto &[fd, inode] : files_)
    if (!disk_.inodes.at(inode)->pending.empty()) lost_writes_.insert(fd);
  disk_ = after_cut(disk_, changes, keep);
  look_through();
  std::erase_if(files_, [&](const auto &open) {
    const bool is_gone = !disk_.inodes.contains(open.second);
    if (is_gone) stale_.insert(open.first);
    return is_gone;
  });
}

uint64_t SimEnv::links(uint64_t inode) const {
  if (links_.empty())
    for (const uint64_t folder : folders_)
      for (const auto &[name, child] : disk_.inodes.at(folder)->entries) ++links_[child];
  const auto found = links_.find(inode);
  return found == links_.end() ? 0 : found->second;
}

void SimEnv::fill(uint64_t inode, struct stat *out) const {
  const SimInode &i = *disk_.inodes.at(inode);
  *out = {};
  out->st_dev = makedev(8, 77);  // a disk of this machine
  out->st_ino = inode;
  out->st_mode = i.mode;
  out->st_uid = i.uid;
  out->st_nlink = links(inode);
  out->st_size = static_cast<off_t>(i.now.size);
  out->st_blocks = static_cast<blkcnt_t>((i.now.size + 511) / 512);
}

int SimEnv::fstat(int fd, struct stat *out) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  fill(open->second, out);
  return 0;
}

int SimEnv::fstatat(int dir, const char *path, struct stat *out, int) {
  uint64_t parent;
  std::string name;
  const uint64_t inode = resolve_at(dir, path, &parent, &name);
  if (inode == 0) return -ENOENT;
  fill(inode, out);
  return 0;
}

int SimEnv::fstatfs(int, struct statfs *out) {
  *out = {};
  out->f_type = disk_.reflinks || disk_.realtime ? 0x58465342 : 0xEF53;  // as xfs or ext4
  out->f_bsize = sim_block;
  out->f_bavail = std::min<uint64_t>(free_bytes / sim_block, INT64_MAX / sim_block);
  return 0;
}

int SimEnv::realpath(const char *path, std::string *out) {
  if (resolve(path) == 0) return -ENOENT;
  *out = path;
  return 0;
}

// Nothing on this disk is a link.
int SimEnv::readlinkat(int dir, const char *path, std::string *) {
  uint64_t parent;
  std::string name;
  return resolve_at(dir, path, &parent, &name) == 0 ? -ENOENT : -EINVAL;
}

int SimEnv::list(int dir, std::vector<std::string> *out) {
  const auto open = files_.find(dir);
  if (open == files_.end()) return no_file(dir);
  out->clear();
  for (const auto &[name, child] : disk_.inodes.at(open->second)->entries) out->push_back(name);
  return 0;
}

int SimEnv::mkdirat(int dir, const char *path, mode_t mode) {
  return is_entry(dir, path) ? make_folder(dir, path, mode) : -EINVAL;
}

int SimEnv::make_folder(int dir, const char *path, mode_t mode) {
  uint64_t parent;
  std::string name;
  if (resolve_at(dir, path, &parent, &name) != 0) return -EEXIST;
  if (parent == 0) return -ENOENT;
  changing();
  auto made = std::make_shared<SimInode>();
  made->is_dir = true;
  made->mode = S_IFDIR | mode;
  const uint64_t inode = disk_.next_inode++;
  disk_.inodes[inode] = made;
  folders_.insert(inode);
  SimInode &folder = change(parent);
  folder.entries[name] = inode;
  folder.pending_entries.push_back({name, inode});
  return 0;
}

int SimEnv::unlinkat(int dir, const char *path, int flags) {
  return is_entry(dir, path) ? remove(dir, path, flags) : -EINVAL;
}

int SimEnv::remove(int dir, const char *path, int flags) {
  uint64_t parent;
  std::string name;
  const uint64_t inode = resolve_at(dir, path, &parent, &name);
  if (inode == 0) return -ENOENT;
  if (flags & AT_REMOVEDIR) {
    if (!disk_.inodes.at(inode)->is_dir) return -ENOTDIR;
    if (!disk_.inodes.at(inode)->entries.empty()) return -ENOTEMPTY;
  }
  changing();
  SimInode &folder = change(parent);
  folder.entries.erase(name);
  folder.pending_entries.push_back({name, 0});
  return 0;
}

int SimEnv::renameat(int from_dir, const char *from, int to_dir, const char *to) {
  return is_entry(from_dir, from) && is_entry(to_dir, to) ? move(from_dir, from, to_dir, to) : -EINVAL;
}

int SimEnv::move(int from_dir, const char *from, int to_dir, const char *to) {
  uint64_t from_parent, to_parent;
  std::string from_name, to_name;
  const uint64_t inode = resolve_at(from_dir, from, &from_parent, &from_name);
  resolve_at(to_dir, to, &to_parent, &to_name);
  if (inode == 0 || to_parent == 0) return -ENOENT;
  changing();
  ++moves_;
  SimInode &target = change(to_parent);
  target.entries[to_name] = inode;
  const bool within = from_parent == to_parent;
  target.pending_entries.push_back({to_name, inode, within ? from_name : std::string()});
  SimInode &source = change(from_parent);
  source.entries.erase(from_name);
  if (!within) source.pending_entries.push_back({from_name, 0});
  return 0;
}

int SimEnv::lock(int fd, int command, struct flock *lock) {
  const auto open = files_.find(fd);
  if (open == files_.end()) return no_file(fd);
  std::vector<Lock> &held = locks_[open->second];
  const auto begin = static_cast<uint64_t>(lock->l_start);
  const uint64_t end = lock->l_len == 0 ? UINT64_MAX : begin + static_cast<uint64_t>(lock->l_len);
  const bool conflict = std::any_of(held.begin(), held.end(), [&](const Lock &l) {
    return l.fd != fd && l.begin < end && begin < l.end && (l.exclusive || lock->l_type == F_WRLCK);
  });
  if (command == F_OFD_GETLK) {
    short how = F_UNLCK;
    for (const Lock &l : held)
      if (l.fd != fd && l.begin < end && begin < l.end && (l.exclusive || lock->l_type == F_WRLCK))
        how = l.exclusive ? F_WRLCK : how == F_UNLCK ? F_RDLCK : how;

    lock->l_type = how;
    return 0;
  }
  if (lock->l_type == F_UNLCK) {
    // Only whole locks are ever given back.
    std::erase_if(held, [&](const Lock &l) { return l.fd == fd && begin <= l.begin && l.end <= end; });
    return 0;
  }
  if (conflict) return -EAGAIN;
  std::erase_if(held,
                [&](const Lock &l) { return l.fd == fd && begin <= l.begin && l.end <= end; });  // now of this type
  held.push_back({fd, begin, end, lock->l_type == F_WRLCK});
  return 0;
}

int SimEnv::mmap(size_t n, int protection, int flags, int fd, void **out) {
  if (fd >= 0) return -ENODEV;  // files are read into owned memory
  return os::Env::posix().mmap(n, protection, flags, -1, out);
}

int SimEnv::munmap(void *address, size_t n) {
  return os::Env::posix().munmap(address, n);
}

int SimEnv::random(void *out, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<unsigned char *>(out)[i] = static_cast<unsigned char>(random_());
  return static_cast<int>(n);
}

}  // namespace st::testing
