// One state of a file as a handle sees it: its descriptor, its parsed header,
// its bytes. Immutable but for the bytes themselves. A handle that finds its
// file replaced takes a new snapshot; how long the old one stays is file/versions.h's affair.
#pragma once

#include <atomic>
#include <memory>

#include "format/header.h"
#include "os/descriptors.h"
#include "os/file.h"
#include "os/filesystem.h"
#include "os/location.h"
#include "read/content.h"

namespace st::store {

// What a process reads a snapshot through. A forked child has its own.
struct Access {
  const os::File &file;
  const read::Content &content;
  os::Descriptors::Held held = {};  // keeps a shared descriptor open meanwhile
};

struct Snapshot {
  ~Snapshot();
  os::Env *env = nullptr;  // null where the file was given as memory
  os::File file;           // not open there, nor once share_descriptor() was called
  struct stat identity = {};
  os::Filesystem filesystem;
  Header header;
  uint64_t header_hash = 0;  // of the first data_offset() bytes
  // When the file was made, where that is known, and asked as the descriptor may be given up. Negative: nothing.
  // Another file that gets the inode then may have the same header.
  int64_t birth = -1;
  read::Content content;
  uint64_t generation = 0;  // of the process that took it: see os::Env::fork_generation
  uint64_t look = 0;        // the number of the look that found it: see DataFile::Look
  uint64_t others = 0;      // how often others had replaced what the handle shows: see was_replaced_by_others()

  // This process's way to the bytes. In a forked child a descriptor and a mapping of
  // the child's own, made at first use: sharing the parent's would make one
  // sequence of reads of both. Status: those of opening. Any thread.
  Result<Access> here() const;
  // The same, for a caller that only looks at its bytes.
  Result<const read::Content *> content_here() const;
  // Do some of these bytes lie where views of it lie?
  bool lends(const void *bytes, uint64_t n) const;
  // From now on the descriptor is one of many, and may be given up between uses. The file is `at`.
  void share_descriptor(std::shared_ptr<os::Descriptors> among, const os::Location &at);
  // Where the descriptor may be given up: one that is open now; to keep one, as the file is losing its name; what is
  // kept, if anything is; and not to keep it, as the file has its name still: see os::Descriptors::keep.
  Result<os::Descriptors::Held> hold_open() const;
  void stay_open(const os::Descriptors::Held &held) const { descriptors_->keep(this, held); }
  os::Descriptors::Held kept_open() const { return descriptors_->kept(this); }
  void end_staying_open() const noexcept { descriptors_->end_keeping(this); }
  // Its bytes, as far as they are mapped and nobody may have written into the mapping. Else null.
  const std::byte *mapped() const {
    const bool is_files = content.map() != read::MapMode::none && content.wanted() != read::MapMode::copy_on_write;
    return is_files ? content.bytes() : nullptr;
  }
  // Is it of the same file, with the same tensors at the same places?
  bool is_of_same_file(const Snapshot &other) const {
    return os::same_inode(identity, other.identity) && header_hash == other.header_hash &&
           file_size() == other.file_size() && may_be_born(other.birth);
  }
  bool may_be_born(int64_t at) const { return birth < 0 || at < 0 || at == birth; }
  // Before it is shared, or anybody has looked at its bytes.
  Result<void> map_anew();
  // Bytes of tensor `slot` were changed in the file: see read::Content::refresh. Where that fails, and where memory is
  // too short for it and outdate() is called, the next look reads them.
  Result<void> refresh(size_t slot, uint64_t offset, uint64_t n) const;
  void outdate(size_t slot, uint64_t offset, uint64_t n) const noexcept;
  // Are there bytes that were read into memory, or are being read? They would not show what others change in the file.
  // Those in memory are read once more to where they lie. The thread that reads others reads them once more, too.
  // Between the reads the thread's InterruptCheck is asked.
  bool has_own_memory() const;
  Result<void> refresh_own_memory() const;
  uint64_t reopens() const;  // how often here() made them
  bool reads_past_cache() const { return file.reads_past_cache(); }

  uint64_t file_size() const { return header.data_offset() + header.index.data_bytes(); }
  uint64_t file_offset(const TensorView &t) const { return header.data_offset() + t.begin; }

  // How its bytes are to be shown.
  struct Wanted {
    read::MapMode map = read::MapMode::automatic;
    // It follows what other hosts commit: where they may, this kernel's cache is left alone. Else it may be used,
    // unless the storage is known for pages that nobody has brought up to date.
    bool follows = false;
    const os::Filesystem *filesystem = nullptr;  // if it is known
    const Log &log;
  };
  // Takes over `file`, which is open for reading, and as open_regular() gave it. Status: the format's.
  static Result<std::unique_ptr<Snapshot>> take(os::File file, const Wanted &wanted);
  // The same of one whose stat() is known.
  static Result<std::unique_ptr<Snapshot>> take(os::File file, const struct stat &identity, const Wanted &wanted);
  // `map`: only whether it is copy_on_write.
  static Result<std::unique_ptr<Snapshot>> of_memory(os::Env &env, const std::byte *bytes, size_t size,
                                                     read::MapMode map);

 private:
  // What a child opened anew, and its parent before it; views of either may still be in use.
  struct Reopened {
    uint64_t generation;
    os::File file;  // not open where `descriptors_` have it, and where the child may only use what it inherited
    read::Content content;
    Reopened *before;
  };
  Result<const Reopened *> reopened(uint64_t generation) const;
  // Calls visit(content, generation of the process that made it) with each there is.
  template <class Visit>
  void each_content(Visit visit) const {
    visit(content, generation);
    for (const Reopened *r = reopened_.load(std::memory_order_acquire); r; r = r->before)
      visit(r->content, r->generation);
  }
  mutable std::atomic<Reopened *> reopened_ = nullptr;
  std::shared_ptr<os::Descriptors> descriptors_;
  std::optional<os::Location> at_;  // where the path alone may not do
};

}  // namespace st::store
