#include "read/requests.h"

#include <algorithm>

namespace st::read {
namespace {

// Whether `next` goes on where `last` ends, in the file and in memory of the same kind.
bool continues(const Piece &last, const Piece &next) {
  return last.offset + last.length == next.offset && last.fresh == next.fresh &&
         (last.to ? last.to + last.length == next.to : next.to == nullptr);
}

}  // namespace

Plan plan_requests(std::vector<Piece> pieces, uint64_t block, uint64_t gap, size_t most_parts) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece &a, const Piece &b) { return a.offset < b.offset; });
  Plan plan;
  plan.pieces.reserve(pieces.size());
  size_t parts = 0;  // of the last request
  uint64_t limit = 0;
  for (Piece rest : pieces) {
    plan.wanted += rest.length;
    while (rest.length > 0) {
      Request *last = plan.requests.empty() ? nullptr : &plan.requests.back();
      const uint64_t end = last ? last->offset + last->length : 0;
      const bool joins = last && rest.offset >= end && rest.offset - end <= gap && rest.offset < limit &&
                         (parts + 2 <= most_parts || continues(plan.pieces.back(), rest));
      if (!joins) {
        plan.requests.push_back({rest.offset, 0, plan.pieces.size(), 0});
        last = &plan.requests.back();
        limit = (rest.offset / block + 1) * block;
        parts = 0;
      } else if (rest.offset > end) {
        ++parts;
      }
      Piece now = rest;
      now.length = std::min(rest.length, limit - rest.offset);
      last->length = now.offset + now.length - last->offset;
      if (joins && continues(plan.pieces.back(), now)) {
        plan.pieces.back().length += now.length;
      } else {
        plan.pieces.push_back(now);
        ++last->count;
        ++parts;
      }
      rest.offset += now.length;
      rest.length -= now.length;
      if (rest.to) rest.to += now.length;
    }
  }
  return plan;
}

uint64_t wanted_of(const Plan &plan, const Request &request) {
  uint64_t n = 0;
  for (const Piece &piece : std::span(plan.pieces).subspan(request.first, request.count)) n += piece.length;
  return n;
}

std::vector<std::span<const Request>> share_out(const std::vector<Request> &requests, size_t shares) {
  uint64_t total = 0;
  for (const Request &r : requests) total += r.length;
  std::vector<std::span<const Request>> out;
  size_t at = 0;
  uint64_t before = 0;
  for (size_t share = 0; share < shares; ++share) {
    const uint64_t until = total / shares * (share + 1);
    const size_t first = at;
    while (at < requests.size() && (share + 1 == shares || before < until)) before += requests[at++].length;
    out.emplace_back(requests.data() + first, at - first);
  }
  return out;
}

}  // namespace st::read
