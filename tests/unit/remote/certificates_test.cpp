// Which file of authorities is taken: the one that is named, else the first that is there.

#include "remote/certificates.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace st::remote {
namespace {

struct System {
  std::map<std::string, std::string> variables;
  std::set<std::string> files, folders = {};

  std::string found() const {
    return certificates(
        surroundings(), "/of/libcurl", "/site/libst", [this](const std::string &path) { return files.contains(path); },
        [this](const std::string &path) { return folders.contains(path); });
  }
  std::string folder() const {
    return folder_of_certificates(surroundings(), [this](const std::string &path) { return folders.contains(path); });
  }
  Surroundings surroundings() const {
    return {.variable = [this](const std::string &name) -> std::optional<std::string> {
              const auto it = variables.find(name);
              return it == variables.end() ? std::nullopt : std::optional(it->second);
            },
            .file = {}};
  }
};

TEST(Certificates, TheFileThatIsNamedComesFirst) {
  System system{{{"SSL_CERT_FILE", "/named"}}, {"/of/libcurl"}};
  EXPECT_EQ(system.found(), "/named");  // also where it is not there: that is an error to tell
  system.variables["REQUESTS_CA_BUNDLE"] = "/of/python";
  EXPECT_EQ(system.found(), "/of/python");
  system.variables["AWS_CA_BUNDLE"] = "/of/aws";
  EXPECT_EQ(system.found(), "/of/python") << "AWS's is for AWS alone";
}

TEST(Certificates, WhatRequestsTakesMayBeAFolder) {
  System system{{{"REQUESTS_CA_BUNDLE", "/certs"}, {"SSL_CERT_DIR", "/more"}}, {"/of/libcurl"}, {"/certs"}};
  EXPECT_EQ(system.found(), "/of/libcurl");
  EXPECT_EQ(system.folder(), "/certs");
  system.folders.clear();
  EXPECT_EQ(system.found(), "/certs");
  EXPECT_EQ(system.folder(), "/more");
}

TEST(Certificates, ThenTheFileThatLibcurlWasBuiltFor) {
  EXPECT_EQ((System{{}, {"/of/libcurl", "/etc/ssl/certs/ca-certificates.crt"}}.found()), "/of/libcurl");
}

TEST(Certificates, ThenThoseOfOtherSystems) {
  const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/site/libst/../certifi/cacert.pem"};
  System system;
  EXPECT_EQ(system.found(), "");
  for (size_t i = std::size(places); i-- > 0;) {
    system.files.insert(places[i]);
    EXPECT_EQ(system.found(), places[i]);
  }
}

}  // namespace
}  // namespace st::remote
