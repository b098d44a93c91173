// stctl io: how libst would reach a file, and why.
#include <memory>

#include "../commands.h"
#include "../handle.h"
#include "../json.h"
#include "../text.h"

namespace stctl {
namespace {

struct Io {
  std::string file;
  uint32_t map = ST_MAP_AUTO;
};

// What a URL names.
bool is_remote(const st_io_info &io) {
  return io.storage == ST_STORAGE_OBJECT_STORE && io.filesystem == std::string_view("source");
}

const char *storage_sentence(const st_io_info &io) {
  if (is_remote(io)) return "a server that its URL names";
  switch (io.storage) {
    case ST_STORAGE_LOCAL: return "a local disk";
    case ST_STORAGE_MEMORY: return "memory";
    case ST_STORAGE_NETWORK: return "a network filesystem";
    case ST_STORAGE_PARALLEL: return "a parallel filesystem";
    case ST_STORAGE_FUSE: return "a FUSE filesystem";
    case ST_STORAGE_OBJECT_STORE: return "an object store behind a FUSE filesystem";
    default: return "of a kind that libst does not know";
  }
}

const char *map_sentence(uint32_t map) {
  switch (map) {
    case ST_MAP_SHARED: return "shared, so changes by other processes show at once";
    case ST_MAP_PRIVATE: return "private, read-only";
    case ST_MAP_COPY_ON_WRITE: return "copy-on-write: what is written there never reaches the file";
    default: return "none, tensors are read into memory when first viewed";
  }
}

// What is known of filesystems that several hosts use. libst asks the storage whatever the answer is here.
std::string other_hosts_sentence(const st_io_info &io) {
  const std::string_view type = io.filesystem;
  if (io.storage == ST_STORAGE_LOCAL || io.storage == ST_STORAGE_MEMORY) return "none, it belongs to this machine";
  if (is_remote(io)) return "read only, of the version that was opened; if the server has another, a read fails";
  if (type == "fuse.seaweedfs")
    return "read, and write if all hosts mount it with -dlm: else its locks exclude nobody on another host, so change "
           "the file from one host; writers, and readers after st_refresh, read past this host's cache";
  if (type == "fuse.juicefs" || type == "fuse.JuiceFS")
    return "read only: its clients lose locks, also on one host, and may go on answering with old bytes, so change the "
           "file from one process at a time; writers, and readers after st_refresh, read past the kernel's cache";
  if (io.storage == ST_STORAGE_OBJECT_STORE)
    return "read only: an object store has no locks that hosts share, so change the file from one host";
  if (type == "fuse.sshfs" || type == "fuse.rclone")
    return "read only: its locks exclude nobody on another host, so change the file from one host";
  if (type == "fuse.glusterfs")
    return "read and write, if the volume has performance.stat-prefetch and performance.quick-read off: else its "
           "clients answer for a second what they remember; its locks exclude other hosts; all is read past this "
           "host's cache";
  if (type == "fuse.ceph-fuse")
    return "read and write: its locks exclude other hosts; all is read past this host's cache, which may be out of "
           "date";
  return "read, and write if its locks exclude other hosts, which cannot be tried from here; "
         "writers, and readers after st_refresh, read past this host's cache";
}

void print_why(Session &session, const char *reason) {
  const std::string sentence = escape(reason);
  session.out.print("Why: {}{}\n", sentence, sentence.ends_with('.') ? "" : ".");
}

int run(Session &session, const Io &options) {
  const File file(session, options.file, {.map = options.map});
  const st_io_info io = look_at(file, [&] { return file.io_info(); });
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", file.path());
    json.field("shards", uint64_t{file.file_count()});
    json.key("shard");
    file.file_count() ? json.value(file.file_path(0)) : json.null();
    json.field("storage", storage_name(io.storage));
    json.field("filesystem", io.filesystem);
    json.field("map", map_name(io.map));
    json.field("map_fallbacks", uint64_t{io.map_fallbacks});
    json.field("reason", io.reason);
    json.field("prefetch", prefetch_name(io.prefetch));
    json.key("direct");
    io.direct == ST_DIRECT_AUTO ? json.null() : json.value(io.direct == ST_DIRECT_ON);
    json.field("io_threads", uint64_t{io.io_threads});
    json.field("block_size", uint64_t{io.block_size});
    json.field("prefetch_reason", io.prefetch_reason);
    json.field("other_hosts", other_hosts_sentence(io));
    json.field("file_size", io.file_size);
    json.field("header_size", io.header_size);
    json.field("data_offset", io.data_offset);
    json.end_object();
    session.out.write("\n");
    return exit_ok;
  }
  if (file.file_count() == 0) {
    session.out.write("No shards, as there are no tensors.\n");
    return exit_ok;
  }
  if (!file.is_one_file()) {
    session.out.print("{}; the first, {}:\n", counted(file.file_count(), "shard"), escape(file.file_name(0)));
  }
  session.out.print("Storage: {}.\n", storage_sentence(io));
  session.out.print("Filesystem: {}.\n", escape(io.filesystem));
  session.out.print("Mapping: {}{}.\n", map_sentence(io.map),
                    io.map_fallbacks ? fmt::format("; {} refused before", counted(io.map_fallbacks, "way")) : "");
  print_why(session, io.reason);
  session.out.print("Bulk reads: {}, {} at a time, {} a request{}.\n", prefetch_name(io.prefetch),
                    counted(io.io_threads, "reader"), human_size(io.block_size),
                    io.direct == ST_DIRECT_ON ? ", past the page cache" : "");
  print_why(session, io.prefetch_reason);
  session.out.print("Other hosts: {}.\n", other_hosts_sentence(io));
  return exit_ok;
}

}  // namespace

void add_io(CommandLine &line, Session &session) {
  auto options = std::make_shared<Io>();
  const Command command =
      line.command("io",
                   "How libst reaches a file, and why\n\n"
                   "Says what storage a file lies on, its filesystem, how libst maps it into memory,\n"
                   "the reason of that choice, and what other hosts may do. The environment's ST_MAP\n"
                   "(shared, private, none) overrides the choice; --map overrides both.",
                   "  stctl io /mnt/bucket/model.safetensors\n"
                   "  stctl io --map shared model.safetensors     is a shared mapping possible?\n"
                   "  stctl io --json model.safetensors | jq -r .map\n");
  command.argument("FILE", options->file, "A safetensors file").required();
  command.map(options->map);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
