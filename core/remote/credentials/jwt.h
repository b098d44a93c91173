// JSON Web Tokens that are signed by an RSA key (RFC 7519, RFC 7518), and Base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "remote/credentials/secret.h"

namespace st::remote {

std::string base64(std::string_view bytes);
// Nothing: it is none.
std::optional<Secret> from_base64(std::string_view text);

// RSASSA-PKCS1-v1_5 by SHA-256. Nothing: the key, in PEM, cannot be read.
std::optional<std::string> sign_rs256(std::string_view text, const Secret &private_key);

// `claims` is JSON.
std::optional<std::string> jwt_rs256(std::string_view claims, const Secret &private_key);

}  // namespace st::remote
