#include "base/percent.h"
#include "remote/site.h"

namespace st::remote {
namespace {

class HttpSite final : public Site {
 public:
  HttpSite(std::string shown, std::string url, std::string token, std::string asked_as)
      : Site(std::move(shown)),
        url_(std::move(url)),
        origin_(origin_of(url_)),
        token_(std::move(token)),
        asked_as_(std::move(asked_as)) {}

  Result<std::shared_ptr<const Site>> after(const Answer &answer) const override {
    const int code = answer.head.code;
    if (code != 301 && code != 302 && code != 303 && code != 307 && code != 308) return nullptr;
    const std::string next = resolved(url_, answer.head.field("location"));
    const std::string origin = origin_of(next), scheme = origin.substr(0, origin.find(':'));
    if (scheme != origin_.substr(0, origin_.find(':')))
      return fail(Status::unsupported, in_quotes(shown()), " redirects to ",
                  origin.empty() ? "a URL that is none" : in_quotes(without_secrets(next)),
                  "; libst follows a redirect only within one scheme");
    if (scheme == "http" && is_loopback(host_of(url_)) && !is_loopback(host_of(next)))
      return fail(Status::unsupported, in_quotes(shown()), " redirects to ", in_quotes(without_secrets(next)),
                  ", which is not encrypted; use https://");
    auto there = std::make_shared<HttpSite>(*this);
    there->url_ = next;
    there->borrowed_ = true;
    // Not sent to another host, and to none after that.
    if (origin != origin_) there->token_.clear();
    there->origin_ = origin;
    return there;
  }
  std::string asked_as() const override { return asked_as_; }
  bool is_borrowed() const override { return borrowed_; }

 protected:
  void address(Request *request, std::map<std::string, std::string> fields, int64_t /*unix_time*/) const override {
    request->url = url_;
    put(request, fields);
    if (!token_.empty()) request->fields.push_back("authorization: Bearer " + token_);
  }

 private:
  std::string url_, origin_, token_, asked_as_;
  bool borrowed_ = false;
};

}  // namespace

Result<std::shared_ptr<const Site>> http_site(const Url &url, const Surroundings &from) {
  if (url.scheme == "hf") {
    // hf://OWNER/MODEL[@REVISION]/FILE
    const size_t slash = url.path.find('/');
    if (slash == url.path.npos || slash + 1 == url.path.size())
      return fail(Status::invalid_argument, in_quotes(url.shown), " names no file; a URL is hf://OWNER/MODEL/FILE");
    const std::string model = url.path.substr(0, slash), file = url.path.substr(slash + 1);
    const size_t at = model.find('@');
    std::string endpoint = from.variable("HF_ENDPOINT").value_or("https://huggingface.co");
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (!endpoint.starts_with("https://") && !is_loopback(host_of(endpoint)))
      return fail(Status::unsupported, "HF_ENDPOINT is not encrypted; use https://");
    const std::string token = from.first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}).value_or("");
    return std::make_shared<HttpSite>(
        url.shown,
        endpoint + "/" + percent_encoded(url.host, true) + "/" + percent_encoded(model.substr(0, at), true) +
            "/resolve/" + (at == model.npos ? "main" : percent_encoded(model.substr(at + 1), true)) + "/" +
            percent_encoded(file, false),
        token, token.empty() ? "; it was asked anonymously, set HF_TOKEN" : "; it was asked with HF_TOKEN");
  }
  if (url.scheme == "http" && !is_loopback(url.host) && from.variable("ST_ALLOW_HTTP").value_or("") != "1")
    return fail(Status::unsupported, in_quotes(url.shown),
                " is not encrypted, so what comes may be anybody's; use https://, or set ST_ALLOW_HTTP=1");
  return std::make_shared<HttpSite>(url.shown, url.scheme + "://" + url.host + url.path, "", "");
}

}  // namespace st::remote
