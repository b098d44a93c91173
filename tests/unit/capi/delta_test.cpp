// Deltas through the C ABI: arguments, and overlays as handles.
#include <filesystem>

#include "scene.h"

namespace st::testing {
namespace {

class CapiDelta : public CapiScene {
 protected:
  CapiDelta() {
    std::vector<TestTensor> changed = tensors;
    changed[0].bytes = new_a;
    changed[1] = u8_tensor("new", 55, 9);
    put_bytes(other, file_of(changed, metadata));
    EXPECT_ST(ST_OK, st_delta_create(path.c_str(), other.c_str(), delta.c_str(), nullptr));
  }
  st_status overlay(st_file **out, uint32_t flags = 0, uint64_t count = 1) {
    auto options = sized<st_open_options>();
    options.flags = flags;
    options.deltas = layers;
    options.delta_count = count;
    return st_open(path.c_str(), &options, out);
  }
  const std::string other = dir / "other.safetensors", delta = dir / "delta.safetensors", to = dir / "to.safetensors";
  const char *layers[2] = {delta.c_str(), nullptr};
};

TEST_F(CapiDelta, OptionsOfLaterVersionsAreRefused) {
  auto create = sized<st_delta_create_options>();
  create.reserved0 = 1;
  EXPECT_ST(ST_E_UNSUPPORTED, st_delta_create(path.c_str(), other.c_str(), to.c_str(), &create));
  create = sized<st_delta_create_options>();
  create.alignment = 12;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_create(path.c_str(), other.c_str(), to.c_str(), &create));
  auto apply = sized<st_delta_apply_options>();
  apply.reserved0 = 1;
  EXPECT_ST(ST_E_UNSUPPORTED, st_delta_apply(path.c_str(), delta.c_str(), &apply, nullptr));
  for (uint32_t bit = 0; bit < 32; ++bit) {
    apply = sized<st_delta_apply_options>();
    apply.flags = 1u << bit;
    if (apply.flags == ST_TXN_PUBLISH || apply.flags == ST_TXN_BREAK_LINKS) continue;
    EXPECT_ST(ST_E_UNSUPPORTED, st_delta_apply(path.c_str(), delta.c_str(), &apply, nullptr)) << bit;
  }
  apply.flags = ST_TXN_JOURNAL_ONLY;
  EXPECT_ST(ST_E_UNSUPPORTED, st_delta_apply(path.c_str(), delta.c_str(), &apply, nullptr));
  EXPECT_NE(std::string_view(st_last_error()).find("st_apply_delta takes it"), std::string_view::npos);
  st_plan sizeless = {};
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_apply(path.c_str(), delta.c_str(), nullptr, &sizeless));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

// It would name none, and the way back would not be written.
TEST_F(CapiDelta, AnEmptyPathForTheWayBackIsRefused) {
  const std::string next = dir / "next", delta = dir / "delta";
  put_bytes(next, with(a_at, new_a));
  ASSERT_ST(ST_OK, st_delta_create(path.c_str(), next.c_str(), delta.c_str(), nullptr));
  auto options = sized<st_delta_apply_options>();
  options.reverse = "";
  EXPECT_ST(ST_E_NO_FILE, st_delta_apply(path.c_str(), delta.c_str(), &options, nullptr));
  st_file *file = open();
  EXPECT_ST(ST_E_NO_FILE, st_apply_delta(file, delta.c_str(), &options, nullptr));
  st_close(file);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(CapiDelta, NullIsRefusedWhereItMayNotBe) {
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_create(nullptr, other.c_str(), to.c_str(), nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_create(path.c_str(), other.c_str(), nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_apply(path.c_str(), nullptr, nullptr, nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_merge(path.c_str(), nullptr, 1, to.c_str(), nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_merge(path.c_str(), layers, 2, to.c_str(), nullptr));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, st_delta_describe(delta.c_str(), nullptr));
  st_file *file = nullptr;
  EXPECT_ST(ST_E_INVALID_ARGUMENT, overlay(&file, 0, 2));
  EXPECT_ST(ST_E_INVALID_ARGUMENT, overlay(&file, ST_OPEN_READ_WRITE));
  EXPECT_EQ(file, nullptr);
}

TEST_F(CapiDelta, ApplyingTellsThePlanByWhichItWasDone) {
  auto plan = sized<st_plan>();
  EXPECT_ST(ST_OK, st_delta_apply(path.c_str(), delta.c_str(), nullptr, &plan));
  EXPECT_EQ(plan.kind, ST_PLAN_PUBLISH);
  EXPECT_EQ(plan.file_size, bytes_of(path).size());
  auto untouched = sized<st_plan>();
  EXPECT_ST(ST_E_DELTA_BASE, st_delta_apply(path.c_str(), delta.c_str(), nullptr, &untouched));
  EXPECT_EQ(untouched.file_size, 0u);
}

TEST_F(CapiDelta, OverlayIsAHandleLikeAnyOther) {
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, overlay(&file));
  EXPECT_EQ(st_count(file), 3u);
  EXPECT_EQ(st_metadata_count(file), 2u);
  EXPECT_EQ(seen(file, "a"), new_a);
  st_tensor t = {};
  ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &t));
  EXPECT_EQ(t.shard, 1u);
  EXPECT_ST(ST_E_NOT_FOUND, st_get(file, "b", ST_NTS, &t));
  size_t i = 99;
  ASSERT_ST(ST_OK, st_find(file, "new", 3, &i));
  EXPECT_EQ(i, 1u);  // the order is that of the other file
  ASSERT_ST(ST_OK, st_get_at(file, 2, &t));
  EXPECT_EQ(std::string_view(t.name, t.name_len), tensors[2].name);
  EXPECT_EQ(t.shard, 0u);
  EXPECT_TRUE(same_bytes({static_cast<const char *>(t.data), static_cast<size_t>(t.nbytes)}, tensors[2].bytes));
  EXPECT_ST(ST_E_OUT_OF_RANGE, st_get_at(file, 3, &t));
  const char *value = nullptr;
  size_t length = 0;
  EXPECT_ST(ST_OK, st_metadata_get(file, "format", ST_NTS, &value, &length));
  EXPECT_STREQ(value, "pt");
  EXPECT_ST(ST_E_NOT_FOUND, st_metadata_get(file, "st.delta.version", ST_NTS, &value, &length));

  std::string a(4000, '\0'), added(55, '\0');
  st_read_request requests[2] = {};
  requests[0] = {"new", 3, 0, added.data(), added.size(), nullptr, 0, 0};
  requests[1] = {"a", 1, 0, a.data(), a.size(), nullptr, 0, 0};
  EXPECT_ST(ST_OK, st_read_many(file, requests, 2, nullptr));
  EXPECT_TRUE(same_bytes(a, new_a));
  EXPECT_TRUE(same_bytes(added, pattern(55, 9)));
  EXPECT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
  EXPECT_EQ(seen(file, "a"), new_a);

  st_txn *txn = nullptr;
  EXPECT_ST(ST_E_READ_ONLY, st_txn_begin(file, nullptr, &txn));
  EXPECT_ST(ST_E_READ_ONLY, st_update(file, "a", ST_NTS, &t));
  st_file *again = nullptr;
  ASSERT_ST(ST_OK, st_reopen(file, 0, &again));
  EXPECT_EQ(seen(again, "a"), new_a);
  st_close(again);
  replace_by(path, bytes_of(path));
  EXPECT_ST(ST_E_FILE_CHANGED, st_reopen(file, 0, &again));
  EXPECT_ST(ST_OK, st_refresh(file));
  EXPECT_ST(ST_OK, st_reopen(file, 0, &again));
  st_close(again);
  st_close(file);
}

TEST_F(CapiDelta, OverlayIsReopenedAlsoFromAnotherFolder) {
  const std::filesystem::path here = std::filesystem::current_path(), name = std::filesystem::path(path).filename();
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), (dir / "sharded").c_str(), 5000, nullptr));
  const char *const by_name[] = {"delta.safetensors"};
  auto options = sized<st_open_options>();
  options.deltas = by_name;
  options.delta_count = 1;
  for (const std::string &base : {name.string(), std::string("sharded")}) {
    std::filesystem::current_path(dir.path());
    st_file *file = nullptr, *again = nullptr;
    const st_status opened = st_open(base.c_str(), &options, &file);
    std::filesystem::current_path(here);
    ASSERT_ST(ST_OK, opened);
    EXPECT_ST(ST_OK, st_refresh(file));
    ASSERT_ST(ST_OK, st_reopen(file, 0, &again)) << base;
    EXPECT_EQ(seen(again, "a"), new_a);
    st_close(again);
    st_close(file);
  }
}

