#include "os/filesystem.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <iterator>

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
    {0xAAD7AAEA, "panfs"},
};
constexpr uint32_t fuse_magic = 0x65735546;

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
    {"vfat", Storage::local},
    {"exfat", Storage::local},
    {"squashfs", Storage::local},
    {"erofs", Storage::local},
    {"iso9660", Storage::local},
    {"ntfs3", Storage::local},
    {"overlay", Storage::local},
    {"tmpfs", Storage::memory},
    {"ramfs", Storage::memory},
    {"hugetlbfs", Storage::memory},
    {"nfs", Storage::network},
    {"nfs4", Storage::network},
    {"cifs", Storage::network},
    {"smb", Storage::network},
    {"smb2", Storage::network},
    {"smb3", Storage::network},
    {"9p", Storage::network},
    {"afs", Storage::network},
    {"coda", Storage::network},
    {"vboxsf", Storage::network},
    {"virtiofs", Storage::network},
    {"ceph", Storage::parallel},
    {"lustre", Storage::parallel},
    {"gpfs", Storage::parallel},
    {"beegfs", Storage::parallel},
    {"ocfs2", Storage::parallel},
    {"gfs2", Storage::parallel},
    {"panfs", Storage::parallel},
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
};

std::string_view next_field(std::string_view &line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string_view field = line.substr(0, space);
  line.remove_prefix(std::min(space + 1, line.size()));
  return field;
}

std::string read_text(Env &env, const char *path) {
  std::string text;
  auto file = File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
  if (!file) return text;
  char buffer[16384];
  for (;;) {
    auto got = file->read_up_to(buffer, sizeof buffer, text.size());
    if (!got) return {};
    text.append(buffer, *got);
    if (*got < sizeof buffer) return text;
  }
}

}  // namespace

std::string_view storage_name(Storage s) {
  constexpr std::string_view names[] = {"unknown", "local", "memory", "network", "parallel", "fuse", "object-store"};
  return names[static_cast<uint32_t>(s)];
}

Storage storage_of_type(std::string_view type) {
  const auto *found =
      std::find_if(std::begin(classes), std::end(classes), [&](const Class &c) { return c.type == type; });
  if (found != std::end(classes)) return found->storage;
  if (type == "fuse" || type == "fuseblk" || type.starts_with("fuse.")) return Storage::fuse;
  return Storage::unknown;
}

// Lines are: id parent major:minor root mount-point options… - type source options.
std::string type_from_mountinfo(std::string_view mountinfo, dev_t dev) {
  const std::string wanted = text(major(dev), ":", minor(dev));
  std::string type;
  while (!mountinfo.empty()) {
    const size_t newline = std::min(mountinfo.find('\n'), mountinfo.size());
    std::string_view line = mountinfo.substr(0, newline);
    mountinfo.remove_prefix(std::min(newline + 1, mountinfo.size()));
    next_field(line);
    next_field(line);
    if (next_field(line) != wanted) continue;
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    line.remove_prefix(dash + 3);
    type = next_field(line);  // the last mount of a device is the one on top
  }
  return type;
}

Filesystem probe_filesystem(const File &file) {
  struct statfs fs;
  if (file.env().fstatfs(file.fd(), &fs) < 0) return {};
  const auto magic = static_cast<uint32_t>(fs.f_type);
  const auto *known =
      std::find_if(std::begin(magics), std::end(magics), [&](const Magic &m) { return m.magic == magic; });
  if (known != std::end(magics)) return {storage_of_type(known->type), std::string(known->type)};

  std::string type;
  if (auto s = file.stat()) type = type_from_mountinfo(read_text(file.env(), "/proc/self/mountinfo"), s->st_dev);
  if (type.empty() && magic == fuse_magic) type = "fuse";
  if (type.empty()) return {Storage::unknown, text("unknown (statfs magic ", magic, ")")};
  return {storage_of_type(type), std::move(type)};
}

}  // namespace st::os
