// A file takes the name of another that is open, mapped, or kept by a program that knows nothing of libst; and what a
// process leaves that ends in the middle.
#include <thread>

#include "../unit/capi/scene.h"
#include "os/file.h"
#include "os/win32/replace.h"
#include "other_process.h"

namespace st::testing {
namespace {

class Replace : public CapiScene {
 protected:
  st_status publish(const std::string &bytes) {
    st_file *file = open();
    st_txn *txn = nullptr;
    auto options = sized<st_txn_options>();
    options.flags = ST_TXN_PUBLISH;
    EXPECT_ST(ST_OK, st_txn_begin(file, &options, &txn));
    const st_tensor t = value(0, bytes);
    EXPECT_ST(ST_OK, st_txn_update(txn, "a", ST_NTS, &t));
    const st_status status = commit(txn);
    said = st_last_error();
    st_close(file);
    return status;
  }
  int rename(const std::string &from, const std::string &to) const {
    const int folder = env.openat(AT_FDCWD, dir.path().c_str(), O_RDONLY | O_DIRECTORY, 0);
    const int r = env.renameat(folder, from.c_str(), folder, to.c_str());
    env.close(folder);
    return r;
  }

  os::Env &env = os::Env::posix();
  const std::string tmp = ".model.safetensors.st-tmp-0123456789abcdef",
                    aside = ".model.safetensors.st-replaced-by-0123456789abcdef";
  std::string said;
};

TEST_F(Replace, ViewsOfAFileThatWasReplacedStayAsTheyWere) {
  st_file *reader = open(0, ST_MAP_SHARED);
  st_tensor view = {};
  ASSERT_ST(ST_OK, st_get(reader, "a", ST_NTS, &view));
  for (const std::string &bytes : {new_a, tensors[0].bytes, new_a}) {
    EXPECT_ST(ST_OK, publish(bytes));
    EXPECT_TRUE(same_bytes(bytes_of(path), with(a_at, bytes)));
    EXPECT_TRUE(same_bytes({static_cast<const char *>(view.data), view.nbytes}, tensors[0].bytes));
  }
  ASSERT_ST(ST_OK, st_refresh(reader));
  EXPECT_TRUE(same_bytes(seen(reader, "a"), new_a));
  st_close(reader);
  EXPECT_ST(ST_OK, st_recover(path.c_str(), nullptr));  // looks into the folder
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
}

// Its journal is too long to be kept for the next change. A folder that it kept open would stay until it is closed.
TEST_F(Replace, AnIdleHandleIsInNobodysWayAfterALargeChange) {
  constexpr size_t nbytes = size_t{257} << 20;
  std::string header = R"({"w":{"dtype":"U8","shape":[)" + std::to_string(nbytes) + R"(],"data_offsets":[0,)" +
                       std::to_string(nbytes) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  put_bytes(path, std::string(reinterpret_cast<const char *>(&length), sizeof length) + header);
  std::filesystem::resize_file(path, sizeof length + header.size() + nbytes);
  const std::string bytes(nbytes, '7');
  st_tensor t = value(0, bytes);
  const uint64_t shape = nbytes;
  t.shape = &shape;
  const auto names = [&] { return names_in(dir.path()); };
  const std::vector<std::string> files = {"model.safetensors"};

  st_file *idle = open();
  EXPECT_ST(ST_OK, st_update(idle, "w", ST_NTS, &t));
  EXPECT_EQ(names(), files);
  for (int i = 0; i < 2; ++i) {
    st_file *other = open();
    EXPECT_ST(ST_OK, st_update(other, "w", ST_NTS, &t));
    st_close(other);
    EXPECT_EQ(names(), files);
  }
  EXPECT_ST(ST_OK, st_update(idle, "w", ST_NTS, &t));
  st_close(idle);
  EXPECT_EQ(names(), files);
}

TEST_F(Replace, ItHasTheNameAtOnceAndIsTheSameFile) {
  const os::File old_one = std::move(*os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path));
  put_bytes(dir / tmp, "new");
  const os::File new_one = std::move(*os::File::open(env, AT_FDCWD, dir / tmp, O_RDWR, 0, tmp));
  ASSERT_EQ(rename(tmp, "model.safetensors"), 0);
  struct stat named;
  ASSERT_EQ(env.fstatat(AT_FDCWD, path.c_str(), &named, 0), 0);
  EXPECT_TRUE(os::same_inode(named, *new_one.stat()));
  EXPECT_FALSE(os::same_inode(named, *old_one.stat()));
  EXPECT_EQ(old_one.stat()->st_nlink, 0u);
}

TEST_F(Replace, AFileThatAnotherProgramKeepsStaysAndItIsSaid) {
  const HANDLE keeps = ::CreateFileA(path.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr,
                                     OPEN_EXISTING, 0, nullptr);  // as fopen does it: nobody may rename or remove it
  ASSERT_NE(keeps, INVALID_HANDLE_VALUE);
  EXPECT_ST(ST_E_PERMISSION, publish(new_a));
  EXPECT_NE(said.find("another program keeps"), std::string::npos) << said;
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  st_file *file = open();
  const st_tensor t = value(0, new_a);
  EXPECT_ST(ST_OK, st_update(file, "a", ST_NTS, &t));  // in place all is well
  st_close(file);
  ::CloseHandle(keeps);
  EXPECT_ST(ST_OK, publish(tensors[0].bytes));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_ST(ST_OK, st_recover(path.c_str(), nullptr));
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
}

TEST_F(Replace, AProcessThatEndsBetweenTheTwoStepsLeavesTheOldFile) {
  put_bytes(dir / tmp, with(a_at, new_a));
  std::filesystem::rename(path, dir / aside);
  st_file *file = open(0);
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(same_bytes(seen(file, "a"), tensors[0].bytes));
  st_close(file);
  EXPECT_ST(ST_OK, publish(tensors[0].bytes));  // a writer removes the temporary of the dead one
  EXPECT_ST(ST_OK, st_recover(path.c_str(), nullptr));
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
}

TEST_F(Replace, AProcessThatEndsAfterThemLeavesTheNewFileAndTheOldOneGoes) {
  std::filesystem::rename(path, dir / aside);
  put_bytes(path, with(a_at, new_a));
  EXPECT_ST(ST_OK, st_recover(path.c_str(), nullptr));
  EXPECT_TRUE(same_bytes(bytes_of(path), with(a_at, new_a)));
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
}

TEST_F(Replace, AFolderIsNotReplaced) {
  std::filesystem::create_directory(dir / "folder");
  put_bytes(dir / tmp, "new");
  EXPECT_EQ(rename(tmp, "folder"), -EISDIR);
  std::filesystem::remove(dir / tmp);
}

// wine renames what has the name now, whichever folder the handle is at. What others make in a folder that is removed
// may lie in it, or not be made; it may not lie elsewhere.
TEST_F(Replace, AFolderThatOthersHaveOpenGoesNoOtherWay) {
  const int parent = env.openat(AT_FDCWD, dir.path().c_str(), O_RDONLY | O_DIRECTORY, 0);
  ASSERT_EQ(env.mkdirat(parent, "m.st-journal", 0700), 0);
  const int folder = env.openat(parent, "m.st-journal", O_RDONLY | O_DIRECTORY, 0);
  EXPECT_EQ(env.unlinkat(parent, "m.st-journal", AT_REMOVEDIR), 0);
  for (const std::string &name : names_in(dir.path()))
    EXPECT_TRUE(name == "m.st-journal" || name == "model.safetensors") << name;
  const int made = env.openat(folder, "j", O_RDWR | O_CREAT | O_EXCL, 0600);
  if (made >= 0) {
    EXPECT_TRUE(std::filesystem::exists(dir / "m.st-journal/j"));
    env.close(made);
    EXPECT_EQ(env.unlinkat(parent, "m.st-journal", AT_REMOVEDIR), -ENOTEMPTY);
    EXPECT_EQ(env.unlinkat(folder, "j", 0), 0);
    EXPECT_EQ(env.unlinkat(parent, "m.st-journal", AT_REMOVEDIR), 0);
  } else {
    EXPECT_EQ(made, -ENOENT);
  }
  env.close(folder);
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(env.mkdirat(parent, "m.st-journal", 0700), 0);
  EXPECT_EQ(env.unlinkat(parent, "m.st-journal", AT_REMOVEDIR), 0);
  env.close(parent);
}

TEST_F(Replace, ANameThatMayComeIsNotMissing) {
  const int parent = env.openat(AT_FDCWD, dir.path().c_str(), O_RDONLY | O_DIRECTORY, 0);
  const auto found = [&](const wchar_t *name) { return os::restore_replaced(os::handle_of(parent), name); };
  EXPECT_EQ(found(L"model.safetensors"), os::Aside::changing);  // it has come meanwhile
  EXPECT_EQ(found(L"none.safetensors"), os::Aside::none);       // and each time the folder is read anew
  put_bytes(dir / tmp, "new");
  EXPECT_EQ(found(L"none.safetensors"), os::Aside::changing);  // one is made that may get this name
  std::filesystem::rename(path, dir / aside);
  EXPECT_EQ(found(L"model.safetensors"), os::Aside::undecided);
  std::filesystem::remove(dir / tmp);
  env.close(parent);
}

TEST_F(Replace, LongNamesToo) {
  const std::string name = std::string(230, 'n') + ".safetensors", there = dir / name;
  std::filesystem::rename(path, dir / "short");
  ASSERT_TRUE(::MoveFileW(std::filesystem::u8path(dir / "short").make_preferred().c_str(),
                          (L"\\\\?\\" + std::filesystem::u8path(there).make_preferred().wstring()).c_str()));
  auto options = sized<st_open_options>();
  options.flags = ST_OPEN_READ_WRITE;
  st_file *file = nullptr, *reader = nullptr;
  ASSERT_ST(ST_OK, st_open(there.c_str(), nullptr, &reader));
  ASSERT_ST(ST_OK, st_open(there.c_str(), &options, &file));
  EXPECT_ST(ST_OK, st_compact(there.c_str(), nullptr));
  st_close(file);
  EXPECT_TRUE(same_bytes(seen(reader, "a"), tensors[0].bytes));
  st_close(reader);
  EXPECT_ST(ST_OK, st_recover(there.c_str(), nullptr));
  EXPECT_ST(ST_OK, st_verify(there.c_str(), nullptr));
  ASSERT_TRUE(::DeleteFileW((L"\\\\?\\" + std::filesystem::u8path(there).make_preferred().wstring()).c_str()));
}

TEST_F(Replace, WhoOpensFindsAFileAtEveryMoment) {
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 25; ++i) EXPECT_ST(ST_OK, publish(i % 2 ? tensors[0].bytes : new_a));
    done = true;
  });
  size_t opened = 0;
  for (; !done; ++opened) {
    st_file *file = nullptr;
    ASSERT_ST(ST_OK, st_open(path.c_str(), nullptr, &file));
    const std::string a = seen(file, "a");
    EXPECT_TRUE(a == new_a || a == tensors[0].bytes);
    st_close(file);
  }
  writer.join();
  EXPECT_GT(opened, 0u);
}

TEST_F(Replace, SyncsAnswerAndRoomIsReserved) {
  const int folder = env.openat(AT_FDCWD, dir.path().c_str(), O_RDONLY | O_DIRECTORY, 0);
  const os::File file = std::move(*os::File::open(env, folder, "f", O_RDWR | O_CREAT | O_EXCL, 0600, "f"));
  EXPECT_EQ(env.fallocate(file.fd(), 0, 0, 1 << 20), 0);
  EXPECT_EQ(file.stat()->st_size, 1 << 20);
  EXPECT_EQ(env.fsync(file.fd()), 0);
  const os::File reads = std::move(*os::File::open(env, AT_FDCWD, dir / "f", O_RDONLY, 0, "f"));
  EXPECT_EQ(env.fsync(reads.fd()), 0);  // by a handle that may write
  EXPECT_EQ(env.fsync(folder), 0);
  env.close(folder);
}

}  // namespace
}  // namespace st::testing