TEST_F(CapiDelta, OverlayOnShardsCountsThemAndThenTheDeltas) {
  const std::string folder = dir / "sharded", index = folder + "/model.safetensors.index.json";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), 5000, nullptr));
  for (const std::string &base : {folder, index}) {
    auto options = sized<st_open_options>();
    options.deltas = layers;
    options.delta_count = 1;
    st_file *file = nullptr;
    ASSERT_ST(ST_OK, st_open(base.c_str(), &options, &file));
    const uint32_t n = st_shard_count(file);
    EXPECT_EQ(n, 4u);
    const char *last = nullptr;
    ASSERT_ST(ST_OK, st_shard_path(file, n - 1, &last));
    EXPECT_EQ(last, delta);
    st_tensor t = {};
    ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &t));
    EXPECT_EQ(t.shard, n - 1);
    EXPECT_EQ(seen(file, "a"), new_a);
    EXPECT_EQ(seen(file, "new"), pattern(55, 9));
    EXPECT_ST(ST_E_NOT_FOUND, st_get(file, "b", ST_NTS, &t));
    EXPECT_EQ(st_metadata_count(file), 2u);  // no total_size
    EXPECT_ST(ST_E_READ_ONLY, st_update(file, "a", ST_NTS, &t));
    ASSERT_ST(ST_OK, st_load(file, nullptr, 0, nullptr));
    EXPECT_EQ(seen(file, "a"), new_a);
    st_close(file);
    options.flags = ST_OPEN_READ_WRITE;
    EXPECT_ST(ST_E_INVALID_ARGUMENT, st_open(base.c_str(), &options, &file));
    auto verify = sized<st_verify_options>();
    verify.deltas = layers;
    verify.delta_count = 1;
    EXPECT_ST(ST_OK, st_verify(base.c_str(), &verify));
  }
}

