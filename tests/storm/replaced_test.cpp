// A file that somebody replaces by rename, as stock save_file does, while a
// transaction waits for its locks: the change goes to the file of that name.
#include "encounter.h"

using namespace st::testing;

namespace {

class Replaced : public Arena {
 protected:
  // A commit of `tensors` that waits; then `layout` takes the file's place.
  st_status commit_while_replaced(std::vector<uint32_t> tensors, const Layout &layout) {
    file_ = open();
    Hold hold(path_, layout_, tensors.front());
    st_status status = ST_E_INTERNAL;
    Worker waiter(Worker::thread, [&](Line &) {
      status = commit(begin(file_.get(), tensors, 1, ST_TIMEOUT_FOREVER));
      error_ = st_last_error();
    });
    auto stats = sized<st_stats>();
    EXPECT_TRUE(eventually([&] { return st_file_stats(file_.get(), &stats) == ST_OK && stats.lock_waits > 0; }));
    layout.write(path_ + ".new");
    std::filesystem::rename(path_ + ".new", path_);
    hold.release();
    EXPECT_TRUE(waiter.join());
    return status;
  }
  FileHandle file_;
  std::string error_;
};

TEST_F(Replaced, ByTheSameLayoutTheNewFileIsChanged) {
  EXPECT_EQ(commit_while_replaced({2, 3}, layout_), ST_OK) << error_;
  EXPECT_EQ(versions(), (Versions{0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(read_version(file_.get(), layout_, 2), 1u);
  EXPECT_OK(update(file_.get(), 0, 2));
  EXPECT_EQ(versions(), (Versions{2, 0, 1, 1, 0, 0, 0, 0}));
}

TEST_F(Replaced, ByAnotherLayoutTheTensorsAreFoundThere) {
  const Layout other({64, 65537, 509, 300007, 1000});  // t02 and t03 as before, elsewhere
  EXPECT_EQ(commit_while_replaced({2, 3}, other), ST_OK) << error_;
  EXPECT_EQ(other.versions_in(path_), (Versions{0, 0, 1, 1, 0}));
}

TEST_F(Replaced, ByAFileWithoutTheTensorNothingIsChanged) {
  const Layout other({64, 65537, 509});
  EXPECT_EQ(commit_while_replaced({2, 3}, other), ST_E_FILE_CHANGED);
  EXPECT_EQ(other.versions_in(path_), Versions(3, 0));
  file_.reset();
  EXPECT_FALSE(journal_folder_exists());
}

TEST_F(Replaced, ByATensorOfAnotherSizeNothingIsChanged) {
  const Layout other({4099, 65537, 509, 300008});
  EXPECT_EQ(commit_while_replaced({2, 3}, other), ST_E_FILE_CHANGED);
  EXPECT_EQ(other.versions_in(path_), Versions(4, 0));
}

}  // namespace
