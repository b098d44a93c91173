// URLs as users give them.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/url.h"
#include "remote/credentials/secret.h"

namespace st::remote {

struct Url {
  std::string scheme;      // "https", "http", "s3", "gs", "az", "hf"; others that mean one of these become it
  std::string host;        // with its port; of s3, gs and az the bucket
  std::string path;        // of these and hf as it is given, without the slash before it; of http(s) with the query
  std::string shown;       // for messages: without user, password and query, which may be secrets
  std::string query = {};  // of s3, gs and az: a signature, or a version; without the '?'
  Secret user = {};        // of http(s): "NAME:PASSWORD"; empty: none
};

// Statuses: unsupported (a scheme that is not known), invalid_argument.
Result<Url> parse_url(std::string_view text);

// Where `location`, the field of an answer to `from`, leads to: absolute. Empty: nowhere.
std::string resolved(const std::string &from, std::string_view location);

// "https://host:port" of a URL, without a port that is the scheme's own; empty if it is none.
std::string origin_of(const std::string &url);
std::string host_of(const std::string &url);

// Without slashes at its end.
std::string without_slash(std::string text);

// A blob of Azure's, by a URL without a signature or a user of its own.
bool is_azure(const Url &url);

// This machine.
bool is_loopback(std::string_view host_and_port);

// This machine, or what only its own link leads to, as a cloud's metadata. A proxy would ask beside itself.
bool is_beside(std::string_view host_and_port);

// By plain http, of a server on this machine: through a proxy it would leave it.
bool stays_here(const std::string &url);

// May it be asked, encrypted or not? By plain http only a server on this machine may, or with `allows_http` any.
bool may_be_asked(const std::string &url, bool allows_http);

}  // namespace st::remote
