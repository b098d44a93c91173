// Headers read in windows of every size: the same index as in one piece.
#include <gtest/gtest.h>

#include "format/header.h"
#include "format/scan_header.h"

namespace st {
namespace {

// With the metadata behind some of the tensors.
std::string plain_header(int before_metadata) {
  std::string json = "{";
  uint64_t at = 0;
  for (int i = 0; i < 40; ++i) {
    if (i > 0) json += ",";
    if (i == before_metadata) json += R"("__metadata__":{"format":"pt","note":"sp ace"},)";
    const std::string name = "model.layers." + std::to_string(i * 37) + ".weight";
    json += "\"" + name + R"(":{"dtype":"F32","shape":[)" + std::to_string(i) + R"(,2],"data_offsets":[)" +
            std::to_string(at) + ",";
    at += static_cast<uint64_t>(i) * 8;
    json += std::to_string(at) + "]}";
  }
  return json + "}       ";
}

// Feeds windows of `size` bytes; nothing if the scanner gave up.
std::optional<Index> scan_in_windows(const std::string &json, size_t size) {
  IndexBuilder builder(7, json.size());
  HeaderScanner scanner(builder);
  std::string window;
  for (size_t done = 0; done < json.size() || !window.empty();) {
    const size_t take = std::min(size - window.size(), json.size() - done);
    window += json.substr(done, take);
    done += take;
    std::string padded = window + std::string(header_padding, '\0');
    const auto taken = scanner.take({padded.data(), window.size()}, done == json.size());
    if (!taken) return std::nullopt;
    window.erase(0, *taken);
  }
  if (!scanner.finished()) return std::nullopt;
  auto index = builder.finish();
  EXPECT_TRUE(index);
  return index ? std::optional<Index>(std::move(*index)) : std::nullopt;
}

class Metadata : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Place, Metadata, ::testing::Values(0, 20));

TEST_P(Metadata, GivesTheSameIndexWhateverTheSizeOfWindows) {
  const std::string json = plain_header(GetParam());
  const auto whole = scan_in_windows(json, json.size());
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->size(), 40u);
  size_t read = 0;
  for (size_t size = 90; size <= json.size(); ++size) {
    const auto index = scan_in_windows(json, size);
    if (!index) continue;  // an entry did not fit
    ++read;
    ASSERT_EQ(index->size(), whole->size()) << size;
    ASSERT_EQ(index->data_bytes(), whole->data_bytes()) << size;
    ASSERT_EQ(index->names(), whole->names()) << size;
    ASSERT_EQ(index->metadata_size(), 2u) << size;
    ASSERT_EQ(index->metadata_find("note"), "sp ace") << size;
    for (size_t i = 0; i < whole->size(); ++i) {
      const TensorView a = index->at(i), b = whole->at(i);
      ASSERT_EQ(a.name, b.name) << size;
      ASSERT_TRUE(std::ranges::equal(a.shape, b.shape)) << size;
      ASSERT_EQ(a.begin, b.begin) << size;
      ASSERT_EQ(index->find(a.name), i) << size;
    }
  }
  EXPECT_GT(read, json.size() - 200);
}

TEST(ScanInWindows, GivesUpOnWhatIsBrokenWhereverItIsCut) {
  for (const char *broken : {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},})",
                             R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}x)",
                             R"({"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}})",
                             "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                             R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})"}) {
    const std::string json = broken;
    for (size_t size = 1; size <= json.size(); ++size)
      EXPECT_FALSE(scan_in_windows(json, size)) << broken << " " << size;
  }
}

}  // namespace
}  // namespace st
