#include "remote/credentials/jwt.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <memory>

namespace st::remote {
namespace {

// For URLs, without padding.
std::string base64url(std::string_view bytes) {
  std::string out = base64(bytes);
  out.resize(std::min(out.find('='), out.size()));
  for (char &c : out) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return out;
}

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock ends it with a zero
  out.resize(static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char *>(out.data()),
                                                 reinterpret_cast<const unsigned char *>(bytes.data()),
                                                 static_cast<int>(bytes.size()))));
  return out;
}

std::optional<Secret> from_base64(std::string_view text) {
  std::string out(text.size() / 4 * 3, '\0');
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char *>(out.data()),
                                reinterpret_cast<const unsigned char *>(text.data()), static_cast<int>(text.size()));
  if (n < 0) return std::nullopt;
  // It counts the padding as bytes.
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  out.resize(static_cast<size_t>(n) - padding);
  return Secret(std::move(out));
}

std::optional<std::string> sign_rs256(std::string_view text, const Secret &private_key) {
  const std::string &pem = private_key.shown_to_the_store();
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                      BIO_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(
          bio.get(), nullptr, [](char *, int, int, void *) { return -1; }, nullptr),  // asks nobody for a password
      EVP_PKEY_free);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::string out(key ? static_cast<size_t>(EVP_PKEY_size(key.get())) : 0, '\0');
  size_t length = out.size();
  const bool is_signed = key && EVP_PKEY_base_id(key.get()) == EVP_PKEY_RSA &&
                         EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
                         EVP_DigestSign(context.get(), reinterpret_cast<unsigned char *>(out.data()), &length,
                                        reinterpret_cast<const unsigned char *>(text.data()), text.size()) == 1;
  ERR_clear_error();  // the queue is the thread's, and libcurl looks there
  if (!is_signed) return std::nullopt;
  out.resize(length);
  return out;
}

std::optional<std::string> jwt_rs256(std::string_view claims, const Secret &private_key) {
  std::string token = base64url(R"({"alg":"RS256","typ":"JWT"})") + '.' + base64url(claims);
  const auto signature = sign_rs256(token, private_key);
  if (!signature) return std::nullopt;
  return token + '.' + base64url(*signature);
}

}  // namespace st::remote
