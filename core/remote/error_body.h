// What stores say in the body of an answer that refuses: XML with a code and a message.
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
#pragma once

#include <string>
#include <string_view>

namespace st::remote {

struct ErrorBody {
  std::string code, message;  // empty: it says none
};

// Takes any bytes. Both parts are short, and have no control bytes.
ErrorBody parse_error_body(std::string_view text);

// As it may stand in a message: short, and without control bytes.
std::string printable(std::string_view text);

}  // namespace st::remote
