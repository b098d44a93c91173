// Keys as each vendor's own tools find them, from variables, files, programs and services.
#include "remote/credentials/credentials.h"

#include <gmock/gmock.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "remote/credentials/azure_keys.h"
#include "remote/credentials/jwt.h"
#include "remote/credentials/program.h"
#include "remote/credentials/times.h"
#include "remote/object.h"
#include "remote/sigv4.h"
#include "remote/simulated_store.h"
#include "remote/site.h"
#include "remote/surroundings_of_tests.h"

namespace st::remote {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t now = 1369353600;  // 2013-05-24

Answer says(int code, std::string body, std::vector<std::pair<std::string, std::string>> fields = {}) {
  Answer out;
  out.head = {code, std::move(fields)};
  out.text = std::move(body);
  return out;
}

// What a test's services are asked, and what they answer: the first whose part of "METHOD URL BODY" is there.
struct Services {
  std::vector<std::pair<std::string, Answer>> answers;
  std::vector<Request> asked = {};

  void join(Surroundings *from) {
    from->ask = [this](const Question &question) {
      asked.push_back(question.request);
      const std::string all = text(question.request.method, " ", question.request.url, " ", question.request.body);
      for (const auto &[part, answer] : answers)
        if (all.find(part) != all.npos) return answer;
      return Answer{.cut = Cut::unreachable, .why = "there is no such service: " + all};
    };
  }
};

// How s3://bucket/a is asked: by whose key, or why it is not.
std::string asked_by(const Surroundings &from, int64_t time = now) {
  const auto site = site_of("s3://bucket/a", from);
  if (!site) {
    EXPECT_EQ(site.error().status, Status::permission);
    return site.error().message;
  }
  const auto request = (*site)->request(0, 1, {}, time);
  const std::string by = SimulatedStore::field(request, "authorization");
  const size_t begin = by.find("Credential=") + 11;
  return by.empty() ? "anonymous" : by.substr(begin, by.find('/') - begin);
}

std::string keys_of(const std::string &id, const char *ends = "2013-05-24T01:00:00Z") {
  return text(R"({"Version":1,"Code":"Success","AccessKeyId":")", id,
              R"(","SecretAccessKey":"canary","SessionToken":"t","Token":"t","Expiration":")", ends, R"("})");
}

std::string sts_of(const std::string &id) {
  return text("<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>",
              "<AccessKeyId>", id, "</AccessKeyId><SecretAccessKey>canary</SecretAccessKey>",
              "<SessionToken>t</SessionToken><Expiration>2013-05-24T01:00:00Z</Expiration>",
              "</Credentials></AssumeRoleResult></AssumeRoleResponse>");
}

TEST(AwsKeysTest, TheEnvironmentGoesBeforeTheFiles) {
  const std::map<std::string, std::string> files = {
      {"/home/a/.aws/credentials",
       "[default]\naws_access_key_id = FILE\naws_secret_access_key=s1\n"
       "[two]\naws_access_key_id=TWO\naws_secret_access_key=s2\naws_session_token=t2\n"},
      {"/home/a/.aws/config",
       "# mine\n[default]\nregion = eu-north-1\n\n[profile two]\nregion=eu-west-1\ns3 =\n"
       "  region = nested\nendpoint_url = http://localhost:1/\n"}};
  EXPECT_EQ(asked_by(with({{"HOME", "/home/a"}, {"AWS_ACCESS_KEY_ID", "ENV"}, {"AWS_SECRET_ACCESS_KEY", "s"}}, files)),
            "ENV");
  EXPECT_EQ(asked_by(with({{"HOME", "/home/a"}}, files)), "FILE");
  EXPECT_EQ(asked_by(with({{"HOME", "/nowhere"}}, files)), "anonymous");
  const auto two =
      (*site_of("s3://b/a", with({{"HOME", "/home/a"}, {"AWS_PROFILE", "two"}}, files)))->request(0, 1, {}, now);
  EXPECT_EQ(two.url, "http://localhost:1/b/a");
  EXPECT_EQ(SimulatedStore::field(two, "x-amz-security-token"), "t2");
  EXPECT_THAT(SimulatedStore::field(two, "authorization"), HasSubstr("TWO/20130524/eu-west-1/s3/"));
}

