// Headers that we write: spelled as the stock writer spells them, aligned, and
// never such that the reader would refuse them.
#include <random>

#include "parse.h"

namespace st {
namespace {

using namespace testing;
using testing::parse;

using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;

std::string json_of(std::string_view file) {
  return std::string(file.substr(length_bytes));
}

// These three are byte for byte what safetensors 0.8 writes, whose data begins
// at a multiple of 8.
TEST(SpellHeader, SpellsAsTheStockWriterDoes) {
  const uint64_t matrix[] = {2, 3}, vector[] = {4};
  const HeaderTensor tensors[] = {{"s", Dtype::I64, {}, 0, 8},
                                  {"weight", Dtype::F32, matrix, 8, 24},
                                  {"b\"\\\n\x01\x7f/ü", Dtype::F16, vector, 32, 8}};
  const Pairs metadata = {{"format", "pt"}, {"q", "\b\f\r\t\x1f"}};
  auto out = serialise_header(tensors, metadata, 8);
  ASSERT_TRUE(is_ok(out));
  EXPECT_EQ(json_of(*out),
            "{\"__metadata__\":{\"format\":\"pt\",\"q\":\"\\b\\f\\r\\t\\u001f\"},"
            "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
            "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
            "\"b\\\"\\\\\\n\\u0001\x7f/ü\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[32,40]}}   ");
  EXPECT_EQ(load_u64le(out->data()), out->size() - 8);
}

TEST(SpellHeader, IsTheStockFileByteForByte) {
  const uint64_t shape[] = {1};
  const HeaderTensor tensors[] = {{"a", Dtype::F32, shape, 0, 4}};
  auto out = serialise_header(tensors, {}, 8);
  ASSERT_TRUE(is_ok(out));
  EXPECT_EQ(*out, std::string("8\0\0\0\0\0\0\0", 8) + R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )");
}

TEST(SpellHeader, AnEmptyFileIsAnEmptyObject) {
  auto out = serialise_header({}, {}, 8);
  ASSERT_TRUE(is_ok(out));
  EXPECT_EQ(*out, std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(SpellHeader, AlignsTheDataAndLeavesTheReserve) {
  const uint64_t shape[] = {1};
  const HeaderTensor tensors[] = {{"a", Dtype::F32, shape, 0, 4}};
  for (uint64_t alignment : {8u, 64u, 4096u})
    for (uint64_t reserve : {0u, 1u, 63u, 64u, 1000u, 100000u}) {
      auto out = serialise_header(tensors, {}, alignment, reserve);
      ASSERT_TRUE(is_ok(out));
      EXPECT_EQ(out->size() % alignment, 0u);
      const size_t used = out->find_last_not_of(' ') + 1;
      EXPECT_GE(out->size() - used, reserve);
      EXPECT_LT(out->size() - used, reserve + alignment);
      EXPECT_TRUE(is_ok(parse(json_of(*out), 4)));
    }
  auto by_default = serialise_header(tensors, {});
  ASSERT_TRUE(is_ok(by_default));
  EXPECT_EQ(by_default->size() % 64, 0u);
}

TEST(SpellHeader, RefusesWhatMayNotBeWritten) {
  const uint64_t one[] = {1}, huge[] = {uint64_t{1} << 60}, odd[] = {3},
                 overflowing[] = {uint64_t{1} << 32, uint64_t{1} << 32};
  auto of = [](std::vector<HeaderTensor> tensors) { return serialise_header(tensors, {}); };
  EXPECT_TRUE(fails_with(Status::duplicate_name, of({{"a", Dtype::U8, one, 0, 1}, {"a", Dtype::U8, one, 1, 1}})));
  EXPECT_TRUE(fails_with(Status::invalid_argument, of({{"__metadata__", Dtype::U8, one, 0, 1}})));
  EXPECT_TRUE(fails_with(Status::size_mismatch, of({{"a", Dtype::F32, one, 0, 1}})));
  EXPECT_TRUE(fails_with(Status::subbyte, of({{"a", Dtype::F4, odd, 0, 2}})));
  EXPECT_TRUE(fails_with(Status::shape_overflow, of({{"a", Dtype::U8, overflowing, 0, 0}})));
  std::vector<HeaderTensor> beyond;
  const std::string names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
  for (uint64_t i = 0; i < 8; ++i) beyond.push_back({names[i], Dtype::U8, huge, i << 60, uint64_t{1} << 60});
  EXPECT_TRUE(fails_with(Status::offsets, of(beyond)));  // ends at 2^63
  beyond.pop_back();
  EXPECT_TRUE(is_ok(of(beyond)));
  EXPECT_TRUE(fails_with(Status::offsets, of({{"a", Dtype::U8, one, UINT64_MAX, 1}})));
}

TEST(SpellHeader, IsPaddedToNoMoreThan100MB) {
  EXPECT_TRUE(fails_with(Status::header_too_large, serialise_header({}, {}, 64, max_header_bytes)));
  auto spelled = serialize_header({}, {});
  const auto refused = pad_header(&*spelled, length_bytes + max_header_bytes + 8);
  ASSERT_TRUE(fails_with(Status::header_too_large, refused));
  EXPECT_EQ(refused.error().message,
            "the header would have 2 bytes, and with its padding 100000008, more than the format's 100000000");
}

// The same description read back, for random ones.
TEST(SpellHeader, IsReadBackAsItWasMeant) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> names;
    std::vector<std::vector<uint64_t>> shapes;
    std::vector<HeaderTensor> tensors;
    const size_t count = random() % 20;
    names.reserve(count), shapes.reserve(count);
    uint64_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      std::string name = text("n", i);
      for (size_t k = random() % 6; k > 0; --k) name += static_cast<char>(random() % 128);
      names.push_back(name);
      shapes.emplace_back();
      for (size_t rank = random() % 4; rank > 0; --rank) shapes.back().push_back(random() % 5 * 4);
      auto dtype = static_cast<Dtype>(1 + random() % dtype_count);
      if (!tensor_nbytes(dtype, shapes.back())) dtype = Dtype::U16;
      const uint64_t nbytes = tensor_nbytes(dtype, shapes.back()).value();
      tensors.push_back({names.back(), dtype, shapes.back(), at, nbytes});
      at += nbytes;
    }
    const std::string key = names.empty() ? "k" : names[0];
    const Pairs metadata = {{key, "v"}, {"other", key}};
    auto out = serialise_header(tensors, metadata, 8 << random() % 5, random() % 100);
    ASSERT_TRUE(is_ok(out));
    auto back = parse(json_of(*out), at);
    ASSERT_TRUE(is_ok(back)) << *out;
    ASSERT_EQ(back->index.size(), count);
    for (const HeaderTensor &t : tensors) {
      const auto i = back->index.find(t.name);
      ASSERT_TRUE(i) << t.name;
      const TensorView got = back->index.at(*i);
      EXPECT_EQ(got.dtype, t.dtype);
      EXPECT_TRUE(std::ranges::equal(got.shape, t.shape));
      EXPECT_EQ(got.begin, t.begin);
      EXPECT_EQ(got.nbytes, t.nbytes);
    }
    EXPECT_EQ(back->index.metadata_find("other"), key);
  }
}

// In any order, so long as they fill the data: a header that our own reader
// refuses must not be written.
TEST(SpellHeader, NeverWritesWhatItsReaderRefuses) {
  const uint64_t four[] = {4};
  struct Case {
    const char *what;
    std::vector<HeaderTensor> tensors;
    uint64_t data_bytes;
  };
  const Case cases[] = {
      {"descending order", {{"b", Dtype::U8, four, 4, 4}, {"a", Dtype::U8, four, 0, 4}}, 8},
      {"overlap", {{"a", Dtype::U8, four, 0, 4}, {"b", Dtype::U8, four, 2, 4}}, 6},
      {"hole", {{"a", Dtype::U8, four, 0, 4}, {"b", Dtype::U8, four, 6, 4}}, 10},
      {"not from 0", {{"a", Dtype::U8, four, 8, 4}}, 12},
      {"name that is no UTF-8", {{"\xff", Dtype::U8, four, 0, 4}}, 4},
  };
  for (const Case &c : cases) {
    auto out = serialise_header(c.tensors, {});
    if (out) {
      EXPECT_TRUE(is_ok(parse(json_of(*out), c.data_bytes))) << c.what;
    }
  }
}

TEST(SpellHeader, RefusesOneThatIsLongerThanTheFormatAllows) {
  const std::string name(max_header_bytes, 'n');
  const uint64_t four[] = {4};
  const std::vector<HeaderTensor> tensors = {{name, Dtype::U8, four, 0, 4}};
  const auto refused = serialize_header(tensors, {});
  ASSERT_TRUE(testing::fails_with(Status::header_too_large, refused));
  EXPECT_EQ(refused.error().message, "the header would have 100000052 bytes, more than the format's 100000000");
}

}  // namespace
}  // namespace st
