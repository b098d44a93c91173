#include "remote/certificates.h"

namespace st::remote {

std::string certificates(const Surroundings &from, const std::string &of_libcurl, const std::string &folder,
                         const AskPath &is_readable, const AskPath &is_folder) {
  if (auto named = from.variable("CURL_CA_BUNDLE")) return *named;
  if (auto named = from.variable("REQUESTS_CA_BUNDLE"); named && !is_folder(*named)) return *named;
  if (auto named = from.variable("SSL_CERT_FILE")) return *named;
  const std::string places[] = {
      of_libcurl,
      "/etc/ssl/certs/ca-certificates.crt",  // Debian, Arch, Alpine
      "/etc/pki/tls/certs/ca-bundle.crt",    // Fedora, Red Hat
      "/etc/ssl/ca-bundle.pem",              // SUSE
      "/etc/ssl/cert.pem",                   // images that have little else
      folder + "/../certifi/cacert.pem",     // the package that pip puts beside a wheel
  };
  for (const std::string &place : places)
    if (!place.empty() && is_readable(place)) return place;
  return {};
}

std::string folder_of_certificates(const Surroundings &from, const AskPath &is_folder) {
  const auto named = from.variable("REQUESTS_CA_BUNDLE");
  return named && is_folder(*named) ? *named : from.variable("SSL_CERT_DIR").value_or("");
}

}  // namespace st::remote
