// What models of several members have in common, whatever makes them one:
// members that open lazily under a limit of descriptors, the catalogue that is
// shown, and bulk reads across members. A kind of model derives from MultiFileOf,
// adds its members, and shows catalogues of its own kind.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "model/model.h"
#include "model/model_file.h"

namespace st::store {

class MultiFile : public Model {
 public:
  Account &account() const override { return *member_options_.account; }
  Catalogue lend() const override { return catalogue().lent(); }
  const OpenOptions &options() const override { return options_; }
  // Do some of these bytes lie in memory that views of a member show?
  bool lends(const void *bytes, uint64_t n) const;
  Result<void> read_many(const std::vector<PlacedRequest> &requests, const Progress &progress) const override;
  Result<void> prefetch(const Catalogue &catalogue, std::optional<std::vector<Place>> places,
                        const Progress &progress) const override;
  Result<void> load(const Catalogue &catalogue, std::optional<std::vector<Place>> places, bool reserved_pages,
                    bool direct, const Progress &progress) const override;

  os::Env &env() const { return env_; }
  // Members are opened with these.
  const OpenOptions &member_options() const { return member_options_; }
  Control control_of(const Progress &progress) const {
    return Control(progress ? progress : options_.progress, &account().interrupts);
  }

 protected:
  MultiFile(os::Env &env, OpenOptions options);

  virtual void each_merged(const std::function<void(const Merged &)> &visit) const = 0;

 private:
  // A member's part of a bulk read.
  struct Part {
    uint32_t number;  // of the member
    const DataFile *member;
    const Snapshot *snapshot;
    std::vector<size_t> requests;  // their numbers
    uint64_t bytes;
  };
  using Work = std::function<Result<void>(const Part &, const Progress &, const Share &)>;
  template <class PlaceOf>
  static std::vector<Part> parts_of(const std::vector<uint64_t> &bytes, PlaceOf place);
  Result<void> share_out(const std::vector<Part> &parts, const Progress &progress, const Work &work) const;
  Result<std::vector<Place>> own_part_of(const Catalogue &catalogue, const Progress &progress) const;

  os::Env &env_;
  const OpenOptions options_;
  OpenOptions member_options_;
};

// One that shows catalogues of the kind C, which is a Merged.
template <class C>
class MultiFileOf : public MultiFile {
 public:
  Catalogue catalogue() const override {
    Held held = hold();
    const C &shown = *held;
    return {std::move(held), shown};
  }
  void release() noexcept override { catalogues_.release(); }
  void close() noexcept override { catalogues_.close(); }

 protected:
  using MultiFile::MultiFile;
  using Held = typename Versions<C>::Held;
  struct Look {
    Held shown;
    uint64_t number = 0;
  };
  Look begin_look() { return {hold(), ++looks_}; }  // before the parts are looked at
  // What that look has found is the catalogue from now on, if what was shown as it began still is: the rule of
  // DataFile::Look. Else false, and somebody looks again, or does with what another look has found that began later.
  bool show_after(const Look &look, std::unique_ptr<C> found) {
    found->look = look.number;
    return catalogues_.show_after(look.shown, catalogues_.place(std::move(found)));
  }
  bool shows_since(uint64_t look) const { return hold()->look > look; }
  Held hold() const { return catalogues_.hold(); }  // none before the first
  template <class Visit>
  void each_catalogue(Visit visit) const {
    catalogues_.each(visit);
  }
  void each_merged(const std::function<void(const Merged &)> &visit) const override { catalogues_.each(visit); }

 private:
  Versions<C> catalogues_;
  std::atomic<uint64_t> looks_ = 0;
};

}  // namespace st::store
