#include <optional>

#include "base/percent.h"
#include "remote/credentials/aws_keys.h"
#include "remote/error_body.h"
#include "remote/sigv4.h"
#include "remote/site.h"

namespace st::remote {
namespace {

// Where a bucket is asked for.
struct Place {
  std::string region;
  std::string endpoint = {};  // empty: Amazon's
  std::string service = "s3";
  std::string certificates = {};  // a file of authorities; empty: those of all others
  bool by_path = false;           // the bucket is in the path, not in the name of the host
  bool is_fixed = false;          // no other region has it
};

constexpr const char *no_keys =
    "; it was asked anonymously, as no keys were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "AWS_PROFILE";
constexpr const char *no_signature = "; it was asked anonymously, as a variable of the environment wants it";

class S3Site final : public SignedSite {
 public:
  S3Site(const Url &url, std::string bucket, Place place, bool pays, const char *anonymously,
         std::shared_ptr<Credentials> credentials)
      : SignedSite(url.shown, std::move(credentials), anonymously),
        bucket_(std::move(bucket)),
        key_(url.path),
        query_(url.query.empty() ? ""
                                 : "versionId=" + percent_encoded(url.query.substr(url.query.find('=') + 1), true)),
        place_(std::move(place)),
        pays_(pays) {}

  // Another region, which the answer names, once. No other redirect: what is signed is for one host.
  Result<std::shared_ptr<const Site>> after(const Answer &answer) const override {
    const int code = answer.head.code;
    const bool elsewhere = code == 301 || code == 307 || code == 400 || code == 403;
    std::string region(answer.head.field("x-amz-bucket-region"));
    if (elsewhere && region.empty()) region = parse_error_body(answer.text).region;
    if (elsewhere && !region.empty() && region != place_.region && !place_.is_fixed &&
        region.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == region.npos) {
      auto there = std::make_shared<S3Site>(*this);
      there->place_.region = region;
      there->place_.is_fixed = true;
      return there;
    }
    if (code >= 300 && code < 400 && code != 304)
      return fail(Status::unsupported, in_quotes(shown()), " is not in region ", in_quotes(place_.region),
                  "; set AWS_REGION to that of the bucket", request_id(answer.head));
    return nullptr;
  }
  BucketRegion region() const override { return {bucket_, place_.region}; }
  bool says_checksum_with_head() const override { return true; }

 protected:
  void address(Request *request, std::map<std::string, std::string> fields, const Version & /*version*/,
               int64_t unix_time) const override {
    std::string origin = place_.endpoint.empty() ? amazon(place_.service, place_.region) : place_.endpoint;
    if (!place_.by_path) origin.insert(origin.find("://") + 3, bucket_ + ".");
    // An endpoint may have a path of its own, which is signed too.
    const size_t slash = origin.find('/', origin.find("://") + 3);
    const std::string path = (slash == origin.npos ? "" : origin.substr(slash)) +
                             (place_.by_path ? "/" + bucket_ : "") + "/" + percent_encoded(key_, false);
    request->url = origin.substr(0, slash) + path + (query_.empty() ? "" : "?" + query_);
    request->certificates = place_.certificates;
    fields["x-amz-checksum-mode"] = "ENABLED";
    if (pays_) fields["x-amz-request-payer"] = "requester";
    const auto by = signer(unix_time);
    if (!by.granted->keys) {
      put(request, fields);
      return;
    }
    fields["host"] = host_of(request->url);
    request->fields =
        signed_fields({.method = request->method, .path = path, .query = query_, .fields = std::move(fields)},
                      *by.granted->keys, place_.region, by.unix_time);
  }

