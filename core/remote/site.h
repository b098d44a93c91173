// Where an object is, and how it is asked for: the URL of a request, and the fields that tell the user's keys. Values:
// a redirect makes another one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "remote/checksum.h"
#include "remote/surroundings.h"
#include "remote/transport.h"
#include "remote/url.h"

namespace st::remote {

// A state of an object. All that is read of it is of this one.
struct Version {
  std::string etag, modified;  // as the server says it; empty: it does not
  uint64_t size = 0;
  std::optional<Checksum> checksum = {};  // of all of it

  bool known() const { return !etag.empty() || !modified.empty(); }
};

class Site {
 public:
  virtual ~Site() = default;
  // For bytes [first, first + n) of that version; of any, where it is not known.
  Request request(uint64_t first, uint64_t n, const Version &version, int64_t unix_time) const;
  // Where this answer sends the request; null: nowhere. Status unsupported: to where libst does not go.
  virtual Result<std::shared_ptr<const Site>> after(const Answer &) const = 0;
  // By which keys it was asked, in an error that says that it may not: "; it was asked anonymously".
  virtual std::string asked_as() const = 0;
  // Did a redirect lead here, which may expire?
  virtual bool is_borrowed() const { return false; }
  const std::string &shown() const { return shown_; }

 protected:
  explicit Site(std::string shown) : shown_(std::move(shown)) {}
  // The URL, and the fields with those that sign them. Names in lower case.
  virtual void address(Request *request, std::map<std::string, std::string> fields, int64_t unix_time) const = 0;
  // Fields as they are, where nothing signs them.
  static void put(Request *request, const std::map<std::string, std::string> &fields) {
    for (const auto &[name, value] : fields) request->fields.push_back(text(name, ": ", value));
  }

 private:
  std::string shown_;
};

// For https:// and http://, and for hf://, which is a URL of the Hub. Statuses: unsupported, invalid_argument.
Result<std::shared_ptr<const Site>> http_site(const Url &url, const Surroundings &from);
// For s3://. Statuses: as aws_profile.
Result<std::shared_ptr<const Site>> s3_site(const Url &url, const Surroundings &from);
// For any URL.
Result<std::shared_ptr<const Site>> site_of(const std::string &url, const Surroundings &from);

}  // namespace st::remote
