// What stores and services say in the body of an answer that refuses: XML with a code and a message, or JSON.
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
#pragma once

#include <string>
#include <string_view>

#include "remote/transport.h"

namespace st::remote {

struct ErrorBody {
  std::string code, message;  // empty: it says none
  std::string region;         // where S3 wants to be asked
};

// Takes any bytes. All parts are short, and have no control bytes.
ErrorBody parse_error_body(std::string_view text);

// Do these words of a store say that the keys, or the signature in the URL, have ended? With whatever code.
bool says_keys_ended(std::string_view code);

// "403 AccessDenied: Access Denied (request id 17A5)"
std::string said(const Answer &answer);
// " (request id 17A5)"; empty: the answer names none.
std::string request_id(const Head &head);

// As it may stand in a message: short, and without control bytes.
std::string printable(std::string_view text);

}  // namespace st::remote
