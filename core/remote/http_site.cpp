#include <algorithm>
#include <functional>

#include "base/ascii.h"
#include "base/percent.h"
#include "remote/credentials/jwt.h"
#include "remote/error_body.h"
#include "remote/one_asks.h"
#include "remote/site.h"

namespace st::remote {
namespace {

class HttpSite final : public Site {
 public:
  struct Place {
    std::string url;
    Secret authorization;  // "Bearer TOKEN", or of another kind; empty: it is asked anonymously
    std::string asked_as;
  };
  // The URL of the same file at a commit.
  using AtCommit = std::function<std::string(const std::string &commit)>;
  HttpSite(std::string shown, Place place, Ask ask, AtCommit at_commit = {})
      : Site(std::move(shown)),
        place_(place),
        ask_(std::move(ask)),
        begin_(std::move(place)),
        at_commit_(std::move(at_commit)) {}

  Result<std::shared_ptr<const Site>> after(const Answer &answer) const override {
    ST_TRY(auto there, led_by(answer));
    return std::shared_ptr<const Site>(std::move(there));
  }
  std::string asked_as() const override { return place().asked_as; }
  std::string commit() const override { return commit_; }

  uint64_t keys() const override {
    const auto lock = mutex_.lock();
    return looks_;
  }
  // A redirect leads to a URL that expires. The first URL leads to another one; of what version its answers are is
  // judged as ever. So is where a place redirects that answered itself before. What was refused before the first URL
  // was asked shares its answer: each would wait for it anew.
  Renewal renew(uint64_t keys, const Answer &refusal, int64_t unix_time) const override {
    if (!is_redirect(refusal.head.code) && !(is_led() && has_ended(refusal))) return Renewal::none;
    auto lock = mutex_.lock();
    if (!asks_.wait_for_others(lock)) return Renewal::none;
    if (keys != looks_) return is_away_ ? Renewal::later : Renewal::done;
    Place found;
    const Renewal renewal = asks_.ask(lock, [&] { return find_again(unix_time, &found); });
    if (!lock.owns_lock() || renewal == Renewal::none) return renewal;
    ++looks_;
    is_away_ = renewal == Renewal::later;
    if (is_away_) return renewal;
    place_ = std::move(found);
    is_led_ = true;
    return renewal;
  }

 protected:
  void address(Request *request, std::map<std::string, std::string> fields, const Version & /*version*/,
               int64_t /*unix_time*/) const override {
    const Place there = place();
    request->url = there.url;
    put(request, fields);
    if (!there.authorization.empty())
      request->fields.push_back("authorization: " + there.authorization.shown_to_the_store());
  }

 private:
  Place place() const {
    const auto lock = mutex_.lock();
    return place_;
  }
  static bool is_redirect(int code) { return code == 301 || code == 302 || code == 303 || code == 307 || code == 308; }
  static bool has_ended(const Answer &refusal) {
    const int code = refusal.head.code;
    return code == 401 || code == 403 || (code == 400 && says_keys_ended(parse_error_body(refusal.text).code));
  }
  bool is_led() const {
    const auto lock = mutex_.lock();
    return first_ || is_led_;
  }
  // The same place, where the branch may move on: what is read is of this commit.
  std::shared_ptr<const HttpSite> at(const std::string &commit) const {
    Place there = begin_;
    if (at_commit_ && !commit.empty()) there.url = at_commit_(commit);
    return std::make_shared<const HttpSite>(shown(), std::move(there), ask_, at_commit_);
  }
  // Where the redirects of the first URL lead by now. It may be another host, which gets no token.
  Renewal find_again(int64_t unix_time, Place *found) const {
    auto there = first_ ? first_ : at(commit_);
    for (uint32_t redirects = 0; redirects < 8; ++redirects) {
      Question question;
      question.request = there->request(0, 1, {}, unix_time);
      question.tries = 1;  // what was refused is tried again
      const Answer answer = ask_(question);
      const int code = answer.head.code;
      if (answer.cut != Cut::none || code == 408 || code == 429 || code >= 500)
        return answer.cut == Cut::hopeless ? Renewal::none : Renewal::later;
      auto next = there->led_by(answer);
      if (!next) return Renewal::none;
      if (!*next) {
        // A whole body is no answer to this question: a page of errors may be one. An object that came whole lies with
        // its handle.
        if (code != 206) return Renewal::none;
        *found = there->place();
        return Renewal::done;
      }
      there = *std::move(next);
    }
    return Renewal::none;
  }
  // Where a redirect leads; null: it is none.
  Result<std::shared_ptr<const HttpSite>> led_by(const Answer &answer) const {
    const int code = answer.head.code;
    if (!is_redirect(code)) return nullptr;
    const auto [url, authorization, asked_as] = place();
    const std::string next = resolved(url, answer.head.field("location"));
    const std::string here = origin_of(url), origin = origin_of(next), scheme = origin.substr(0, origin.find(':'));
    if (scheme != "https" && scheme != here.substr(0, here.find(':')))
      return fail(Status::unsupported, in_quotes(shown()), " redirects to ",
                  origin.empty() ? "a URL that is none" : in_quotes(without_secrets(next)),
                  "; libst follows a redirect only to https, or from http to http", request_id(answer.head));
    if (scheme == "http" && is_loopback(host_of(url)) && !is_loopback(host_of(next)))
      return fail(Status::unsupported, in_quotes(shown()), " redirects to ", in_quotes(without_secrets(next)),
                  ", which is not encrypted; use https://", request_id(answer.head));
    // A token is not sent to another host, and to none after that.
    const bool is_told = authorization.empty() || origin == here;
    auto there = std::make_shared<HttpSite>(
        shown(), is_told ? Place{next, authorization, asked_as} : Place{next, {}, without_token}, ask_);
    there->commit_ = commit_of(answer.head).empty() ? commit_ : commit_of(answer.head);
    there->first_ = (first_ ? first_.get() : this)->at(there->commit_);
    return there;
  }

