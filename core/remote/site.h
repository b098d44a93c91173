// Where an object is, and how it is asked for: the URL of a request, and the fields that tell the user's keys. Values,
// but for keys that are renewed: a redirect makes another one. Any thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "remote/checksum.h"
#include "remote/credentials/credentials.h"
#include "remote/surroundings.h"
#include "remote/transport.h"
#include "remote/url.h"

namespace st::remote {

// A state of an object. All that is read of it is of this one.
struct Version {
  std::string etag, modified;  // as the server says it; empty: it does not
  uint64_t size = 0;
  std::string generation = {};            // of Google's
  std::optional<Checksum> checksum = {};  // of all of it
  std::string commit = {};                // of the Hub's
  // Seconds since 1970, by the server's clock: when it was put there, when the server said that, and when that came
  // from a cache or the server.
  std::optional<int64_t> put_at = {}, dated_at = {}, said_at = {};

  bool known() const { return !etag.empty() || !modified.empty(); }
};

class Site {
 public:
  virtual ~Site() = default;
  // For bytes [first, first + n) of that version; of any, where it is not known.
  Request request(uint64_t first, uint64_t n, const Version &version, int64_t unix_time) const;
  // For the head of that version alone.
  Request head_request(const Version &version, int64_t unix_time) const;
  // Is a checksum of the whole object said with the head alone, and with no range?
  virtual bool says_checksum_with_head() const { return false; }
  // Where this answer sends the request; null: nowhere. Status unsupported: to where libst does not go.
  virtual Result<std::shared_ptr<const Site>> after(const Answer &) const = 0;
  // The commit of the Hub that a redirect here named; empty: none did.
  virtual std::string commit() const { return {}; }
  // The region of an S3 bucket, to which redirects led. Empty: it is another store.
  virtual BucketRegion region() const { return {}; }
  // By which keys it was asked, in an error that says that it may not: "; it was asked anonymously".
  virtual std::string asked_as() const = 0;
  // How often that which request() signs with has changed.
  virtual uint64_t keys() const { return 0; }
  // A request that was made when keys() was `keys` was refused. Is it worth asking again, once?
  virtual Renewal renew(uint64_t /*keys*/, const Answer &, int64_t /*unix_time*/) const { return Renewal::none; }
  const std::string &shown() const { return shown_; }

 protected:
  explicit Site(std::string shown) : shown_(std::move(shown)) {}
  // The URL, and the fields with those that sign them and the method. Names in lower case.
  virtual void address(Request *request, std::map<std::string, std::string> fields, const Version &version,
                       int64_t unix_time) const = 0;
  // Fields as they are, where nothing signs them.
  static void put(Request *request, const std::map<std::string, std::string> &fields) {
    for (const auto &[name, value] : fields) request->fields.push_back(text(name, ": ", value));
  }

 private:
  Request addressed(std::string method, std::map<std::string, std::string> fields, const Version &version,
                    int64_t unix_time) const;

  std::string shown_;
};

// One that signs by credentials that end.
class SignedSite : public Site {
 public:
  std::string asked_as() const override { return credentials_->asked_as(anonymously_); }
  uint64_t keys() const override { return credentials_->number(); }
  Renewal renew(uint64_t keys, const Answer &refusal, int64_t unix_time) const override {
    return credentials_->renew(keys, refusal, unix_time);
  }

 protected:
  // `anonymously` is said in an error where there are no keys.
  SignedSite(std::string shown, std::shared_ptr<Credentials> credentials, std::string anonymously)
      : Site(std::move(shown)), credentials_(std::move(credentials)), anonymously_(std::move(anonymously)) {}
  Credentials::Now signer(int64_t unix_time) const { return credentials_->now(unix_time); }

 private:
  std::shared_ptr<Credentials> credentials_;
  std::string anonymously_;
};

// The credentials of that origin, with keys if there are any. Statuses: as the origin's, and about this URL.
Result<std::shared_ptr<Credentials>> credentials_of(const Url &url, const Surroundings &from, Result<Origin> origin);

// The commit of the Hub that an answer is of. Empty: it names none.
std::string commit_of(const Head &head);
// For https:// and http://, and for hf://, which is a URL of the Hub. Statuses: unsupported, invalid_argument.
Result<std::shared_ptr<const Site>> http_site(const Url &url, const Surroundings &from);
// For s3://, by AWS's own authorities where they are named. Statuses: as aws_keys.
Result<std::shared_ptr<const Site>> s3_site(const Url &url, const Surroundings &from);
// For gs://. Statuses: as google_token.
Result<std::shared_ptr<const Site>> gs_site(const Url &url, const Surroundings &from);
// For az://, and for https:// of Azure's. Statuses: as azure_keys.
Result<std::shared_ptr<const Site>> az_site(const Url &url, const Surroundings &from);
// For any URL.
Result<std::shared_ptr<const Site>> site_of(const std::string &url, const Surroundings &from);

}  // namespace st::remote
