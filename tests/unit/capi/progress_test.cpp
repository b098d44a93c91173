// What a call tells of its progress: one count, which never goes back, to one total.
#include "scene.h"
#include "told_progress.h"

namespace st::testing {
namespace {

class CapiProgress : public CapiScene {
 protected:
  CapiProgress() { put_bytes(path, file_of(std::vector{u8_tensor("long", length, 1)})); }
  static int note(void *user, uint64_t done, uint64_t total) {
    return !static_cast<ToldProgress *>(user)->progress()(done, total);
  }
  template <class Options>
  Options telling() {
    auto options = sized<Options>();
    options.progress = note;
    options.progress_user = &told;
    return options;
  }
  st_file *open_telling() {
    auto options = telling<st_open_options>();
    options.flags = ST_OPEN_READ_WRITE;
    st_file *file = nullptr;
    EXPECT_ST(ST_OK, st_open(path.c_str(), &options, &file));
    told.forget();
    return file;
  }
  st_tensor fresh_value() {
    st_tensor t = {};
    t.name = "long";
    t.name_len = 4;
    t.dtype = ST_DTYPE_U8;
    t.rank = 1;
    t.shape = shape;
    t.data = fresh.data();
    t.nbytes = length;
    return t;
  }
  // What the commit of a transaction tells.
  void commit_with(uint32_t flags, uint64_t least, const std::function<void(st_txn *)> &stage) {
    st_file *file = open_telling();
    auto options = telling<st_txn_options>();
    options.flags = flags;
    st_txn *txn = nullptr;
    ASSERT_ST(ST_OK, st_txn_begin(file, &options, &txn));
    stage(txn);
    told.forget();
    EXPECT_ST(ST_OK, st_txn_commit(txn));
    told.expect_one_count(least);
    st_txn_free(txn);
    st_close(file);
  }

  static constexpr uint64_t length = 20'000'000;
  const uint64_t shape[1] = {length};
  const std::string fresh = pattern(length, 2);
  ToldProgress told;
};

TEST_F(CapiProgress, OfAnUpdateIsOneCount) {
  st_file *file = open_telling();
  const st_tensor value = fresh_value();
  ASSERT_ST(ST_OK, st_update(file, "long", ST_NTS, &value));
  told.expect_one_count(length);
  st_close(file);
}

TEST_F(CapiProgress, OfACommitIsOneCount) {
  const st_tensor value = fresh_value();
  for (const uint32_t flags : {0u, ST_TXN_COPY, ST_TXN_PUBLISH, ST_TXN_PUBLISH | ST_TXN_COPY, ST_TXN_JOURNAL_ONLY})
    commit_with(flags, length, [&](st_txn *txn) { EXPECT_ST(ST_OK, st_txn_update(txn, "long", ST_NTS, &value)); });
}

TEST_F(CapiProgress, OfACommitOfSlicesIsOneCount) {
  st_tensor value = fresh_value();
  constexpr uint64_t half[1] = {length / 2};
  value.shape = half;
  value.nbytes = length / 2;
  const st_range first_half = {0, length / 2, 1}, middle = {length / 4, 3 * length / 4, 1};
  for (const uint32_t flags : {0u, ST_TXN_PUBLISH})
    commit_with(flags, length / 4 * 3, [&](st_txn *txn) {
      EXPECT_ST(ST_OK, st_txn_update_slice(txn, "long", ST_NTS, &first_half, 1, nullptr, 0, &value));
      EXPECT_ST(ST_OK, st_txn_update_slice(txn, "long", ST_NTS, &middle, 1, nullptr, 0, &value));
    });
}

TEST_F(CapiProgress, OfASaveIsOneCount) {
  const st_tensor value = fresh_value();
  for (const uint32_t layout : {ST_LAYOUT_KEEP, ST_LAYOUT_STOCK}) {
    auto options = telling<st_save_options>();
    options.layout = layout;
    told.forget();
    ASSERT_ST(ST_OK, st_save((dir / "saved").c_str(), &value, 1, nullptr, 0, &options));
    told.expect_one_count(length);
  }
}

}  // namespace
}  // namespace st::testing
