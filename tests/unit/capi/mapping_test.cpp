// st_mapping_keep: views that outlive their handle, and keep nothing else of it.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "scene.h"

namespace st {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class CapiMapping : public testing::CapiScene, public ::testing::WithParamInterface<uint32_t> {
 protected:
  static size_t descriptors() {
    size_t n = 0;
    for ([[maybe_unused]] const auto &entry : fs::directory_iterator("/proc/self/fd")) ++n;
    return n;
  }
  static bool mapped(const std::string &path) { return bytes_of("/proc/self/maps").find(path) != std::string::npos; }
};

TEST_P(CapiMapping, ViewsOutliveTheHandleAndItsDescriptors) {
  const size_t before = descriptors();
  st_file *file = open(0, GetParam());
  st_tensor t = {};
  ASSERT_ST(ST_OK, st_get(file, "b", ST_NTS, &t));
  st_mapping *kept = nullptr, *again = nullptr;
  const void *data = nullptr;
  size_t size = 0;
  ASSERT_ST(ST_OK, st_mapping_keep(file, &kept, &data, &size));
  ASSERT_ST(ST_OK, st_mapping_keep(file, &again, nullptr, nullptr));
  EXPECT_EQ(size, old.size());
  EXPECT_EQ(static_cast<const char *>(t.data), static_cast<const char *>(data) + b_at);
  const void *const view = t.data;
  st_close(file);
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(std::memcmp(data, old.data(), size), 0);
  st_mapping_free(kept);
  EXPECT_EQ(std::memcmp(view, old.data() + b_at, 10007), 0);  // for `again`
  EXPECT_TRUE(mapped(path));
  st_mapping_free(again);
  EXPECT_FALSE(mapped(path));
}

TEST_P(CapiMapping, ItMayGoBeforeTheHandle) {
  st_file *file = open(0, GetParam());
  st_mapping *kept = nullptr;
  ASSERT_ST(ST_OK, st_mapping_keep(file, &kept, nullptr, nullptr));
  st_mapping_free(kept);
  EXPECT_EQ(seen(file, "a"), old.substr(a_at, 4000));
  st_close(file);
}

TEST_P(CapiMapping, AForkedChildUsesWhatItsParentKept) {
  st_file *file = open(0, GetParam());
  st_mapping *kept = nullptr;
  const void *data = nullptr;
  ASSERT_ST(ST_OK, st_mapping_keep(file, &kept, &data, nullptr));
  const pid_t child = fork();
  if (child == 0) {
    st_mapping *own = nullptr;
    const void *there = nullptr;
    bool right = st_mapping_keep(file, &own, &there, nullptr) == ST_OK && there != data;
    st_close(file);
    right = right && std::memcmp(data, old.data(), old.size()) == 0 && std::memcmp(there, old.data(), old.size()) == 0;
    st_mapping_free(kept);
    st_mapping_free(own);
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  st_close(file);
  st_mapping_free(kept);
}

INSTANTIATE_TEST_SUITE_P(, CapiMapping, ::testing::Values(ST_MAP_SHARED, ST_MAP_PRIVATE, ST_MAP_COPY_ON_WRITE),
                         [](const auto &info) {
                           return std::string(info.param == ST_MAP_SHARED    ? "shared"
                                              : info.param == ST_MAP_PRIVATE ? "private"
                                                                             : "copy_on_write");
                         });

using CapiMappings = testing::CapiScene;

TEST_F(CapiMappings, APatchDoesNotShowInACopyOnWriteMappingThatWasKept) {
  st_file *reader = open(0, ST_MAP_COPY_ON_WRITE);
  st_mapping *kept = nullptr;
  const void *data = nullptr;
  ASSERT_ST(ST_OK, st_mapping_keep(reader, &kept, &data, nullptr));
  st_close(reader);
  st_file *writer = open();
  const st_tensor v = value(0, new_a);
  ASSERT_ST(ST_OK, st_update(writer, "a", ST_NTS, &v));
  EXPECT_EQ(std::memcmp(data, old.data(), old.size()), 0);
  st_close(writer);
  st_mapping_free(kept);
}

TEST_F(CapiMappings, AStateThatAPublishReplacedIsKept) {
  st_file *file = open();
  st_mapping *before = nullptr, *after = nullptr;
  const void *data = nullptr, *now = nullptr;
  ASSERT_ST(ST_OK, st_mapping_keep(file, &before, &data, nullptr));
  st_txn *txn = nullptr;
  auto options = sized<st_txn_options>();
  options.flags = ST_TXN_PUBLISH;
  ASSERT_ST(ST_OK, st_txn_begin(file, &options, &txn));
  const st_tensor v = value(0, new_a);
  ASSERT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &v));
  ASSERT_ST(ST_OK, testing::commit(txn));
  ASSERT_ST(ST_OK, st_mapping_keep(file, &after, &now, nullptr));
  st_close(file);
  EXPECT_EQ(std::memcmp(data, old.data(), old.size()), 0);
  EXPECT_EQ(std::memcmp(static_cast<const char *>(now) + a_at, new_a.data(), new_a.size()), 0);
  st_mapping_free(before);
  st_mapping_free(after);
}

TEST_F(CapiMappings, WhereNothingIsMappedThereIsNoneToKeep) {
  st_mapping *kept = nullptr;
  st_file *file = open(0, ST_MAP_NONE);
  EXPECT_ST(ST_E_UNSUPPORTED, st_mapping_keep(file, &kept, nullptr, nullptr));
  st_close(file);
  ASSERT_ST(ST_OK, st_open_memory(old.data(), old.size(), &file));
  EXPECT_ST(ST_E_UNSUPPORTED, st_mapping_keep(file, &kept, nullptr, nullptr));
  st_close(file);
  EXPECT_EQ(kept, nullptr);
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_mapping_keep(nullptr, &kept, nullptr, nullptr));
  file = open();
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_mapping_keep(file, nullptr, nullptr, nullptr));
  st_close(file);
  st_mapping_free(nullptr);
}

TEST_F(CapiMappings, OfSeveralFilesThereIsNoneToKeep) {
  put_bytes(dir / "model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"a": "model.safetensors",)"
                                                  R"( "b": "model.safetensors", "n\u0000l": "model.safetensors"}})");
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open((dir / "model.safetensors.index.json").c_str(), nullptr, &file));
  st_mapping *kept = nullptr;
  EXPECT_ST(ST_E_UNSUPPORTED, st_mapping_keep(file, &kept, nullptr, nullptr));
  EXPECT_EQ(kept, nullptr);
  st_close(file);
}

}  // namespace
}  // namespace st
