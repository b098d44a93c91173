// A storm's scene of one file, whose tensors are patched in place: the cells are
// its tensors.
#pragma once

#include "scene.h"
#include "tensor_file.h"

namespace st::testing {

class FileScene final : public Scene {
 public:
  // Groups, the last of which seldom changes but by training; then tensors that change alone or in any company.
  static constexpr uint32_t groups_count = 3, trained = groups_count - 1, group_size = 4,
                            first_free = groups_count * group_size, tensors = first_free + 8;

  // `elsewhere`: the same folder as another host sees it; empty: there is one host.
  FileScene(const std::string &folder, const std::string &elsewhere);
  const Layout &layout() const { return layout_; }

  const std::string &path() const override { return path_; }
  // Every other one works on the other host.
  const std::string &path_of(uint32_t one) const { return one % 2 ? elsewhere_ : path_; }
  // A worker's own folder, for files that it does not share.
  std::string work_folder(uint32_t worker) const { return path_of(worker) + ".work-" + std::to_string(worker); }
  bool has_other_hosts() const { return path_ != elsewhere_; }
  uint32_t cells() const override { return tensors; }
  std::vector<uint32_t> groups() const override;
  void make() const override { layout_.write(path_); }
  [[noreturn]] void write_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const override;
  // Values may be torn; calls may not fail.
  [[noreturn]] void read_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const override;
  std::vector<uint64_t> judge(Ledger &ledger, OpenAs how) const override;
  Tidied tidy() const override;

 private:
  const std::string path_, elsewhere_;
  const Layout layout_;
};

}  // namespace st::testing