  static constexpr const char *without_token =
      "; it was asked without a token or a password, as a redirect leads to another host";

  mutable OwnMutex mutex_;  // of all up to `looks_`
  mutable OneAsks asks_;
  mutable Place place_;
  mutable bool is_led_ = false, is_away_ = false;  // it was found again; it could not be, the last time
  mutable uint64_t looks_ = 0;                     // that were answered by either
  const Ask ask_;
  const Place begin_;  // before any renewal
  const AtCommit at_commit_;
  std::string commit_;
  std::shared_ptr<const HttpSite> first_;  // whose redirects led here; null: this is it
};

// "Bearer TOKEN", of HF_TOKEN, or of the file that `hf auth login` writes; and what a refusal says of it.
// https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
std::pair<Secret, std::string> hub_token(const Surroundings &from) {
  if (from.is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
    return {{}, "; it was asked anonymously, as HF_HUB_DISABLE_IMPLICIT_TOKEN is set"};
  const auto bearer = [](std::string token) {
    std::string out;
    out.reserve(token.size() + 8);  // a string that grows leaves its bytes behind
    out.append("Bearer ").append(trimmed(token));
    wipe(token);
    return Secret(std::move(out));
  };
  if (auto token = from.first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}); token && !trimmed(*token).empty())
    return {bearer(*std::move(token)), "; it was asked with HF_TOKEN"};
  std::string path = from.path("HF_TOKEN_PATH"), home = from.path("HF_HOME"), cache = from.path("XDG_CACHE_HOME");
  if (cache.empty()) cache = from.variable("HOME").value_or("") + "/.cache";
  if (home.empty()) home = cache + "/huggingface";
  if (path.empty()) path = home + "/token";
  auto text = from.file(path);
  if (!text || trimmed(*text).empty()) return {{}, "; it was asked anonymously, set HF_TOKEN"};
  return {bearer(*std::move(text)), "; it was asked with the token of " + in_quotes(path)};
}

std::string hub_of(const Surroundings &from) {
  return without_slash(from.variable("HF_ENDPOINT").value_or("https://huggingface.co"));
}

Result<std::shared_ptr<const Site>> hub_site(const Url &url, std::string there, const Surroundings &from,
                                             HttpSite::AtCommit at_commit) {
  for (const char *name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})
    if (from.is_on(name))
      return fail(Status::unsupported, "cannot read ", in_quotes(url.shown), ": ", name,
                  " is set; unset it, or open the file in the cache of the Hub");
  auto [authorization, asked_as] = hub_token(from);
  return std::make_shared<HttpSite>(url.shown,
                                    HttpSite::Place{std::move(there), std::move(authorization), std::move(asked_as)},
                                    from.ask, std::move(at_commit));
}

// Where the revision in "REVISION/FILE" ends: at the first slash, but for the two kinds of revisions that the Hub's
// own tools know by their slashes. Elsewhere a slash is written as %2F.
size_t end_of_revision(std::string_view text) {
  size_t from = 0;
  for (const std::string_view kind : {"refs/pr/", "refs/convert/"})
    if (text.starts_with(kind)) from = kind.size();
  return std::min(text.find('/', from), text.size());
}

