// Keys as AWS's own tools find them, from variables, files, programs and services.
#include "remote/credentials/aws_keys.h"

#include <gmock/gmock.h>

#include "remote/credentials/aws_login.h"
#include "remote/credentials/program.h"
#include "remote/sigv4.h"
#include "remote/simulated_store.h"
#include "remote/site.h"
#include "remote/surroundings_of_tests.h"

namespace st::remote {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// As botocore reads them, which is by Python's configparser.
TEST(AwsKeysTest, FilesOfProfilesMayBeIndented) {
  const auto url_of = [](const char *profile, const std::string &config) {
    const auto from = with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", profile}}, {{"/c", config}});
    return (*site_of("s3://b/a", from))->request(0, 1, {}, now).url;
  };
  EXPECT_EQ(url_of("p",
                   "  [profile p]\r\n\tENDPOINT_URL = http://localhost:1\r\n"
                   "\ts3 =\r\n\t\tendpoint_url = http://localhost:2\r\n"),
            "http://localhost:1/b/a");
  EXPECT_EQ(url_of("p", "[profile p]\ns3 =\n  x = y\n\n  endpoint_url = http://localhost:2\n"),
            "https://b.s3.us-east-1.amazonaws.com/a");
  EXPECT_EQ(url_of("p q", "[profile \t\"p q\"]\nendpoint_url = http://localhost:1\n"), "http://localhost:1/b/a");
  // For a service alone: https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html
  const std::string services =
      "[profile p]\nendpoint_url = http://localhost:1\nservices = s\n"
      "[services s]\ndynamodb = \n  endpoint_url = http://localhost:2\ns3 =\n  endpoint_url = http://localhost:3/\n";
  EXPECT_EQ(url_of("p", services), "http://localhost:3/b/a");
  // There a colon is part of a name.
  EXPECT_EQ(url_of("p", services + "  endpoint_url: x = http://localhost:4\n"), "http://localhost:3/b/a");
  EXPECT_EQ(url_of("p", services + "[services t]\nsts =\n endpoint_url = http://x\n[profile p]\nservices = t\n"),
            "http://localhost:1/b/a");
}

TEST(AwsKeysTest, AFileMayHaveColonsAndAMarkOfItsEncoding) {
  const auto of = [](const std::string &credentials) {
    return asked_by(with({{"AWS_SHARED_CREDENTIALS_FILE", "/c"}}, {{"/c", credentials}}));
  };
  EXPECT_EQ(of("[default]\naws_access_key_id: A\naws_secret_access_key :s=\n"), "A");
  EXPECT_EQ(of("[default]\naws_access_key_id = A:B\naws_secret_access_key = s\n"), "A:B");
  EXPECT_EQ(of("\xef\xbb\xbf[default]\naws_access_key_id=A\naws_secret_access_key=s\n"), "A");
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

TEST(AwsKeysTest, ARoleWhoseSourceIsAwayMayBeHadLater) {
  std::map<std::string, std::string> variables = {{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}};
  const std::map<std::string, std::string> files = {
      {"/c", "[profile p]\nrole_arn=r\ncredential_source=Ec2InstanceMetadata\n"}};
  const auto away = site_of("s3://bucket/a", with(variables, files));
  EXPECT_EQ(away.error().status, Status::io);
  EXPECT_THAT(away.error().message, HasSubstr("nobody answers who gives keys"));
  variables["AWS_EC2_METADATA_DISABLED"] = "true";
  const auto none = site_of("s3://bucket/a", with(variables, files));
  EXPECT_EQ(none.error().status, Status::permission);
  EXPECT_THAT(none.error().message, HasSubstr("there are no keys"));
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

// A login of the session "s", which lies in a file that can be written.
class RenewedLogin : public ::testing::Test {
 protected:
  // SHA-1 of "s".
  const std::string cache = "/h/.aws/sso/cache/a0f1490a20d0211c997b44bc357e1972deab8ae3.json";
  std::map<std::string, std::string> files = {{"/c",
                                               "[profile p]\nsso_session=s\nsso_account_id=1\nsso_role_name=r\n"
                                               "[sso-session s]\nsso_start_url=https://start\nsso_region=eu-west-1\n"}};
  Services services{
      .answers = {
          {"portal.sso", says(200, R"({"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"canary",)"
                                   R"("sessionToken":"t","expiration":1369357200000}})")},
          {"POST https://oidc.eu-west-1.amazonaws.com/token",
           says(200, R"({"accessToken":"new","expiresIn":28800,"refreshToken":"r\"2","tokenType":"Bearer"})")}}};

  void log_in(const char *ends, const char *registered_until = "2013-06-24T00:00:00Z") {
    files[cache] = text(R"({"startUrl":"https://start","region":"eu-west-1","accessToken":"old","expiresAt":")", ends,
                        R"(","clientId":"c","clientSecret":"canary","refreshToken":"r\\1","registrationExpiresAt":")",
                        registered_until, "\"}");
  }
  std::string asked() {
    auto from = with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}, {"HOME", "/h"}});
    from.file = [this](const std::string &path) -> std::optional<std::string> {
      const auto found = files.find(path);
      return found == files.end() ? std::nullopt : std::optional(found->second);
    };
    from.keep_secret = [this](const std::string &path, const std::string &text) {
      files[path] = text;
      return true;
    };
    services.join(&from);
    return asked_by(from);
  }
  std::string bearer() const { return SimulatedStore::field(services.asked.back(), "x-amz-sso_bearer_token"); }
};

TEST_F(RenewedLogin, IsAskedForNearItsEndAndKeptInTheFile) {
  log_in("2013-05-24T00:16:00Z");
  EXPECT_EQ(asked(), "SSO");
  EXPECT_EQ(bearer(), "old");
  for (const char *ends : {"2013-05-24T00:14:00Z", "2013-05-23T00:00:00Z"}) {
    services.asked.clear();
    log_in(ends);
    EXPECT_EQ(asked(), "SSO");
    EXPECT_EQ(bearer(), "new");
    ASSERT_EQ(services.asked.size(), 2u);
    EXPECT_EQ(services.asked[0].body,
              R"({"grantType":"refresh_token","clientId":"c","clientSecret":"canary","refreshToken":"r\\1"})");
    EXPECT_EQ(
        files[cache],
        R"({"startUrl":"https://start","region":"eu-west-1","accessToken":"new","expiresAt":"2013-05-24T08:00:00Z",)"
        R"("clientId":"c","clientSecret":"canary","registrationExpiresAt":"2013-06-24T00:00:00Z",)"
        R"("refreshToken":"r\"2"})");
    EXPECT_EQ(asked(), "SSO") << "the file is read again";
    EXPECT_EQ(services.asked.size(), 3u);
  }
}

