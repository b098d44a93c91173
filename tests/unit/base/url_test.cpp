// What of a URL is shown. The bindings hold to this table too: tests/remote/test_urls.py.
#include "base/url.h"

#include <gtest/gtest.h>

namespace st {
namespace {

TEST(UrlTest, NothingIsShownThatMayBeASecret) {
  const std::pair<const char *, const char *> cases[] = {
      {"https://host/a?X-Amz-Signature=hidden#b", "https://host/a"},
      {"HTTPS://host/a#hidden", "HTTPS://host/a"},
      {"https://me:hidden@host:8443/a/b?c", "https://host:8443/a/b"},
      {"https://hidden@host", "https://host"},
      {"http://host/a@b", "http://host/a@b"},
      {"az://box/a.safetensors?sv=1&sig=hidden", "az://box/a.safetensors"},
      {"abfss://box@account.dfs.core.windows.net/a?SIG=hidden", "abfss://box@account.dfs.core.windows.net/a"},
      {"s3://bucket/a?X-Amz-Credential=a&X-Amz-Signature=hidden", "s3://bucket/a"},
      {"gs://bucket/a?X-Goog-Signature=hidden", "gs://bucket/a"},
      {"s3a://bucket/a?versionId=1", "s3a://bucket/a"},
      {"hf://owner/model/a?token=hidden", "hf://owner/model/a"},
      {"s3://me:hidden@bucket/a", "s3://bucket/a"},
      {"az://me:hidden@b@account/a?sig=hidden", "az://account/a"},
      {"ftp://hidden@host/a?hidden", "ftp://host/a"},
      {"s3://bucket/what?.safetensors", "s3://bucket/what?.safetensors"},
      {"s3://bucket/a?b=c&d", "s3://bucket/a?b=c&d"},
      {"s3://bucket/signature=1/a#b%20", "s3://bucket/signature=1/a#b%20"},
      {"hf://model@main/a", "hf://model@main/a"},
  };
  for (const auto &[url, shown] : cases) EXPECT_EQ(without_secrets(url), shown) << url;
  EXPECT_EQ(without_secrets("gs://bucket/a#17"), "gs://bucket/a");
  EXPECT_EQ(without_secrets("gs://bucket/a#1x"), "gs://bucket/a#1x");
  EXPECT_EQ(without_secrets("s3://bucket/a#17"), "s3://bucket/a#17");
}

}  // namespace
}  // namespace st
