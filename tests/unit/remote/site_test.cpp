// Where a URL leads, and what is sent there.
#include "remote/site.h"

#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "base/percent.h"
#include "remote/error_body.h"
#include "remote/sigv4.h"
#include "remote/simulated_store.h"
#include "remote/stopping.h"
#include "remote/surroundings_of_tests.h"

namespace st::remote {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

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

// "PUT Object" of it.
TEST(SigV4Test, SignsAWSsExampleOfABody) {
  const Keys example{keys.at("AWS_ACCESS_KEY_ID"), keys.at("AWS_SECRET_ACCESS_KEY"), ""};
  const auto fields = signed_fields({.method = "PUT",
                                     .path = "/" + percent_encoded("test$file.text", false),
                                     .fields = {{"host", "examplebucket.s3.amazonaws.com"},
                                                {"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                                {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                                     .body = "Welcome to Amazon S3."},
                                    example, "us-east-1", 1369353600);
  EXPECT_THAT(fields.back(), HasSubstr("98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

// The suite for Signature Version 4 that AWS publishes with its general reference; and that reference's own example, of
// IAM. Without the cases that spell one field twice or bring paths into another form, which S3 does not.
TEST(SigV4Test, SignsAWSsTestSuite) {
  const Keys suite{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
  constexpr std::string_view plain = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const std::string unreserved(plain), form = "application/x-www-form-urlencoded";
  const std::string token =
      "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuw"
      "thAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNV"
      "XAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA"
      "==";
  struct Case {
    const char *name;
    ToSign request;
    const char *signature;
  };
  const Case cases[] = {
      {"get-vanilla", {.path = "/"}, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"get-vanilla-empty-query-key",
       {.path = "/", .query = "Param1=value1"},
       "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
      {"get-vanilla-query-order-key-case",
       {.path = "/", .query = "Param1=value1&Param2=value2"},
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-vanilla-query-unreserved",
       {.path = "/", .query = unreserved + "=" + unreserved},
       "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
      {"get-vanilla-utf8-query",
       {.path = "/", .query = percent_encoded("\xe1\x88\xb4", true) + "=bar"},
       "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
      {"get-unreserved",
       {.path = "/" + percent_encoded(unreserved, false)},
       "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
      {"get-utf8",
       {.path = "/" + percent_encoded("\xe1\x88\xb4", false)},
       "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {"get-space",
       {.path = "/" + percent_encoded("example space/", false)},
       "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
      {"post-vanilla",
       {.method = "POST", .path = "/"},
       "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
      {"post-vanilla-query",
       {.method = "POST", .path = "/", .query = "Param1=value1"},
       "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
      {"post-header-key-sort",
       {.method = "POST", .path = "/", .fields = {{"my-header1", "value1"}}},
       "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
      {"post-header-value-case",
       {.method = "POST", .path = "/", .fields = {{"my-header1", "VALUE1"}}},
       "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
      {"post-x-www-form-urlencoded",
       {.method = "POST", .path = "/", .fields = {{"content-type", form}}, .body = "Param1=value1"},
       "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
      {"post-x-www-form-urlencoded-parameters",
       {.method = "POST", .path = "/", .fields = {{"content-type", form + "; charset=utf8"}}, .body = "Param1=value1"},
       "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe"},
      {"post-sts-header-before",
       {.method = "POST", .path = "/", .fields = {{"x-amz-security-token", token}}},
       "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
      {"the general reference",
       {.path = "/",
        .query = "Action=ListUsers&Version=2010-05-08",
        .fields = {{"host", "iam.amazonaws.com"}, {"content-type", form + "; charset=utf-8"}},
        .service = "iam"},
       "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"},
  };
  for (auto [name, request, signature] : cases) {
    request.fields.emplace("host", "example.amazonaws.com");
    request.fields.emplace("x-amz-date", "20150830T123600Z");
    if (request.service == "s3") request.service = "service";
    EXPECT_THAT(authorization(request, suite, "us-east-1"), ::testing::EndsWith(signature)) << name;
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

// The server computes the signature with the host that it was sent.
TEST(SiteTest, WhatIsSignedAsTheHostIsSent) {
  const std::pair<const char *, const char *> cases[] = {{"https://minio.example.com:443", "minio.example.com"},
                                                         {"http://Minio.example.com:80/", "minio.example.com"},
                                                         {"https://minio.example.com:80", "minio.example.com:80"},
                                                         {"http://[::1]:9000", "[::1]:9000"}};
  for (const auto &[endpoint, host] : cases) {
    auto variables = keys;
    variables["AWS_ENDPOINT_URL"] = endpoint;
    const Request request = (*site_of("s3://bucket/a", with(variables)))->request(0, 1, {}, 1369353600);
    EXPECT_EQ(SimulatedStore::field(request, "host"), host) << endpoint;
    EXPECT_THAT(SimulatedStore::field(request, "authorization"), HasSubstr("SignedHeaders=host;"));
  }
}

TEST(SiteTest, WhatIsPlainOnThisMachineGoesThroughNoProxy) {
  const auto is_direct = [](const char *url) {
    return (*site_of(url, with({{"ST_ALLOW_HTTP", "1"}})))->request(0, 1, {}, 0).no_proxy;
  };
  for (const char *here : {"http://127.0.0.1:81/a", "http://localhost/a", "HTTP://[::1]:81/a"})
    EXPECT_TRUE(is_direct(here)) << here;
  for (const char *elsewhere : {"http://example.com/a", "https://127.0.0.1/a", "https://example.com/a"})
    EXPECT_FALSE(is_direct(elsewhere)) << elsewhere;
  struct Listens final : SimulatedTransport {
    Listens(SimulatedStore &store, std::vector<bool> &direct) : SimulatedTransport(store), direct_(direct) {}
    void get(uint64_t, Request request) override { direct_.push_back(request.no_proxy); }
    std::vector<bool> &direct_;
  };
  SimulatedStore store(1);
  std::vector<bool> direct;
  const Ask ask = asks_by([&] { return std::make_unique<Listens>(store, direct); });
  for (const char *url : {"http://127.0.0.1:81/token", "https://example.com/token"}) {
    Question question = get(url, {});
    question.tries = 1;
    ask(question);
  }
  EXPECT_EQ(direct, (std::vector<bool>{true, false}));
}

TEST(SiteTest, AWSsAuthoritiesAreForAWSAlone) {
  const auto certificates = [](const char *url, std::map<std::string, std::string> variables) {
    variables["AWS_CONFIG_FILE"] = "/c";
    const auto from = with(std::move(variables), {{"/c",
                                                   "[default]\nca_bundle = /of/profile\n[profile p]\n"
                                                   "aws_access_key_id = A\naws_secret_access_key = B\n"}});
    const auto site = site_of(url, from);
    return site ? (*site)->request(0, 1, {}, now).certificates : site.error().message;
  };
  EXPECT_EQ(certificates("s3://bucket/a", {{"AWS_CA_BUNDLE", "/of/aws"}}), "/of/aws");
  EXPECT_EQ(certificates("s3://bucket/a", {}), "/of/profile");
  EXPECT_EQ(certificates("s3://bucket/a", {{"AWS_PROFILE", "p"}}), "");
  for (const char *other : {"https://host/a", "hf://owner/model/a"})
    EXPECT_EQ(certificates(other, {{"AWS_CA_BUNDLE", "/of/aws"}}), "") << other;
  // And its services of keys.
  auto from = with(
      {{"AWS_CA_BUNDLE", "/of/aws"}, {"AWS_ROLE_ARN", "arn:aws:iam::1:role/r"}, {"AWS_WEB_IDENTITY_TOKEN_FILE", "/t"}},
      {{"/t", "token"}});
  Services services{{}};
  services.join(&from);
  EXPECT_FALSE(site_of("s3://bucket/a", from));
  ASSERT_FALSE(services.asked.empty());
  for (const Request &request : services.asked) EXPECT_EQ(request.certificates, "/of/aws");
}

TEST(SiteTest, ABucketIsAskedForAsAWSsVariablesSay) {
  const auto asked = [](std::map<std::string, std::string> variables, const char *url = "s3://bucket/a",
                        const char *config = "") {
    return url_asked(url, with(std::move(variables), {{"/h/c", config}}));
  };
  EXPECT_EQ(asked({{"AWS_USE_FIPS_ENDPOINT", "true"}}), "https://bucket.s3-fips.us-east-1.amazonaws.com/a");
  EXPECT_EQ(asked({{"AWS_USE_DUALSTACK_ENDPOINT", "TRUE"}}), "https://bucket.s3.dualstack.us-east-1.amazonaws.com/a");
  EXPECT_EQ(asked({{"AWS_CONFIG_FILE", "~/c"}, {"HOME", "/h"}}, "s3://bucket/a",
                  "[default]\nregion = cn-north-1\nuse_fips_endpoint = true\nuse_dualstack_endpoint = true\n"),
            "https://bucket.s3-fips.dualstack.cn-north-1.amazonaws.com.cn/a");
  EXPECT_EQ(asked({{"AWS_CONFIG_FILE", "/h/c"}, {"AWS_USE_FIPS_ENDPOINT", "false"}}, "s3://bucket/a",
                  "[default]\nuse_fips_endpoint = true\ns3 =\n  addressing_style = path\n"),
            "https://s3.us-east-1.amazonaws.com/bucket/a");
  EXPECT_EQ(asked({{"AWS_CONFIG_FILE", "/h/c"}, {"AWS_ENDPOINT_URL", "https://host:1/x"}}, "s3://bucket/a",
                  "[default]\ns3 =\n  addressing_style = virtual\n"),
            "https://bucket.host:1/x/a");
  EXPECT_EQ(asked({{"AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"}, {"AWS_ENDPOINT_URL", "https://host"}}),
            "https://bucket.host/a");
  EXPECT_EQ(asked({{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"}, {"AWS_ENDPOINT_URL", "https://host"}}),
            "https://bucket.s3.us-east-1.amazonaws.com/a");
  EXPECT_EQ(asked({}, "s3://Old_bucket/a"), "https://s3.us-east-1.amazonaws.com/Old_bucket/a");
  EXPECT_EQ(asked({{"AWS_REGION", "eusc-de-east-1"}}), "https://bucket.s3.eusc-de-east-1.amazonaws.eu/a");
  EXPECT_EQ(asked({{"AWS_REGION", "us-isob-east-1"}}), "https://bucket.s3.us-isob-east-1.sc2s.sgov.gov/a");
  EXPECT_EQ(site_of("s3://b--usw2-az1--x-s3/a", with({})).error().status, Status::unsupported);
  EXPECT_EQ(asked({}, "s3a://bucket//a b+%#?/\xc3\xa9"),
            "https://bucket.s3.us-east-1.amazonaws.com//a%20b%2B%25%23%3F/%C3%A9");
}

TEST(SiteTest, AnAccessPointIsAHostOfItsRegion) {
  const auto asked = [](const char *url) { return url_asked(url, with({{"AWS_REGION", "eu-west-3"}})); };
  const std::string there = "https://mine-123.s3-accesspoint.us-west-2.amazonaws.com/a/b";
  EXPECT_EQ(asked("s3://arn:aws:s3:us-west-2:123:accesspoint/mine/a/b"), there);
  EXPECT_EQ(asked("s3://arn:aws:s3:us-west-2:123:accesspoint:mine/a/b"), there);
  EXPECT_EQ(url_asked("s3://arn:aws:s3:us-west-2:123:accesspoint/mine/a",
                      with({{"AWS_USE_FIPS_ENDPOINT", "true"}, {"AWS_USE_DUALSTACK_ENDPOINT", "true"}})),
            "https://mine-123.s3-accesspoint-fips.dualstack.us-west-2.amazonaws.com/a");
  const auto site = *site_of("s3://arn:aws:s3:us-west-2:123:accesspoint/mine/a", with(keys));
  EXPECT_THAT(SimulatedStore::field(site->request(0, 1, {}, 0), "authorization"), HasSubstr("/us-west-2/s3/aws4"));
  for (const char *other : {"s3://arn:aws:s3::123:accesspoint/m.mrap/a", "s3://arn:aws:s3:r:1:accesspoint/ev.il/a",
                            "s3://arn:aws:s3-object-lambda:r:1:accesspoint/m/a", "s3://arn:aws:s3:r:1:bucket/m/a"})
    EXPECT_EQ(site_of(other, with({})).error().status, Status::unsupported) << other;
  for (const char *none : {"s3://arn:aws:s3/a", "s3://arn:aws:s3:r:1:accesspoint", "s3://arn:aws:s3:r:1:accesspoint/m"})
    EXPECT_EQ(site_of(none, with({})).error().status, Status::invalid_argument) << none;
}

TEST(SiteTest, AVersionStandsBehindTheName) {
  EXPECT_EQ(url_asked("s3://bucket/a?VersionID=x=+y", with({})),
            "https://bucket.s3.us-east-1.amazonaws.com/a?versionId=x%3D%2By");
  EXPECT_EQ(url_asked("s3://bucket/a?versionId=1/b", with({})),
            "https://bucket.s3.us-east-1.amazonaws.com/a%3FversionId%3D1/b");
  const auto signed_by = [](const char *url) {
    return SimulatedStore::field((*site_of(url, with(keys)))->request(0, 1, {}, 0), "authorization");
  };
  EXPECT_NE(signed_by("s3://bucket/a?versionId=1"), signed_by("s3://bucket/a"));
  const auto emulator = with({{"STORAGE_EMULATOR_HOST", "127.0.0.1:1"}});
  EXPECT_EQ(url_asked("gcs://bucket/a#17", emulator),
            "http://127.0.0.1:1/storage/v1/b/bucket/o/a?alt=media&generation=17");
  EXPECT_EQ(url_asked("gs://bucket/a#b", emulator), "http://127.0.0.1:1/storage/v1/b/bucket/o/a%23b?alt=media");
  EXPECT_EQ(url_asked("gs://bucket/a?b=c", emulator), "http://127.0.0.1:1/storage/v1/b/bucket/o/a%3Fb%3Dc?alt=media");
}

TEST(SiteTest, WhoPaysAndWhetherOneSignsIsSaidByVariables) {
  const auto asked = [](std::map<std::string, std::string> variables, const char *name) {
    variables.insert(keys.begin(), keys.end());
    return SimulatedStore::field((*site_of("s3://bucket/a", with(std::move(variables))))->request(0, 1, {}, 0), name);
  };
  EXPECT_EQ(asked({{"AWS_REQUEST_PAYER", "requester"}}, "x-amz-request-payer"), "requester");
  EXPECT_THAT(asked({{"AWS_REQUEST_PAYER", "true"}}, "authorization"), HasSubstr(";x-amz-request-payer"));
  EXPECT_EQ(asked({}, "x-amz-request-payer"), "");
  EXPECT_EQ(asked({{"AWS_NO_SIGN_REQUEST", "YES"}}, "authorization"), "");
  EXPECT_EQ(asked({{"AWS_SKIP_SIGNATURE", "true"}}, "authorization"), "");
  EXPECT_NE(asked({{"AWS_SKIP_SIGNATURE", "false"}}, "authorization"), "");
}

TEST(SiteTest, TheHubsFilesAreItsUrls) {
  EXPECT_EQ(url_asked("hf://owner/model/sub/a.safetensors", with({})),
            "https://huggingface.co/owner/model/resolve/main/sub/a.safetensors");
  EXPECT_EQ(url_asked("hf://owner/model@refs/pr/12/sub/a", with({})),
            "https://huggingface.co/owner/model/resolve/refs%2Fpr%2F12/sub/a");
  EXPECT_EQ(url_asked("hf://owner/model@refs/convert/onnx/a", with({})),
            "https://huggingface.co/owner/model/resolve/refs%2Fconvert%2Fonnx/a");
  EXPECT_EQ(url_asked("hf://owner/model@users%2Fme%2fx%/sub@2/a", with({})),
            "https://huggingface.co/owner/model/resolve/users%2Fme%2Fx%25/sub%402/a");
  EXPECT_EQ(url_asked("hf://datasets/owner/set@refs/convert/x/sub/a", with({})),
            "https://huggingface.co/datasets/owner/set/resolve/refs%2Fconvert%2Fx/sub/a");
  EXPECT_EQ(url_asked("hf://spaces/owner/app/a", with({})), "https://huggingface.co/spaces/owner/app/resolve/main/a");
  EXPECT_EQ(url_asked("hf://owner/model@refs/a", with({})), "https://huggingface.co/owner/model/resolve/refs/a");
  EXPECT_EQ(url_asked("hf://owner/model@refs%2Fpr%2F1/a", with({})),
            "https://huggingface.co/owner/model/resolve/refs%2Fpr%2F1/a");
  EXPECT_EQ(url_asked("hf://models/owner/model/a", with({})), "https://huggingface.co/owner/model/resolve/main/a");
  EXPECT_EQ(url_asked("hf://kernels/owner/k@v1/a", with({})), "https://huggingface.co/kernels/owner/k/resolve/v1/a");
  EXPECT_EQ(url_asked("hf://buckets/owner/b/x/a@b", with({})),
            "https://huggingface.co/buckets/owner/b/resolve/x/a%40b");
  // The oldest models have no owner.
  for (const char *name : {"a.safetensors", "model.safetensors.index.json"}) {
    EXPECT_EQ(url_asked(text("hf://gpt2/", name), with({})), text("https://huggingface.co/gpt2/resolve/main/", name));
    EXPECT_EQ(url_asked(text("hf://gpt2@v1/", name), with({})), text("https://huggingface.co/gpt2/resolve/v1/", name));
  }
  EXPECT_EQ(url_asked("hf://gpt2@refs/pr/1/onnx/a", with({})),
            "https://huggingface.co/gpt2/resolve/refs%2Fpr%2F1/onnx/a");
  EXPECT_EQ(url_asked("hf://datasets/squad/a.safetensors", with({})),
            "https://huggingface.co/datasets/squad/resolve/main/a.safetensors");
  EXPECT_EQ(url_asked("hf://owner/model@v1/a", with({{"HF_ENDPOINT", "http://127.0.0.1:1"}})),
            "http://127.0.0.1:1/owner/model/resolve/v1/a");
}

TEST(SiteTest, WrongUrlsAreRefusedByName) {
  const std::pair<const char *, Status> cases[] = {
      {"gopher://host/a", Status::unsupported},
      {"s3://bucket", Status::invalid_argument},
      {"s3://bucket/", Status::invalid_argument},
      {"s3://bu:cket@evil/a", Status::invalid_argument},
      {"s3://bucket?X-Amz-Signature=word/a", Status::invalid_argument},
      {"https://", Status::invalid_argument},
      {"http://example.com/a", Status::unsupported},
      {"hf://owner/model", Status::invalid_argument},
      {"hf://owner/model@v1", Status::invalid_argument},
      {"https://a%3Ab:word@host/a", Status::invalid_argument},
      {"https://me:a%0Aword@host/a", Status::invalid_argument},
      {"https://m%01e@host/a", Status::invalid_argument},
      {"hf://@v1/a/b", Status::invalid_argument},
      {"hf://owner", Status::invalid_argument},
      {"hf://owner/model@refs/pr/1", Status::invalid_argument},
      {"hf://datasets/owner/set", Status::invalid_argument},
      {"hf://datasets/owner", Status::invalid_argument},
      {"s3://me:password@bucket/a", Status::invalid_argument},
      {"gs://bucket", Status::invalid_argument},
      {"az://container/a", Status::invalid_argument},
      {"az://container@evil.example.com/a", Status::invalid_argument},
      {"az://container@mine.blob.core.windows.net.evil.com/a", Status::invalid_argument},
      {"az://container@/a", Status::invalid_argument},
      {"abfss://container@me:word@mine/a", Status::invalid_argument},
  };
  for (const auto &[url, status] : cases) {
    const auto site = site_of(url, with({}));
    ASSERT_FALSE(site) << url;
    EXPECT_EQ(site.error().status, status) << site.error().message;
    EXPECT_THAT(site.error().message, Not(HasSubstr("word")));
  }
  EXPECT_TRUE(site_of("http://example.com/a", with({{"ST_ALLOW_HTTP", "1"}})));
  EXPECT_TRUE(site_of("http://127.0.0.1:80/a", with({})));
  EXPECT_TRUE(site_of("http://LocalHost:80/a", with({})));
  EXPECT_TRUE(site_of("http://localhost/a", with({})));
  EXPECT_EQ(url_asked("http://[::1]:81/a", with({})), "http://[::1]:81/a");
  EXPECT_FALSE(site_of("http://[::2]:81/a", with({})));
  EXPECT_FALSE(site_of("http://127.0.0.1.evil.com/a", with({})));
}

TEST(SiteTest, AQueryIsAskedButNeverShown) {
  const auto site = site_of("https://host/a?X-Amz-Signature=secret", with({}));
  EXPECT_EQ((*site)->request(0, 1, {}, 0).url, "https://host/a?X-Amz-Signature=secret");
  EXPECT_EQ((*site)->shown(), "https://host/a");
}

TEST(SiteTest, WhatNoUrlHasIsSentEncoded) {
  EXPECT_EQ(url_asked("https://host/a b%20\xc3\xa9?c d", with({})), "https://host/a%20b%20%C3%A9?c%20d");
  EXPECT_EQ((*site_of("https://host/a b", with({})))->shown(), "https://host/a b");
  EXPECT_EQ(site_of("https://ho st/a", with({})).error().status, Status::invalid_argument);
  EXPECT_EQ(resolved("https://host/a", "/b c\xc3\xa9"), "https://host/b%20c%C3%A9");
  EXPECT_EQ(resolved("https://host/a", "https://other/b c"), "https://other/b%20c");
  EXPECT_EQ(resolved("https://host/a/b", "c d"), "https://host/a/c%20d");
}

Answer redirect(int code, const char *to) {
  Answer out;
  out.head.code = code;
  out.head.fields = {{"location", to}};
  return out;
}

TEST(SiteTest, AUserOfAUrlStaysWithItsHost) {
  const auto site = *site_of("https://m%40e:pa%3Ass@host:8443/a", with({}));
  const auto by = [](const Site &asked) { return SimulatedStore::field(asked.request(0, 1, {}, 0), "authorization"); };
  EXPECT_EQ(site->request(0, 1, {}, 0).url, "https://host:8443/a");
  EXPECT_EQ(by(*site), "Basic bUBlOnBhOnNz");
  EXPECT_EQ(site->shown(), "https://host:8443/a");
  EXPECT_THAT(site->asked_as(), HasSubstr("the user of the URL"));
  EXPECT_THAT((*site_of("https://host/a", with({})))->asked_as(), HasSubstr("anonymously"));
  EXPECT_EQ((*site_of("https://host/a?sig=1", with({})))->asked_as(), "");
  EXPECT_EQ(by(**site->after(redirect(302, "/b"))), "Basic bUBlOnBhOnNz");
  EXPECT_EQ(by(**site->after(redirect(302, "https://host/b"))), "") << "another port";
  EXPECT_EQ(by(**site_of("https://mine.blob.core.windows.net/c/a", with({{"AZURE_STORAGE_ACCOUNT", "other"}}))), "");
  EXPECT_EQ(by(**site_of("https://me:p@mine.blob.core.windows.net/c/a", with({}))), "Basic bWU6cA==");
}

TEST(SiteTest, AUrlOfTheHubIsAskedAsTheHubIs) {
  const std::map<std::string, std::string> token = {{"HF_TOKEN", "hf_secret"}};
  const auto by = [](const std::string &url, std::map<std::string, std::string> variables) {
    const auto request = (*site_of(url, with(std::move(variables))))->request(0, 1, {}, 0);
    return request.url + " " + SimulatedStore::field(request, "authorization");
  };
  EXPECT_EQ(by("https://huggingface.co/o/m/resolve/main/a?download=true", token),
            "https://huggingface.co/o/m/resolve/main/a?download=true Bearer hf_secret");
  EXPECT_EQ(by("https://huggingface.co/o/m/blob/main/resolve/blob/a", token),
            "https://huggingface.co/o/m/resolve/main/resolve/blob/a Bearer hf_secret");
  EXPECT_EQ(by("https://huggingface.co/o/m/raw/main/a", token),
            "https://huggingface.co/o/m/resolve/main/a Bearer hf_secret");
  EXPECT_EQ(by("https://huggingface.co/api/a", token), "https://huggingface.co/api/a ");
  // A model, its owner, or what is asked for, may be called as an action is.
  for (const char *there : {"raw/m/resolve/main/a", "o/raw/resolve/main/a", "resolve/blob/resolve/v1/a",
                            "datasets/blob/raw/resolve/v1/a", "gpt2/resolve/main/a", "buckets/o/b/resolve/x/a"})
    EXPECT_EQ(by(text("https://huggingface.co/", there), token),
              text("https://huggingface.co/", there, " Bearer hf_secret"));
  EXPECT_EQ(by("https://huggingface.co/spaces/o/raw/raw/main/a?b=/blob/", token),
            "https://huggingface.co/spaces/o/raw/resolve/main/a?b=/blob/ Bearer hf_secret");
  for (const char *there : {"a/b/c/resolve/main/a", "o/m?a=/resolve/main/a", "o/m/resolve/main", "o/m/blob", ""})
    EXPECT_EQ(by(text("https://huggingface.co/", there), token), text("https://huggingface.co/", there, " "));
  auto proxied = token;
  proxied["HF_ENDPOINT"] = "https://Host/api/hub/";
  EXPECT_EQ(by("https://host/api/hub/o/m/raw/main/a", proxied),
            "https://host/api/hub/o/m/resolve/main/a Bearer hf_secret");
  EXPECT_EQ(by("https://host/generic/blob/a", proxied), "https://host/generic/blob/a ");
  EXPECT_EQ(by("https://huggingface.co.evil.com/o/m/resolve/main/a", token),
            "https://huggingface.co.evil.com/o/m/resolve/main/a ");
  EXPECT_EQ(by("https://me:p@huggingface.co/o/m/resolve/main/a", token),
            "https://huggingface.co/o/m/resolve/main/a Basic bWU6cA==");
}

TEST(SiteTest, FilesBesideEachOtherAreOfOneCommit) {
  auto from = with({});
  const auto site = *site_of("hf://owner/model/index", from);
  Answer led = redirect(302, "https://cdn.example.com/b");
  led.head.fields.emplace_back("x-repo-commit", "0123456789abcdef");
  from.hub_commit = (*(*site->after(led))->after(redirect(302, "https://other.example.com/b")))->commit();
  EXPECT_EQ(url_asked("hf://owner/model@v1/a", from), "https://huggingface.co/owner/model/resolve/0123456789abcdef/a");
  EXPECT_EQ(url_asked("https://huggingface.co/o/m/blob/v1/a/b", from),
            "https://huggingface.co/o/m/resolve/0123456789abcdef/a/b");
  const std::pair<const char *, const char *> pages[] = {
      {"o/m/resolve/refs/pr/1/s/a", "o/m/resolve/0123456789abcdef/s/a"},
      {"o/m/raw/refs%2Fpr%2F1/a", "o/m/resolve/0123456789abcdef/a"},
      {"datasets/o/m/blob/refs/convert/parquet/a?b=/c", "datasets/o/m/resolve/0123456789abcdef/a?b=/c"},
      {"o/m/resolve/main?download=true", "o/m/resolve/main?download=true"},
      {"buckets/o/b/resolve/x/a", "buckets/o/b/resolve/x/a"},
  };
  for (const auto &[page, there] : pages)
    EXPECT_EQ(url_asked(text("https://huggingface.co/", page), from), text("https://huggingface.co/", there));
  EXPECT_EQ(url_asked("hf://owner/model@refs/pr/1/s/a", from),
            "https://huggingface.co/owner/model/resolve/0123456789abcdef/s/a");
  led.head.fields.back().second = "../evil";
  EXPECT_EQ((*site->after(led))->commit(), "");
  EXPECT_EQ(url_asked("s3://bucket/a", from), "https://bucket.s3.us-east-1.amazonaws.com/a");
}

TEST(SiteTest, TheHubIsNotAskedWhereItIsToBeOffline) {
  for (const char *name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})
    for (const char *url : {"hf://owner/model/a", "https://huggingface.co/o/m/resolve/main/a"}) {
      const auto site = site_of(url, with({{name, "YES"}}));
      ASSERT_FALSE(site);
      EXPECT_EQ(site.error().status, Status::unsupported);
      EXPECT_THAT(site.error().message, HasSubstr(name));
    }
  EXPECT_TRUE(site_of("hf://owner/model/a", with({{"HF_HUB_OFFLINE", "0"}})));
  EXPECT_TRUE(site_of("https://host/o/m/resolve/main/a", with({{"HF_HUB_OFFLINE", "1"}})));
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
  // A port that https has anyway makes no other host.
  const auto own = *site_of("hf://o/m/a", with({{"HF_TOKEN", "hf_secret"}, {"HF_ENDPOINT", "https://hub:443"}}));
  EXPECT_TRUE(asks_with_token(**own->after(redirect(307, "https://hub/api/b"))));
  EXPECT_FALSE(asks_with_token(**own->after(redirect(307, "https://hub:444/api/b"))));
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
  EXPECT_EQ((*loopback->after(redirect(302, "https://example.com/a")))->request(0, 1, {}, 0).url,
            "https://example.com/a");
  EXPECT_TRUE(loopback->after(redirect(302, "http://localhost:81/a")));
}

TEST(SiteTest, ABucketOfS3IsAskedInTheRegionOfAnotherObjectOfIt) {
  Answer moved = redirect(301, "https://elsewhere.example.com/");
  moved.head.fields.emplace_back("x-amz-bucket-region", "eu-west-3");
  auto from = with(keys);
  from.known_region = (*(*site_of("s3://bucket/index", from))->after(moved))->region();
  EXPECT_EQ(url_asked("s3://bucket/a", from), "https://bucket.s3.eu-west-3.amazonaws.com/a");
  EXPECT_EQ(url_asked("s3://other/a", from), "https://other.s3.us-east-1.amazonaws.com/a");
  // The bucket may lie elsewhere by now.
  moved.head.fields[1].second = "eu-west-4";
  EXPECT_TRUE(*(*site_of("s3://bucket/a", from))->after(moved));
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
  // Some say it in the body alone.
  Answer malformed;
  malformed.head.code = 400;
  malformed.text = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>";
  ASSERT_TRUE(*site->after(malformed));
  EXPECT_EQ((*site->after(malformed))->request(0, 1, {}, 0).url, "https://bucket.s3.eu-west-3.amazonaws.com/a");
}

TEST(SiteTest, GoogleIsAskedForAGeneration) {
  const auto from = with({{"STORAGE_EMULATOR_HOST", "127.0.0.1:1"}});
  EXPECT_EQ(url_asked("gs://bucket/a/b c", from), "http://127.0.0.1:1/storage/v1/b/bucket/o/a%2Fb%20c?alt=media");
  const auto request = (*site_of("gs://bucket/a", from))->request(0, 10, {"\"e\"", "", 10, "17"}, 0);
  EXPECT_THAT(request.url, ::testing::EndsWith("?alt=media&ifGenerationMatch=17"));
  EXPECT_EQ(SimulatedStore::field(request, "if-match"), "");
  EXPECT_EQ(site_of("gs://bucket/a", with({{"STORAGE_EMULATOR_HOST", "http://example.com"}})).error().status,
            Status::unsupported);
}

TEST(SiteTest, AzuresBlobsAreAskedByTheirAccount) {
  const std::map<std::string, std::string> account = {{"AZURE_STORAGE_ACCOUNT", "mine"},
                                                      {"AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=hidden"}};
  EXPECT_EQ(url_asked("az://container/a b/c", with(account)),
            "https://mine.blob.core.windows.net/container/a%20b/c?sv=1&sig=hidden");
  EXPECT_EQ(url_asked("https://mine.blob.core.windows.net/container/c", with(account)),
            "https://mine.blob.core.windows.net/container/c?sv=1&sig=hidden");
  // What is of one account goes to no other, and a signature of its own stays.
  EXPECT_EQ(url_asked("https://other.blob.core.windows.net/container/c", with(account)),
            "https://other.blob.core.windows.net/container/c");
  EXPECT_EQ(url_asked("https://mine.blob.core.windows.net/container/c?sig=own", with(account)),
            "https://mine.blob.core.windows.net/container/c?sig=own");
  EXPECT_EQ(url_asked("az://c/a", with({{"AZURE_STORAGE_CONNECTION_STRING",
                                         "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a2V5;"
                                         "EndpointSuffix=core.chinacloudapi.cn"}})),
            "https://a.blob.core.chinacloudapi.cn/c/a");
  EXPECT_EQ(url_asked("az://c/a", with({{"AZURE_STORAGE_CONNECTION_STRING", "usedevelopmentstorage=True;"}})),
            "http://127.0.0.1:10000/devstoreaccount1/c/a");
}

TEST(SiteTest, AUrlMayNameItsAccountOfAzure) {
  const std::map<std::string, std::string> account = {{"AZURE_STORAGE_ACCOUNT", "mine"},
                                                      {"AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=hidden"}};
  for (const char *url :
       {"az://c@mine/a b", "abfs://c@mine.dfs.core.windows.net/a b", "abfss://c@mine.blob.core.windows.net/a b"})
    EXPECT_EQ(url_asked(url, with(account)), "https://mine.blob.core.windows.net/c/a%20b?sv=1&sig=hidden") << url;
  // A token of one cloud goes to no other one.
  const char *elsewhere = "abfss://c@mine.dfs.core.usgovcloudapi.net/a";
  EXPECT_EQ(site_of(elsewhere, with(account)).error().status, Status::invalid_argument);
  auto there = account;
  there["AZURE_STORAGE_SERVICE_ENDPOINT"] = "https://mine.blob.core.usgovcloudapi.net";
  EXPECT_EQ(url_asked(elsewhere, with(there)), "https://mine.blob.core.usgovcloudapi.net/c/a?sv=1&sig=hidden");
  // The host that a URL names is the one that is asked.
  EXPECT_EQ(url_asked("abfss://c@mine.dfs.core.windows.net/a", with(there)), "https://mine.blob.core.windows.net/c/a");
  EXPECT_EQ(url_asked("abfss://w@onelake.dfs.fabric.microsoft.com/l/Files/a", with({})),
            "https://onelake.blob.fabric.microsoft.com/w/l/Files/a");
  // An emulator, which is elsewhere.
  EXPECT_EQ(url_asked("az://c@devstoreaccount1/a", with({{"AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:1"}})),
            "http://127.0.0.1:1/devstoreaccount1/c/a");
  // A signature of its own stands before a key.
  const auto site =
      *site_of("az://c@mine/a?sv=2&sig=own", with({{"AZURE_STORAGE_ACCOUNT", "mine"}, {"AZURE_STORAGE_KEY", "a2V5"}}));
  const auto request = site->request(0, 1, {}, 0);
  EXPECT_EQ(request.url, "https://mine.blob.core.windows.net/c/a?sv=2&sig=own");
  EXPECT_EQ(SimulatedStore::field(request, "authorization"), "");
  EXPECT_EQ(site->shown(), "az://c@mine/a");
}

TEST(SiteTest, TheHubsTokenIsInAFileToo) {
  const auto token = [](std::map<std::string, std::string> variables) {
    const auto site = *site_of(
        "hf://owner/model/a",
        with(std::move(variables), {{"/h/.cache/huggingface/token", " hf_of_home\n"}, {"/hf/token", "hf_of_hf_home"}}));
    return SimulatedStore::field(site->request(0, 1, {}, 0), "authorization");
  };
  EXPECT_EQ(token({{"HOME", "/h"}}), "Bearer hf_of_home");
  EXPECT_EQ(token({{"HOME", "/h"}, {"HF_HOME", "/hf"}}), "Bearer hf_of_hf_home");
  EXPECT_EQ(token({{"HF_TOKEN_PATH", "/hf/token"}}), "Bearer hf_of_hf_home");
  EXPECT_EQ(token({{"HOME", "/h"}, {"HF_TOKEN", "hf_given"}}), "Bearer hf_given");
  EXPECT_EQ(token({{"HOME", "/h"}, {"HF_TOKEN", " "}}), "Bearer hf_of_home");
  EXPECT_EQ(token({{"HOME", "/h"}, {"HF_HOME", "~/.cache/huggingface"}}), "Bearer hf_of_home");
  EXPECT_EQ(token({{"HOME", "/h"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "false"}}), "Bearer hf_of_home");
  EXPECT_EQ(token({{"HOME", "/h"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}), "");
  EXPECT_EQ(token({{"HF_TOKEN", "hf_given"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "ON"}}), "");
}

// The link of a redirect ends: the first URL is asked for another one.
TEST(SiteTest, ALinkThatHasEndedIsAskedForAnew) {
  auto from = with({{"HF_TOKEN", "hf_secret"}});
  std::vector<std::string> asked;
  from.ask = [&](const Question &question) {
    asked.push_back(question.request.url);
    if (asked.size() == 1) return redirect(302, "https://cdn.example.com/b?Signature=2");
    EXPECT_EQ(SimulatedStore::field(question.request, "authorization"), "");
    Answer found;
    found.head.code = 206;
    return found;
  };
  const auto first = *site_of("hf://owner/model/a", from);
  const auto there = *first->after(redirect(302, "https://cdn.example.com/b?Signature=1"));
  EXPECT_EQ(there->renew(0, redirect(404, ""), 0), Renewal::none);
  EXPECT_EQ(first->renew(0, redirect(403, ""), 0), Renewal::none);
  EXPECT_EQ(there->renew(0, redirect(403, ""), 0), Renewal::done);
  EXPECT_EQ(there->request(0, 1, {}, 0).url, "https://cdn.example.com/b?Signature=2");
  EXPECT_EQ(asked.size(), 2u);
  EXPECT_EQ(there->renew(0, redirect(403, ""), 0), Renewal::done) << "another thread has asked";
  EXPECT_EQ(asked.size(), 2u);
}

// Google's signed URLs end with 400, and those of S3 that were signed by a session's keys.
TEST(SiteTest, ALinkMayEndByWords) {
  auto from = with({});
  from.ask = [](const Question &) { return says(206, ""); };
  const auto there = *(*site_of("hf://owner/model/a", from))->after(redirect(302, "https://cdn.example.com/b"));
  const auto renewed = [&](const char *code) {
    return there->renew(there->keys(), says(400, text("<Error><Code>", code, "</Code></Error>")), 0);
  };
  for (const char *code : {"ExpiredToken", "InvalidToken", "RequestExpired", "TokenRefreshRequired"})
    EXPECT_EQ(renewed(code), Renewal::done) << code;
  EXPECT_EQ(renewed("InvalidRange"), Renewal::none);
}

TEST(SiteTest, APlaceThatRedirectsByNowIsFollowed) {
  auto from = with({});
  from.ask = [](const Question &question) {
    if (question.request.url == "https://host/a") return redirect(302, "https://cdn.example.com/b");
    return says(206, "");
  };
  const auto site = *site_of("https://host/a", from);
  EXPECT_EQ(site->renew(0, says(403, ""), 0), Renewal::none);
  EXPECT_EQ(site->renew(0, redirect(302, "https://cdn.example.com/b"), 0), Renewal::done);
  EXPECT_EQ(site->request(0, 1, {}, 0).url, "https://cdn.example.com/b");
  EXPECT_EQ(site->renew(1, says(403, ""), 0), Renewal::done) << "what it leads to may end";
  const auto led = *(*site_of("https://host/a", from))->after(redirect(302, "https://cdn.example.com/old"));
  EXPECT_EQ(led->renew(0, redirect(307, "https://cdn.example.com/moved"), 0), Renewal::done);
  EXPECT_EQ(led->request(0, 1, {}, 0).url, "https://cdn.example.com/b");
}

// For a while all of a server may lead to a page that says so.
TEST(SiteTest, APageInPlaceOfTheObjectIsNoPlace) {
  auto from = with({});
  int code = 200;
  from.ask = [&](const Question &question) {
    if (question.request.url == "https://host/a") return redirect(302, "https://host/maintenance");
    return says(code, "we are back soon");
  };
  const auto site = *site_of("https://host/a", from);
  EXPECT_EQ(site->renew(0, redirect(302, "https://host/maintenance"), 0), Renewal::none);
  EXPECT_EQ(site->request(0, 1, {}, 0).url, "https://host/a") << "there it is asked for again";
  code = 206;
  EXPECT_EQ(site->renew(0, redirect(302, "https://host/maintenance"), 0), Renewal::done);
}

// The branch may have moved on since.
TEST(SiteTest, ALinkIsAskedForAtTheCommitThatWasOpened) {
  for (const char *url : {"hf://owner/model/a", "https://huggingface.co/owner/model/blob/main/a"}) {
    auto from = with({{"HF_TOKEN", "hf_secret"}});
    std::vector<std::string> asked;
    from.ask = [&](const Question &question) {
      asked.push_back(question.request.url);
      if (asked.size() > 1) return says(206, "");
      EXPECT_EQ(SimulatedStore::field(question.request, "authorization"), "Bearer hf_secret");
      return redirect(302, "https://cdn.example.com/b?Signature=2");
    };
    Answer led = redirect(302, "https://cdn.example.com/b?Signature=1");
    led.head.fields.emplace_back("x-repo-commit", "0123456789abcdef");
    // A model that has another name by now is redirected before.
    const auto renamed = *(*site_of(url, from))->after(redirect(307, "/owner/other/resolve/main/a"));
    const auto there = *renamed->after(led);
    EXPECT_EQ(there->renew(0, says(403, ""), 0), Renewal::done);
    EXPECT_EQ(asked.front(), "https://huggingface.co/owner/model/resolve/0123456789abcdef/a");
  }
}

TEST(SiteTest, ALinkThatLeadsToAnotherHostByNowGetsNoToken) {
  auto from = with({{"HF_TOKEN", "hf_secret"}});
  bool leads_away = true;
  from.ask = [&](const Question &question) {
    const bool is_away = question.request.url.starts_with("https://cdn.example.com/");
    EXPECT_EQ(SimulatedStore::field(question.request, "authorization"), is_away ? "" : "Bearer hf_secret");
    if (is_away || question.request.url.ends_with("/b")) return says(206, "");
    return redirect(302, leads_away ? "https://cdn.example.com/b" : "https://huggingface.co/b");
  };
  const auto first = *site_of("hf://owner/model/a", from);
  const auto there = *first->after(redirect(302, "/b"));
  const auto authorization = [&] { return SimulatedStore::field(there->request(0, 1, {}, 0), "authorization"); };
  EXPECT_EQ(authorization(), "Bearer hf_secret");
  EXPECT_EQ(there->renew(0, redirect(403, ""), 0), Renewal::done);
  EXPECT_EQ(there->request(0, 1, {}, 0).url, "https://cdn.example.com/b");
  EXPECT_EQ(authorization(), "");
  EXPECT_THAT(there->asked_as(), HasSubstr("without a token"));
  leads_away = false;
  EXPECT_EQ(there->renew(1, redirect(403, ""), 0), Renewal::done);
  EXPECT_EQ(authorization(), "Bearer hf_secret");
  EXPECT_THAT(there->asked_as(), HasSubstr("HF_TOKEN"));
}

TEST(SiteTest, ALinkIsAskedForLaterWhereItsServerCannotAnswer) {
  auto from = with({});
  Answer answer;
  from.ask = [&](const Question &) { return answer; };
  const auto there = *(*site_of("hf://owner/model/a", from))->after(redirect(302, "https://cdn.example.com/b"));
  const auto renewed = [&](Answer said) {
    answer = std::move(said);
    return there->renew(there->keys(), redirect(403, ""), 0);
  };
  for (const int code : {408, 429, 500, 503}) EXPECT_EQ(renewed(says(code, "")), Renewal::later) << code;
  for (const int code : {401, 403, 404}) EXPECT_EQ(renewed(says(code, "")), Renewal::none) << code;
  EXPECT_EQ(renewed({.cut = Cut::stalled}), Renewal::later);
  EXPECT_EQ(renewed({.cut = Cut::hopeless}), Renewal::none);
}

// A server that says nothing is waited for by one request, and not by each after the other.
TEST(SiteTest, WhatWasRefusedBeforeSharesTheAnswerOfAServerThatIsAway) {
  auto from = with({});
  int asked = 0;
  Answer answer{.cut = Cut::stalled};
  uint32_t tries = 0;
  from.ask = [&](const Question &question) {
    ++asked;
    tries = question.tries;
    return answer;
  };
  const auto there = *(*site_of("hf://owner/model/a", from))->after(redirect(302, "https://cdn.example.com/b"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(there->renew(0, redirect(403, ""), 0), Renewal::later);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(tries, 1u) << "the store is asked again, and so is this";
  EXPECT_EQ(there->request(0, 1, {}, 0).url, "https://cdn.example.com/b");
  answer = says(206, "");
  EXPECT_EQ(there->renew(there->keys(), redirect(403, ""), 0), Renewal::done);
  EXPECT_EQ(there->renew(0, redirect(403, ""), 0), Renewal::done);
  EXPECT_EQ(asked, 2);
}

TEST(SiteTest, OthersReadOnWhileALinkIsAskedFor) {
  auto from = with({});
  std::promise<void> is_asked, goes_on;
  from.ask = [&](const Question &) {
    is_asked.set_value();
    goes_on.get_future().wait();
    return says(206, "");
  };
  const auto there = *(*site_of("hf://owner/model/a", from))->after(redirect(302, "https://cdn.example.com/b"));
  std::thread asks([&] { EXPECT_EQ(there->renew(0, redirect(403, ""), 0), Renewal::done); });
  is_asked.get_future().wait();
  EXPECT_EQ(there->keys(), 0u);
  EXPECT_EQ(there->request(0, 1, {}, 0).url, "https://cdn.example.com/b");
  {
    const Stops wants_no_more = [] { return true; };
    const Stopping here(wants_no_more);
    EXPECT_EQ(there->renew(0, redirect(403, ""), 0), Renewal::none);
  }
  goes_on.set_value();
  asks.join();
  EXPECT_EQ(there->renew(0, redirect(403, ""), 0), Renewal::done) << "another thread has asked";
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

TEST(ErrorBodyTest, AnyBytesAreRead) {
  const auto body =
      parse_error_body("<?xml version=\"1.0\"?><Error><Code>A\nB</Code><Message>x &lt; y</Message></Error>");
  EXPECT_EQ(body.code, "A B");
  EXPECT_EQ(body.message, "x < y");
  EXPECT_EQ(parse_error_body("<html>no</html>").code, "");
  EXPECT_EQ(parse_error_body("").code, "");
  EXPECT_EQ(parse_error_body("<Error><Code>cut").message, "");
  EXPECT_EQ(parse_error_body("{\"error\":\"a\",\"error_description\":\"b\"}").message, "b");
  EXPECT_EQ(parse_error_body("{\"error\":{\"status\":\"A\",\"message\":\"b\"}}").code, "A");
  EXPECT_EQ(parse_error_body("{\"error\":").code, "");
  const auto message = [](const char *text) { return said(says(404, st::text(R"({"message":")", text, R"("})"))); };
  EXPECT_EQ(message("'/a?b=1&sig=hidden' (or /c?sig=hidden) is not there"), "404: '/a?...' (or /c?...) is not there");
  EXPECT_EQ(message("https://h/a?sig=hidden"), "404: https://h/a?...");
  EXPECT_EQ(message("what? a=b"), "404: what? a=b");
  EXPECT_EQ(printable(std::string(5000, 'x')).size(), 200u);
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m é\u202e\xff"),
            " 31m é  ");
}

}  // namespace
}  // namespace st::remote
