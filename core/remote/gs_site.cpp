#include "base/percent.h"
#include "remote/credentials/google_token.h"
#include "remote/error_body.h"
#include "remote/site.h"

namespace st::remote {
namespace {

// By the JSON API, which emulators know too.
// https://cloud.google.com/storage/docs/json_api/v1/objects/get
class GsSite final : public SignedSite {
 public:
  GsSite(const Url &url, const std::string &endpoint, std::shared_ptr<Credentials> credentials)
      : SignedSite(url.shown, std::move(credentials),
                   "; it was asked anonymously, as no account was found: set GOOGLE_APPLICATION_CREDENTIALS, or run "
                   "`gcloud auth application-default login`"),
        url_(text(endpoint, "/storage/v1/b/", percent_encoded(url.host, true), "/o/", percent_encoded(url.path, true),
                  "?alt=media", url.query.empty() ? "" : "&", url.query)) {}

  // What is signed is for one host.
  Result<std::shared_ptr<const Site>> after(const Answer &answer) const override {
    const int code = answer.head.code;
    if (code >= 300 && code < 400 && code != 304)
      return fail(Status::unsupported, in_quotes(shown()), " redirects to another host, where libst does not follow",
                  request_id(answer.head));
    return nullptr;
  }

 protected:
  void address(Request *request, std::map<std::string, std::string> fields, const Version &version,
               int64_t unix_time) const override {
    request->url = url_;
    if (!version.generation.empty()) {
      request->url += "&ifGenerationMatch=" + percent_encoded(version.generation, true);
      fields.erase("if-match");
    }
    const auto by = signer(unix_time);
    if (by.granted->keys) {
      fields["authorization"] = "Bearer " + by.granted->keys->token.shown_to_the_store();
      if (!by.granted->keys->id.empty()) fields["x-goog-user-project"] = by.granted->keys->id;
    }
    put(request, fields);
    wipe(fields["authorization"]);
  }

 private:
  const std::string url_;
};

}  // namespace

Result<std::shared_ptr<const Site>> gs_site(const Url &url, const Surroundings &from) {
  const auto emulator = from.variable("STORAGE_EMULATOR_HOST");
  if (!emulator) {
    ST_TRY(auto credentials, credentials_of(url, from, google_token(from)));
    return std::make_shared<GsSite>(url, "https://storage.googleapis.com", std::move(credentials));
  }
  // Its value is a URL, or a host with a port.
  const std::string endpoint =
      without_slash(emulator->find("://") == emulator->npos ? "http://" + *emulator : *emulator);
  if (host_of(endpoint).empty() || !from.may_be_plain(endpoint))
    return fail(Status::unsupported, "STORAGE_EMULATOR_HOST is ", in_quotes(without_secrets(endpoint)),
                ", which is no URL, or not encrypted; use https://, or set ST_ALLOW_HTTP=1");
  ST_TRY(auto anonymous, credentials_of(url, from, nobodys_keys()));
  return std::make_shared<GsSite>(url, endpoint, std::move(anonymous));
}

}  // namespace st::remote