TEST(AwsKeysTest, WhatCannotBeRightIsSaid) {
  const auto of = [](const char *config) {
    return asked_by(with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}}, {{"/c", config}}));
  };
  EXPECT_THAT(of("[default]\n"), HasSubstr("no AWS profile 'p'"));
  EXPECT_THAT(of("[profile p]\nrole_arn=x\n"), HasSubstr("neither a source_profile nor"));
  EXPECT_THAT(of("[profile p]\nrole_arn=x\nsource_profile=q\n"), HasSubstr("'q', which is not there"));
  EXPECT_THAT(of("[profile p]\nrole_arn=x\nsource_profile=q\n[profile q]\nrole_arn=y\nsource_profile=p\n"),
              HasSubstr("of its own source"));
  EXPECT_THAT(of("[profile p]\nrole_arn=x\nmfa_serial=m\nsource_profile=p\n"), HasSubstr("mfa_serial"));
  EXPECT_THAT(of("[profile p]\naws_access_key_id=x\n"), HasSubstr("without"));
  EXPECT_THAT(of("[profile p]\nsso_start_url=x\n"), HasSubstr("aws configure sso"));
  EXPECT_THAT(of("[profile p]\ncredential_process=\"x\n"), HasSubstr("is no command"));
  EXPECT_THAT(asked_by(with({{"AWS_ACCESS_KEY_ID", "x"}})), HasSubstr("only one is set"));
  EXPECT_THAT(asked_by(with({{"AWS_WEB_IDENTITY_TOKEN_FILE", "x"}})), HasSubstr("without AWS_ROLE_ARN"));
}

TEST(AwsKeysTest, ARoleIsAskedForWithTheKeysOfItsSource) {
  auto from = with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}},
                   {{"/c",
                     "[profile p]\nrole_arn=arn:p\nsource_profile=q\nexternal_id=e\nregion=eu-west-1\n"
                     "[profile q]\naws_access_key_id=Q\naws_secret_access_key=canary\n"}});
  Services services{.answers = {{"RoleArn=arn%3Ap", says(200, sts_of("ROLE"))}}};
  services.join(&from);
  EXPECT_EQ(asked_by(from), "ROLE");
  ASSERT_EQ(services.asked.size(), 1u);
  EXPECT_EQ(services.asked[0].url, "https://sts.eu-west-1.amazonaws.com/");
  EXPECT_THAT(services.asked[0].body, HasSubstr("ExternalId=e"));
  EXPECT_THAT(SimulatedStore::field(services.asked[0], "authorization"),
              HasSubstr("Credential=Q/20130524/eu-west-1/sts/aws4_request"));
  EXPECT_EQ(asked_by(from), "ROLE");
  EXPECT_EQ(services.asked.size(), 1u) << "they are kept";
  EXPECT_EQ(asked_by(from, now + 3400), "ROLE");
  EXPECT_EQ(services.asked.size(), 2u) << "their end is near";
}

TEST(AwsKeysTest, STSSaysWhyNotAndWhatTimeItIs) {
  auto from = with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}},
                   {{"/c",
                     "[profile p]\nrole_arn=r\nsource_profile=p\n"
                     "aws_access_key_id=P\naws_secret_access_key=canary\n"}});
  Services services{
      .answers = {{"AssumeRole", says(403,
                                      "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code>"
                                      "<Message>expired</Message></Error></ErrorResponse>",
                                      {{"date", "Fri, 24 May 2013 02:00:00 GMT"}, {"x-amzn-requestid", "R1"}})}}};
  services.join(&from);
  EXPECT_THAT(asked_by(from), HasSubstr("403 SignatureDoesNotMatch: expired (request id R1)"));
  ASSERT_EQ(services.asked.size(), 2u);
  EXPECT_EQ(SimulatedStore::field(services.asked[1], "x-amz-date"), "20130524T020000Z");
}