// The part before the first slash; `text` becomes what is behind it.
std::string_view take_word(std::string_view &text) {
  const std::string_view word = text.substr(0, text.find('/'));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

constexpr std::string_view kinds[] = {"models/", "datasets/", "spaces/", "kernels/", "buckets/"};

// hf://OWNER/MODEL[@REVISION]/FILE, or with datasets/ or another kind before the owner; hf://MODEL[@REVISION]/FILE is a
// model without an owner, which only the oldest are.
Result<std::string> url_at_hub(const Url &url, const std::string &hub, const std::string &commit) {
  const std::string given = url.host + "/" + url.path;
  std::string_view rest = given, kind;
  for (const std::string_view known : kinds)
    if (rest.starts_with(known)) kind = take_word(rest);
  std::string at = hub + "/";
  if (!kind.empty() && kind != "models") at.append(kind).append("/");
  const bool is_owned =
      std::count(rest.begin(), rest.end(), '/') > 1 || (!rest.ends_with(".safetensors") && !rest.ends_with(".json"));
  if (is_owned && rest.substr(0, rest.find('/')).find('@') == rest.npos)
    at += percent_encoded(take_word(rest), true) + "/";
  const size_t end = std::min({kind == "buckets" ? rest.npos : rest.find('@'), rest.find('/'), rest.size()});
  const std::string_view after = rest.substr(end);
  const size_t slash = after.starts_with('@') ? 1 + end_of_revision(after.substr(1)) : 0;
  if (end == 0 || after.size() <= slash + 1 || !url.query.empty())
    return fail(Status::invalid_argument, in_quotes(url.shown),
                " names no file; a URL is hf://OWNER/MODEL/FILE, or hf://OWNER/MODEL/ for the model in it");
  std::string revision = slash == 0 ? "main" : percent_decoded(after.substr(1, slash - 1));
  if (!commit.empty()) revision = commit;
  at += percent_encoded(rest.substr(0, end), true) + "/resolve/";
  if (kind != "buckets") at += percent_encoded(revision, true) + "/";
  return at + percent_encoded(after.substr(slash + 1), false);
}

// A file's URL at the Hub, as its pages have it: HUB/[KIND/][OWNER/]MODEL/ACTION/REVISION/FILE. Empty: it is none.
std::string url_of_page(const Url &url, const std::string &hub, const std::string &commit) {
  const size_t path = std::min(hub.find('/', hub.find("://") + 3), hub.size());
  const std::string given = url.scheme + "://" + url.host + url.path, begin = origin_of(hub) + hub.substr(path) + "/";
  if (!url.user.empty() || !given.starts_with(begin)) return {};
  std::string_view rest = std::string_view(given).substr(begin.size()), kind;
  const std::string_view query = rest.substr(std::min(rest.find('?'), rest.size()));
  rest.remove_suffix(query.size());
  std::string there = begin;
  for (const std::string_view known : kinds)
    if (rest.starts_with(known)) kind = take_word(rest);
  if (!kind.empty()) there.append(kind).append("/");
  std::string_view after = rest;
  const std::string_view owner = take_word(after), name = take_word(after), from_third = after;
  const auto is_action = [](std::string_view word) { return word == "blob" || word == "raw" || word == "resolve"; };
  there.append(owner);
  // A model, or its owner, may be called as an action is.
  if (is_action(take_word(after)))
    there.append("/").append(name);
  else if (is_action(name))
    after = from_third;
  else
    return {};
  there += "/resolve/";
  if (kind != "buckets") {
    const std::string_view revision = after.substr(0, end_of_revision(after));
    if (revision.size() == after.size()) return {};
    there.append(commit.empty() ? revision : commit);
    after.remove_prefix(revision.size());
  }
  return there.append(after).append(query);
}

// How it was asked, for a refusal. Nobody knows what a query stands for.
std::string said_of(const Url &url) {
  if (!url.user.empty()) return "; it was asked with the user of the URL";
  return url.path.find('?') != url.path.npos
             ? ""
             : "; it was asked anonymously: a user and a password may stand in the URL, as https://USER:PASSWORD@HOST";
}

Secret basic(const Secret &user) {
  return user.empty() ? Secret() : Secret("Basic " + base64(user.shown_to_the_store()));
}

}  // namespace

std::string commit_of(const Head &head) {
  const std::string_view commit = head.field("x-repo-commit");
  const bool is_one = !commit.empty() && commit.find_first_not_of("0123456789abcdef") == commit.npos;
  return std::string(is_one ? commit : "");
}

Result<std::shared_ptr<const Site>> http_site(const Url &url, const Surroundings &from) {
  const std::string hub = hub_of(from);
  if (url.scheme == "hf") {
    if (!from.may_be_plain(hub))
      return fail(Status::unsupported, "HF_ENDPOINT is ", in_quotes(without_secrets(hub)),
                  ", which is no URL, or not encrypted; use https://, or set ST_ALLOW_HTTP=1");
    ST_TRY(const auto there, url_at_hub(url, hub, from.hub_commit));
    return hub_site(url, there, from, [url, hub](const std::string &commit) { return *url_at_hub(url, hub, commit); });
  }
  if (!from.may_be_plain(url.scheme + "://" + url.host))
    return fail(Status::unsupported, in_quotes(url.shown),
                " is not encrypted, so what comes may be anybody's; use https://, or set ST_ALLOW_HTTP=1");
  if (const std::string there = url_of_page(url, hub, from.hub_commit); !there.empty())
    return hub_site(url, there, from, [url, hub](const std::string &commit) { return url_of_page(url, hub, commit); });
  return std::make_shared<HttpSite>(
      url.shown, HttpSite::Place{url.scheme + "://" + url.host + url.path, basic(url.user), said_of(url)}, from.ask);
}

}  // namespace st::remote
