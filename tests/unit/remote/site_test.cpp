// Where a URL leads, and what is sent there.
#include "remote/site.h"

#include <gmock/gmock.h>

#include <map>

#include "base/percent.h"
#include "remote/aws_profile.h"
#include "remote/error_body.h"
#include "remote/sigv4.h"
#include "remote/simulated_store.h"

namespace st::remote {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Surroundings with(std::map<std::string, std::string> variables, std::map<std::string, std::string> files = {}) {
  const auto in = [](auto all) {
    return [all](const std::string &name) -> std::optional<std::string> {
      const auto found = all.find(name);
      return found == all.end() ? std::nullopt : std::optional(found->second);
    };
  };
  return {in(variables), in(files)};
}

const std::map<std::string, std::string> keys = {{"AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"},
                                                 {"AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}};

// "GET Object" of https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
TEST(SigV4Test, SignsAWSsExampleOfAnObject) {
  const Keys example{keys.at("AWS_ACCESS_KEY_ID"), keys.at("AWS_SECRET_ACCESS_KEY"), ""};
  const auto fields = signed_fields(
      {.path = "/test.txt", .fields = {{"host", "examplebucket.s3.amazonaws.com"}, {"range", "bytes=0-9"}}}, example,
      "us-east-1", 1369353600);
  EXPECT_THAT(fields, Contains("authorization: AWS4-HMAC-SHA256 "
                               "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                               "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
                               "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

// "GET Bucket Lifecycle" and "Get Bucket (List Objects)" of the same page.
TEST(SigV4Test, SignsAWSsExamplesOfQueries) {
  const Keys example{keys.at("AWS_ACCESS_KEY_ID"), keys.at("AWS_SECRET_ACCESS_KEY"), ""};
  const std::pair<const char *, const char *> cases[] = {
      {"lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {"max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
  };
  for (const auto &[query, signature] : cases) {
    const auto fields =
        signed_fields({.path = "/", .query = query, .fields = {{"host", "examplebucket.s3.amazonaws.com"}}}, example,
                      "us-east-1", 1369353600);
    EXPECT_THAT(fields.back(), HasSubstr(signature));
  }
}

TEST(SigV4Test, EncodesPathsAsAWSDoes) {
  EXPECT_EQ(percent_encoded("a b/c+d~e.\xc3\xa9", false), "a%20b/c%2Bd~e.%C3%A9");
  EXPECT_EQ(percent_encoded("a/b", true), "a%2Fb");
}

std::string url_asked(const std::string &url, const Surroundings &from) {
  const auto site = site_of(url, from);
  return site ? (*site)->request(0, 10, {}, 1369353600).url : site.error().message;
}

TEST(SiteTest, ABucketIsAHostOrBeneathTheEndpoint) {
  EXPECT_EQ(url_asked("s3://bucket/a/b c", with(keys)), "https://bucket.s3.us-east-1.amazonaws.com/a/b%20c");
  EXPECT_EQ(url_asked("s3://my.bucket/a", with({{"AWS_REGION", "eu-west-3"}})),
            "https://s3.eu-west-3.amazonaws.com/my.bucket/a");
  EXPECT_EQ(url_asked("s3://bucket/a", with({{"AWS_ENDPOINT_URL", "http://127.0.0.1:9000/"}})),
            "http://127.0.0.1:9000/bucket/a");
  EXPECT_EQ(url_asked("s3://bucket/a", with({{"AWS_ENDPOINT_URL", "http://a"}, {"AWS_ENDPOINT_URL_S3", "http://b"}})),
            "http://b/bucket/a");
}

TEST(SiteTest, TheHubsFilesAreItsUrls) {
  EXPECT_EQ(url_asked("hf://owner/model/sub/a.safetensors", with({})),
            "https://huggingface.co/owner/model/resolve/main/sub/a.safetensors");
  EXPECT_EQ(url_asked("hf://owner/model@refs/pr/1", with({})), "https://huggingface.co/owner/model/resolve/refs/pr/1");
  EXPECT_EQ(url_asked("hf://owner/model@v1/a", with({{"HF_ENDPOINT", "http://127.0.0.1:1"}})),
            "http://127.0.0.1:1/owner/model/resolve/v1/a");
}

TEST(SiteTest, WrongUrlsAreRefusedByName) {
  const std::pair<const char *, Status> cases[] = {
      {"gopher://host/a", Status::unsupported},      {"s3://bucket", Status::invalid_argument},
      {"s3://bucket/", Status::invalid_argument},    {"s3://bu:cket@evil/a", Status::invalid_argument},
      {"https://", Status::invalid_argument},        {"https://user:word@host/a", Status::unsupported},
      {"http://example.com/a", Status::unsupported}, {"hf://owner/model", Status::invalid_argument},
  };
  for (const auto &[url, status] : cases) {
    const auto site = site_of(url, with({}));
    ASSERT_FALSE(site) << url;
    EXPECT_EQ(site.error().status, status) << site.error().message;
    EXPECT_THAT(site.error().message, Not(HasSubstr("word")));
  }
  EXPECT_TRUE(site_of("http://example.com/a", with({{"ST_ALLOW_HTTP", "1"}})));
  EXPECT_TRUE(site_of("http://127.0.0.1:80/a", with({})));
  EXPECT_TRUE(site_of("http://localhost/a", with({})));
  EXPECT_FALSE(site_of("http://127.0.0.1.evil.com/a", with({})));
}

TEST(SiteTest, AQueryIsAskedButNeverShown) {
  const auto site = site_of("https://host/a?X-Amz-Signature=secret", with({}));
  EXPECT_EQ((*site)->request(0, 1, {}, 0).url, "https://host/a?X-Amz-Signature=secret");
  EXPECT_EQ((*site)->shown(), "https://host/a");
}

Answer redirect(int code, const char *to) {
  Answer out;
  out.head.code = code;
  out.head.fields = {{"location", to}};
  return out;
}

TEST(SiteTest, ATokenStaysWithItsHost) {
  const auto first = *site_of("hf://owner/model/a", with({{"HF_TOKEN", "hf_secret"}}));
  const auto asks_with_token = [](const Site &site) {
    return !SimulatedStore::field(site.request(0, 1, {}, 0), "authorization").empty();
  };
  EXPECT_TRUE(asks_with_token(*first));
  const auto same = *first->after(redirect(307, "/api/b"));
  EXPECT_EQ(same->request(0, 1, {}, 0).url, "https://huggingface.co/api/b");
  EXPECT_TRUE(asks_with_token(*same));
  const auto other = *first->after(redirect(302, "https://cdn.example.com/b?Signature=1"));
  EXPECT_FALSE(asks_with_token(*other));
  EXPECT_TRUE(other->is_borrowed());
  // Nor does it come back.
  EXPECT_FALSE(asks_with_token(**other->after(redirect(302, "https://huggingface.co/owner/model/resolve/main/a"))));
}

TEST(SiteTest, ARedirectStaysWithinItsScheme) {
  const auto site = *site_of("https://host/a", with({}));
  for (const char *to : {"http://host/a", "file:///etc/passwd", "ftp://host/a", ""}) {
    const auto next = site->after(redirect(302, to));
    ASSERT_FALSE(next) << to;
    EXPECT_EQ(next.error().status, Status::unsupported);
  }
  const auto loopback = *site_of("http://127.0.0.1/a", with({}));
  EXPECT_FALSE(loopback->after(redirect(302, "http://example.com/a")));
  EXPECT_TRUE(loopback->after(redirect(302, "http://localhost:81/a")));
}

TEST(SiteTest, S3IsAskedInTheRegionThatItNamesOnce) {
  const auto site = *site_of("s3://bucket/a", with(keys));
  Answer moved = redirect(301, "https://elsewhere.example.com/");
  moved.head.fields.emplace_back("x-amz-bucket-region", "eu-west-3");
  const auto there = *site->after(moved);
  ASSERT_TRUE(there);
  EXPECT_EQ(there->request(0, 1, {}, 0).url, "https://bucket.s3.eu-west-3.amazonaws.com/a");
  moved.head.fields[1].second = "eu-west-4";
  EXPECT_FALSE(there->after(moved));
  EXPECT_FALSE(site->after(redirect(307, "https://elsewhere.example.com/")));
  moved.head.fields[1].second = "evil.example.com/";
  EXPECT_FALSE(site->after(moved));
}

TEST(SiteTest, ARequestIsPinnedToItsVersion) {
  const auto site = *site_of("https://host/a", with({}));
  const auto asked = [&](const Version &v, const char *name) {
    return SimulatedStore::field(site->request(5, 10, v, 0), name);
  };
  EXPECT_EQ(asked({"\"e\"", "then", 1}, "if-match"), "\"e\"");
  EXPECT_EQ(asked({"W/\"e\"", "then", 1}, "if-match"), "");
  EXPECT_EQ(asked({}, "range"), "bytes=5-14");
  EXPECT_EQ(asked({}, "accept-encoding"), "identity");
}

TEST(AwsProfileTest, TheEnvironmentGoesBeforeTheFiles) {
  const std::map<std::string, std::string> files = {
      {"/home/a/.aws/credentials",
       "[default]\naws_access_key_id = FILE\naws_secret_access_key=s1\n"
       "[two]\naws_access_key_id=TWO\naws_secret_access_key=s2\naws_session_token=t2\n"},
      {"/home/a/.aws/config",
       "# mine\n[default]\nregion = eu-north-1\n\n[profile two]\nregion=eu-west-1\ns3 =\n"
       "  region = nested\nendpoint_url = http://localhost:1/\n"}};
  auto variables = keys;
  variables["HOME"] = "/home/a";
  auto profile = aws_profile(with(variables, files));
  EXPECT_EQ(profile->keys->id, "AKIAIOSFODNN7EXAMPLE");
  EXPECT_EQ(profile->region, "eu-north-1");
  profile = aws_profile(with({{"HOME", "/home/a"}}, files));
  EXPECT_EQ(profile->keys->id, "FILE");
  profile = aws_profile(with({{"HOME", "/home/a"}, {"AWS_PROFILE", "two"}}, files));
  EXPECT_EQ(profile->keys->id, "TWO");
  EXPECT_EQ(profile->keys->token, "t2");
  EXPECT_EQ(profile->region, "eu-west-1");
  EXPECT_EQ(profile->endpoint, "http://localhost:1");
  profile = aws_profile(with({{"HOME", "/nowhere"}}, files));
  EXPECT_FALSE(profile->keys);
  EXPECT_EQ(profile->region, "us-east-1");
}

TEST(AwsProfileTest, WhatIsNotKnownIsSaid) {
  const auto of = [](const char *config) {
    return aws_profile(with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}}, {{"/c", config}}));
  };
  EXPECT_THAT(of("[default]\n").error().message, HasSubstr("no AWS profile 'p'"));
  EXPECT_THAT(of("[profile p]\nrole_arn=x\n").error().message, HasSubstr("role_arn"));
  EXPECT_THAT(of("[profile p]\naws_access_key_id=x\n").error().message, HasSubstr("without"));
  EXPECT_EQ(aws_profile(with({{"AWS_ACCESS_KEY_ID", "x"}})).error().status, Status::permission);
}

TEST(ErrorBodyTest, AnyBytesAreRead) {
  const auto body =
      parse_error_body("<?xml version=\"1.0\"?><Error><Code>A\nB</Code><Message>x &lt; y</Message></Error>");
  EXPECT_EQ(body.code, "A B");
  EXPECT_EQ(body.message, "x < y");
  EXPECT_EQ(parse_error_body("<html>no</html>").code, "");
  EXPECT_EQ(parse_error_body("").code, "");
  EXPECT_EQ(parse_error_body("<Error><Code>cut").message, "");
  EXPECT_EQ(printable(std::string(5000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace st::remote