TEST(AwsKeysTest, AWebIdentityIsExchanged) {
  auto from =
      with({{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"}, {"AWS_ROLE_ARN", "r"}, {"AWS_ENDPOINT_URL_STS", "https://sts"}},
           {{"/token", "jwt\n"}});
  Services services{.answers = {{"POST https://sts/ Action=AssumeRoleWithWebIdentity", says(200, sts_of("WEB"))}}};
  services.join(&from);
  EXPECT_EQ(asked_by(from), "WEB");
  EXPECT_THAT(services.asked[0].body, HasSubstr("WebIdentityToken=jwt"));
  EXPECT_EQ(SimulatedStore::field(services.asked[0], "authorization"), "");
}

TEST(AwsKeysTest, ALoginOfSSOGivesKeysWhileItLasts) {
  const std::string config =
      "[profile p]\nsso_session=s\nsso_account_id=1\nsso_role_name=r\n"
      "[sso-session s]\nsso_start_url=https://start\nsso_region=eu-west-1\n";
  // SHA-1 of "s".
  const std::string cache = "/h/.aws/sso/cache/a0f1490a20d0211c997b44bc357e1972deab8ae3.json";
  const auto of = [&](const std::string &login, Services *services) {
    auto from =
        with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}, {"HOME", "/h"}}, {{"/c", config}, {cache, login}});
    services->join(&from);
    return asked_by(from);
  };
  Services services{
      .answers = {{"https://portal.sso.eu-west-1.amazonaws.com/federation/credentials?account_id=1&role_name=r",
                   says(200, R"({"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"canary",)"
                             R"("sessionToken":"t","expiration":1369357200000}})")}}};
  EXPECT_EQ(of(R"({"accessToken":"canary","expiresAt":"2013-05-24T09:00:00Z"})", &services), "SSO");
  EXPECT_EQ(SimulatedStore::field(services.asked[0], "x-amz-sso_bearer_token"), "canary");
  EXPECT_THAT(of(R"({"accessToken":"canary","expiresAt":"2013-05-23T09:00:00UTC"})", &services),
              HasSubstr("aws sso login --profile p"));
  EXPECT_THAT(of("", &services), HasSubstr("nobody is logged in"));
}

