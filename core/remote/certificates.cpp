#include "remote/certificates.h"

namespace st::remote {

std::string certificates(const Surroundings &from, const std::string &of_libcurl, const std::string &folder,
                         const IsReadable &is_readable) {
  if (auto named = from.first({"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"}))
    return *named;
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

}  // namespace st::remote
