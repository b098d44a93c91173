// Two readers for one format: scan_header for headers as writers spell them,
// the full parser for all others. Whatever one makes of a header the other must
// make of the same header spelled differently.
#include <random>

#include "bound.h"
#include "parse.h"

namespace st {
namespace {

using namespace testing;
using testing::parse;

// What an index says, as text.
std::string said_by(const Result<Header> &header) {
  if (!header) return text("status ", static_cast<int>(header.error().status));
  std::string out;
  const Index &index = header->index;
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    out += text(in_quotes(t.name), " ", dtype_name(t.dtype), " ", t.begin, " ", t.nbytes, " [");
    for (uint64_t dim : t.shape) out += text(dim, ",");
    out += "]\n";
    EXPECT_EQ(index.find(t.name), i);
  }
  for (size_t i = 0; i < index.metadata_size(); ++i)
    out += text(in_quotes(index.metadata_at(i).first), "=", in_quotes(index.metadata_at(i).second), "\n");
  return out;
}

std::string escaped(std::string_view s) {
  std::string out;
  for (char c : s)
    if (static_cast<unsigned char>(c) < 0x80) {
      char unit[8];
      std::snprintf(unit, sizeof unit, "\\u%04x", c);
      out += unit;
    } else {
      out += c;
    }
  return out;
}

enum class Spelling { plain, spaced, escaped_names, extra_field, arrays };

// A random header: one description, to be spelled in several ways.
class Description {
 public:
  explicit Description(uint64_t seed) : random_(seed) {
    const size_t count = random_() % 12;
    for (size_t i = 0; i < count; ++i) add_tensor(i);
    if (random_() % 4 == 0 && count > 1) tensors_.back().name = tensors_.front().name;
    if (random_() % 5 == 0 && count > 0) tensors_[random_() % count].end += 1 + random_() % 3;
    if (random_() % 6 == 0 && count > 0) tensors_[random_() % count].begin += 1;
    std::shuffle(tensors_.begin(), tensors_.end(), random_);
    for (size_t i = random_() % 4; i > 0; --i)
      metadata_.emplace_back(text("k", random_() % 3), text("wert ä", random_() % 100));
    data_bytes_ = at_ + (random_() % 8 == 0 ? 1 : 0);
  }

  uint64_t data_bytes() const { return data_bytes_; }

  std::string spelled(Spelling how) const {
    const std::string gap = how == Spelling::spaced ? " \n\t" : "";
    auto name = [&](const std::string &s) { return "\"" + (how == Spelling::escaped_names ? escaped(s) : s) + "\""; };
    std::string out = "{";
    if (!metadata_.empty()) {
      out += gap + "\"__metadata__\"" + gap + ":{";
      for (size_t i = 0; i < metadata_.size(); ++i)
        out += (i ? "," : "") + gap + name(metadata_[i].first) + gap + ":" + gap + name(metadata_[i].second) + gap;
      out += "}";
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (i || !metadata_.empty()) out += gap + ",";
      out += gap + name(tensors_[i].name) + gap + ":" + gap + fields(tensors_[i], how, gap);
    }
    return out + gap + "}" + (how == Spelling::plain ? "   " : "");
  }

 private:
  struct Tensor {
    std::string name;
    Dtype dtype;
    std::vector<uint64_t> shape;
    uint64_t begin, end;
    unsigned order;
  };

  void add_tensor(size_t i) {
    constexpr const char *names[] = {"model.layers.", "ü", "长", "a b/", "", "x\\\\", "\\\"q\\\""};
    Tensor t{names[random_() % 5] + std::to_string(i), static_cast<Dtype>(1 + random_() % dtype_count), {}, at_, 0,
             static_cast<unsigned>(random_() % 6)};
    for (size_t rank = random_() % 4; rank > 0; --rank)
      t.shape.push_back(random_() % 6 == 0 ? 0 : 4 * (random_() % 3 + 1));
    auto n = tensor_nbytes(t.dtype, t.shape);
    if (!n) t.dtype = Dtype::F32, n = tensor_nbytes(t.dtype, t.shape);
    at_ = t.end = at_ + *n;
    tensors_.push_back(std::move(t));
  }

  static std::string fields(const Tensor &t, Spelling how, const std::string &gap) {
    std::string shape = "[";
    for (size_t i = 0; i < t.shape.size(); ++i) shape += (i ? "," : "") + gap + std::to_string(t.shape[i]) + gap;
    shape += "]";
    const std::string dtype = "\"" + std::string(dtype_name(t.dtype)) + "\"";
    const std::string offsets = text("[", gap, t.begin, gap, ",", gap, t.end, gap, "]");
    if (how == Spelling::arrays) return "[" + dtype + "," + shape + "," + offsets + "]";
    std::string parts[] = {"\"dtype\"" + gap + ":" + gap + dtype, "\"shape\":" + shape,
                           "\"data_offsets\"" + gap + ":" + offsets};
    for (unsigned k = t.order; k > 0; --k) std::next_permutation(std::begin(parts), std::end(parts));
    const std::string extra = how == Spelling::extra_field ? ",\"note\":[1,{\"deep\":null},\"\\n\"]" : "";
    return "{" + gap + parts[0] + gap + "," + parts[1] + "," + gap + parts[2] + extra + gap + "}";
  }

