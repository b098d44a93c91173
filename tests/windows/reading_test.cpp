// What a program on Windows reads by the C ABI.
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>

#include <thread>

#include "../unit/capi/scene.h"

namespace {

using namespace st::testing;

class Reading : public CapiScene {
 protected:
  // The tensors as any way shows them.
  void expect_tensors(st_file *file) {
    ASSERT_EQ(st_count(file), tensors.size());
    for (const TestTensor &t : tensors) {
      st_tensor got = {};
      ASSERT_ST(ST_OK, st_get(file, t.name.data(), t.name.size(), &got));
      EXPECT_TRUE(same_bytes({static_cast<const char *>(got.data), got.nbytes}, t.bytes));
      std::string copy(t.bytes.size(), '\0');
      EXPECT_ST(ST_OK, st_read(file, t.name.data(), t.name.size(), copy.data(), copy.size(), nullptr));
      EXPECT_TRUE(same_bytes(copy, t.bytes));
    }
  }
};

TEST_F(Reading, AFileIsOpenedListedAndReadInEveryMode) {
  for (uint32_t map : {ST_MAP_AUTO, ST_MAP_SHARED, ST_MAP_PRIVATE, ST_MAP_NONE, ST_MAP_COPY_ON_WRITE}) {
    st_file *file = open(0, map);
    ASSERT_NE(file, nullptr);
    expect_tensors(file);
    EXPECT_EQ(st_metadata_count(file), 2u);
    auto io = sized<st_io_info>();
    EXPECT_ST(ST_OK, st_file_io_info(file, &io));
    st_close(file);
  }
  EXPECT_ST(ST_OK, st_verify(path.c_str(), nullptr));
  EXPECT_ST(ST_OK, st_recover(path.c_str(), nullptr));
}

// Where it does not, the process hangs at its end: a destructor that crashed has left a lock of the C library's.
TEST_F(Reading, AThreadWhoseCallFailedEnds) {
  const std::string missing = dir / "missing.safetensors";
  std::thread([&] {
    st_file *none = nullptr;
    EXPECT_EQ(st_open(missing.c_str(), nullptr, &none), ST_E_NO_FILE);
    EXPECT_NE(std::string(st_last_error()).find("missing.safetensors"), std::string::npos);
    EXPECT_NE(std::string(st_build_info()), "");
  }).join();
}

TEST_F(Reading, ACopyOnWriteViewMayBeWrittenAndTheFileStays) {
  st_file *file = open(0, ST_MAP_COPY_ON_WRITE);
  st_tensor t = {};
  ASSERT_ST(ST_OK, st_get(file, "a", ST_NTS, &t));
  std::memset(const_cast<void *>(t.data), 7, t.nbytes);
  st_close(file);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(Reading, PathsAreUtf8AndLongAndOfEitherSlash) {
  std::string folder = dir.path();
  std::vector<std::wstring> made;
  for (int i = 0; i < 8; ++i) {
    folder += "/mod\xC3\xA8les-\xE2\x82\xAC-" + std::string(40, 'x');
    made.push_back(L"\\\\?\\" + std::filesystem::u8path(folder).make_preferred().wstring());
    ASSERT_TRUE(::CreateDirectoryW(made.back().c_str(), nullptr));
  }
  const std::wstring model = made.back() + L"\\m.safetensors";
  ASSERT_TRUE(::CopyFileW(std::filesystem::u8path(path).make_preferred().c_str(), model.c_str(), true));
  std::string other = folder;
  std::replace(other.begin(), other.end(), '/', '\\');
  for (const std::string &named : {folder + "/", other + "\\", "\\\\?\\" + other + "\\"}) {
    st_file *file = nullptr;
    ASSERT_ST(ST_OK, st_open((named + "m.safetensors").c_str(), nullptr, &file));
    expect_tensors(file);
    st_close(file);
  }
  EXPECT_TRUE(::DeleteFileW(model.c_str()));
  for (size_t i = made.size(); i-- > 0;) EXPECT_TRUE(::RemoveDirectoryW(made[i].c_str()));
}

TEST_F(Reading, WhatIsMissingOrDamagedIsNamed) {
  st_file *file = nullptr;
  EXPECT_ST(ST_E_NO_FILE, st_open((dir / "none.safetensors").c_str(), nullptr, &file));
  EXPECT_ST(ST_E_NO_FILE, st_open((dir / "none").append("/none.safetensors").c_str(), nullptr, &file));
  put_bytes(dir / "bad.safetensors", "not a header");
  EXPECT_ST(ST_E_HEADER_TOO_LARGE, st_open((dir / "bad.safetensors").c_str(), nullptr, &file));
}

}  // namespace
