#include <mutex>

#include "base/percent.h"
#include "base/ascii.h"
#include "remote/error_body.h"
#include "remote/site.h"

namespace st::remote {
namespace {

class HttpSite final : public Site {
 public:
  HttpSite(std::string shown, std::string url, Secret token, std::string asked_as, Ask ask)
      : Site(std::move(shown)),
        url_(std::move(url)),
        token_(std::move(token)),
        asked_as_(std::move(asked_as)),
        ask_(std::move(ask)) {}

  Result<std::shared_ptr<const Site>> after(const Answer &answer) const override {
    ST_TRY(auto there, led_by(answer));
    return std::shared_ptr<const Site>(std::move(there));
  }
  std::string asked_as() const override { return asked_as_; }

  uint64_t keys() const override {
    const std::lock_guard lock(mutex_);
    return found_again_;
  }
  // A redirect leads to a URL that expires. The first URL leads to another one; of what version its answers are is
  // judged as ever.
  bool renew(uint64_t keys, const Answer &refusal, int64_t unix_time) const override {
    if (!first_ || (refusal.head.code != 401 && refusal.head.code != 403)) return false;
    const std::lock_guard lock(mutex_);
    if (keys != found_again_) return true;
    auto there = first_;
    for (uint32_t redirects = 0; redirects < 8; ++redirects) {
      Question question;
      question.request = there->request(0, 1, {}, unix_time);
      const Answer answer = ask_(question);
      auto next = there->led_by(answer);
      if (!next || !*next) {
        const bool found = next && answer.cut == Cut::none && (answer.head.code == 200 || answer.head.code == 206);
        if (!found) return false;
        url_ = there->url();
        ++found_again_;
        return true;
      }
      there = *std::move(next);
    }
    return false;
  }

 protected:
  void address(Request *request, std::map<std::string, std::string> fields, const Version & /*version*/,
               int64_t /*unix_time*/) const override {
    request->url = url();
    put(request, fields);
    if (!token_.empty()) request->fields.push_back("authorization: Bearer " + token_.shown_to_the_store());
  }

 private:
  std::string url() const {
    const std::lock_guard lock(mutex_);
    return url_;
  }
  // Where a redirect leads; null: it is none.
  Result<std::shared_ptr<const HttpSite>> led_by(const Answer &answer) const {
    const int code = answer.head.code;
    if (code != 301 && code != 302 && code != 303 && code != 307 && code != 308) return nullptr;
    const std::string url = this->url();
    const std::string next = resolved(url, answer.head.field("location"));
    const std::string here = origin_of(url), origin = origin_of(next), scheme = origin.substr(0, origin.find(':'));
    if (scheme != here.substr(0, here.find(':')))
      return fail(Status::unsupported, in_quotes(shown()), " redirects to ",
                  origin.empty() ? "a URL that is none" : in_quotes(without_secrets(next)),
                  "; libst follows a redirect only within one scheme", request_id(answer.head));
    if (scheme == "http" && is_loopback(host_of(url)) && !is_loopback(host_of(next)))
      return fail(Status::unsupported, in_quotes(shown()), " redirects to ", in_quotes(without_secrets(next)),
                  ", which is not encrypted; use https://", request_id(answer.head));
    // A token is not sent to another host, and to none after that.
    auto there = std::make_shared<HttpSite>(shown(), next, origin == here ? token_ : Secret(), asked_as_, ask_);
    there->first_ = first_ ? first_ : std::make_shared<const HttpSite>(shown(), url, token_, asked_as_, ask_);
    return there;
  }

  mutable std::mutex mutex_;
  mutable std::string url_;
  mutable uint64_t found_again_ = 0;
  const Secret token_;
  const std::string asked_as_;
  const Ask ask_;
  std::shared_ptr<const HttpSite> first_;  // whose redirects led here; null: this is it
};

// HF_TOKEN, or the file that `hf auth login` writes.
// https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
std::pair<Secret, std::string> hub_token(const Surroundings &from) {
  if (const auto token = from.first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}))
    return {*token, "; it was asked with HF_TOKEN"};
  const std::string cache =
      from.variable("XDG_CACHE_HOME").value_or(from.variable("HOME").value_or("") + "/.cache") + "/huggingface";
  const std::string path = from.variable("HF_TOKEN_PATH").value_or(from.variable("HF_HOME").value_or(cache) + "/token");
  const bool is_wanted = from.variable("HF_HUB_DISABLE_IMPLICIT_TOKEN").value_or("0") == "0";
  auto text = is_wanted ? from.file(path) : std::nullopt;
  if (!text || trimmed(*text).empty()) return {{}, "; it was asked anonymously, set HF_TOKEN"};
  Secret token = std::string(trimmed(*text));
  wipe(*text);
  return {std::move(token), "; it was asked with the token of " + in_quotes(path)};
}

// Where the revision in "@REVISION/FILE" ends: at the first slash, but for the two kinds of revisions that the Hub's
// own tools know by their slashes. Elsewhere a slash is written as %2F.
size_t end_of_revision(std::string_view text) {
  size_t from = 1;
  for (const std::string_view kind : {"refs/pr/", "refs/convert/"})
    if (text.substr(1).starts_with(kind)) from += kind.size();
  return std::min(text.find('/', from), text.size());
}

}  // namespace

Result<std::shared_ptr<const Site>> http_site(const Url &url, const Surroundings &from) {
  if (url.scheme == "hf") {
    // hf://OWNER/MODEL[@REVISION]/FILE, or with datasets/ or spaces/ before the owner
    std::string owner = percent_encoded(url.host, true);
    std::string_view path = url.path;
    if (url.host == "datasets" || url.host == "spaces") {
      const size_t end = std::min(path.find('/'), path.size());
      owner += "/" + percent_encoded(path.substr(0, end), true);
      path.remove_prefix(std::min(end + 1, path.size()));
    }
    const size_t at = std::min({path.find('@'), path.find('/'), path.size()});
    const std::string_view after = path.substr(at);
    const size_t slash = after.starts_with('@') ? end_of_revision(after) : 0;
    if (after.size() <= slash + 1)
      return fail(Status::invalid_argument, in_quotes(url.shown), " names no file; a URL is hf://OWNER/MODEL/FILE");
    const std::string model(path.substr(0, at)), file(after.substr(slash + 1));
    const std::string revision = slash == 0 ? "main" : percent_decoded(after.substr(1, slash - 1));
    std::string endpoint = from.variable("HF_ENDPOINT").value_or("https://huggingface.co");
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (!from.may_be_plain(endpoint)) return fail(Status::unsupported, "HF_ENDPOINT is not encrypted; use https://");
    auto [token, asked_as] = hub_token(from);
    return std::make_shared<HttpSite>(url.shown,
                                      endpoint + "/" + owner + "/" + percent_encoded(model, true) + "/resolve/" +
                                          percent_encoded(revision, true) + "/" + percent_encoded(file, false),
                                      std::move(token), std::move(asked_as), from.ask);
  }
  if (!from.may_be_plain(url.scheme + "://" + url.host))
    return fail(Status::unsupported, in_quotes(url.shown),
                " is not encrypted, so what comes may be anybody's; use https://, or set ST_ALLOW_HTTP=1");
  return std::make_shared<HttpSite>(url.shown, url.scheme + "://" + url.host + url.path, Secret(), "", from.ask);
}

}  // namespace st::remote