  std::mt19937_64 random_;
  std::vector<Tensor> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  uint64_t at_ = 0, data_bytes_ = 0;
};

TEST(TwoReaders, GiveTheSameIndexOrTheSameStatusForEverySpelling) {
  const uint64_t descriptions = testing::bounded(600, 3000, 3000);
  size_t valid = 0, refused = 0, full_parser = 0;
  for (uint64_t seed = 0; seed < descriptions; ++seed) {
    const Description description(seed);
    const std::string plain = description.spelled(Spelling::plain);
    const std::string wanted = said_by(parse(plain, description.data_bytes()));
    EXPECT_TRUE(is_plain(plain)) << plain;
    (wanted.starts_with("status") ? refused : valid)++;
    for (Spelling how : {Spelling::spaced, Spelling::escaped_names, Spelling::extra_field, Spelling::arrays}) {
      const std::string other = description.spelled(how);
      if (!is_plain(other)) ++full_parser;
      ASSERT_EQ(said_by(parse(other, description.data_bytes())), wanted) << plain << "\n" << other;
    }
  }
  EXPECT_GT(valid, descriptions / 6);
  EXPECT_GT(refused, descriptions / 6);
  EXPECT_GT(full_parser, descriptions * 5 / 3);
}

TEST(TwoReaders, FastOneLeavesWhatItDoesNotKnowToTheOther) {
  const std::string rest = R"("shape":[1],"data_offsets":[0,4]}})";
  EXPECT_TRUE(is_plain(R"({"a":{"dtype":"F32",)" + rest));
  for (const std::string &json : {
           R"({"\u0061":{"dtype":"F32",)" + rest,
           R"({"a":{"dtype":{"F32":null},)" + rest,
           R"({"a":{"dtype":"F32","x":1,)" + rest,
           R"({"a":{"dtype":"F32","dtype":"F32",)" + rest,
           R"({"a":{"dtype":"XYZ",)" + rest,
           std::string(R"({"a":["F32",[1],[0,4]]})"),
           std::string(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})"),
           std::string(R"({"a":{"dtype":"F32","shape":[00],"data_offsets":[0,4]}})"),
           std::string(R"({"a":{"dtype":"F32","shape":[1234567890123456789],"data_offsets":[0,4]}})"),
           std::string(R"({"__metadata__":null})"),
           std::string(R"({"__metadata__":{},"__metadata__":{}})"),
           std::string("{} x"),
           std::string("{"),
           std::string(""),
       })
    EXPECT_FALSE(is_plain(json)) << json;
}

TEST(TwoReaders, FastOneNeverReadsPastTheEndIntoThePadding) {
  const std::string whole = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  ASSERT_TRUE(is_plain(whole));
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(is_plain(whole.substr(0, n))) << n;
    EXPECT_FALSE(parse(whole.substr(0, n), 8)) << n;
    // Even where what follows would complete it.
    IndexBuilder builder(1, n);
    std::string room = whole + std::string(header_padding, ' ');
    room[n] = '\0';
    EXPECT_FALSE(scan_header({room.data(), n}, builder)) << n;
  }
}

// The fast reader knows the digits of the offset before, and may meet them again as the beginning of others.
TEST(TwoReaders, AnOffsetThatBeginsAsTheOneBeforeEndedIsAnotherNumber) {
  const std::string json = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                           R"("c":{"dtype":"U8","shape":[2],"data_offsets":[10,12]},)"
                           R"("d":{"dtype":"U8","shape":[3],"data_offsets":[12 ,15]},)"
                           R"("b":{"dtype":"U8","shape":[9],"data_offsets":[ 1,10]}})";
  ASSERT_TRUE(is_plain(json));
  const auto header = parse(json, 15);
  ASSERT_TRUE(is_ok(header));
  const uint64_t begins[] = {0, 1, 10, 12}, sizes[] = {1, 9, 2, 3};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(header->index.at(i).begin, begins[i]);
    EXPECT_EQ(header->index.at(i).nbytes, sizes[i]);
  }
  EXPECT_FALSE(parse(
      R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[1],"data_offsets":[00,1]}})",
      1));
}

// Strings end at the same byte wherever that lies in the 64 that are looked at together.
TEST(TwoReaders, NamesOfEveryLengthAndByteAreWhole) {
  for (size_t length = 0; length < 140; ++length)
    for (const char *unit : {"a", "\x7f", "ü", "\xe9\x95\xbf", "!", " ", "\xf0\x9f\x98\x80"}) {
      std::string name;
      while (name.size() < length) name += unit;
      const std::string rest = R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
      auto fast = parse("{\"" + name + rest, 1);
      ASSERT_TRUE(is_plain("{\"" + name + rest));
      ASSERT_TRUE(is_ok(fast));
      EXPECT_EQ(fast->index.at(0).name, name);
      auto slow = parse("{\"" + name + "\\u0021" + rest, 1);
      ASSERT_TRUE(is_ok(slow));
      EXPECT_EQ(slow->index.at(0).name, name + "!");
    }
}

TEST(HeaderPaths, OffsetsOfMoreDigitsThanAreComparedAtOnce) {
  const uint64_t far = 100000000000000000;  // 18 digits
  auto header = parse(R"({"a":{"dtype":"U8","shape":[100000000000000000],"data_offsets":[0,100000000000000000]},)"
                      R"("b":{"dtype":"U8","shape":[1],"data_offsets":[100000000000000000,100000000000000001]}})",
                      far + 1);
  ASSERT_TRUE(is_ok(header));
  EXPECT_EQ(header->index.at(1).begin, far);
  EXPECT_FALSE(parse(R"({"a":{"dtype":"U8","shape":[100000000000000000],"data_offsets":[0,100000000000000000]},)"
                     R"("b":{"dtype":"U8","shape":[1],"data_offsets":[100000000000000001,100000000000000002]}})",
                     far + 2));
}

}  // namespace
}  // namespace st