 private:
  std::string bucket_, key_, query_;
  Place place_;
  bool pays_;
};

// "arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME", whose host begins with NAME-ACCOUNT; nothing: it is of another kind.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-points-naming.html
std::optional<std::pair<std::string, Place>> access_point(std::string_view arn, Place place) {
  std::string part[7];
  for (std::string &each : part) {
    const size_t end = &each < part + 5 ? arn.find(':') : arn.find_first_of(":/");
    each = arn.substr(0, end);
    arn.remove_prefix(end == arn.npos ? arn.size() : end + 1);
  }
  const auto &[name, partition, service, region, account, kind, own] = part;
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  for (const std::string &each : {region, account, own})
    if (each.empty() || each.find_first_not_of(letters) != each.npos) return std::nullopt;
  if (service != "s3" || kind != "accesspoint" || !arn.empty()) return std::nullopt;
  place.region = region;
  place.is_fixed = true;
  place.by_path = false;
  place.service.replace(0, 2, "s3-accesspoint");
  return std::pair(own + "-" + account, std::move(place));
}

// AWS's services of keys are held against the same authorities.
Surroundings asking_by(const std::string &certificates, Surroundings from) {
  if (certificates.empty()) return from;
  from.ask = [certificates, ask = std::move(from.ask)](const Question &question) {
    Question by = question;
    by.request.certificates = certificates;
    return ask(by);
  };
  return from;
}

}  // namespace

Result<std::shared_ptr<const Site>> s3_site(const Url &url, const Surroundings &of_process) {
  ST_TRY(const auto profiles, AwsProfiles::read(of_process));
  const std::string certificates =
      of_process.variable("AWS_CA_BUNDLE").value_or(profiles.value(profiles.name(), "ca_bundle"));
  const Surroundings from = asking_by(certificates, of_process);
  std::string endpoint = aws_endpoint(from, profiles, "S3");
  if (!endpoint.empty() && host_of(endpoint).empty())
    return fail(Status::invalid_argument, "the endpoint of S3, ", in_quotes(without_secrets(endpoint)),
                ", is no URL; it begins with https:// or http://");
  const std::string style = profiles.value(profiles.name(), "s3.addressing_style");
  const bool by_host = style == "virtual" || from.is_on("AWS_VIRTUAL_HOSTED_STYLE_REQUEST");
  Place place{.region = aws_region(from, profiles), .endpoint = std::move(endpoint), .certificates = certificates};
  if (aws_wants(from, profiles, "use_fips_endpoint")) place.service += "-fips";
  if (aws_wants(from, profiles, "use_dualstack_endpoint")) place.service += ".dualstack";
  std::string bucket = url.host;
  // A dot fits no certificate of *.s3.amazonaws.com. Old buckets have other letters, which no host has.
  const bool fits = bucket.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == bucket.npos;
  place.by_path = !by_host && (style == "path" || !place.endpoint.empty() || !fits);
  if (bucket.ends_with("--x-s3") && place.endpoint.empty())
    return fail(Status::unsupported, in_quotes(url.shown),
                " is in a directory bucket (S3 Express), which wants keys of its own; libst reads the other kind");
  if (bucket.starts_with("arn:")) {
    auto point = access_point(bucket, std::move(place));
    if (!point)
      return fail(Status::unsupported, in_quotes(url.shown),
                  " is no access point of a region; libst reads arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME");
    bucket = std::move(point->first);
    place = std::move(point->second);
  }
  if (!place.is_fixed && from.known_region.bucket == bucket) place.region = from.known_region.region;
  const std::string payer = lower(from.variable("AWS_REQUEST_PAYER").value_or(""));
  const bool pays = payer == "requester" || payer == "true";
  const bool is_signed = !from.is_on("AWS_NO_SIGN_REQUEST") && !from.is_on("AWS_SKIP_SIGNATURE");
  Result<Origin> origin = is_signed ? aws_keys(from, profiles) : nobodys_keys();
  if (origin && !origin->name.empty() && !certificates.empty()) origin->name += " by " + certificates;
  ST_TRY(auto credentials, credentials_of(url, from, std::move(origin)));
  return std::make_shared<S3Site>(url, std::move(bucket), std::move(place), pays, is_signed ? no_keys : no_signature,
                                  std::move(credentials));
}

}  // namespace st::remote
