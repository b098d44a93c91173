#include "layout_workload.h"

namespace st::testing {
namespace {

using stage::all, stage::metadata, stage::put, stage::remove, stage::rename, stage::update, stage::update_slices;

store::TransactionOptions with(std::function<void(store::TransactionOptions &)> set) {
  store::TransactionOptions options;
  options.lock_timeout_ms = 50;
  set(options);
  return options;
}
const store::TransactionOptions plain = with([](auto &) {});

}  // namespace

Model first_model() {
  return {
      {{"a", u8(200, 1)}, {"b", u8(8192, 2)}, {"c", u8(5000, 3)}, {"d", u8(9000, 4)}, {"e", {Dtype::F32, {0, 3}, {}}}},
      {{"k", "v"}}};
}

const std::vector<LayoutOperation> &layout_operations() {
  static const std::vector<LayoutOperation> operations = {
      {"update of two tensors", "update, in place", plain, all({update("a", 41), update("d", 42)})},
      {"update, published", "update with ST_TXN_PUBLISH", with([](auto &o) { o.publish = true; }),
       all({update("a", 43), update("d", 44)})},
      {"slices of two tensors", "update, in place", plain,
       all({update_slices("d", 45), update("a", 46), update_slices("a", 47)})},
      {"slices, published", "update with ST_TXN_PUBLISH", with([](auto &o) { o.publish = true; }),
       all({update_slices("d", 48), update("a", 49), update_slices("a", 50)})},
      {"put of a new tensor", "put", plain, put("new", u8(6000, 51))},
      {"put of another dtype and shape", "put", plain, put("b", {Dtype::F16, {2, 1024}, fill(4096, 52)})},
      {"put, copied at once", "put", with([](auto &o) { o.copy = true; }),
       all({put("new", u8(7000, 53)), put("c", u8(1, 54))})},
      {"delete of the first", "delete", plain, remove("a")},
      {"delete in the middle", "delete", plain, remove("b")},
      {"delete of the last", "delete", plain, remove("d")},
      {"rename", "rename", plain, rename("b", "a longer name for b")},
      {"metadata", "metadata", plain, metadata("k", "w")},
      {"metadata that outgrows the header", "metadata", plain, metadata("long", std::string(5000, 'm'))},
      {"everything at once", "mixed", plain,
       all({update("a", 56), put("new", u8(100, 57)), remove("c"), rename("d", "c"), update("c", 58),
            update_slices("c", 60), update_slices("b", 61), metadata("k", std::nullopt)})},
      {"canonical layout", "layout, compact", with([](auto &o) { o.layout = write::Layout::canonical; }),
       put("f", {Dtype::F32, {5}, fill(20, 59)})},
      {"compact", "layout, compact", with([](auto &o) { o.compact = true, o.layout = write::Layout::canonical; }),
       metadata("k", "compact")},
  };
  return operations;
}

SimEnv empty_disk(const Disk &disk) {
  SimEnv env;
  env.reflink = disk.reflink;
  env.copies_ranges = disk.copies_ranges;
  env.make_folder("/models", 0755);
  const int root = env.openat(AT_FDCWD, "/", O_RDONLY, 0);
  env.fsync(root);
  env.close(root);
  return env;
}

SimEnv layout_disk(const Disk &disk) {
  SimEnv env = empty_disk(disk);
  env.add_file(layout_path, file_of(first_model(), 8, 40));
  return env;
}

}  // namespace st::testing
