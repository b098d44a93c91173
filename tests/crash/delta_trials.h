// A delta applied on a simulated disk, cut at every point and failed at every call.
// Whatever the base is, it must be old or new. Whenever it is new, the delta that
// leads back is there, whole, and does.
#pragma once

#include <optional>
#include <string>

#include "layout_workload.h"

namespace st::testing {

struct DeltaTrials {
  static inline const std::string other_path = "/models/other.safetensors", delta_path = "/models/d.safetensors",
                                  reverse_path = "/models/r.safetensors",
                                  stale = "an old file where the reverse delta is to be";

  std::string name;
  std::string base_path;
  Model before, after;
  bool later = false;  // the base is synced when its handle closes
  // With at most so many changes pending, a cut keeps every subset in turn, else so many chosen at random.
  size_t all_of = 5;
  uint32_t samples = 32;

  virtual ~DeltaTrials() = default;
  virtual SimEnv fresh_disk() const = 0;                            // the base and the delta, durable
  virtual std::string recover(SimEnv &env) const = 0;               // "", or what is wrong
  virtual std::optional<Model> found(const SimEnv &env) const = 0;  // by a reader without libst, if he takes it

  // Applies the delta in `env`, a fresh disk.
  void cut_everywhere(SimEnv &env) const;
  void fail_every_call() const;

 private:
  std::string wrong_with(const SimDisk &disk, bool may_be_old, bool may_be_new) const;
};

}  // namespace st::testing
