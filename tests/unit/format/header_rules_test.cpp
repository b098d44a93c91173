// Every rule of the format, broken alone: each has a status of its own. And the
// odd corners that the reference reader takes, so that we must.
#include "parse.h"

namespace st {
namespace {

using namespace testing;
using testing::parse;

std::string tensor(std::string_view fields) {
  return "{\"a\":{" + std::string(fields) + "}}";
}

struct Rule {
  const char *name;
  Status status;
  std::string json;
  uint64_t data_bytes;
};
void PrintTo(const Rule &rule, std::ostream *out) {
  *out << rule.name;
}  // its JSON may be no UTF-8

class BrokenRule : public ::testing::TestWithParam<Rule> {};

TEST_P(BrokenRule, HasItsStatus) {
  EXPECT_TRUE(fails_with(GetParam().status, parse(GetParam().json, GetParam().data_bytes))) << GetParam().json;
}

const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";

const Rule rules[] = {
    {"NotUtf8", Status::header_utf8, "{\"a\xff\":{" + good + "}}", 4},
    {"OverlongUtf8", Status::header_utf8, "{\"\xc0\x80\":{" + good + "}}", 4},
    {"SurrogateInUtf8", Status::header_utf8, "{\"\xed\xa0\x80\":{" + good + "}}", 4},
    {"Empty", Status::header_json, "", 0},
    {"Blank", Status::header_json, "    ", 0},
    {"AnArray", Status::header_json, "[]", 0},
    {"AString", Status::header_json, "\"a\"", 0},
    {"Unclosed", Status::header_json, "{\"a\":{" + good + "}", 4},
    {"TrailingComma", Status::header_json, "{\"a\":{" + good + "},}", 4},
    {"TwoObjects", Status::header_json, "{\"a\":{" + good + "}}{}", 4},
    {"SomethingAfter", Status::header_json, "{\"a\":{" + good + "}} x", 4},
    {"NulAfter", Status::header_json, std::string("{}\0", 3), 0},
    {"ControlCharacterInName", Status::header_json, "{\"a\n\":{" + good + "}}", 4},
    {"LeadingZero", Status::header_json, tensor(R"("dtype":"F32","shape":[01],"data_offsets":[0,4])"), 4},
    {"HexadecimalNumber", Status::header_json, tensor(R"("dtype":"F32","shape":[0x1],"data_offsets":[0,4])"), 4},
    {"TrailingCommaInShape", Status::header_json, tensor(R"("dtype":"F32","shape":[1,],"data_offsets":[0,4])"), 4},
    {"ColonAfterValue", Status::header_json, tensor(R"("dtype":"F32":null},"shape":[1],"data_offsets":[0,4])"), 4},
    {"BadEscape", Status::header_json, R"({"a\x41":{)" + good + "}}", 4},
    {"LoneSurrogateEscape", Status::header_json, R"({"a\ud800":{)" + good + "}}", 4},
    {"BrokenIgnoredField", Status::header_json, tensor(good + R"(,"x":tru)"), 4},
    {"MetadataIsNoMap", Status::metadata, R"({"__metadata__":["a"]})", 0},
    {"MetadataValueIsNoString", Status::metadata, R"({"__metadata__":{"a":1}})", 0},
    {"MetadataNests", Status::metadata, R"({"__metadata__":{"a":{"b":"c"}}})", 0},
    {"MetadataTwice", Status::metadata, R"({"__metadata__":{},"__metadata__":{}})", 0},
    {"NoDtype", Status::tensor_info, tensor(R"("shape":[1],"data_offsets":[0,4])"), 4},
    {"NoShape", Status::tensor_info, tensor(R"("dtype":"F32","data_offsets":[0,4])"), 4},
    {"NoOffsets", Status::tensor_info, tensor(R"("dtype":"F32","shape":[1])"), 4},
    {"DtypeTwice", Status::tensor_info, tensor(R"("dtype":"F32",)" + good), 4},
    {"ShapeTwice", Status::tensor_info, tensor(R"("shape":[1],)" + good), 4},
    {"OffsetsTwice", Status::tensor_info, tensor(R"("data_offsets":[0,4],)" + good), 4},
    {"EntryIsANumber", Status::tensor_info, R"({"a":1})", 0},
    {"EntryIsNull", Status::tensor_info, R"({"a":null})", 0},
    {"EntryIsAShortArray", Status::tensor_info, R"({"a":["F32",[1]]})", 4},
    {"DtypeIsANumber", Status::tensor_info, tensor(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4},
    {"ShapeIsANumber", Status::tensor_info, tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4},
    {"NegativeDimension", Status::tensor_info, tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4},
    {"FractionalDimension", Status::tensor_info, tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4},
    {"DimensionIsAString", Status::tensor_info, tensor(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"), 4},
    {"DimensionOf2To64", Status::tensor_info,
     tensor(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4])"), 4},
    {"OneOffset", Status::tensor_info, tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4},
    {"ThreeOffsets", Status::tensor_info, tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4},
    {"OffsetOf2To64", Status::tensor_info,
     tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616])"), 4},
    {"UnknownDtype", Status::dtype, tensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4},
    {"LowerCaseDtype", Status::dtype, tensor(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), 4},
    {"ShapeOverflows", Status::shape_overflow,
     tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4])"), 4},
    {"BitsOverflow", Status::shape_overflow,
     tensor(R"("dtype":"U64","shape":[1152921504606846976],"data_offsets":[0,4])"), 4},
    {"OverflowBeforeZero", Status::shape_overflow,
     tensor(R"("dtype":"U8","shape":[9223372036854775808,4,0],"data_offsets":[0,0])"), 0},
    {"OffsetsBackwards", Status::offsets, tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4},
    {"Overlap", Status::overlap,
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6},
    {"HoleAtTheFront", Status::hole, tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8},
    {"HoleBetween", Status::hole,
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9},
    {"SpanTooLong", Status::size_mismatch, tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"), 8},
    {"SpanTooShort", Status::size_mismatch, tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4},
    {"SpanOfAZeroSizeTensor", Status::size_mismatch, tensor(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])"), 4},
    {"HalfAByte", Status::subbyte, tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2},
    {"HalfAByteScalar", Status::subbyte, tensor(R"("dtype":"F4","shape":[],"data_offsets":[0,1])"), 1},
    {"QuartersOfBytes", Status::subbyte, tensor(R"("dtype":"F6_E2M3","shape":[5],"data_offsets":[0,4])"), 4},
    {"FileEndsEarly", Status::truncated, tensor(good), 3},
    {"FileHasNoData", Status::truncated, tensor(good), 0},
    {"BytesFollow", Status::trailing_data, tensor(good), 5},
    {"BytesFollowNothing", Status::trailing_data, "{}", 1},
    {"NameTwice", Status::duplicate_name, "{\"a\":{" + good + "},\"a\":{" + good + "}}", 4},
    {"NameTwiceByEscape", Status::duplicate_name,
     R"({"ab":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a\u0062":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     2},
};

INSTANTIATE_TEST_SUITE_P(Header, BrokenRule, ::testing::ValuesIn(rules),
                         [](const auto &rule) { return std::string(rule.param.name); });

TEST(Header, LengthIsCheckedAgainstTheFileAndTheLimit) {
  auto length = [](uint64_t n, uint64_t file_size, size_t given = 8) {
    char bytes[8];
    store_u64le(bytes, n);
    return parse_header_length({bytes, given}, file_size);
  };
  EXPECT_TRUE(fails_with(Status::header_too_small, length(2, 0, 0)));
  EXPECT_TRUE(fails_with(Status::header_too_small, length(2, 7, 7)));
  EXPECT_TRUE(fails_with(Status::header_too_large, length(max_header_bytes + 1, UINT64_MAX)));
  EXPECT_TRUE(fails_with(Status::header_too_large, length(UINT64_MAX, 100)));
  EXPECT_TRUE(fails_with(Status::header_truncated, length(3, 10)));
  EXPECT_TRUE(fails_with(Status::header_truncated, length(max_header_bytes, 8)));
  EXPECT_EQ(length(2, 10).value(), 2u);
  EXPECT_EQ(length(max_header_bytes, 8 + max_header_bytes).value(), max_header_bytes);
}

TEST(Header, WhatIsTakenForAModelIsNamed) {
  using std::operator""s;
  const std::pair<std::string, const char *> others[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "`git lfs pull`"},
      {"<!DOCTYPE html><p>", "HTML"},
      {"<!doctype html>\n<p>", "HTML"},
      {"<html><p>", "HTML"},
      {"PK\3\4\0\0\10\10data.pkl"s, "zip"},
      {"PK\5\6"s + std::string(18, '\0'), "zip"},  // an .npz of nothing
      {"\x1f\x8b\10\0\1\2\3\4\2\3xyz"s, "gzip"},
      {"GGUF\3\0\0\0"s, "GGUF"},
      {"{\"weight_map\": {}}", "JSON"},
      {"\x80\4\x95\x1f\0\0\0\0"s, "pickle"},
      {"\x89HDF\r\n\x1a\n", "HDF5"},
      {"\x93NUMPY\1\0v\0"s, "numpy"},
      {"version 2 of it", "the header claims"},
      {"<htm></htm>", "the header claims"},
  };
  for (const auto &[bytes, what] : others) {
    const auto n = parse_header_length(bytes, bytes.size());
    ASSERT_TRUE(fails_with(Status::header_too_large, n)) << bytes;
    EXPECT_NE(n.error().message.find(what), std::string::npos) << n.error().message;
  }
}

// As of a gzip file that has no time. Else a header could be as long.
TEST(Header, WhatIsTakenForAModelIsNamedWhereItsLengthWouldDo) {
  using std::operator""s;
  const std::string packed = "\x1f\x8b\10\0\0\0\0\0\2\3xyz"s, unread = "PK\3\4\0\0\0\0\0\0\0"s;
  for (const auto &[bytes, what] : {std::pair(packed, "gzip"), std::pair(unread, "zip")})
    for (const bool is_there : {false, true}) {
      const auto n = parse_header_length(bytes, is_there ? max_header_bytes : bytes.size());
      ASSERT_TRUE(fails_with(is_there ? Status::header_json : Status::header_truncated, n)) << what;
      EXPECT_NE(n.error().message.find(what), std::string::npos) << n.error().message;
    }
  constexpr uint64_t as_gzip = 0x88b1f;
  EXPECT_EQ(parse_header_length(packed.substr(0, 8) + "{\"a\"", max_header_bytes).value(), as_gzip);
  EXPECT_EQ(parse_header_length(packed.substr(0, 8) + "\n{\"a\"", max_header_bytes).value(), as_gzip);
  EXPECT_EQ(parse_header_length(packed.substr(0, 8), max_header_bytes).value(), as_gzip);
  // It is a damaged header of 640 bytes, or the file ends too early.
  const auto cut = parse_header_length("\x80\2\0\0\0\0\0\0?"s, 9);
  ASSERT_TRUE(fails_with(Status::header_truncated, cut));
  EXPECT_NE(cut.error().message.find("the header claims"), std::string::npos) << cut.error().message;
}

TEST(Header, FailureNamesTheTensorAndTheOffset) {
  auto r = parse(
      R"({"first":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"second":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})",
      10);
  ASSERT_TRUE(fails_with(Status::hole, r));
  EXPECT_TRUE(r.error().has_tensor);
  EXPECT_EQ(r.error().tensor, "second");
  EXPECT_NE(r.error().message.find("'second'"), std::string::npos);
  EXPECT_EQ(r.error().offset, 6u);
}

TEST(Header, WhatTheReferenceTakesIsTaken) {
  const char *taken[] = {
      R"({"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}})",                      // serde's other enum
      R"({"a":["F32",[1],[0,4]]})",                                                            // serde's other struct
      R"({"__metadata__":null,"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",         // serde's None
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":[1e5,{"y":null},"z\n"]}})",  // unknown fields
      "\n{\t\"a\" : {\"dtype\":\"F32\",\r\"shape\":[ 1 ] ,\"data_offsets\":[0 , 4]} }  \n",
      R"({"a":{"data_offsets":[0,4],"shape":[1,1,1],"dtype":"F32"}})",
      R"({"a":{"dtype":"F\u00332","shape":[1],"data_offsets":[0,4]}})",
      R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
  };
  for (const char *json : taken) {
    auto r = parse(json, 4);
    ASSERT_TRUE(is_ok(r)) << json;
    ASSERT_EQ(r->index.size(), 1u) << json;
    EXPECT_EQ(r->index.at(0).dtype, Dtype::F32) << json;
    EXPECT_EQ(r->index.at(0).nbytes, 4u) << json;
  }
  EXPECT_TRUE(is_ok(parse("{}", 0)));
  EXPECT_TRUE(is_ok(parse("{}      ", 0)));
}

