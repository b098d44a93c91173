// A header with everything in it, damaged at every byte in every way that tells something to a parser. The judge is
// simdjson's DOM, which parses the whole where libst looks only at what it needs: what is no JSON to the one is refused
// by the other, and what is JSON is never called damaged JSON.
#include <simdjson.h>

#include "parse.h"

namespace st {
namespace {

using namespace testing;
using testing::parse;

bool is_json(const std::string &json) {
  simdjson::dom::parser parser;
  return parser.parse(simdjson::padded_string(json)).error() == simdjson::SUCCESS;
}

const std::string whole =
    R"({"__metadata__":{"k":"v","\u00e4":"\"x\\"},"a\n":{"dtype":{"F32":null},"shape":[1, 2],"data_offsets":[0,8],)"
    R"("note":[1,-2.5e-3,true,false,null,"\ud83d\ude00",{"deep":[[],{}]}]} , "b":["U8",[3],[8, 11]],)"
    R"("c":{"data_offsets":[11,12],"shape":[],"dtype":"BOOL","x":{"y":"z"}}})";
constexpr uint64_t data_bytes = 12;

void judge(const std::string &json) {
  auto header = parse(json, data_bytes);
  if (!is_json(json)) {
    EXPECT_FALSE(header) << "accepted, but it is no JSON: " << json;
    return;
  }
  if (header) return;
  EXPECT_NE(header.error().status, Status::internal) << json;
  EXPECT_NE(header.error().message, "") << json;
  if (json.front() == '{') {
    EXPECT_NE(header.error().status, Status::header_json) << header.error().message << "\n" << json;
  }
}

TEST(DamagedHeader, IsSoundBeforeItIsDamaged) {
  auto header = parse(whole, data_bytes);
  ASSERT_TRUE(is_ok(header));
  EXPECT_FALSE(testing::is_plain(whole));
  EXPECT_EQ(header->index.size(), 3u);
  EXPECT_EQ(header->index.at(0).name, "a\n");
}

TEST(DamagedHeader, CutAnywhereIsRefused) {
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(parse(whole.substr(0, n), data_bytes)) << n;
}

TEST(DamagedHeader, WithAnyByteOverwrittenIsJudgedAsAFullParserWould) {
  for (size_t at = 0; at < whole.size(); ++at)
    for (char c : std::string_view("{}[]\",:\\ \n\t09-.eEtfnulU\x01\x7f\xff")) {
      std::string json = whole;
      json[at] = c;
      judge(json);
    }
}

TEST(DamagedHeader, WithAByteMoreOrLessIsJudgedAsAFullParserWould) {
  for (size_t at = 0; at < whole.size(); ++at) {
    judge(whole.substr(0, at) + whole.substr(at + 1));
    for (char c : std::string_view("{}[]\",:\\ 1-.n")) judge(whole.substr(0, at) + c + whole.substr(at));
  }
}

// One value in the place of another, of every kind, sound and broken.
TEST(DamagedHeader, WithAnyValueInTheWrongPlaceIsJudgedAsAFullParserWould) {
  const std::string values[] = {"{}",
                                "[]",
                                "{\"a\":1}",
                                "[1,2,3,4]",
                                "null",
                                "true",
                                "\"s\"",
                                "1",
                                "-1",
                                "1.5",
                                "1e400",
                                "nul",
                                "tru",
                                "falsy",
                                "\"\\x\"",
                                "\"\\ud800\"",
                                "\"",
                                "[",
                                "{",
                                "{\"a\"}",
                                "{\"a\":}",
                                "[1,]",
                                "[,]",
                                "{1:2}",
                                "{\"\\x\":1}",
                                "{\"F32\":null,\"F32\":null}",
                                "{\"F32\":1}",
                                "{\"F32\":nul}",
                                "{\"\\q\":null}",
                                "{\"F99\":null}",
                                "[\"F32\",[1],[0,4],0]",
                                "[\"F32\"]",
                                "[[1",
                                "[1 2]",
                                "[\"U8\",[1],[0,1]",
                                "[\"U8\",1,[0,1]]",
                                "[\"U8\",[1],1]",
                                "[0,8,8]",
                                "[0]",
                                "[true]",
                                "[1,\"\\x\"]"};
  const std::string slots[] = {
      "@",
      "{\"a\":@}",
      "{\"__metadata__\":@}",
      "{\"__metadata__\":{\"k\":@}}",
      "{\"__metadata__\":null,\"a\":@}",
      "{\"a\":{\"dtype\":@,\"shape\":[1],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":@,\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":@}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[@],\"data_offsets\":[0,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[@,4]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":@}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":[@,{\"y\":@}]}}",
      "{\"a\":{\"dtype\":\"F32\",\"dtype\":@,\"shape\":[1],\"shape\":@}}",
      "{\"a\":[@,[1],[0,4]]}",
      "{\"a\":[\"F32\",@,[0,4]]}",
      "{\"a\":[\"F32\",[1],@]}",
      "{\"a\":[\"F32\",[1],[0,4],@]}",
  };
  for (const std::string &slot : slots)
    for (const std::string &value : values)
      for (const std::string &after : {std::string(), std::string(" \n")}) {
        std::string json = slot;
        for (size_t at; (at = json.find('@')) != std::string::npos;) json.replace(at, 1, value + after);
        if (value != "1e400") judge(json);  // JSON, but too large for the judge, and for the reference
      }
}

// Fields that the format does not have: the reference parses them as 64-bit floats, and refuses what overflows one.
TEST(IgnoredNumber, IsJudgedAsTheReferenceJudgesIt) {
  auto with = [](std::string_view number, std::string_view after = "") {
    return parse(text(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":)", number, after, "}}"), 1);
  };
  const std::string nines(400, '9'), zeros(400, '0');
  for (const std::string &good : {std::string("0"),
                                  std::string("-0"),
                                  std::string("-0.0"),
                                  std::string("12"),
                                  std::string("1.5"),
                                  std::string("1E5"),
                                  std::string("1e+5"),
                                  std::string("1e-5"),
                                  std::string("1e308"),
                                  std::string("1e-999"),
                                  std::string("0e999"),
                                  std::string("1e-99999999999"),
                                  std::string("0e99999999999"),
                                  std::string("18446744073709551616"),
                                  std::string("123456789012345678901234567890"),
                                  "0." + nines,
                                  "0." + zeros + "1",
                                  "0." + zeros + "1e400",
                                  "1" + std::string(300, '0'),
                                  "1" + zeros + "e-400",
                                  "-1." + nines + "e-2147483647"}) {
    EXPECT_TRUE(is_ok(with(good))) << good;
    EXPECT_TRUE(is_ok(with(good, " \t\r\n"))) << good;
  }
  for (const std::string &bad : {std::string("01"),
                                 std::string("-"),
                                 std::string("1."),
                                 std::string(".5"),
                                 std::string("1e"),
                                 std::string("1e+"),
                                 std::string("1e-"),
                                 std::string("+1"),
                                 std::string("1.e5"),
                                 std::string("0x1"),
                                 std::string("1e309"),
                                 std::string("1e999"),
                                 std::string("1e2147483647"),
                                 std::string("1e99999999999"),
                                 std::string("1e2147483648"),
                                 "1" + zeros,
                                 nines,
                                 std::string("--1"),
                                 std::string("1-"),
                                 std::string("1e5.")})
    EXPECT_TRUE(fails_with(Status::header_json, with(bad))) << bad;
}

}  // namespace
}  // namespace st
