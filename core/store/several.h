// What collections of several members have in common, whatever makes them one:
// members that open lazily under a limit of descriptors, the catalogue that is
// shown, and bulk reads across members. A kind of collection derives from it,
// adds its members, and shows a catalogue of its own making.
#pragma once

#include <mutex>

#include "store/collection.h"
#include "store/member.h"

namespace st::store {

class Several : public Collection {
 public:
  ~Several() override;

  void interrupt() override;
  Catalogue catalogue() const override { return Catalogue(*shown_.load(std::memory_order_acquire)); }
  const OpenOptions &options() const override { return options_; }
  std::vector<const Checkpoint *> opened() const override;
  Result<void> read_many(const std::vector<PlacedRequest> &requests, const Progress &progress) const override;
  Result<void> prefetch(const Catalogue &catalogue, std::optional<std::vector<Place>> places,
                        const Progress &progress) const override;
  Result<void> load(const Catalogue &catalogue, std::optional<std::vector<Place>> places, bool reserved_pages,
                    bool direct, const Progress &progress) const override;

  os::Env &env() const { return env_; }
  // Members are opened with these.
  const OpenOptions &member_options() const { return member_options_; }
  Control control_of(const Progress &progress) const {
    return Control(progress ? progress : options_.progress, &interrupts_);
  }

 protected:
  Several(os::Env &env, OpenOptions options);

  // Lives as long as this, like all before it.
  Member *add_member(std::string path);
  // From now on this is the catalogue. Those before are kept.
  void show(std::unique_ptr<Merged> catalogue);
  const Merged &shown() const { return *shown_.load(std::memory_order_acquire); }

 private:
  // A member's part of a bulk read.
  struct Part {
    uint32_t number;  // of the member
    const Checkpoint *member;
    const Snapshot *snapshot;
    std::vector<size_t> requests;  // their numbers
    uint64_t bytes;
  };
  using Work = std::function<Result<void>(const Part &, const Progress &, const Share &)>;
  static std::vector<Part> parts_of(const std::vector<Place> &places, const std::vector<uint64_t> &bytes);
  Result<void> share_out(const std::vector<Part> &parts, const Progress &progress, const Work &work) const;
  Result<std::vector<Place>> own_part_of(const Catalogue &catalogue) const;

  os::Env &env_;
  const OpenOptions options_;
  OpenOptions member_options_;
  std::atomic<Member *> members_ = nullptr;  // the last one added
  std::atomic<const Merged *> shown_ = nullptr;
  std::vector<std::unique_ptr<Merged>> catalogues_;
  std::mutex mutex_;  // of catalogues_
  std::atomic<uint64_t> interrupts_ = 0;
};

}  // namespace st::store