TEST(Header, EveryDtypeIsRead) {
  for (uint32_t number = 1; number <= dtype_count; ++number) {
    const auto dtype = static_cast<Dtype>(number);
    const uint64_t nbytes = 4 * dtype_bits(dtype) / 8;
    auto r =
        parse(text("{\"t\":{\"dtype\":\"", dtype_name(dtype), "\",\"shape\":[2,2],\"data_offsets\":[0,", nbytes, "]}}"),
              nbytes);
    ASSERT_TRUE(is_ok(r)) << dtype_name(dtype);
    EXPECT_EQ(r->index.at(0).dtype, dtype);
    EXPECT_EQ(r->index.at(0).nbytes, nbytes);
  }
}

TEST(Header, IgnoredValuesNestTo127LevelsAndNoFurther) {
  auto nested = [](int levels) {
    return "{\"a\":{\"x\":" + std::string(static_cast<size_t>(levels), '[') +
           std::string(static_cast<size_t>(levels), ']') + "," + good + "}}";
  };
  EXPECT_TRUE(is_ok(parse(nested(125), 4)));  // with the two objects around them: 127
  EXPECT_TRUE(fails_with(Status::header_json, parse(nested(126), 4)));
}

TEST(Header, DataOffsetFollowsThePadding) {
  auto r = parse("{}" + std::string(54, ' '), 0);
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->json_bytes, 56u);
  EXPECT_EQ(r->data_offset(), 64u);
}

}  // namespace
}  // namespace st
