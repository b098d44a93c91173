// Google and Azure are asked as their own tools would ask.
#include "remote/credentials/azure_keys.h"

#include <gmock/gmock.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "remote/credentials/jwt.h"
#include "remote/sigv4.h"
#include "remote/simulated_store.h"
#include "remote/site.h"
#include "remote/surroundings_of_tests.h"

namespace st::remote {
namespace {

using ::testing::HasSubstr;

struct RsaKey {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{EVP_RSA_gen(1024), EVP_PKEY_free};

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

// Services that take their time, by a clock that goes on where somebody waits.
class SlowServices {
 public:
  struct Said {
    uint64_t after_ms;
    Answer answer;
  };
  std::function<Said(const Request &)> says;
  uint64_t clock_ms = 0;
  std::vector<std::string> asked = {};

  void join(Surroundings *from) {
    from->ask = asks_by([this] { return std::make_unique<Served>(*this); });
  }

 private:
  struct Served final : Transport {
    explicit Served(SlowServices &all) : of(all) {}
    void get(uint64_t, Request request) override {
      of.asked.push_back(request.url);
      said = of.says(request);
      said->after_ms += of.clock_ms;
    }
    uint64_t received(uint64_t) const override { return 0; }
    void drop(uint64_t) override {}
    void drop_all() override { said.reset(); }
    std::optional<Answer> next(uint64_t wait_ms) override {
      if (!said || said->after_ms > of.clock_ms + wait_ms) {
        of.clock_ms += wait_ms;
        return std::nullopt;
      }
      of.clock_ms = std::max(of.clock_ms, said->after_ms);
      return std::exchange(said, std::nullopt)->answer;
    }
    uint64_t came() const override { return 0; }
    uint64_t now_ms() override { return of.clock_ms; }
    int64_t unix_time() override { return now; }
    uint32_t random() override { return 0; }
    SlowServices &of;
    std::optional<Said> said;
  };
};

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
          {"https://subject/", says(200, R"({"id":"jwt"})")},
          {"GET http://169.254.169.254/ ", says(200, "", {{"metadata-flavor", "Google"}})},
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
  EXPECT_EQ(of(R"({"type":"external_account","token_url":"https://sts","credential_source":{"url":"https://subject/",)"
               R"("format":{"type":"json","subject_token_field_name":"id"}},)"
               R"("service_account_impersonation_url":"https://iam/x:generateAccessToken"})"),
            "Bearer I");
  EXPECT_EQ(SimulatedStore::field(services.asked.back(), "authorization"), "Bearer X");
  const std::string user =
      R"("source_credentials":{"type":"authorized_user","client_secret":"s","refresh_token":"r"},)";
  const std::string impersonated = R"({"type":"impersonated_service_account","delegates":["a@x","b@x"],)";
  const std::string url = R"("service_account_impersonation_url":"https://iam/y:generateAccessToken"})";
  EXPECT_EQ(of(impersonated + user + url), "Bearer I");
  EXPECT_EQ(SimulatedStore::field(services.asked.back(), "authorization"), "Bearer U");
  EXPECT_THAT(services.asked.back().body, HasSubstr(R"("delegates":["a@x","b@x"])"));
  EXPECT_THAT(of(impersonated + url), HasSubstr("no source_credentials"));
  EXPECT_THAT(of(impersonated + user + R"("service_account_impersonation_url":"http://example.com"})"),
              HasSubstr("not encrypted"));
  EXPECT_EQ(of(""), "Bearer M");
  EXPECT_THAT(of(R"({"type":"authorized_user","token_uri":"http://example.com"})"), HasSubstr("not encrypted"));
  EXPECT_THAT(of(R"({"type":"gdch"})"), HasSubstr("'gdch'"));
  EXPECT_THAT(of("{"), HasSubstr("no Google account"));
  EXPECT_THAT(of(R"({"type":"service_account","private_key":"canary"})"), HasSubstr("no private key"));
  EXPECT_EQ(token_for_google(with({})), "") << "anonymous";
  EXPECT_THAT(token_for_google(with({{"GOOGLE_APPLICATION_CREDENTIALS", "/none"}})), HasSubstr("cannot be read"));
}

// A service that is not there is noticed soon. One that is there may take long for the first token of a machine.
TEST(GoogleTest, ASlowTokenOfAMachineIsWaitedFor) {
  const std::vector<std::pair<std::string, std::string>> google = {{"metadata-flavor", "Google"}};
  uint64_t probe_ms = 5, token_ms = 2000;
  auto root = says(200, "", google), token = says(200, R"({"access_token":"M","expires_in":60})", google);
  SlowServices services{[&](const Request &request) {
    return request.url.ends_with("/token") ? SlowServices::Said{token_ms, token} : SlowServices::Said{probe_ms, root};
  }};
  const auto asked = [&] {
    auto from = with({});
    services.join(&from);
    services.clock_ms = 0;
    services.asked.clear();
    return token_for_google(from);
  };
  EXPECT_EQ(asked(), "Bearer M");
  EXPECT_EQ(services.asked.size(), 2u);
  token_ms = 1000000;
  EXPECT_THAT(asked(), HasSubstr("Google's metadata server did not answer"));
  EXPECT_EQ(services.asked.size(), 4u) << "the token is asked for three times";
  token = says(404, "", google);
  token_ms = 5;
  EXPECT_EQ(asked(), "") << "a machine without an account";
  root = says(200, "");
  EXPECT_EQ(asked(), "") << "it is another's";
  EXPECT_EQ(services.asked.size(), 1u);
  probe_ms = 1001;
  EXPECT_EQ(asked(), "") << "nobody is there";
  EXPECT_EQ(services.clock_ms, 1000u);
  EXPECT_EQ(services.asked.size(), 1u);
}

// An external account whose token is at a URL.
class UrlOfGoogle : public ::testing::Test {
 protected:
  Services services{.answers = {{"GET ", says(200, "jwt")},
                                {"subject_token=jwt", says(200, R"({"access_token":"X","expires_in":60})")}}};

  std::string asked(const std::string &url, const std::string &more) {
    services.asked.clear();
    auto from =
        with({{"GOOGLE_APPLICATION_CREDENTIALS", "/f"}},
             {{"/f", text(R"({"type":"external_account","token_url":"https://sts","credential_source":{"url":")", url,
                          "\",", more, "}}")}});
    services.join(&from);
    return token_for_google(from);
  }
  std::string field(const char *name) const { return SimulatedStore::field(services.asked.at(0), name); }
};

TEST_F(UrlOfGoogle, GetsAllFieldsOfTheFile) {
  EXPECT_EQ(asked("https://github/", R"("headers":{"Authorization":"Bearer canary","Accept":"a","Other":1})"),
            "Bearer X");
  EXPECT_EQ(field("authorization"), "Bearer canary");
  EXPECT_EQ(field("accept"), "a");
  EXPECT_FALSE(services.asked[0].no_proxy);
  EXPECT_EQ(asked("http://169.254.169.254/metadata", R"("headers":{"Metadata":"True"})"), "Bearer X");
  EXPECT_EQ(field("metadata"), "True");
  EXPECT_TRUE(services.asked[0].no_proxy);
  for (const char *near : {"http://localhost:1/", "http://127.0.0.1/", "http://[fe80::1]/"}) {
    EXPECT_EQ(asked(near, R"("headers":{"Authorization":"canary"})"), "Bearer X");
    EXPECT_TRUE(services.asked[0].no_proxy) << near;
  }
  EXPECT_EQ(asked("https://169.254.example.com/", R"("headers":{})"), "Bearer X");
  EXPECT_FALSE(services.asked[0].no_proxy);
}

TEST_F(UrlOfGoogle, IsNotAskedWithWhatIsNoField) {
  for (const char *headers : {R"({"A":"b\r\nC: d"})", R"({"A\n":"b"})", R"({"A: b\r\nC":"d"})", R"({"":"b"})"})
    EXPECT_THAT(asked("https://github/", text(R"("headers":)", headers)), HasSubstr("several lines")) << headers;
  EXPECT_TRUE(services.asked.empty());
}

TEST_F(UrlOfGoogle, IsNotAskedInTheOpenElsewhere) {
  for (const char *elsewhere : {"http://example.com/", "http://169.254.example.com/", "HTTP://example.com/"})
    for (const char *headers : {R"({"authorization":"canary"})", R"({"X-Token":"canary"})", "{}"})
      EXPECT_THAT(asked(elsewhere, text(R"("headers":)", headers)), HasSubstr("not encrypted")) << elsewhere;
  EXPECT_TRUE(services.asked.empty());
}

TEST_F(UrlOfGoogle, IsNotTakenForATokenWhereItIsAWSs) {
  EXPECT_THAT(asked("http://169.254.169.254/latest/meta-data/iam/security-credentials",
                    R"("environment_id":"aws1","regional_cred_verification_url":"https://sts.{region}.amazonaws.com")"),
              HasSubstr("of 'aws1'"));
  EXPECT_TRUE(services.asked.empty());
}

// An external account whose program says what it is asked for.
class ProgramOfGoogle : public ::testing::Test {
 protected:
  std::map<std::string, std::string> variables = {{"GOOGLE_APPLICATION_CREDENTIALS", "/f"},
                                                  {"GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1"}};
  std::map<std::string, std::string> files;
  Services services{
      .answers = {{"subject_token=JWT", says(200, R"({"access_token":"X","expires_in":60})")},
                  {"subject_token=KEPT", says(200, R"({"access_token":"K","expires_in":60})")},
                  {"generateAccessToken", says(200, R"({"accessToken":"I","expireTime":"2013-05-24T01:00:00Z"})")}}};
  std::string said = token("JWT", now + 60);
  std::vector<Program> ran;

  static std::string token(const char *jwt, int64_t ends) {
    return text(R"({"version":1,"success":true,"token_type":"urn:ietf:params:oauth:token-type:jwt","id_token":")", jwt,
                R"(","expiration_time":)", ends, "}");
  }
  std::string asked(const std::string &more = "", const std::string &beside = "") {
    files["/f"] =
        text(R"({"type":"external_account","token_url":"https://sts","audience":"//a",)",
             R"("subject_token_type":"urn:t","credential_source":{"executable":{"command":"/bin/token 'of a')", "\"",
             more, "}}", beside, "}");
    auto from = with(variables, files);
    from.run = [this](const Program &program) -> Result<std::string> {
      ran.push_back(program);
      return said;
    };
    services.join(&from);
    return token_for_google(from);
  }
};

TEST_F(ProgramOfGoogle, SaysATokenIfItMayRun) {
  using ::testing::ElementsAre;
  using ::testing::Pair;
  EXPECT_EQ(asked(R"(,"timeout_millis":5000)",
                  R"(,"service_account_impersonation_url":"https://iam/serviceAccounts/me@x:generateAccessToken")"),
            "Bearer I");
  ASSERT_EQ(ran.size(), 1u);
  EXPECT_THAT(ran[0].words, ElementsAre("/bin/token", "of a"));
  EXPECT_THAT(
      ran[0].variables,
      ElementsAre(Pair("GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE", "//a"), Pair("GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE", "urn:t"),
                  Pair("GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE", "0"), Pair("GOOGLE_EXTERNAL_ACCOUNT_REVOKE", "0"),
                  Pair("GOOGLE_EXTERNAL_ACCOUNT_IMPERSONATED_EMAIL", "me@x")));
  EXPECT_EQ(ran[0].within_ms, 5000u);
  EXPECT_EQ(asked("", R"(,"workforce_pool_user_project":"pays")"), "Bearer X");
  EXPECT_THAT(services.asked.back().body, HasSubstr("options=%7B%22userProject%22%3A%22pays%22%7D"));
  for (const char *otherwise : {"0", "true", ""}) {
    variables["GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES"] = otherwise;
    EXPECT_THAT(asked(), HasSubstr("'/bin/token'; set GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES=1"));
  }
  EXPECT_EQ(ran.size(), 2u);
}

TEST_F(ProgramOfGoogle, WhatIsKeptInItsFileIsTakenUntilItEnds) {
  const char *kept = R"(,"output_file":"/kept")";
  files["/kept"] = token("KEPT", now + 1);
  EXPECT_EQ(asked(kept), "Bearer K");
  EXPECT_TRUE(ran.empty());
  for (const std::string &old : {token("KEPT", now), std::string(R"({"version":1,"success":false,"code":"1"})"),
                                 std::string(R"({"version":1,"success":true,"id_token":"KEPT"})"), std::string("{")}) {
    files["/kept"] = old;
    EXPECT_EQ(asked(kept), "Bearer X");
  }
  EXPECT_EQ(ran.size(), 4u);
  EXPECT_EQ(ran[0].variables.back().second, "/kept");
}

TEST_F(ProgramOfGoogle, WhatItMaySayOtherwiseIsNamed) {
  const auto says_why = [this](std::string output) {
    said = std::move(output);
    return asked();
  };
  EXPECT_THAT(says_why(R"({"version":1,"success":false,"code":"401","message":"not\nlogged in"})"),
              HasSubstr("refused with '401': not logged in"));
  EXPECT_THAT(says_why(R"({"version":2,"success":true})"), HasSubstr("JSON of version 1"));
  EXPECT_THAT(says_why(R"({"version":1})"), HasSubstr("the field 'success'"));
  EXPECT_THAT(says_why("canary"), HasSubstr("no JSON"));
  EXPECT_THAT(says_why(""), HasSubstr("no JSON"));
  EXPECT_THAT(says_why(token("canary", now)), HasSubstr("has ended"));
  EXPECT_THAT(says_why(token("", now + 1)), HasSubstr("empty token"));
  EXPECT_THAT(says_why(R"({"version":1,"success":true,"token_type":"t","id_token":"canary"})"), HasSubstr("kind 't'"));
  EXPECT_EQ(says_why(R"({"version":1,"success":true,"token_type":"urn:ietf:params:oauth:token-type:saml2",)"
                     R"("saml_response":"JWT"})"),
            "Bearer X");
  EXPECT_THAT(asked(R"(,"timeout_millis":4999)"), HasSubstr("from 5000 to 120000"));
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
  EXPECT_EQ(
      of({{"AZURE_STORAGE_TENANT_ID", "t"}, {"AZURE_STORAGE_CLIENT_ID", "i"}, {"AZURE_STORAGE_CLIENT_SECRET", "s"}}),
      "Bearer S");
  EXPECT_EQ(azure_signed(with({{"AZURE_STORAGE_ACCOUNT", "a"}})), "") << "anonymous";
}

// A managed identity of a machine: what its metadata service says.
class MachineOfAzure : public ::testing::Test {
 protected:
  uint64_t probe_ms = 5, token_ms = 5;
  Answer refusal = says(400, R"({"error":"invalid_request","error_description":"Required metadata header missing"})"),
         token = says(200, R"({"access_token":"V","expires_in":"3599"})");
  SlowServices services{[this](const Request &request) {
    const bool has_field = !SimulatedStore::field(request, "metadata").empty();
    return has_field ? SlowServices::Said{token_ms, token} : SlowServices::Said{probe_ms, refusal};
  }};

  std::string asked() {
    auto from = with({{"AZURE_STORAGE_ACCOUNT", "a"}});
    services.join(&from);
    services.clock_ms = 0;
    services.asked.clear();
    return azure_signed(from);
  }
};

TEST_F(MachineOfAzure, MayTakeLongForAToken) {
  token_ms = 2000;
  EXPECT_EQ(asked(), "Bearer V");
  EXPECT_EQ(services.asked.size(), 2u);
  probe_ms = 1001;
  EXPECT_EQ(asked(), "") << "nobody is there";
  EXPECT_EQ(services.clock_ms, 1000u);
}

TEST_F(MachineOfAzure, OfAnotherCloudIsNone) {
  for (const int code : {401, 403, 404}) {
    refusal = says(code, "");
    EXPECT_EQ(asked(), "") << code;
    EXPECT_EQ(services.asked.size(), 1u);
  }
}

TEST_F(MachineOfAzure, SaysWhyItGivesNoToken) {
  token = says(400, R"({"error":"invalid_request","error_description":"Identity not found"})");
  EXPECT_EQ(asked(), "") << "a machine without an identity";
  token = says(400, R"({"error":"invalid_request","error_description":)"
                    R"("Multiple user assigned identities exist, please specify the clientId"})");
  EXPECT_THAT(asked(), HasSubstr("400 invalid_request: Multiple user assigned identities exist"));
}

TEST_F(MachineOfAzure, IsAskedAgainWhileItsServiceIsChanged) {
  for (const int code : {404, 410, 503}) {
    token = says(code, "");
    EXPECT_THAT(asked(), HasSubstr(text("the metadata service of this machine answered ", code)));
    EXPECT_EQ(services.asked.size(), 4u) << code;
    auto from = with({{"AZURE_STORAGE_ACCOUNT", "a"}});
    services.join(&from);
    EXPECT_EQ(site_of("az://c/a", from).error().status, Status::io) << code;
  }
}

TEST(AzureTest, ATokenOfASovereignCloudGoesToNoHostOfThePublicOne) {
  Services services{.answers = {{"POST https://login.microsoftonline.us/t/oauth2/v2.0/token",
                                 says(200, R"({"access_token":"G","expires_in":3599})")}}};
  const auto of = [&](std::map<std::string, std::string> variables, const char *url = "az://c/a") {
    variables.insert({{"AZURE_TENANT_ID", "t"},
                      {"AZURE_CLIENT_ID", "i"},
                      {"AZURE_CLIENT_SECRET", "s"},
                      {"AZURE_STORAGE_ACCOUNT", "a"},
                      {"AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/"}});
    auto from = with(std::move(variables));
    services.join(&from);
    return SimulatedStore::field((*site_of(url, from))->request(0, 1, {}, now), "authorization");
  };
  EXPECT_EQ(of({{"AZURE_STORAGE_SERVICE_ENDPOINT", "https://a.blob.core.usgovcloudapi.net"}}), "Bearer G");
  EXPECT_EQ(of({}), "");
  EXPECT_EQ(of({}, "abfss://c@w.dfs.fabric.microsoft.com/a"), "");
  EXPECT_EQ(of({}, "https://other.blob.core.windows.net/c/a"), "");
}

TEST(AzureTest, NoProgramIsRunOfItsOwnAccord) {
  auto from = with({{"AZURE_STORAGE_ACCOUNT", "a"}});
  bool ran = false;
  from.run = [&](const Program &) -> Result<std::string> {
    ran = true;
    return R"({"accessToken":"P"})";
  };
  EXPECT_EQ(azure_signed(from), "");
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace st::remote
