#include "os/filesystem.h"

#include <algorithm>
#include <iterator>

#include "os/descriptors.h"
#include "os/missing_call.h"

namespace st::os {
namespace {

// statfs magics (linux/magic.h and the filesystems' own headers) whose type
// needs no look at the mount table.
struct Magic {
  uint32_t magic;
  std::string_view type;
};
constexpr Magic magics[] = {
    {0xEF53, "ext4"},        {0x58465342, "xfs"},       {0x9123683E, "btrfs"},  {0x01021994, "tmpfs"},
    {0x858458F6, "ramfs"},   {0xF2F52010, "f2fs"},      {0x2FC12FC1, "zfs"},    {0xCA451A4E, "bcachefs"},
    {0x794C7630, "overlay"}, {0x4d44, "vfat"},          {0x2011BAB0, "exfat"},  {0x73717368, "squashfs"},
    {0xE0F5E1E2, "erofs"},   {0x958458F6, "hugetlbfs"}, {0x6969, "nfs"},        {0xFF534D42, "cifs"},
    {0xFE534D42, "smb3"},    {0x517B, "smb"},           {0x01021997, "9p"},     {0x00C36400, "ceph"},
    {0x0BD00BD0, "lustre"},  {0x47504653, "gpfs"},      {0x19830326, "beegfs"}, {0x5346414F, "afs"},
    {0x7461636F, "ocfs2"},   {0x01161970, "gfs2"},      {0x73757245, "coda"},   {0x786F4256, "vboxsf"},
    {0xAAD7AAEA, "panfs"},   {0x5346544E, "ntfs"},      {0x73666572, "refs"},   {0x4253584E, "apfs"},
    {0x482B, "hfsplus"},
};
constexpr uint32_t fuse_magic = 0x65735546;
constexpr std::string_view overlay = "overlay";

struct Class {
  std::string_view type;
  Storage storage;
};
constexpr Class classes[] = {
    {"ext2", Storage::local},
    {"ext3", Storage::local},
    {"ext4", Storage::local},
    {"xfs", Storage::local},
    {"btrfs", Storage::local},
    {"f2fs", Storage::local},
    {"zfs", Storage::local},
    {"bcachefs", Storage::local},
    {"jfs", Storage::local},
    {"reiserfs", Storage::local},
    {"nilfs2", Storage::local},
    {"vfat", Storage::local},
    {"msdos", Storage::local},
    {"exfat", Storage::local},
    {"ntfs", Storage::local},
    {"ntfs3", Storage::local},
    {"refs", Storage::local},
    {"hfs", Storage::local},
    {"hfsplus", Storage::local},
    {"apfs", Storage::local},
    {"udf", Storage::local},
    {"squashfs", Storage::local},
    {"erofs", Storage::local},
    {"cramfs", Storage::local},
    {"iso9660", Storage::local},
    {"ubifs", Storage::local},
    {"jffs2", Storage::local},
    {"ecryptfs", Storage::local},
    {"overlay", Storage::local},
    {"tmpfs", Storage::memory},
    {"ramfs", Storage::memory},
    {"hugetlbfs", Storage::memory},
    {"devtmpfs", Storage::memory},
    {"nfs", Storage::network},
    {"nfs4", Storage::network},
    {"cifs", Storage::network},
    {"smb", Storage::network},
    {"smb2", Storage::network},
    {"smb3", Storage::network},
    {"9p", Storage::network},
    {"afs", Storage::network},
    {"kafs", Storage::network},
    {"coda", Storage::network},
    {"ncpfs", Storage::network},
    {"vboxsf", Storage::network},
    {"vmhgfs", Storage::network},
    {"prl_fs", Storage::network},
    {"virtiofs", Storage::network},
    {"ceph", Storage::parallel},
    {"lustre", Storage::parallel},
    {"gpfs", Storage::parallel},
    {"beegfs", Storage::parallel},
    {"beegfs_nodev", Storage::parallel},
    {"ocfs2", Storage::parallel},
    {"gfs2", Storage::parallel},
    {"orangefs", Storage::parallel},
    {"pvfs2", Storage::parallel},
    {"panfs", Storage::parallel},
    {"wekafs", Storage::parallel},
    {"cvfs", Storage::parallel},
    {"fuse.gcsfuse", Storage::object_store},
    {"fuse.s3fs", Storage::object_store},
    {"fuse.goofys", Storage::object_store},
    {"fuse.geesefs", Storage::object_store},
    {"fuse.rclone", Storage::object_store},
    {"fuse.juicefs", Storage::object_store},
    {"fuse.JuiceFS", Storage::object_store},
    {"fuse.blobfuse", Storage::object_store},
    {"fuse.blobfuse2", Storage::object_store},
    {"fuse.mount-s3", Storage::object_store},
    {"fuse.mountpoint-s3", Storage::object_store},
    {"fuse.s3backer", Storage::object_store},
    {"fuse.s3ql", Storage::object_store},
    {"fuse.ossfs", Storage::object_store},
    {"fuse.ossfs2", Storage::object_store},
    {"fuse.cosfs", Storage::object_store},
    {"fuse.obsfs", Storage::object_store},
    {"fuse.seaweedfs", Storage::object_store},
    {"fuse.alluxio", Storage::object_store},
    {"fuse.alluxio-fuse", Storage::object_store},
    {"fuse.hf-mount", Storage::object_store},
};

std::string_view next_field(std::string_view &line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string_view field = line.substr(0, space);
  line.remove_prefix(std::min(space + 1, line.size()));
  return field;
}

Result<std::string> read_text(Env &env, const char *path) {
  std::string text;
  ST_TRY(auto file, File::open(env, AT_FDCWD, path, O_RDONLY, 0, path));
  constexpr size_t step = 16384;
  for (size_t have = 0;;) {
    text.resize(have + step);
    ST_TRY(const auto got, file.read_up_to(text.data() + have, step, have));
    have += got;
    if (got < step) {
      text.resize(have);
      return text;
    }
  }
}

}  // namespace

std::string_view storage_name(Storage s) {
  constexpr std::string_view names[] = {"unknown", "local", "memory", "network", "parallel", "fuse", "object-store"};
  return names[static_cast<uint32_t>(s)];
}

bool may_have_other_hosts(const Filesystem &filesystem) {
  constexpr std::string_view with_shared_locks[] = {"fuse.juicefs", "fuse.JuiceFS", "fuse.seaweedfs"};
  const Storage s = filesystem.storage;
  if (s == Storage::object_store)
    return std::find(std::begin(with_shared_locks), std::end(with_shared_locks), filesystem.type) !=
           std::end(with_shared_locks);
  return s != Storage::local && s != Storage::memory;
}

bool keeps_stale_pages(std::string_view type) {
  return type == "fuse.glusterfs" || type == "fuse.ceph-fuse";
}

bool maps_what_was_opened(std::string_view type) {
  return type == overlay;
}

bool keeps_what_was_read(std::string_view type) {
  return (type == "fuse" || type.starts_with("fuse.")) && !keeps_stale_pages(type);
}

bool dates_changes_late(std::string_view type) {
  constexpr std::string_view those[] = {"exfat", "hfs", "hfsplus", "jffs2", "msdos", "ntfs", "refs", "vfat"};
  return std::ranges::find(those, type) != std::end(those);
}

bool replaces_in_two_steps(std::string_view type) {
  constexpr std::string_view those[] = {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3"};
  return std::ranges::find(those, type) != std::end(those);
}

bool removes_what_it_cannot_replace(std::string_view type) {
  return replaces_in_two_steps(type) && !type.starts_with("nfs");
}

bool shows_another(std::string_view type) {
  return type == overlay || type == "ecryptfs";
}

bool was_changed_before(const struct stat &file, uint64_t second) {
  constexpr uint64_t clock_lag_s = 2;
  return static_cast<uint64_t>(std::max(file.st_mtim.tv_sec, file.st_ctim.tv_sec)) + clock_lag_s < second;
}

bool tells_times(const Filesystem &filesystem) {
  const bool is_near = filesystem.storage == Storage::local || filesystem.storage == Storage::memory;
  return is_near && !dates_changes_late(filesystem.type) && !shows_another(filesystem.type);
}

Storage storage_of_type(std::string_view type) {
  const auto *found =
      std::find_if(std::begin(classes), std::end(classes), [&](const Class &c) { return c.type == type; });
  if (found != std::end(classes)) return found->storage;
  if (type == "fuse" || type == "fuseblk" || type.starts_with("fuse.")) return Storage::fuse;
  return Storage::unknown;
}

namespace {

struct Mount {
  std::string_view type;
  std::string_view options;  // of the filesystem, not of this mount
};

// Lines are: id parent major:minor root mount-point options… - type source options.
// The last that `wanted` takes, of its first and third field: the one on top.
template <class Wanted>
Mount find_mount(std::string_view mountinfo, Wanted wanted) {
  Mount found;
  while (!mountinfo.empty()) {
    const size_t newline = std::min(mountinfo.find('\n'), mountinfo.size());
    std::string_view line = mountinfo.substr(0, newline);
    mountinfo.remove_prefix(std::min(newline + 1, mountinfo.size()));
    const std::string_view id = next_field(line);
    next_field(line);
    if (!wanted(id, next_field(line))) continue;
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    line.remove_prefix(dash + 3);
    found.type = next_field(line);
    next_field(line);
    found.options = next_field(line);
  }
  return found;
}

Mount mount_of_device(std::string_view mountinfo, dev_t dev) {
  const std::string wanted = text(major(dev), ":", minor(dev));
  return find_mount(mountinfo, [&](std::string_view, std::string_view device) { return device == wanted; });
}

// As the kernel tells it of an open file; empty if it does not. Fails where no descriptor is left to ask by.
Result<std::string> mount_id(const File &file) {
  constexpr std::string_view key = "mnt_id:";
  auto fdinfo = read_text(file.env(), text("/proc/self/fdinfo/", file.fd()).c_str());
  if (!fdinfo && is_scarcity(fdinfo.error())) return fdinfo;
  const size_t at = fdinfo ? fdinfo->find(key) : std::string::npos;
  if (at == std::string::npos) return std::string();
  std::string_view id = std::string_view(*fdinfo).substr(at + key.size());
  id.remove_prefix(std::min(id.find_first_not_of(" \t"), id.size()));
  return std::string(id.substr(0, id.find('\n')));
}

// The mount of an open file: by its id, as files of overlay and btrfs have device
// numbers that no mount has; else by device.
Mount mount_of(const File &file, std::string_view mountinfo) {
  if (const auto id = mount_id(file); id && !id->empty()) {
    const Mount m = find_mount(mountinfo, [&](std::string_view mount, std::string_view) { return mount == *id; });
    if (!m.type.empty()) return m;
  }
  const auto s = file.stat();
  return s ? mount_of_device(mountinfo, s->st_dev) : Mount{};
}

// An overlay is told by its layers, which are yet to be looked at.
struct Look {
  Filesystem filesystem;
  std::string layers;  // of an overlay: the options of its mount
};

Look of_type(std::string type) {
  Look found;
  found.filesystem.storage = storage_of_type(type);
  found.filesystem.type = std::move(type);
  return found;
}

// Kernels before 3.12 answer EBADF of a folder that is open for its entries alone.
Result<Look> look_at(const File &file) {
  struct statfs fs;
  if (const int r = file.env().fstatfs(file.fd(), &fs); r < 0) {
    if (is_missing(r) || r == -EBADF) return Look();
    return Failure(file.error(-r, "look at the storage of"));
  }
  const auto magic = static_cast<uint32_t>(fs.f_type);
  const auto *known =
      std::find_if(std::begin(magics), std::end(magics), [&](const Magic &m) { return m.magic == magic; });
  const bool is_known = known != std::end(magics);
  if (is_known && known->type != overlay) return of_type(std::string(known->type));

  const std::string mountinfo = read_text(file.env(), "/proc/self/mountinfo").value_or("");
  const Mount mount = mount_of(file, mountinfo);
  Look found = of_type(std::string(is_known ? overlay : mount.type));
  if (is_known) found.layers = mount.options;
  if (!found.filesystem.type.empty()) return found;
  return of_type(magic == fuse_magic ? "fuse" : text("unknown (statfs magic ", magic, ")"));
}

// An overlay is as far away as the farthest of its layers, some of which may lie on overlays. In a container the paths
// of the layers may lead anywhere, to this very overlay too.
Storage storage_of_layers(Env &env, std::string options) {
  constexpr Storage by_distance[] = {Storage::object_store, Storage::fuse, Storage::parallel, Storage::network};
  std::vector<std::string> overlays{std::move(options)};
  std::vector<Storage> layers;
  for (size_t i = 0; i < overlays.size(); ++i)
    for (const std::string &folder : overlay_layers(overlays[i])) {
      const auto dir = File::open(env, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, folder);
      if (!dir) continue;
      Look layer = look_at(*dir).value_or(Look());
      if (layer.filesystem.type != overlay)
        layers.push_back(layer.filesystem.storage);
      else if (std::find(overlays.begin(), overlays.end(), layer.layers) == overlays.end())
        overlays.push_back(std::move(layer.layers));
    }
  for (Storage far : by_distance)
    if (std::find(layers.begin(), layers.end(), far) != layers.end()) return far;
  const bool in_memory =
      !layers.empty() && std::all_of(layers.begin(), layers.end(), [](Storage s) { return s == Storage::memory; });
  return in_memory ? Storage::memory : Storage::local;
}

}  // namespace

bool copies_on_write(std::string_view type) {
  return type == "btrfs" || type == "zfs" || type == "bcachefs" || type == "f2fs";
}

Result<bool> lie_on_two_mounts(const File &a, const File &b) {
  ST_TRY(const auto first, mount_id(a));
  ST_TRY(const auto second, mount_id(b));
  return !first.empty() && !second.empty() && first != second;
}

std::string type_from_mountinfo(std::string_view mountinfo, dev_t dev) {
  return std::string(mount_of_device(mountinfo, dev).type);
}

// Options are separated by commas, folders by colons; \ooo is a byte, as in all of
// mountinfo, and a backslash (itself \134) before a comma or colon makes it plain.
std::vector<std::string> overlay_layers(std::string_view options) {
  constexpr std::string_view keys[] = {"lowerdir=", "lowerdir+=", "datadir+=", "upperdir="};
  std::string plain;
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i] == '\\' && i + 3 < options.size()) {
      plain += static_cast<char>((options[i + 1] - '0') * 64 + (options[i + 2] - '0') * 8 + (options[i + 3] - '0'));
      i += 3;
    } else {
      plain += options[i];
    }
  }
  // Cut at each separator that no backslash stands before.
  auto cut = [](std::string_view text, char separator) {
    std::vector<std::string> parts(1);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\\' && i + 1 < text.size() && separator == ':')
        parts.back() += text[++i];
      else if (text[i] == '\\' && i + 1 < text.size())
        parts.back() += {text[i], text[++i]};
      else if (text[i] == separator)
        parts.emplace_back();
      else
        parts.back() += text[i];
    }
    return parts;
  };
  std::vector<std::string> folders;
  for (const std::string &option : cut(plain, ','))
    for (std::string_view key : keys)
      if (option.starts_with(key))
        for (std::string &folder : cut(std::string_view(option).substr(key.size()), ':'))
          if (!folder.empty()) folders.push_back(std::move(folder));
  return folders;
}

namespace {

// ext4 flushes also where a sync finds nothing to write, and so does xfs. But an xfs keeps the files of its realtime
// section on another device, or elsewhere each time.
bool syncs_flush_all(const File &file, std::string_view type) {
  uint64_t realtime = 0;
  return type == "ext4" || (type == "xfs" && file.env().realtime_blocks(file.fd(), &realtime) == 0 && realtime == 0);
}

}  // namespace

Result<Filesystem> ask_filesystem(const File &file) {
  ST_TRY(Look look, look_at(file));
  if (look.filesystem.type == overlay) look.filesystem.storage = storage_of_layers(file.env(), std::move(look.layers));
  return std::move(look.filesystem);
}

Filesystem probe_filesystem(const File &file) {
  Filesystem found = ask_filesystem(file).value_or(Filesystem());
  found.syncs_flush_all = syncs_flush_all(file, found.type);
  return found;
}

}  // namespace st::os
