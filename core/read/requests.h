// From stretches of a file to the requests that fetch them: pure.
#pragma once

#include <span>
#include <vector>

#include "read/bulk.h"

namespace st::read {

// Consecutive bytes of the file that one read fetches, for pieces
// [first, first + count) of the plan. Gaps between them are read and dropped.
struct Request {
  uint64_t offset;
  uint64_t length;
  size_t first;
  size_t count;
};

struct Plan {
  std::vector<Piece> pieces;  // by offset, none longer than a block; neighbours in the file and in memory are one
  std::vector<Request> requests;
  uint64_t wanted = 0;  // bytes of all pieces
};

// Requests end at multiples of `block` where pieces are long, so that those of
// one file lie alike however it is read. At most `most_parts` pieces and gaps a request.
Plan plan_requests(std::vector<Piece> pieces, uint64_t block, uint64_t gap, size_t most_parts);

// The bytes of the request's pieces: without gaps.
uint64_t wanted_of(const Plan &plan, const Request &request);

// The requests as `shares` contiguous parts of about as many bytes each.
std::vector<std::span<const Request>> share_out(const std::vector<Request> &requests, size_t shares);

}  // namespace st::read