TEST_F(RenewedLogin, ARefusalCountsAtTheEnd) {
  services.answers[1].second = says(400, R"({"error":"invalid_grant","error_description":"too old"})");
  log_in("2013-05-24T00:01:00Z");
  EXPECT_EQ(asked(), "SSO");
  EXPECT_EQ(bearer(), "old");
  log_in("2013-05-23T00:00:00Z");
  EXPECT_THAT(asked(), HasSubstr("has ended, and is not renewed: AWS's Identity Center, asked to renew the login, "
                                 "answered 400 invalid_grant: too old; run `aws sso login --profile p`"));
  log_in("2013-05-23T00:00:00Z", "2013-05-23T00:00:00Z");
  services.asked.clear();
  EXPECT_THAT(asked(), HasSubstr("has ended; run `aws sso login"));
  EXPECT_TRUE(services.asked.empty()) << "what asks is not registered any more";
}

TEST_F(RenewedLogin, AnotherProcessMayBeFirst) {
  log_in("2013-05-23T00:00:00Z");
  auto from = with({});
  from.file = [this](const std::string &path) { return std::optional(files[path]); };
  from.ask = [this](const Question &) {
    files[cache] = R"({"accessToken":"theirs","expiresAt":"2013-05-24T08:00:00Z"})";
    return says(400, R"({"error":"invalid_grant"})");
  };
  const AwsLogin login{cache, "p", "https://start", "eu-west-1", "https://oidc"};
  EXPECT_EQ(token_of(login, from, now)->shown_to_the_store(), "theirs");
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
  EXPECT_THAT(of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/keys"},
                  {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nowhere"}}),
              HasSubstr("'/nowhere', which AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE names, cannot be read"));
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

  services.answers[0].second = says(503, "");
  auto busy = with({});
  services.join(&busy);
  EXPECT_EQ(site_of("s3://bucket/a", busy).error().status, Status::io) << "it is there, and no machine of another kind";
}

TEST(AwsKeysTest, AProgramIsRunWithoutAShell) {
  auto from = with({{"AWS_CONFIG_FILE", "/c"}, {"AWS_PROFILE", "p"}},
                   {{"/c", "[profile p]\ncredential_process = /bin/keys 'of a' \"b\\\"\" $(c) ''\n"}});
  std::vector<std::string> words;
  std::string said = keys_of("RUN");
  from.run = [&](const Program &given) -> Result<std::string> {
    words = given.words;
    return said;
  };
  EXPECT_EQ(asked_by(from), "RUN");
  EXPECT_THAT(words, ElementsAre("/bin/keys", "of a", "b\"", "$(c)", ""));
  said = R"({"Version":2,"AccessKeyId":"RUN","SecretAccessKey":"canary"})";
  from.kept = nullptr;
  EXPECT_THAT(asked_by(from), HasSubstr("JSON of version 1"));
}

TEST(AwsKeysTest, ALoginOfTheConsoleHasKeysInItsFile) {
  bool ran = false;
  const auto of = [&](const char *ends) {
    auto from = with({{"HOME", "/h"}, {"AWS_PROFILE", "p"}});
    from.file = [ends](const std::string &path) -> std::optional<std::string> {
      if (path == "/h/.aws/config") return "[profile p]\nlogin_session = arn:me\ncredential_process = /bin/no\n";
      if (path != text("/h/.aws/login/cache/", sha256_hex("arn:me"), ".json") || !ends) return std::nullopt;
      return text(R"({"accessToken":{"accessKeyId":"KEPT","secretAccessKey":"canary","sessionToken":"t","expiresAt":")",
                  ends, R"("},"refreshToken":"canary"})");
    };
    from.run = [&](const Program &) -> Result<std::string> {
      ran = true;
      return keys_of("RENEWED");
    };
    return asked_by(from);
  };
  EXPECT_EQ(of("2013-05-24T00:15:00Z"), "KEPT");
  EXPECT_THAT(of("2013-05-23T23:00:00Z"), HasSubstr("have ended; run `aws login --profile p`"));
  EXPECT_THAT(of(nullptr), HasSubstr("nobody is logged in"));
  EXPECT_FALSE(ran) << "a program named `aws` may be anybody's";
}

TEST(ProgramTest, ItsOutputIsTakenIfItEndsWellAndInTime) {
  EXPECT_EQ(*run_program({{"/bin/echo", "a b"}}), "a b\n");
  EXPECT_EQ(*run_program({{"/bin/sh", "-c", "echo $PATH $OTHER"}, {{"PATH", "p"}, {"OTHER", "o"}}}), "p o\n");
  EXPECT_THAT(run_program({{"/bin/false"}}).error().message, HasSubstr("exit status 1"));
  EXPECT_THAT(run_program({{"/no/such/program"}}).error().message, HasSubstr("No such file"));
  // Its children end with it, which would keep the output open.
  EXPECT_THAT(run_program({{"/bin/sh", "-c", "sleep 1000 & sleep 1000"}, {}, 50}).error().message,
              HasSubstr("in time"));
  EXPECT_THAT(run_program({{"/bin/sh", "-c", "exec >&-; sleep 1000"}, {}, 50}).error().message, HasSubstr("in time"));
  EXPECT_THAT(run_program({{"/bin/cat", "/dev/zero"}}).error().message, HasSubstr("too much"));
}

}  // namespace
}  // namespace st::remote
