#include "base/percent.h"
#include "remote/aws_profile.h"
#include "remote/site.h"

namespace st::remote {
namespace {

class S3Site final : public Site {
 public:
  S3Site(const Url &url, AwsProfile profile)
      : Site(url.shown), bucket_(url.host), key_(url.path), profile_(std::move(profile)) {}

  // Another region, which the answer names, once. No other redirect: what is signed is for one host.
  Result<std::shared_ptr<const Site>> after(const Answer &answer) const override {
    const int code = answer.head.code;
    const std::string region(answer.head.field("x-amz-bucket-region"));
    const bool elsewhere = code == 301 || code == 307 || code == 400;
    if (elsewhere && !region.empty() && region != profile_.region && !moved_ &&
        region.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == region.npos) {
      auto there = std::make_shared<S3Site>(*this);
      there->profile_.region = region;
      there->moved_ = true;
      return there;
    }
    if (code >= 300 && code < 400 && code != 304)
      return fail(Status::unsupported, in_quotes(shown()), " is not in region ", in_quotes(profile_.region),
                  "; set AWS_REGION to that of the bucket");
    return nullptr;
  }
  std::string asked_as() const override {
    if (!profile_.keys)
      return "; it was asked anonymously, as no keys were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    return "; it was asked with the keys of " + profile_.found_in;
  }

 protected:
  void address(Request *request, std::map<std::string, std::string> fields, int64_t unix_time) const override {
    // A dot in a bucket's name fits no certificate of *.s3.amazonaws.com.
    const bool by_path = !profile_.endpoint.empty() || bucket_.find('.') != bucket_.npos;
    const std::string amazon = "s3." + profile_.region + ".amazonaws.com";
    const std::string origin = !profile_.endpoint.empty() ? profile_.endpoint
                               : by_path                  ? "https://" + amazon
                                                          : "https://" + bucket_ + "." + amazon;
    // An endpoint may have a path of its own, which is signed too.
    const size_t slash = origin.find('/', origin.find("://") + 3);
    const std::string path = (slash == origin.npos ? "" : origin.substr(slash)) + (by_path ? "/" + bucket_ : "") + "/" +
                             percent_encoded(key_, false);
    request->url = origin.substr(0, slash) + path;
    fields["x-amz-checksum-mode"] = "ENABLED";
    if (!profile_.keys) {
      put(request, fields);
      return;
    }
    fields["host"] = host_of(request->url);
    request->fields =
        signed_fields({.path = path, .fields = std::move(fields)}, *profile_.keys, profile_.region, unix_time);
  }

 private:
  std::string bucket_, key_;
  AwsProfile profile_;
  bool moved_ = false;
};

}  // namespace

Result<std::shared_ptr<const Site>> s3_site(const Url &url, const Surroundings &from) {
  ST_TRY(auto profile, aws_profile(from));
  if (!profile.endpoint.empty() && host_of(profile.endpoint).empty())
    return fail(Status::invalid_argument, "the endpoint of S3, ", in_quotes(without_secrets(profile.endpoint)),
                ", is no URL; it begins with https:// or http://");
  return std::make_shared<S3Site>(url, std::move(profile));
}

}  // namespace st::remote