TEST(AwsKeysTest, AContainersServiceGetsItsTokenAndNobodyElseDoes) {
  Services services{.answers = {{"GET http://169.254.170.2/v2/keys", says(200, keys_of("ECS"))},
                                {"GET http://127.0.0.1:1/keys", says(200, keys_of("EKS"))}}};
  const auto of = [&](std::map<std::string, std::string> variables) {
    auto from = with(std::move(variables), {{"/token", "canary\n"}, {"/lines", "a\nb"}});
    services.join(&from);
    return asked_by(from);
  };
  EXPECT_EQ(of({{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/keys"}}), "ECS");
  EXPECT_TRUE(services.asked[0].no_proxy);
  EXPECT_EQ(of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/keys"},
                {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/token"}}),
            "EKS");
  EXPECT_EQ(SimulatedStore::field(services.asked[1], "authorization"), "canary");
  EXPECT_THAT(of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/keys"}}), HasSubstr("is neither"));
  EXPECT_THAT(of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/keys"},
                  {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/lines"}}),
              HasSubstr("several lines"));
  EXPECT_EQ(services.asked.size(), 2u);
}

TEST(AwsKeysTest, AnInstanceGivesKeysOfItsRole) {
  const std::string roles = "/latest/meta-data/iam/security-credentials/";
  Services services{.answers = {{"PUT http://169.254.169.254/latest/api/token", says(200, "canary")},
                                {roles + "role", says(200, keys_of("EC2"))},
                                {roles, says(200, "role\n")}}};
  auto from = with({});
  services.join(&from);
  EXPECT_EQ(asked_by(from), "EC2");
  ASSERT_EQ(services.asked.size(), 3u);
  EXPECT_EQ(SimulatedStore::field(services.asked[2], "x-aws-ec2-metadata-token"), "canary");

  auto disabled = with({{"AWS_EC2_METADATA_DISABLED", "true"}});
  services.join(&disabled);
  EXPECT_EQ(asked_by(disabled), "anonymous");
  auto elsewhere = with({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1/"}});
  services.join(&elsewhere);
  EXPECT_EQ(asked_by(elsewhere), "anonymous");
  EXPECT_EQ(asked_by(elsewhere), "anonymous");
  EXPECT_EQ(services.asked.size(), 4u) << "a machine of another kind is asked once";
}

TEST(AwsKeysTest, AProgramIsRunWithoutAShell) {
  auto from = with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}},
                   {{"/c", "[profile p]\ncredential_process = /bin/keys 'of a' \"b\\\"\" $(c) ''\n"}});
  std::vector<std::string> words;
  std::string said = keys_of("RUN");
  from.run = [&](const std::vector<std::string> &given) -> Result<std::string> {
    words = given;
    return said;
  };
  EXPECT_EQ(asked_by(from), "RUN");
  EXPECT_THAT(words, ElementsAre("/bin/keys", "of a", "b\"", "$(c)", ""));
  said = R"({"Version":2,"AccessKeyId":"RUN","SecretAccessKey":"canary"})";
  from.kept = std::make_shared<KeptCredentials>();
  EXPECT_THAT(asked_by(from), HasSubstr("JSON of version 1"));
}

TEST(ProgramTest, ItsOutputIsTakenIfItEndsWellAndInTime) {
  EXPECT_EQ(*run_program({"/bin/echo", "a b"}, 60000), "a b\n");
  EXPECT_THAT(run_program({"/bin/false"}, 60000).error().message, HasSubstr("exit status 1"));
  EXPECT_THAT(run_program({"/no/such/program"}, 60000).error().message, HasSubstr("No such file"));
  // Its children end with it, which would keep the output open.
  EXPECT_THAT(run_program({"/bin/sh", "-c", "sleep 1000 & sleep 1000"}, 50).error().message, HasSubstr("in time"));
  EXPECT_THAT(run_program({"/bin/sh", "-c", "exec >&-; sleep 1000"}, 50).error().message, HasSubstr("in time"));
  EXPECT_THAT(run_program({"/bin/cat", "/dev/zero"}, 60000).error().message, HasSubstr("too much"));
}

struct RenewalTest : ::testing::Test {
  int given = 0;
  bool there = true;
  Credentials credentials{{"name", [this](int64_t time) -> Result<Granted> {
                             if (!there) return fail(Status::io, "it is away");
                             return Granted{Keys{text("K", ++given), "canary", ""}, "a test", time + 3600};
                           }}};
  void SetUp() override { ASSERT_TRUE(credentials.have(now)); }
  std::string id_at(int64_t time) { return credentials.now(time).granted->keys->id; }
};

TEST_F(RenewalTest, KeysAreRenewedShortlyBeforeTheirEnd) {
  EXPECT_EQ(id_at(now + 3299), "K1");
  EXPECT_EQ(id_at(now + 3300), "K2");
  there = false;
  EXPECT_EQ(id_at(now + 9000), "K2") << "the old ones are better than none";
  EXPECT_THAT(credentials.asked_as(""), HasSubstr("no new ones: it is away"));
  there = true;
  EXPECT_EQ(id_at(now + 9001), "K2") << "a service that is away is not asked all the time";
  EXPECT_EQ(id_at(now + 9030), "K3");
}

TEST_F(RenewalTest, ARefusalRenewsOnceForAllWhoWereRefused) {
  const Answer expired = says(403, "<Error><Code>ExpiredToken</Code></Error>"), denied = says(403, "<Error/>");
  EXPECT_FALSE(credentials.renew(1, denied, now));
  EXPECT_TRUE(credentials.renew(1, expired, now));
  EXPECT_TRUE(credentials.renew(1, expired, now));
  EXPECT_EQ(given, 2);
  EXPECT_TRUE(credentials.renew(2, says(401, ""), now));
  EXPECT_EQ(given, 3);
}

TEST_F(RenewalTest, AnotherClockIsTakenOnce) {
  const Answer late =
      says(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>", {{"date", "Fri, 24 May 2013 05:00:00 GMT"}});
  EXPECT_TRUE(credentials.renew(1, late, now));
  EXPECT_EQ(credentials.now(now).unix_time, now + 5 * 3600);
  EXPECT_FALSE(
      credentials.renew(credentials.number(), says(403, "", {{"date", "Fri, 24 May 2013 09:00:00 GMT"}}), now));
  EXPECT_FALSE(other_clock(says(200, "", {{"date", "Fri, 24 May 2013 05:00:00 GMT"}}), now));
  EXPECT_FALSE(other_clock(says(403, "", {{"date", "Fri, 24 May 2013 00:04:00 GMT"}}), now));
}

TEST(RenewalOfFilesTest, TheSameKeysAreNotAskedWithAgain) {
  Credentials same({{}, [](int64_t) { return Granted{Keys{"a", "b", ""}, "", {}}; }});
  ASSERT_TRUE(same.have(now));
  EXPECT_FALSE(same.renew(1, says(401, ""), now));
}

// A read goes on where its keys end amid it.
TEST(RenewalInAReadTest, AReadOutlivesItsKeys) {
  auto from = with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}}, {{"/c", "[profile p]\ncredential_process=k\n"}});
  int given = 0;
  from.run = [&](const auto &) -> Result<std::string> { return keys_of(text("K", ++given)); };
  SimulatedStore store(5000);
  store.script = {Fault::none, Fault::none, Fault::expired};
  Limits limits;
  limits.first = 100;
  limits.piece = 400;
  const auto object =
      Object::open(std::make_shared<Store>([&] { return std::make_unique<SimulatedTransport>(store); }, limits),
                   *site_of("s3://bucket/a", from));
  ASSERT_TRUE(object);
  std::vector<std::byte> got(2000);
  const Wanted wanted{100, got.size(), got.data()};
  const auto done = (*object)->read({&wanted, 1});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(given, 2);
  EXPECT_EQ(store.requests, 7u) << "the first, five parts, and one of them again";
  store.script.assign(1000, Fault::expired);
  EXPECT_EQ((*object)->read({&wanted, 1}).error().status, Status::permission);
}

struct RsaKey {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{EVP_RSA_gen(2048), EVP_PKEY_free};

  std::string pem() const {
    const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_PKCS8PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    const char *begin = nullptr;
    const long n = BIO_get_mem_data(out.get(), &begin);
    return {begin, static_cast<size_t>(n)};
  }
  bool has_signed(std::string_view token) const {
    const size_t dot = token.rfind('.');
    std::string signature(token.substr(dot + 1));
    for (char &c : signature) c = c == '-' ? '+' : c == '_' ? '/' : c;
    signature.resize((signature.size() + 3) / 4 * 4, '=');
    const std::string bytes = from_base64(signature)->shown_to_the_store();
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get());
    return EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size(),
                            reinterpret_cast<const unsigned char *>(token.data()), dot) == 1;
  }
};

std::string json_string(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2) text.replace(at, 1, "\\n");
  return '"' + text + '"';
}

// How gs://bucket/a is asked: by which token, or why it is not.
std::string token_for_google(const Surroundings &from) {
  const auto site = site_of("gs://bucket/a", from);
  if (!site) return site.error().message;
  const auto request = (*site)->request(0, 1, {}, now);
  return SimulatedStore::field(request, "authorization") + SimulatedStore::field(request, "x-goog-user-project");
}

TEST(GoogleTest, AServiceAccountProvesItselfByItsKey) {
  const RsaKey key;
  auto from =
      with({{"GOOGLE_APPLICATION_CREDENTIALS", "/f"}},
           {{"/f", text(R"({"type":"service_account","client_email":"me@x","token_uri":"https://t/","private_key":)",
                        json_string(key.pem()), "}")}});
  Services services{.answers = {{"POST https://t/", says(200, R"({"access_token":"T","expires_in":3599})")}}};
  services.join(&from);
  EXPECT_EQ(token_for_google(from), "Bearer T");
  const std::string body = services.asked[0].body, token = body.substr(body.find("assertion=") + 10);
  EXPECT_TRUE(key.has_signed(token));
  EXPECT_FALSE(RsaKey().has_signed(token));
  const size_t dot = token.find('.');
  std::string claims = token.substr(dot + 1, token.rfind('.') - dot - 1);
  claims.resize((claims.size() + 3) / 4 * 4, '=');
  EXPECT_EQ(from_base64(claims)->shown_to_the_store(),
            R"({"iss":"me@x","scope":"https://www.googleapis.com/auth/devstorage.read_only","aud":"https://t/",)"
            R"("iat":1369353600,"exp":1369357200})");
}

TEST(GoogleTest, EachKindOfAccountIsKnown) {
  const std::string file = "/h/.config/gcloud/application_default_credentials.json";
  Services services{
      .answers = {
          {"client_secret=s&refresh_token=r", says(200, R"({"access_token":"U","expires_in":"60"})")},
          {"subject_token=jwt", says(200, R"({"access_token":"X","expires_in":60})")},
          {"generateAccessToken", says(200, R"({"accessToken":"I","expireTime":"2013-05-24T01:00:00Z"})")},
          {"http://subject/", says(200, R"({"id":"jwt"})")},
          {"computeMetadata", says(200, R"({"access_token":"M","expires_in":60})", {{"metadata-flavor", "Google"}})},
      }};
  const auto of = [&](const std::string &content) {
    auto from = with({{"HOME", "/h"}}, {{content.empty() ? "/none" : file, content}, {"/subject", "jwt\n"}});
    services.join(&from);
    return token_for_google(from);
  };
  EXPECT_EQ(
      of(R"({"type":"authorized_user","client_id":"i","client_secret":"s","refresh_token":"r","quota_project_id":"q"})"),
      "Bearer Uq");
  EXPECT_EQ(of(R"({"type":"external_account","token_url":"https://sts","credential_source":{"file":"/subject"}})"),
            "Bearer X");
  EXPECT_EQ(of(R"({"type":"external_account","token_url":"https://sts","credential_source":{"url":"http://subject/",)"
               R"("format":{"type":"json","subject_token_field_name":"id"}},)"
               R"("service_account_impersonation_url":"https://iam/x:generateAccessToken"})"),
            "Bearer I");
  EXPECT_EQ(SimulatedStore::field(services.asked.back(), "authorization"), "Bearer X");
  EXPECT_EQ(of(""), "Bearer M");
  EXPECT_THAT(of(R"({"type":"authorized_user","token_uri":"http://example.com"})"), HasSubstr("not encrypted"));
  EXPECT_THAT(of(R"({"type":"gdch"})"), HasSubstr("'gdch'"));
  EXPECT_THAT(of("{"), HasSubstr("no Google account"));
  EXPECT_THAT(of(R"({"type":"service_account","private_key":"canary"})"), HasSubstr("no private key"));
  EXPECT_EQ(token_for_google(with({})), "") << "anonymous";
  EXPECT_THAT(token_for_google(with({{"GOOGLE_APPLICATION_CREDENTIALS", "/none"}})), HasSubstr("cannot be read"));
}

// How az://c/a is signed.
std::string azure_signed(const Surroundings &from) {
  const auto site = site_of("az://c/a", from);
  return site ? SimulatedStore::field((*site)->request(0, 1, {}, now), "authorization") : site.error().message;
}

TEST(AzureTest, AKeySignsAsTheDocumentationSays) {
  // That a store takes such signatures, Azurite shows (tests/remote).
  const Keys keys{"a", "a2V5", ""};
  const std::string signed_text =
      "GET\n\n\n\n\n\n\n\n\"e\"\n\n\nbytes=0-9\nx-ms-date:D\nx-ms-version:V\n/a/models/b%20c";
  EXPECT_EQ(shared_key(keys, "/models/b%20c",
                       {{"if-match", "\"e\""}, {"range", "bytes=0-9"}, {"x-ms-date", "D"}, {"x-ms-version", "V"}}),
            "SharedKey a:" + base64(hmac_sha256("key", signed_text)));
  EXPECT_THAT(azure_signed(with({{"AZURE_STORAGE_ACCOUNT", "a"}, {"AZURE_STORAGE_KEY", "a2V5"}})),
              HasSubstr("SharedKey a:"));
  EXPECT_THAT(azure_signed(with({{"AZURE_STORAGE_ACCOUNT", "a"}, {"AZURE_STORAGE_KEY", "canary!"}})),
              HasSubstr("not in Base64"));
}

TEST(AzureTest, EntrasTokensAreFoundInTheOrderOfAzuresOwnLibraries) {
  Services services{
      .answers = {
          {"POST https://login.microsoftonline.com/t/oauth2/v2.0/token grant_type=client_credentials&client_id=i&"
           "scope=https%3A%2F%2Fstorage.azure.com%2F.default&client_secret=s",
           says(200, R"({"access_token":"S","expires_in":3599})")},
          {"client_assertion=jwt", says(200, R"({"access_token":"W","expires_in":3599})")},
          {"GET http://127.0.0.1:1/msi?api-version=2019-08-01",
           says(200, R"({"access_token":"A","expires_on":"1369357200"})")},
          {"GET http://169.254.169.254/metadata/identity", says(200, R"({"access_token":"V","expires_in":"3599"})")},
      }};
  const auto of = [&](std::map<std::string, std::string> variables) {
    variables["AZURE_STORAGE_ACCOUNT"] = "a";
    auto from = with(std::move(variables), {{"/jwt", "jwt"}});
    services.join(&from);
    return azure_signed(from);
  };
  EXPECT_EQ(of({{"AZURE_TENANT_ID", "t"}, {"AZURE_CLIENT_ID", "i"}, {"AZURE_CLIENT_SECRET", "s"}}), "Bearer S");
  EXPECT_EQ(of({{"AZURE_TENANT_ID", "t"}, {"AZURE_CLIENT_ID", "i"}, {"AZURE_FEDERATED_TOKEN_FILE", "/jwt"}}),
            "Bearer W");
  EXPECT_EQ(of({{"IDENTITY_ENDPOINT", "http://127.0.0.1:1/msi"}, {"IDENTITY_HEADER", "canary"}}), "Bearer A");
  EXPECT_EQ(SimulatedStore::field(services.asked.back(), "x-identity-header"), "canary");
  EXPECT_EQ(of({}), "Bearer V");
  EXPECT_EQ(azure_signed(with({{"AZURE_STORAGE_ACCOUNT", "a"}})), "") << "anonymous";
}

TEST(TimesTest, AreReadAsServicesWriteThem) {
  EXPECT_EQ(parse_iso_time("2013-05-24T00:00:00Z"), now);
  EXPECT_EQ(parse_iso_time("2013-05-24T02:00:00.123+02:00"), now);
  EXPECT_EQ(parse_iso_time("2013-05-23T19:30:00-04:30"), now);
  for (const char *wrong : {"", "2013-05-24", "2013-05-24T00:00:00", "2013-05-24T00:00:00 or so"})
    EXPECT_FALSE(parse_iso_time(wrong)) << wrong;
}

TEST(SecretTest, IsWipedWhereverItLay) {
  for (const char *secret : {"short", "a secret that is longer than a string has room for"}) {
    std::string text = secret;
    const char *begin = text.data();
    const size_t n = text.size();
    const Secret kept = std::move(text);
    EXPECT_EQ(kept.shown_to_the_store(), secret);
    std::string given = secret;
    begin = given.data();
    wipe(given);
    EXPECT_EQ(given.data(), begin);
    EXPECT_TRUE(std::all_of(begin, begin + n, [](char c) { return c == 0; }));
  }
}

}  // namespace
}  // namespace st::remote
