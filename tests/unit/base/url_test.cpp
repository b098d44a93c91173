#include "base/url.h"

#include <gtest/gtest.h>

namespace st {
namespace {

// The bindings hold to this table too: tests/remote/test_urls.py, bindings/rust/libst/src/file.rs.
TEST(UrlTest, NothingIsShownThatMayBeASecret) {
  const std::pair<const char *, const char *> cases[] = {
#include "shown_urls.inc"
  };
  for (const auto &[url, shown] : cases) EXPECT_EQ(without_secrets(url), shown) << url;
}

TEST(UrlTest, APathMayHaveBeenAUrl) {
  const std::pair<const char *, const char *> cases[] = {
      {"s3:/b/a", "s3://b/a"},
      {"HTTPS:/h/a?b", "HTTPS://h/a?b"},
      {"hf:/o/m/a", "hf://o/m/a"},
      {"s3://b/a", ""},
      {"c:/b/a", ""},
      {"/s3:/b/a", ""},
      {"s3:b", ""},
      {"a/b", ""},
      {":/a", ""},
  };
  for (const auto &[path, url] : cases) EXPECT_EQ(url_before_path(path), url) << path;
}

TEST(UrlTest, AUrlOfAStoreIsANameUpToItsVersionOrSignature) {
  const std::pair<const char *, const char *> cases[] = {
      {"https://host/a?b#c", "?b#c"},
      {"https://host/a#c?b", "#c?b"},
      {"s3://b/a?versionId=1", "?versionId=1"},
      {"S3A://b/what?.st?VERSIONID=1", "?VERSIONID=1"},
      {"s3://b/a?versionId=1/b.safetensors", ""},
      {"s3://b/a?versionId=1&b", ""},
      {"s3://b/a?versionId=", ""},
      {"s3://b/a?b&sig=c&token=d", ""},
      {"s3://b/a#17", ""},
      {"gs://b/a#17", "#17"},
      {"gcs://b/a#1#17", "#17"},
      {"gs://b/a#1x", ""},
      {"gs://b/a#", ""},
      {"gs://b/a?token=1#2", "#2"},
      {"gs://b/a?generation=1", ""},
      {"az://b/a?sv=1&SIG=c", "?sv=1&SIG=c"},
      {"abfss://b@a/what?.st?sig=c", "?sig=c"},
      {"az://b/a?design=c", ""},
      {"hf://o/m/a?token=b#1", ""},
  };
  for (const auto &[url, after] : cases) EXPECT_EQ(std::string_view(url).substr(end_of_path(url)), after) << url;
}

}  // namespace
}  // namespace st
