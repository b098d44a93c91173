// A storm's scene of shards under an index. Its cells show their versions in
// every way in which a transaction can change a checkpoint:
//
//   tensors   by their bytes, patched in place; one in four lies in each shard;
//   slots     by a name: of each slot there is exactly one tensor, "s0.17", somewhere;
//             it is put, deleted and renamed, so shards and the index are made anew;
//   keys      by the metadata of the index, which is made anew.
//
// What is promised of them, and demanded here (the table in core/shards/README.md):
// - A reader without a lock may see some cells old and others new, and tensors torn. But
//   the index and every shard are whole, each named tensor is where the index says, and
//   total_size is right. So is every byte of a slot, as no slot is ever patched in place.
// - An open when the writers are dead, of the index or of a shard alone, sees each
//   transaction in all cells or in none.
#pragma once

#include <array>
#include <optional>

#include "scene.h"
#include "tensor_file.h"

namespace st::testing {

class ShardScene final : public Scene {
 public:
  static constexpr uint32_t shards = 4, tensors = 16, slots = 3, keys = 2;
  static constexpr uint32_t first_slot = tensors, first_key = first_slot + slots;
  // The groups: one tensor in each shard; and the same with a slot and a key.
  static constexpr uint32_t in_place = 0xF, anew = 0xF0 | 1u << first_slot | 1u << first_key;

  // `elsewhere`: the same folder as another host sees it; empty: there is one host.
  ShardScene(const std::string &folder, const std::string &elsewhere);
  const Layout &layout() const { return layout_; }  // of tensors; offsets in it mean nothing
  // Every other one works on the other host.
  const std::string &path_of(uint32_t one) const { return hosts_[one % 2].path; }
  const std::string &shard_of_host(uint32_t one, uint32_t i) const { return hosts_[one % 2].paths[i]; }
  static uint32_t shard_of(uint32_t tensor) { return tensor % shards; }
  // A worker's own folder, for files that it does not share.
  std::string work_folder(uint32_t worker) const {
    return hosts_[worker % 2].folder + "/work-" + std::to_string(worker);
  }

  static std::string slot_prefix(uint32_t cell) { return "s" + std::to_string(cell - first_slot) + "."; }
  static std::string key(uint32_t cell) { return "k" + std::to_string(cell - first_key); }
  static Bytes slot_value(uint32_t cell, uint64_t version);
  // The name of the tensor of a slot, as the handle has it. Nothing if there is not exactly one.
  static std::optional<std::string> slot_name(st_file *file, uint32_t cell);

  const std::string &path() const override { return hosts_[0].path; }
  uint32_t cells() const override { return first_key + keys; }
  std::vector<uint32_t> groups() const override { return {in_place, anew}; }
  void make() const override;
  [[noreturn]] void write_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const override;
  [[noreturn]] void read_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const override;
  std::vector<uint64_t> judge(Ledger &ledger, OpenAs how) const override;
  Tidied tidy() const override;

 private:
  // The scene as a host sees it.
  struct Host {
    explicit Host(const std::string &folder);
    std::string folder, model, path;
    std::array<std::string, ShardScene::shards> paths;
  };
  const std::array<Host, 2> hosts_;
  const Layout layout_;
};

}  // namespace st::testing
