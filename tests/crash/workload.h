// What the crash tests do to a small file, and what must be true of it
// afterwards. The bytes of its few tensors tell which version wrote them. Here are
// operations on one of two handles, and the check that a disk holds an allowed
// state.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "file/transaction.h"
#include "sim_env.h"

namespace st::testing {

inline const std::string model_path = "/models/m.safetensors";

// Version of each tensor, by number; and of the part of the last that is changed by slices.
using State = std::vector<uint32_t>;

struct Operation {
  enum Kind {
    update_a,
    update_b,
    both,
    all,
    staged_twice,
    from_journal,
    from_view,
    abandoned,
    reopen,
    slices,
    slices_over,
    slices_beside,
    later,  // the file is synced later
    later_b,
    synced
  } kind;
  int handle;  // 0 or 1
};
inline constexpr int operation_kinds = 15;
std::string describe(const std::vector<Operation> &operations);

class Workload {
 public:
  static State state_of(uint32_t version);
  static std::string file_bytes(const State &state);
  static SimEnv fresh_disk(Patches patches = Patches::two_flushes);

  explicit Workload(os::Env &env) : Workload(env, state_of(0), 1) {}
  // On a file that holds `state` already; versions from `next` on are new.
  Workload(os::Env &env, State state, uint32_t next);
  ~Workload();

  void assume(const State &state) { state_ = state; }  // somebody else changed it
  const State &before() const { return state_; }
  const State &after() const { return target_; }  // of the operation under way
  // Opens what is needed, runs it, and answers what libst answered.
  Result<void> run(const Operation &operation);
  void close();

 private:
  Result<store::DataFile *> handle(int i);

  // In front of the env. It has a payload for tensor b that is a view of the file, by a mapping that libst does not
  // know: it shows something else as long as tensor a does not have its old bytes.
  class ViewEnv;
  std::unique_ptr<ViewEnv> env_;
  std::unique_ptr<store::DataFile> handles_[2];
  State state_, target_;
  uint32_t next_version_;
};

// Opens the file on `disk`, which recovers it, and says what is wrong: neither
// of the allowed states, an invalid file, journals left over. Empty: all well.
// `before_change` is told of each change that recovery makes.
std::string check_disk(const SimDisk &disk, const State &old_state, const State &new_state,
                       const std::function<void(const SimDisk &)> &before_change = {});

}  // namespace st::testing