TEST_F(CapiDelta, ApplyingToShardsTellsThePlanOfAll) {
  const std::string folder = dir / "sharded", back = dir / "back.safetensors";
  ASSERT_ST(ST_OK, st_reshard(path.c_str(), folder.c_str(), 5000, nullptr));
  auto options = sized<st_delta_apply_options>();
  auto plan = sized<st_plan>();
  options.reverse = back.c_str();
  ASSERT_ST(ST_OK, st_delta_apply(folder.c_str(), delta.c_str(), &options, &plan));
  EXPECT_EQ(plan.kind, ST_PLAN_PUBLISH);
  EXPECT_ST(ST_E_DELTA_BASE, st_delta_apply(folder.c_str(), delta.c_str(), nullptr, nullptr));
  ASSERT_ST(ST_OK, st_join(folder.c_str(), to.c_str(), nullptr));
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, st_open(to.c_str(), nullptr, &file));
  EXPECT_EQ(seen(file, "a"), new_a);
  EXPECT_EQ(seen(file, "new"), pattern(55, 9));
  EXPECT_EQ(st_count(file), 3u);
  st_close(file);
  ASSERT_ST(ST_OK, st_delta_apply(folder.c_str(), back.c_str(), nullptr, nullptr));
  EXPECT_ST(ST_OK, st_verify(folder.c_str(), nullptr));
}

TEST_F(CapiDelta, WhatWasDeletedMayComeAgain) {
  const std::string third = dir / "third.safetensors", second = dir / "second.safetensors";
  std::vector<TestTensor> back = tensors;
  back[1] = u8_tensor("b", 77, 12);
  put_bytes(third, file_of(back, metadata));
  ASSERT_ST(ST_OK, st_delta_create(other.c_str(), third.c_str(), second.c_str(), nullptr));
  layers[1] = second.c_str();
  st_file *file = nullptr;
  ASSERT_ST(ST_OK, overlay(&file, 0, 2));
  EXPECT_EQ(seen(file, "b"), pattern(77, 12));
  EXPECT_EQ(seen(file, "a"), tensors[0].bytes);
  st_tensor t = {};
  EXPECT_ST(ST_E_NOT_FOUND, st_get(file, "new", ST_NTS, &t));
  ASSERT_ST(ST_OK, st_get(file, "b", ST_NTS, &t));
  EXPECT_EQ(t.shard, 2u);
  st_close(file);
}

}  // namespace
}  // namespace st::testing
