#include "remote/head.h"

#include "base/ascii.h"

namespace st::remote {
namespace {

constexpr size_t most_fields = 200, longest_field = 16u << 10;

}  // namespace

bool Head::take(std::string_view line) {
  if (line.starts_with("HTTP/")) {  // an answer begins anew: what came was a "100 Continue", or a proxy's
    fields.clear();
    return true;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return true;
  if (fields.size() >= most_fields || line.size() > longest_field) return false;
  fields.emplace_back(lower(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  return true;
}

}  // namespace st::remote
