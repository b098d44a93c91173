#include "base/percent.h"
#include "remote/credentials/aws_keys.h"
#include "remote/error_body.h"
#include "remote/sigv4.h"
#include "remote/site.h"

namespace st::remote {
namespace {

class S3Site final : public SignedSite {
 public:
  S3Site(const Url &url, std::string region, std::string endpoint, std::shared_ptr<Credentials> credentials)
      : SignedSite(
            url.shown, std::move(credentials),
            "; it was asked anonymously, as no keys were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or AWS_PROFILE"),
        bucket_(url.host),
        key_(url.path),
        region_(std::move(region)),
        endpoint_(std::move(endpoint)) {}

  // Another region, which the answer names, once. No other redirect: what is signed is for one host.
  Result<std::shared_ptr<const Site>> after(const Answer &answer) const override {
    const int code = answer.head.code;
    const bool elsewhere = code == 301 || code == 307 || code == 400 || code == 403;
    std::string region(answer.head.field("x-amz-bucket-region"));
    if (elsewhere && region.empty()) region = parse_error_body(answer.text).region;
    if (elsewhere && !region.empty() && region != region_ && !moved_ &&
        region.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == region.npos) {
      auto there = std::make_shared<S3Site>(*this);
      there->region_ = region;
      there->moved_ = true;
      return there;
    }
    if (code >= 300 && code < 400 && code != 304)
      return fail(Status::unsupported, in_quotes(shown()), " is not in region ", in_quotes(region_),
                  "; set AWS_REGION to that of the bucket", request_id(answer.head));
    return nullptr;
  }

 protected:
  void address(Request *request, std::map<std::string, std::string> fields, const Version & /*version*/,
               int64_t unix_time) const override {
    // A dot in a bucket's name fits no certificate of *.s3.amazonaws.com.
    const bool by_path = !endpoint_.empty() || bucket_.find('.') != bucket_.npos;
    const std::string origin = !endpoint_.empty() ? endpoint_ : amazon(by_path ? "s3" : bucket_ + ".s3", region_);
    // An endpoint may have a path of its own, which is signed too.
    const size_t slash = origin.find('/', origin.find("://") + 3);
    const std::string path = (slash == origin.npos ? "" : origin.substr(slash)) + (by_path ? "/" + bucket_ : "") + "/" +
                             percent_encoded(key_, false);
    request->url = origin.substr(0, slash) + path;
    fields["x-amz-checksum-mode"] = "ENABLED";
    const auto by = signer(unix_time);
    if (!by.granted->keys) {
      put(request, fields);
      return;
    }
    fields["host"] = host_of(request->url);
    request->fields =
        signed_fields({.path = path, .fields = std::move(fields)}, *by.granted->keys, region_, by.unix_time);
  }

 private:
  std::string bucket_, key_, region_, endpoint_;
  bool moved_ = false;
};

}  // namespace

Result<std::shared_ptr<const Site>> s3_site(const Url &url, const Surroundings &from) {
  ST_TRY(const auto profiles, AwsProfiles::read(from));
  std::string endpoint = aws_endpoint(from, profiles, "S3");
  if (!endpoint.empty() && host_of(endpoint).empty())
    return fail(Status::invalid_argument, "the endpoint of S3, ", in_quotes(without_secrets(endpoint)),
                ", is no URL; it begins with https:// or http://");
  ST_TRY(auto credentials, credentials_of(url, from, aws_keys(from, profiles)));
  return std::make_shared<S3Site>(url, aws_region(from, profiles), std::move(endpoint), std::move(credentials));
}

}  // namespace st::remote
