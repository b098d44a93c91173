#include "base/percent.h"
#include "remote/credentials/azure_keys.h"
#include "remote/error_body.h"
#include "remote/site.h"

namespace st::remote {
namespace {

// "Fri, 24 May 2013 00:00:00 GMT", in any locale.
std::string http_date(int64_t unix_time) {
  constexpr const char *days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char *months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto seconds = static_cast<time_t>(unix_time);
  struct tm utc = {};
  gmtime_r(&seconds, &utc);
  char day[32], time[32];
  strftime(day, sizeof day, ", %d ", &utc);
  strftime(time, sizeof time, " %Y %H:%M:%S GMT", &utc);
  return text(days[utc.tm_wday], day, months[utc.tm_mon], time);
}

class AzSite final : public SignedSite {
 public:
  AzSite(const Url &url, AzureAccount account, const std::string &blob, std::shared_ptr<Credentials> credentials)
      : SignedSite(url.shown, std::move(credentials),
                   "; it was asked anonymously, as nothing to sign with was found: set AZURE_STORAGE_KEY, "
                   "AZURE_STORAGE_SAS_TOKEN, or what Azure's own tools take"),
        account_(std::move(account)) {
    const size_t slash = account_.endpoint.find('/', account_.endpoint.find("://") + 3);
    path_ = (slash == std::string::npos ? "" : account_.endpoint.substr(slash)) + "/" + blob;
    url_ = account_.endpoint.substr(0, slash) + path_;
  }

  // What is signed is for one host.
  Result<std::shared_ptr<const Site>> after(const Answer &answer) const override {
    const int code = answer.head.code;
    if (code >= 300 && code < 400 && code != 304)
      return fail(Status::unsupported, in_quotes(shown()), " redirects to another host, where libst does not follow",
                  request_id(answer.head));
    return nullptr;
  }

 protected:
  void address(Request *request, std::map<std::string, std::string> fields, const Version & /*version*/,
               int64_t unix_time) const override {
    const auto by = signer(unix_time);
    request->url = url_;
    fields["x-ms-date"] = http_date(by.unix_time);
    fields["x-ms-version"] = "2021-08-06";
    if (const auto &keys = by.granted->keys) {
      if (!keys->token.empty())
        fields["authorization"] = "Bearer " + keys->token.shown_to_the_store();
      else if (!keys->secret.empty())
        fields["authorization"] = shared_key(*keys, path_, fields).value_or("");
      else
        request->url += "?" + account_.sas.shown_to_the_store();
    }
    put(request, fields);
    wipe(fields["authorization"]);
  }

 private:
  AzureAccount account_;
  std::string path_, url_;
};

}  // namespace

Result<std::shared_ptr<const Site>> az_site(const Url &url, const Surroundings &from) {
  if (url.scheme == "https") {
    AzureAccount account = azure_account_of(from, url.host);
    ST_TRY(auto credentials, credentials_of(url, from, azure_keys(from, account)));
    return std::make_shared<AzSite>(url, std::move(account), url.path.substr(1), std::move(credentials));
  }
  const size_t at = std::min(url.host.find('@'), url.host.size());
  ST_TRY(auto account,
         at < url.host.size() ? azure_account_in(from, url.shown, url.host.substr(at + 1)) : azure_account(from));
  if (!url.query.empty()) {
    account.key = {};
    account.sas = url.query;
    account.found_in = "the signature in the URL";
  }
  ST_TRY(auto credentials, credentials_of(url, from, azure_keys(from, account)));
  const std::string blob = percent_encoded(url.host.substr(0, at), true) + "/" + percent_encoded(url.path, false);
  return std::make_shared<AzSite>(url, std::move(account), blob, std::move(credentials));
}

}  // namespace st::remote
